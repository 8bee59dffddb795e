//! One core's share: its connections, its hub, its topics' backbone. One turn of its loop.

use std::sync::Arc;
use std::time::Duration;

use access::{Access, Secret};
use admin::{Exchange, ShardCounters, Times};
use backbone::{DiskBackbone, LatestTime, MemoryBackbone, StoredTopic};
use engine::{Io, MailReceiver, MailSender, Reading};
use hub::{ConnectionId, Hub, HubOptions, ShardConnection, ShardIndex};
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
use crate::turn::{Next, Turn, steps_of_bytes};

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
        self.run_backbones();
        self.run_requests();
        self.hub.renew_some();
        self.sweep_if_due();
        self.give_up_parked();
        self.heed_positions();
        self.send_mail();
        let has_more = self.flush();
        while let Some(link) = self.hub.poll_granted() {
            self.edge.inputs.wake(link);
        }
        self.relieve_memory();
        self.fetch_pages();
        while let Some((link, refusal)) = self.hub.poll_closing() {
            self.close(link, &refusal);
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
            has_work: has_more
                || self.edge.inputs.turns() > 0
                || self.edge.closing.is_touched()
                || self.has_parked_due(),
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

    fn sweep_if_due(&mut self) {
        if let Some(now) = self.turn.poll_second(self.now) {
            self.sweep(now);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.turn.stop();
        let text = "the server is stopping; come back, or go to another node";
        let refusal = Refusal::new(Code::GoingAway, text);
        // Whoever polls not just now would be waited for in vain.
        self.drop_unpolled();
        self.drop_locals();
        let (end, polled_end) = self.edge.connections.ends();
        for place in (0..end).chain(self.edge.connections.first_unattached()..polled_end) {
            if let Some(link) = self.edge.connections.current(place) {
                self.close(link, &refusal);
            }
        }
    }
}
