//! The client: one connection at a time; subscriptions, handlings and commands that survive it.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use model::{
    Acknowledge, Asked, Attach, Command, CommandId, DeltaKind, Draft, Event, Features, Handle,
    HistoryQuery, Payload, Position, Publish, RandomState, Refusal, Request, Respond, Subscribe,
    SubscriberName, TopicName, Unanswered,
};
use protocol::native::{ServerRecord, binary, check_payload};

use crate::backoff::Backoff;
use crate::calls::{AfterBreak, Calls, Deadline};
use crate::connection::{Connection, Failure};
use crate::errors::{ClientError, ErrorCode};
use crate::handlings::{HandlingId, HandlingTarget, Handlings, Refused, Ticket};
use crate::nodes::{After, Nodes};
use crate::options::ClientOptions;
use crate::progress::Progress;
use crate::subscription_id::SubscriptionId;
use crate::subscriptions::{SubscriptionState, Subscriptions};
use crate::tracker::Notification;
use crate::update::Update;

/// The state of a client.
#[derive(Debug)]
enum State {
    Connected(Box<Connection>),
    Waiting {
        until: Instant,
    },
    /// The server said that trying again as it is would be useless.
    Stopped,
}

/// A connection to a server that comes back when it breaks.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    seed: u64,
    nodes: Nodes,
    state: State,
    backoff: Backoff,
    subscriptions: Subscriptions,
    /// Those that ended, the oldest first, and of all how far their updates were handed out.
    ended: VecDeque<SubscriptionId>,
    progress: HashMap<SubscriptionId, Progress, RandomState>,
    handlings: Handlings,
    calls: Calls,
    next_id: u64,
    updates: VecDeque<Update>,
    /// The server's reason before it closed, and the pause that it asked for.
    closing: Option<Failure>,
    /// When the server counts as silent, and whether it was pinged since it was heard.
    due_at: Instant,
    is_pinged: bool,
}

/// Silence after which the server is pinged.
const SILENCE: Duration = Duration::from_secs(25);
/// How long it then has to be heard.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Of so many subscriptions that ended it is known where they were.
const ENDED_MAX: usize = 1_000;
/// How many tokens in a row may be refused before the first connection is given up.
const TOKENS_MAX: usize = 8;

impl Client {
    /// Connects for the first time, to the first node that serves.
    ///
    /// # Errors
    /// None can be reached, or the server refuses, which is logged too. Later breaks are mended by the client itself.
    pub fn connect(url: &str, options: ClientOptions) -> Result<Self, ClientError> {
        let mut urls = vec![url.to_owned()];
        urls.extend(options.other_urls.iter().cloned());
        let seed = options.seed.unwrap_or_else(seed_of_the_system);
        let mut client = Self {
            nodes: Nodes::new(urls, options.token.clone()),
            backoff: Backoff::new(seed),
            seed,
            options,
            state: State::Waiting { until: Instant::now() },
            subscriptions: Subscriptions::new(seed),
            ended: VecDeque::new(),
            progress: HashMap::default(),
            handlings: Handlings::new(seed),
            calls: Calls::default(),
            next_id: 1,
            updates: VecDeque::new(),
            closing: None,
            due_at: Instant::now(),
            is_pinged: false,
        };
        client.connect_first().inspect_err(|error| {
            tracing::warn!("no connection to {url}: {error}; it is not tried again by itself");
        })?;
        Ok(client)
    }

    fn connect_first(&mut self) -> Result<(), ClientError> {
        let (mut nodes_tried, mut tokens_tried) = (0, 0);
        loop {
            let Err(Failure { error, .. }) = self.open() else { return Ok(()) };
            match self.nodes.handle_failure(&error) {
                After::NextNode => nodes_tried += 1,
                After::SameNode => tokens_tried += 1,
                After::GiveUp => return Err(error),
            }
            if nodes_tried == self.nodes.count() || tokens_tried == TOKENS_MAX {
                return Err(error);
            }
        }
    }

    fn open(&mut self) -> Result<(), Failure> {
        let token = self.nodes.token()?;
        let client = self.options.name.clone();
        let rates = self.options.rates;
        let features = Some(Features::ALL);
        let hello = model::Hello { token, client, batch: true, fragments: true, rates, features };
        let seed = self.seed.wrapping_add(self.take_id().0);
        let connection =
            Connection::open(self.nodes.url(), self.options.ca.as_deref(), hello, seed)?;
        let message_bytes_max = connection.message_bytes_max;
        let has_ids = connection.features.has(Features::IDS);
        self.state = State::Connected(Box::new(connection));
        self.backoff.reset();
        self.handle_heard();
        self.nodes.handle_connected();
        self.subscriptions.handle_connected(message_bytes_max, has_ids);
        self.handlings.handle_connected();
        self.calls.handle_connected();
        self.drive();
        Ok(())
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Tries now: ends a pause between attempts, or asks a server that seems to be there for a sign of life.
    pub fn nudge(&mut self) {
        match &mut self.state {
            State::Waiting { until } => *until = Instant::now(),
            State::Connected(_) if !self.is_pinged => self.ask_for_life(),
            State::Connected(_) | State::Stopped => {}
        }
    }

    /// Subscribes, now and after every break. Publications come out of [`Client::next`].
    ///
    /// Each has its own options and place, also where they overlap. `subscription` of what is wanted is chosen here.
    pub fn subscribe(&mut self, subscribe: Subscribe) -> SubscriptionId {
        let progress = Progress::new(&subscribe.positions);
        let id = self.subscriptions.add(subscribe);
        self.progress.insert(id, progress);
        self.drive();
        id
    }

    /// Ends a subscription, also while there is no connection. Answers whether there was such a one.
    pub fn unsubscribe(&mut self, id: SubscriptionId) -> bool {
        let was_there = self.subscriptions.remove(id);
        self.updates.retain(|update| update.subscription() != Some(id));
        self.forget_oldest(id);
        self.drive();
        was_there
    }

    /// The state of a subscription; `None` if it does not exist (any more).
    pub fn subscription(&self, id: SubscriptionId) -> Option<SubscriptionState> {
        self.subscriptions.state(id)
    }

    /// Where a subscription is in each of its topics: what a later one takes as its `positions`. They are of what
    /// [`Client::next`] handed out. They stay when it has ended, of the last thousand that did.
    pub fn positions(&self, id: SubscriptionId) -> Vec<(TopicName, Position)> {
        self.progress.get(&id).map(Progress::positions).unwrap_or_default()
    }

    /// Publishes; `Update::Published` or `Update::Refused` with the same id tells what became of it. While
    /// there is no connection it waits for one. If the connection breaks before the answer, it is sent again
    /// if it has an idempotency key, and else refused with 4900.
    ///
    /// When it has taken [`ClientOptions::publish_timeout`] it is refused: with 4906 if it was never sent, with 4900 if
    /// it was, and may have been kept.
    pub fn publish(&mut self, draft: Draft) -> CommandId {
        let after_break = after_break_of(draft.idempotency_key.is_some());
        if let Err(refusal) = check_payload(draft.payload.kind(), draft.payload.bytes()) {
            return self.refuse(refusal);
        }
        let within = self.options.publish_timeout;
        let deadline = Instant::now().checked_add(within).map(|at| Deadline { at, within });
        self.call_within(&Command::Publish(Publish { draft }), after_break, deadline)
    }

    /// Publishes without acknowledgement. Without a connection it is lost.
    pub fn publish_unacknowledged(&mut self, drafts: impl IntoIterator<Item = Draft>) {
        let State::Connected(connection) = &mut self.state else { return };
        let mut frames = Vec::new();
        for draft in drafts {
            connection.encode(None, &Command::Publish(Publish { draft }), &mut frames);
        }
        if let Err(error) = connection.send(&frames) {
            self.handle_break(error);
        }
    }

    /// Tells the server how far the subscriber called `name` came, so that a later [`Subscribe`] under that name
    /// starts there; `Update::Acknowledged` or `Update::Refused` with the same id follows.
    pub fn acknowledge(
        &mut self,
        name: SubscriberName,
        positions: Vec<(TopicName, Position)>,
    ) -> CommandId {
        let acknowledge = Acknowledge { name, positions };
        self.call(&Command::Acknowledge(acknowledge), AfterBreak::AskAgain)
    }

    /// Asks for a page of what is kept of a topic; `Update::History` or `Update::Refused` with the same id
    /// follows.
    pub fn history(&mut self, query: HistoryQuery) -> CommandId {
        self.call(&Command::History(query), AfterBreak::AskAgain)
    }

    /// Asks for a sign of life; `Update::Pong` with the same id follows.
    pub fn ping(&mut self) -> CommandId {
        self.call(&Command::Ping, AfterBreak::AskAgain)
    }

    /// Asks whoever handles a topic; `Update::Response` or `Update::Refused` with the same id follows. Of a
    /// request to all, any number of responses, and then `Update::Responded`.
    ///
    /// Over a break it is as with [`Client::publish`].
    pub fn request(&mut self, request: Request) -> CommandId {
        let after_break = after_break_of(request.key.is_some());
        if let Err(refusal) = check_payload(request.payload.kind(), request.payload.bytes()) {
            return self.refuse(refusal);
        }
        self.call(&Command::Request(request), after_break)
    }

    /// Answers requests, now and after every break: each comes as `Update::Asked`, for [`Client::respond`].
    pub fn handle(&mut self, handle: Handle) -> HandlingId {
        let id = self.handlings.add(HandlingTarget::Topics(handle));
        self.drive();
        id
    }

    /// Is asked as a device, now and after every break, as with [`Client::handle`]. When another connection attaches under
    /// its name, `Update::HandlingEnded` says so.
    pub fn attach(&mut self, attach: Attach) -> HandlingId {
        let id = self.handlings.add(HandlingTarget::Device(attach));
        self.drive();
        id
    }

    /// Ends a handling; what was asked already may still be answered. Answers whether there was such a one.
    pub fn unhandle(&mut self, id: HandlingId) -> bool {
        let was_there = self.handlings.remove(id);
        self.drive();
        was_there
    }

    /// Whether the server knows a handling, so that requests can come.
    pub fn is_handling(&self, id: HandlingId) -> bool {
        self.handlings.is_live(id)
    }

    /// Answers a request, with a payload, or with a text that says why not. Answers whether it was sent: what was
    /// asked over a connection that is gone cannot be answered any more.
    pub fn respond(
        &mut self,
        ticket: Ticket,
        result: Result<std::sync::Arc<Payload>, Box<str>>,
    ) -> bool {
        let State::Connected(connection) = &mut self.state else { return false };
        if !self.handlings.respond(ticket) {
            return false;
        }
        let respond = |result: Result<_, Box<str>>| {
            let result = result.map_err(Unanswered::Declined);
            Command::Respond(Respond { request: ticket.request, result })
        };
        let mut record = Vec::new();
        binary::append_command(None, &respond(result), &mut record);
        if connection.is_too_large(record.len()) {
            record.clear();
            let text = "cannot answer: the answer is larger than a message may be";
            binary::append_command(None, &respond(Err(text.into())), &mut record);
        }
        let mut frame = Vec::new();
        connection.frame(&record, &mut frame);
        let sent = connection.send(&frame);
        let is_sent = sent.is_ok();
        if let Err(error) = sent {
            self.handle_break(error);
        }
        is_sent
    }

    /// Bytes that one payload may have, as the server said; the usual number while there is no connection.
    pub fn payload_bytes_max(&self) -> usize {
        match &self.state {
            State::Connected(connection) => connection.payload_bytes_max,
            State::Waiting { .. } | State::Stopped => model::Limits::default().payload_bytes_max,
        }
    }

    /// Commands whose answer is awaited.
    pub fn unanswered(&self) -> usize {
        self.calls.len()
    }

    /// The next update, waiting for it at most until `until`.
    pub fn next(&mut self, until: Instant) -> Option<Update> {
        loop {
            let now = Instant::now();
            self.subscriptions.handle_wake(now);
            self.handlings.handle_wake(now);
            let late = self.calls.handle_wake(now);
            self.fail(late);
            self.drive();
            if let Some(update) = self.updates.pop_front() {
                self.note_handed(&update);
                return Some(update);
            }
            if now >= until {
                return None;
            }
            match &self.state {
                State::Connected(_) => self.receive(until),
                State::Waiting { until: again } => {
                    let again = *again;
                    let wake_at = self.calls.wake_at().unwrap_or(until).min(until);
                    std::thread::sleep(again.min(wake_at).saturating_duration_since(now));
                    if Instant::now() >= again
                        && let Err(failure) = self.open()
                    {
                        self.handle_failure(failure);
                    }
                }
                State::Stopped => std::thread::sleep(until.saturating_duration_since(now)),
            }
        }
    }

    fn take_id(&mut self) -> CommandId {
        self.next_id += 1;
        CommandId(self.next_id - 1)
    }

    /// Has a command sent, now or when there is a connection.
    fn call(&mut self, command: &Command, after_break: AfterBreak) -> CommandId {
        self.call_within(command, after_break, None)
    }

    fn call_within(
        &mut self,
        command: &Command,
        after_break: AfterBreak,
        deadline: Option<Deadline>,
    ) -> CommandId {
        let id = self.take_id();
        let mut record = Vec::new();
        binary::append_control_command(Some(id), command, &mut record);
        match self.calls.add(id, record, Features::needed_by(command), after_break) {
            Ok(()) => {
                deadline.into_iter().for_each(|deadline| self.calls.set_deadline(id, deadline));
                self.drive();
            }
            Err(refusal) => self.updates.push_back(Update::Refused { id: Some(id), refusal }),
        }
        id
    }

    fn refuse(&mut self, refusal: Refusal) -> CommandId {
        let id = self.take_id();
        self.updates.push_back(Update::Refused { id: Some(id), refusal: refusal.into() });
        id
    }

    /// Sends what there is to say.
    fn drive(&mut self) {
        let State::Connected(connection) = &mut self.state else { return };
        let (mut frames, mut refused) = (Vec::new(), Vec::new());
        loop {
            let id = CommandId(self.next_id);
            let command = self.subscriptions.poll_command(id);
            let Some(mut command) = command.or_else(|| self.handlings.poll_command(id)) else {
                break;
            };
            self.next_id += 1;
            if let Command::Subscribe(wanted) = &mut command
                && !connection.features.has(Features::DELTAS)
            {
                wanted.options.delta = DeltaKind::None;
            }
            // Nobody waits to hear that a request was passed on.
            let id = (!matches!(command, Command::Respond(_))).then_some(id);
            let mut record = Vec::new();
            binary::append_command(id, &command, &mut record);
            match connection.check(record.len(), Features::needed_by(&command)) {
                Ok(()) => connection.frame(&record, &mut frames),
                Err(refusal) => refused.push((id, refusal)),
            }
        }
        let now = Instant::now();
        while let Some((id, record, needs)) = self.calls.poll_unsent(now) {
            match connection.check(record.len(), needs) {
                Ok(()) => connection.frame(record, &mut frames),
                Err(refusal) => refused.push((Some(id), refusal)),
            }
        }
        let sent = if frames.is_empty() { Ok(()) } else { connection.send(&frames) };
        for (id, refusal) in refused {
            self.handle_refused(id, refusal);
        }
        self.tell();
        if let Err(error) = sent {
            self.handle_break(error);
        }
    }

    fn receive(&mut self, until: Instant) {
        if Instant::now() >= self.due_at {
            return self.handle_silence();
        }
        let wakes = [self.subscriptions.wake_at(), self.handlings.wake_at(), self.calls.wake_at()];
        let until = wakes.into_iter().flatten().fold(until.min(self.due_at), Instant::min);
        // It is not this client's while it is read from: the records are.
        let state = std::mem::replace(&mut self.state, State::Stopped);
        let State::Connected(mut connection) = state else { return self.state = state };
        let received = connection.receive(until, &mut |record| self.handle_record(record));
        self.state = State::Connected(connection);
        self.tell();
        match received {
            Ok(true) => self.handle_heard(),
            Ok(false) => {}
            Err(error) => self.handle_break(error),
        }
    }

    fn handle_record(&mut self, record: ServerRecord<'_>) {
        let ServerRecord::Event(event) = record else {
            return self.subscriptions.handle_record(record);
        };
        match event {
            Event::Published { id: Some(id), topic, position, level } => {
                self.answer(id, Update::Published { id, topic, position, level });
            }
            Event::Acknowledged { id: Some(id) } => self.answer(id, Update::Acknowledged { id }),
            Event::History { id: Some(id), topic, page } => {
                self.answer(id, Update::History { id, topic, page });
            }
            Event::Pong { id: Some(id) } if self.calls.handle_answer(id, false) => {
                self.updates.push_back(Update::Pong { id });
            }
            Event::Responded { id: Some(id), count, missing } => {
                self.answer(id, Update::Responded { id, count, missing });
            }
            Event::Response(response) => {
                let is_awaited = |id| self.calls.handle_answer(id, response.has_more);
                if response.id.is_some_and(is_awaited) {
                    self.updates.push_back(Update::Response(response));
                }
            }
            Event::Refused { id, refusal } => self.handle_refused(id, refusal),
            Event::Handling { id, .. } | Event::Attached { id, .. } => {
                self.handlings.handle_handling(id);
            }
            Event::Detached { device, refusal: Some(refusal), .. } => {
                if let Some(of) = self.handlings.handle_detached(&device) {
                    let refusal = refusal.into();
                    self.updates.push_back(Update::HandlingEnded { of, refusal });
                }
            }
            Event::Request(asked) => self.handle_request(asked),
            Event::Lag { ms } => self.updates.push_back(Update::Lag(ms)),
            Event::Closing { refusal, retry_after_ms } => {
                let stay_away = Duration::from_millis(retry_after_ms);
                self.closing = Some(Failure { error: refusal.into(), stay_away });
            }
            event => self.subscriptions.handle_record(ServerRecord::Event(event)),
        }
        self.tell();
    }

    /// Hands out what the subscriptions have to tell, in its place among the answers.
    fn tell(&mut self) {
        while let Some((of, told)) = self.subscriptions.poll_notice() {
            let progress = self.progress.get_mut(&of);
            if let (Some(progress), Notification::Placed { topic, at }) = (progress, &told) {
                progress.handle_passed(topic.clone(), at.clone());
            }
            let Some(update) = Update::of_subscription(of, told) else { continue };
            if let Some((of, topic, at)) = update.place()
                && let Some(progress) = self.progress.get_mut(&of)
            {
                progress.handle_told(topic.clone(), at);
            }
            self.updates.push_back(update);
        }
    }

    /// Notes that a subscription has ended, and forgets where the first of those was that did.
    fn forget_oldest(&mut self, ended: SubscriptionId) {
        if !self.ended.contains(&ended) && self.progress.contains_key(&ended) {
            self.ended.push_back(ended);
        }
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.progress.remove(&oldest);
        }
    }

    fn note_handed(&mut self, update: &Update) {
        if let Update::Ended { of, .. } = update {
            self.forget_oldest(*of);
        }
        if let Some((of, topic, at)) = update.place()
            && let Some(progress) = self.progress.get_mut(&of)
        {
            progress.handle_handed(topic, at);
        }
    }

    fn answer(&mut self, id: CommandId, update: Update) {
        if self.calls.handle_answer(id, false) {
            self.updates.push_back(update);
        }
    }

    fn handle_request(&mut self, asked: Asked) {
        if let Some(ticket) = self.handlings.handle_request(asked.request, &asked.topic) {
            self.updates.push_back(Update::Asked { ticket, asked });
        }
    }

    fn handle_refused(&mut self, id: Option<CommandId>, refusal: Refusal) {
        if let Some(id) = id {
            let now = Instant::now();
            if self.subscriptions.handle_refused(id, &refusal, now) {
                return;
            }
            if let Some(refused) = self.handlings.handle_refused(id, &refusal, now) {
                if let Refused::Ended(of) = refused {
                    let refusal = refusal.into();
                    self.updates.push_back(Update::HandlingEnded { of, refusal });
                }
                return;
            }
            self.calls.handle_answer(id, false);
        }
        self.updates.push_back(Update::Refused { id, refusal: refusal.into() });
    }

    fn handle_heard(&mut self) {
        (self.due_at, self.is_pinged) = (Instant::now() + SILENCE, false);
    }

    fn ask_for_life(&mut self) {
        (self.due_at, self.is_pinged) = (Instant::now() + SIGN_OF_LIFE, true);
        let id = self.take_id();
        let State::Connected(connection) = &mut self.state else { return };
        let mut frame = Vec::new();
        connection.encode(Some(id), &Command::Ping, &mut frame);
        if let Err(error) = connection.send(&frame) {
            self.handle_break(error);
        }
    }

    /// Pings a server that was not heard for a while; gives it up when that does not help.
    fn handle_silence(&mut self) {
        if !self.is_pinged {
            return self.ask_for_life();
        }
        let text = "the connection broke: the server is silent; it can be opened again";
        self.handle_break(ClientError::new(ErrorCode::Unreachable, text));
    }

    /// Notes that the connection broke, or that an attempt failed.
    fn handle_break(&mut self, error: ClientError) {
        self.handle_failure(error.into());
    }

    fn handle_failure(&mut self, failure: Failure) {
        let Failure { error, stay_away } = self.closing.take().unwrap_or(failure);
        if self.is_connected() {
            self.tell();
            self.subscriptions.handle_disconnect();
            self.handlings.handle_disconnect();
            let lost = self.calls.handle_disconnect(Instant::now());
            self.fail(lost);
        }
        if self.nodes.handle_failure(&error) == After::GiveUp {
            self.state = State::Stopped;
            let failed = self.calls.handle_stop(&error);
            self.fail(failed);
            return self.updates.push_back(Update::Stopped(error));
        }
        let pause = self.backoff.next_pause(stay_away);
        self.state = State::Waiting { until: Instant::now() + pause };
        self.updates.push_back(Update::Disconnected { why: error.text, pause });
    }

    fn fail(&mut self, failed: Vec<(CommandId, ClientError)>) {
        let refused = |(id, refusal)| Update::Refused { id: Some(id), refusal };
        self.updates.extend(failed.into_iter().map(refused));
    }
}

/// A number that differs from client to client, and cannot be guessed.
fn seed_of_the_system() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}

fn after_break_of(has_key: bool) -> AfterBreak {
    match has_key {
        true => AfterBreak::AskAgainWhileRemembered,
        false => AfterBreak::Fail,
    }
}

#[cfg(test)]
mod tests;
