//! One core's share: its connections, its hub, its topics' backbone. One turn of its loop.

use std::sync::Arc;
use std::time::Duration;

use access::{Access, Secret};
use admin::{Exchange, ShardCounters, Times};
use backbone::{BackboneEvent, DiskBackbone, LatestTime, MemoryBackbone, StoredTopic, Ticket};
use engine::{Io, MailReceiver, MailSender, Reading};
use hub::{ConnectionId, Hub, HubOptions, PolicyIndex, ShardConnection, ShardIndex};
use model::{BackboneIndex, Code, Epoch, Limits, Moment, Position, Refusal, TopicPolicy};
use tokio::sync::mpsc;

use crate::backbones::Backbones;
use crate::config::Config;
use crate::desks::{DeviceDesk, HistoryDesk, HttpDesk, PublishDesk, RequestDesk, SubscriberDesk};
use crate::edge::Edge;
use crate::encoder::NativeEncoder;
use crate::mail::ShardMail;
use crate::memory::{Memory, Relief};
use crate::peers::Peers;
use crate::store::DiskParts;
use crate::turn::{Next, STEPS_OF_MAIL, Turn, steps_of_bytes};

/// A shard, over real sockets or simulated ones.
pub struct Shard<I> {
    pub(crate) index: ShardIndex,
    pub(crate) config: Arc<Config>,
    pub(crate) access: Arc<Access>,
    pub(crate) secret: Secret,
    pub(crate) peers: Peers,
    pub(crate) edge: Edge<I>,
    pub(crate) hub: Hub<NativeEncoder>,
    pub(crate) backbones: Backbones,
    pub(crate) publishing: PublishDesk,
    pub(crate) reading: HistoryDesk,
    pub(crate) subscribers: SubscriberDesk,
    pub(crate) asking: RequestDesk,
    pub(crate) devices: DeviceDesk,
    pub(crate) http: HttpDesk,
    pub(crate) memory: Memory,
    pub(crate) relief: Relief,
    pub(crate) turn: Turn,
    pub(crate) now: Moment,
    pub(crate) counters: ShardCounters,
    pub(crate) delivery_times: Times,
}

/// What a shard is made of.
pub struct ShardParts<I> {
    /// Its sockets.
    pub io: I,
    /// Which shard it is.
    pub index: ShardIndex,
    /// How many there are.
    pub shard_count: u16,
    /// Sessions that it may hold; its `io` should accept some more connections than that, so that
    /// a full shard can still say so, and answer for its health.
    pub sessions_max: usize,
    /// The server's configuration.
    pub config: Arc<Config>,
    /// The access rules.
    pub access: Arc<Access>,
    /// Its mailbox.
    pub mailbox: MailReceiver<ShardMail>,
    /// Everybody's mailboxes, by shard.
    pub peers: Vec<MailSender<ShardMail>>,
    /// Where ordinary HTTP requests go.
    pub api: Option<mpsc::Sender<Exchange>>,
    /// The epoch of positions given by this process; never used before.
    pub epoch: Epoch,
    /// What proves the keys of sessions over plain HTTP.
    pub secret: Secret,
    /// Its share of the durable store, if there is one.
    pub disk: Option<DiskParts>,
    /// What may be used of memory.
    pub memory: Memory,
    /// What all shards label publications with.
    pub times: LatestTime,
    /// The time now.
    pub now: Moment,
}

/// A clock reading in the words of the floors below.
pub fn moment(reading: Reading) -> Moment {
    Moment { elapsed: reading.elapsed, unix_ms: reading.unix_ms }
}

/// Adds the disk's backbone to the table, and its topics to the hub, as they were found.
fn open_disk(
    parts: DiskParts,
    backbones: &mut Backbones,
    limits: &Limits,
    hub: &mut Hub<NativeEncoder>,
    now: Moment,
    times: LatestTime,
) {
    let DiskParts { store, epoch, topics } = parts;
    let disk = DiskBackbone::new(store, epoch.clone(), &topics, limits, now).with_times(times);
    backbones.add(BackboneIndex::DISK, Box::new(disk), epoch.clone());
    for StoredTopic { topic, head, newest, .. } in topics {
        let position = Position { epoch: epoch.clone(), sequence: head };
        hub.handle_stored(&topic, &position, newest, now);
    }
}

impl<I: Io> Shard<I> {
    /// A shard that has no connections yet.
    pub fn new(parts: ShardParts<I>) -> Self {
        let ShardParts {
            io,
            index,
            shard_count,
            sessions_max,
            config,
            access,
            mailbox,
            peers,
            api,
            epoch,
            secret,
            disk,
            memory,
            times,
            now,
        } = parts;
        let options = HubOptions {
            shard: index,
            shard_count,
            audiences: config.engine.audiences,
            limits: config.limits.clone(),
            policies: config.policies.clone(),
            default_policy: TopicPolicy::default(),
        };
        let in_memory = MemoryBackbone::new(epoch.clone(), &config.limits);
        let in_memory = match config.sequence_holes {
            true => in_memory.with_holes(),
            false => in_memory,
        };
        let in_memory = in_memory.with_times(times.clone());
        let mut backbones = Backbones::new(in_memory, epoch.clone());
        let of_store = disk.as_ref().map(|disk| disk.epoch.clone());
        let epochs: Vec<Epoch> = [epoch.clone()].into_iter().chain(of_store).collect();
        let mut hub = Hub::new(options, NativeEncoder::new(&config, &epochs));
        if let Some(parts) = disk {
            open_disk(parts, &mut backbones, &config.limits, &mut hub, now, times);
        }
        Self {
            index,
            hub,
            backbones,
            edge: Edge::new(io, sessions_max),
            publishing: PublishDesk::new(index, &config.limits),
            reading: HistoryDesk::new(&config.limits),
            subscribers: SubscriberDesk::new(&config.limits),
            asking: RequestDesk::new(index, shard_count, &config.limits),
            devices: DeviceDesk::new(&config.applications, &config.limits),
            http: HttpDesk::new(api),
            secret,
            peers: Peers::new(mailbox, peers),
            memory,
            relief: Relief::default(),
            turn: Turn::new(now),
            now,
            counters: ShardCounters::default(),
            delivery_times: Times::default(),
            config,
            access,
        }
    }

    /// The shard's sockets.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.edge.io
    }

    /// Steps so far in what peers choose the number or the size of.
    pub(crate) fn work(&self) -> u64 {
        self.hub.work() + self.asking.under_way.work() + self.turn.steps()
    }

    /// Counts steps of the shard itself.
    pub(crate) fn note_work(&mut self, steps: u64) {
        self.turn.note(steps);
    }

    /// Counts bytes that are decoded, copied or told.
    pub(crate) fn note_bytes(&mut self, bytes: usize) {
        self.note_work(steps_of_bytes(bytes));
    }

    /// Whether this stage of the turn did enough of what peers asked for: the rest of it waits for the next turn.
    pub(crate) fn has_worked_enough(&self) -> bool {
        self.steps_left() == 0
    }

    /// Steps that are left of the present stage of the turn.
    pub(crate) fn steps_left(&self) -> u64 {
        self.turn.steps_left(self.work())
    }

    /// Waits for something to do, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) {
        if timeout.is_zero() || self.peers.prepare_to_sleep() {
            self.edge.io.wait(Some(timeout));
            self.peers.wake_up();
        } else {
            self.edge.io.wait(Some(Duration::ZERO));
        }
    }

    /// One turn: receives, takes mail, orders publications, then sends. Answers how long to wait
    /// before the next one, or `None` when the shard has stopped.
    pub fn turn(&mut self, now: Moment) -> Option<Duration> {
        self.now = now;
        self.hub.handle_time(now);
        self.counters.turns += 1;
        self.turn.begin_turn(self.work());
        // What waited goes before what is new, which may have to wait in its turn.
        for _ in 0..self.edge.inputs.turns() {
            if self.has_worked_enough() {
                break;
            }
            if let Some((link, waiting)) = self.edge.inputs.next() {
                self.go_on(link, waiting);
            }
        }
        while let Some(event) = self.edge.io.poll_event() {
            self.handle_event(event);
        }
        self.note_refused();
        self.turn.begin_stage(self.work());
        self.take_mail();
        self.hear_locals();
        self.turn.take_leavings();
        self.run_backbone();
        self.run_requests();
        self.hub.renew_some();
        self.sweep_if_due();
        self.heed_positions();
        self.send_mail();
        let has_more = self.flush();
        while let Some(link) = self.hub.poll_granted() {
            self.edge.inputs.wake(link);
        }
        self.relieve_memory();
        self.fetch_pages();
        while let Some((link, refusal)) = self.hub.poll_closing() {
            self.close_native(link, &refusal, refusal.code.number());
        }
        self.finish_closing();
        self.turn.end_turn(self.work());
        if self.turn.is_stopping() && self.edge.closing.is_empty() {
            return None;
        }
        debug_assert!(
            !self.edge.inputs.parked().any(|link| self.may_go_on(link)),
            "what may go on has a turn"
        );
        Some(self.turn.pause(now, self.next(has_more)))
    }

    /// What is to be done next; `has_more` is to be sent.
    fn next(&self, has_more: bool) -> Next {
        let due = [self.hub.due_at(), self.asking.under_way.due_at(), self.edge.closing.due_at()];
        Next {
            has_work: has_more || self.edge.inputs.turns() > 0 || self.edge.closing.is_touched(),
            must_retry: self.peers.has_waiting()
                || self.hub.is_shedding()
                || self.hub.is_renewing()
                || self.hub.has_lapped_followers(),
            due_at: due.into_iter().flatten().min(),
        }
    }

    /// Notes how long the batches that this turn finished took since the oldest publication of each was kept. A few are
    /// looked at, so that it costs a message nothing; `clock` is read only if there are any.
    pub fn note_deliveries(&mut self, clock: impl FnOnce() -> Moment) {
        let finished = self.hub.take_finished();
        if finished.len() == 0 {
            return;
        }
        let unix_ms = clock().unix_ms;
        for kept_at in finished {
            self.delivery_times.note(Duration::from_millis(unix_ms.saturating_sub(kept_at)));
        }
    }

    /// How other shards name a connection of this one.
    pub(crate) fn name_of(&self, id: ConnectionId) -> ShardConnection {
        ShardConnection { shard: self.index, id }
    }

    fn run_backbone(&mut self) {
        loop {
            while let Some(topic) = self.hub.poll_ask() {
                self.backbones.of(self.hub.policy_for(&topic)).follow(&topic);
            }
            let Some(event) = self.backbones.poll_event() else { return };
            self.handle_backbone(event);
        }
    }

    fn handle_backbone(&mut self, event: BackboneEvent) {
        match event {
            BackboneEvent::Kept { ticket, topic, position, publication } => {
                self.counters.publications += 1;
                let policy = self.hub.handle_kept(&topic, &position, publication, self.now);
                if let Some(ticket) = ticket {
                    self.tell_appended(ticket, topic, position, policy);
                }
            }
            BackboneEvent::Repeated { ticket, topic, position } => {
                let policy = self.hub.policy_index(&topic);
                self.tell_appended(ticket, topic, position, policy);
            }
            BackboneEvent::NotKept { ticket, refusal } => self.route_appended(ticket, Err(refusal)),
            BackboneEvent::Unknown { ticket, refusal } => self.route_appended(ticket, Err(refusal)),
            BackboneEvent::State { topic, head, .. } => self.hub.handle_head(&topic, &head),
            BackboneEvent::Read { ticket, publications, .. } => {
                self.handle_read(ticket, publications);
            }
            BackboneEvent::NewLife { ended, epoch, .. } => self.handle_epoch(&ended, epoch),
            // Only of logs that others write, too.
            BackboneEvent::Through { .. }
            | BackboneEvent::Cut { .. }
            | BackboneEvent::Joined { .. } => {}
        }
    }

    /// Hands a draft to the backbone of this shard that its policy names.
    pub(crate) fn append(&mut self, ticket: Ticket, draft: model::Draft, policy: PolicyIndex) {
        if !self.hub.has_room_for_topic(&draft.topic) {
            let text = format!(
                "cannot publish to `{}`: the shard holds topics_per_shard_max topics already; \
                 use fewer topics, or raise the limit in the configuration",
                draft.topic
            );
            self.route_appended(ticket, Err(Refusal::new(Code::TooManyTopics, text)));
            return;
        }
        self.backbones.append(self.hub.policy(policy), ticket, draft, self.now);
    }

    fn take_mail(&mut self) {
        for _ in 0..self.config.limits.mailbox_len_max {
            if self.has_worked_enough() {
                return;
            }
            let Some(mail) = self.peers.receive() else { return };
            self.note_work(STEPS_OF_MAIL);
            match mail {
                ShardMail::Hub { from, mail } => self.hub.handle_mail(from, mail, self.now),
                ShardMail::Append { ticket, draft } => {
                    let policy = self.hub.policy_index(&draft.topic);
                    self.append(ticket, draft, policy);
                }
                ShardMail::Appended { ticket, result } => self.handle_appended(ticket, result),
                ShardMail::Backbone { backbone, mail } => {
                    self.backbones.handle_mail(backbone, mail)
                }
                ShardMail::FetchPage { from, page, topic, after, count } => {
                    self.fetch_page(from, page, &topic, after, count);
                }
                ShardMail::Page { page, publications } => self.handle_page(page, publications),
                ShardMail::ReadPositions { from, slot, topic } => {
                    let positions = self.positions_of_name(&topic);
                    self.mail_to(from, ShardMail::Positions { slot, positions });
                }
                ShardMail::Positions { slot, positions } => self.handle_positions(slot, positions),
                ShardMail::CheckPositions(unchecked) => self.check_positions(*unchecked),
                ShardMail::Remember { ticket, topic, positions } => {
                    self.remember(ticket, topic, positions);
                }
                ShardMail::ReadHistory(wanted) => {
                    let (query, asker) = *wanted;
                    self.read_history(query, asker);
                }
                ShardMail::History(answer) => {
                    let (asker, page) = *answer;
                    self.answer_history(asker, page);
                }
                ShardMail::Question(question) => self.handle_question(*question),
                ShardMail::Response(response) => self.handle_response(response),
                ShardMail::Requests { from, mail } => {
                    self.asking.under_way.handle_mail(from, mail, self.now.elapsed);
                }
                ShardMail::Device(mail) => self.handle_device_mail(mail),
                ShardMail::Gather(gather) => self.gather(*gather),
                ShardMail::SessionRequest(request) => self.handle_own_session_request(*request),
                ShardMail::Port(mail) => self.handle_port(mail),
                ShardMail::Settings(settings) => self.take_over(&settings),
                ShardMail::UnknownHost(name) => self.note_unknown_host(name),
                ShardMail::ForeignOrigin(origin) => self.note_foreign_origin(origin),
                ShardMail::Stop => self.stop(),
            }
        }
    }

    fn sweep_if_due(&mut self) {
        if let Some(now) = self.turn.poll_second(self.now) {
            self.sweep(now);
            self.give_up_parked();
        }
    }

    fn stop(&mut self) {
        self.turn.stop();
        let text = "the server is stopping; come back, or go to another node";
        let refusal = Refusal::new(Code::GoingAway, text);
        // Whoever polls not just now would be waited for in vain.
        self.drop_unpolled();
        self.drop_locals();
        let (end, polled_end) = self.edge.connections.ends();
        for place in (0..end).chain(self.edge.connections.first_unattached()..polled_end) {
            let Some(link) = self.edge.connections.current(place) else { continue };
            match self.open_connection(link).map(|connection| connection.conversation.native()) {
                Some(Some(_)) => self.close_native(link, &refusal, refusal.code.number()),
                Some(None) => {
                    self.close_device(link, &refusal);
                    self.close_soon(link);
                }
                None => {}
            }
        }
    }
}
