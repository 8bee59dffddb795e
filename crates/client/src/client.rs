//! The client: one connection at a time, subscriptions that survive it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use model::{
    Acknowledge, Code, Command, CommandId, DeltaKind, Draft, Event, Gap, Hello, Position, Publish,
    Rates, Refusal, Selector, Subscribe, SubscriberName, TopicName, Unsubscribe,
};
use protocol::native::ServerRecord;

use crate::backoff::Backoff;
use crate::connection::{ConnectError, Connection};
use crate::subscriptions::{SubscriptionState, Subscriptions};
use crate::tracker::{Message, Told, Tracker};

/// How a client connects.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// A token from the server's configuration.
    pub token: Option<String>,
    /// The client's own name, for the server's logs.
    pub name: Option<String>,
    /// How much the server should send at most.
    pub rates: Rates,
    /// Makes masks, keys and pauses; two clients should not have the same.
    pub seed: u64,
}

/// What a client tells its user.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A publication.
    Message(Message),
    /// Publications that cannot be had any more.
    Gap(Gap),
    /// After a break: whether everything since then follows.
    Resumed {
        /// Which topic.
        topic: TopicName,
        /// False if a gap comes first.
        recovered: bool,
    },
    /// How far this client is behind, in milliseconds; 0 once it is not any more.
    Lag(u64),
    /// The server ended these subscriptions, because this client was too far behind.
    TakenAway(Vec<Selector>),
    /// A publish was acknowledged.
    Published {
        /// Which one, as `publish` answered.
        id: CommandId,
        /// Its place.
        position: Position,
    },
    /// Positions of a named subscriber are on disk.
    Acknowledged {
        /// Which command, as `acknowledge` answered.
        id: CommandId,
    },
    /// A command was refused.
    Refused {
        /// Which one, if that is known.
        id: Option<CommandId>,
        /// Why.
        refusal: Refusal,
    },
    /// The connection broke, or could not be opened; the next attempt is after the pause.
    Disconnected {
        /// Why.
        why: String,
        /// How long until the next attempt.
        pause: Duration,
    },
}

/// What a client is at.
#[derive(Debug)]
enum State {
    Connected(Box<Connection>),
    Waiting { until: Instant },
}

/// A connection to a server that comes back when it breaks.
#[derive(Debug)]
pub struct Client {
    url: String,
    options: ClientOptions,
    state: State,
    backoff: Backoff,
    tracker: Tracker,
    subscriptions: Subscriptions,
    /// Publishes that were not acknowledged yet: sent again, with their key, after a break.
    unanswered: HashMap<CommandId, TopicName>,
    next_id: u64,
    updates: VecDeque<Update>,
    retry_after: Duration,
    /// When the server was last heard, and whether it was pinged since.
    heard_at: Instant,
    is_pinged: bool,
}

/// Silence after which the server is pinged, and as long again until it counts as gone.
const SILENCE: Duration = Duration::from_secs(30);

impl Client {
    /// Connects for the first time.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses. Later breaks are mended by the client itself.
    pub fn connect(url: &str, options: ClientOptions) -> Result<Self, ConnectError> {
        let mut client = Self {
            url: url.into(),
            backoff: Backoff::new(options.seed),
            options,
            state: State::Waiting { until: Instant::now() },
            tracker: Tracker::default(),
            subscriptions: Subscriptions::default(),
            heard_at: Instant::now(),
            is_pinged: false,
            unanswered: HashMap::new(),
            next_id: 1,
            updates: VecDeque::new(),
            retry_after: Duration::ZERO,
        };
        client.open()?;
        Ok(client)
    }

    fn open(&mut self) -> Result<(), ConnectError> {
        let seed = self.options.seed.wrapping_add(self.next_id);
        let connection = Connection::open(&self.url, self.options.token.as_deref(), seed)?;
        self.state = State::Connected(Box::new(connection));
        self.backoff.reset();
        self.retry_after = Duration::ZERO;
        (self.heard_at, self.is_pinged) = (Instant::now(), false);
        let hello = Hello {
            token: None,
            client: self.options.name.clone(),
            batch: true,
            fragments: true,
            rates: self.options.rates,
        };
        self.say(&Command::Hello(hello));
        let wanted = self.subscriptions.wanted(&self.tracker.positions());
        for (index, subscribe) in wanted.into_iter().enumerate() {
            let id = self.say(&Command::Subscribe(subscribe));
            self.subscriptions.handle_asked(index, id);
        }
        Ok(())
    }

    /// Subscribes, now and after every break. Publications come out of [`Client::next`].
    pub fn subscribe(&mut self, subscribe: Subscribe) {
        if subscribe.options.delta != DeltaKind::None {
            self.tracker.expect_deltas();
        }
        let id = self.say(&Command::Subscribe(subscribe.clone()));
        let is_connected = matches!(self.state, State::Connected(_));
        self.subscriptions.add(subscribe, is_connected.then_some(id));
    }

    /// Ends a subscription; `selector` as it was subscribed. Answers whether there was one.
    pub fn unsubscribe(&mut self, selector: &Selector) -> bool {
        let is_known = self.subscriptions.remove(selector);
        if is_known {
            let selectors = vec![selector.clone()];
            self.say(&Command::Unsubscribe(Unsubscribe { selectors }));
        }
        is_known
    }

    /// What the subscription with `selector` is at; `None` if there is none (any more).
    pub fn subscription(&self, selector: &Selector) -> Option<SubscriptionState> {
        self.subscriptions.state(selector)
    }

    /// Publishes; `Update::Published` or `Update::Refused` with the same id tells what became of
    /// it. If the connection breaks before, it is `Update::Refused` with `Code::NotKept`.
    pub fn publish(&mut self, draft: Draft) -> CommandId {
        let topic = draft.topic.clone();
        let id = self.say(&Command::Publish(Publish { draft }));
        if matches!(self.state, State::Connected(_)) {
            self.unanswered.insert(id, topic);
        } else {
            self.refuse_unsent(id);
        }
        id
    }

    /// Tells the server how far the subscriber called `name` came, so that a later
    /// [`Subscribe`] under that name starts there; `Update::Acknowledged` or `Update::Refused` with
    /// the same id follows. Nothing does if the connection breaks before: acknowledge again.
    pub fn acknowledge(
        &mut self,
        name: SubscriberName,
        positions: Vec<(TopicName, Position)>,
    ) -> CommandId {
        self.say(&Command::Acknowledge(Acknowledge { name, positions }))
    }

    /// Publishes without acknowledgement.
    pub fn publish_unacknowledged(&mut self, drafts: impl IntoIterator<Item = Draft>) {
        let State::Connected(connection) = &mut self.state else { return };
        let mut frames = Vec::new();
        for draft in drafts {
            connection.encode(None, &Command::Publish(Publish { draft }), &mut frames);
        }
        if let Err(error) = connection.send(&frames) {
            self.handle_break(&error);
        }
    }

    /// Publishes whose acknowledgement is awaited.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// The next update, waiting for it at most until `until`.
    pub fn next(&mut self, until: Instant) -> Option<Update> {
        loop {
            if let Some(update) = self.updates.pop_front() {
                return Some(update);
            }
            if Instant::now() >= until {
                return None;
            }
            match &mut self.state {
                State::Connected(_) => self.receive(until),
                State::Waiting { until: again } => {
                    let pause_end = (*again).min(until);
                    std::thread::sleep(pause_end.saturating_duration_since(Instant::now()));
                    if Instant::now() >= *again
                        && let Err(error) = self.open()
                    {
                        self.handle_break(&error);
                    }
                }
            }
        }
    }

    fn say(&mut self, command: &Command) -> CommandId {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        if let State::Connected(connection) = &mut self.state {
            let mut frames = Vec::new();
            connection.encode(Some(id), command, &mut frames);
            if let Err(error) = connection.send(&frames) {
                self.handle_break(&error);
            }
        }
        id
    }

    fn receive(&mut self, until: Instant) {
        let due = self.heard_at + if self.is_pinged { 2 * SILENCE } else { SILENCE };
        if Instant::now() >= due {
            return self.handle_silence();
        }
        let State::Connected(connection) = &mut self.state else { return };
        let (tracker, updates) = (&mut self.tracker, &mut self.updates);
        let subscriptions = &mut self.subscriptions;
        let (unanswered, retry_after) = (&mut self.unanswered, &mut self.retry_after);
        let mut broken = Vec::new();
        let received = connection.receive(until.min(due), &mut |record| match record {
            ServerRecord::Published { id, sequence, epoch } => {
                unanswered.remove(&id);
                let position = Position { epoch: model::Epoch::new(&epoch), sequence };
                updates.push_back(Update::Published { id, position });
            }
            ServerRecord::Event(Event::Published { id: Some(id), position, .. }) => {
                unanswered.remove(&id);
                updates.push_back(Update::Published { id, position });
            }
            ServerRecord::Event(Event::Refused { id, refusal }) => {
                id.map(|id| unanswered.remove(&id));
                subscriptions.handle_refused(id);
                updates.push_back(Update::Refused { id, refusal });
            }
            ServerRecord::Event(Event::Acknowledged { id: Some(id) }) => {
                updates.push_back(Update::Acknowledged { id });
            }
            ServerRecord::Event(Event::Closing { retry_after_ms, .. }) => {
                *retry_after = Duration::from_millis(retry_after_ms);
            }
            other => {
                if let ServerRecord::Event(Event::Subscribed(subscribed)) = &other {
                    subscriptions.handle_subscribed(subscribed.id);
                }
                if let ServerRecord::Event(Event::Unsubscribed { .. }) = &other {
                    tracker.forget_unread(|topic| subscriptions.read(topic));
                }
                for told in tracker.handle_record(other) {
                    match told {
                        Told::Broken { topic, .. } => broken.push(topic),
                        Told::TakenAway(selectors) => {
                            for gone in &selectors {
                                subscriptions.remove(gone);
                            }
                            updates.push_back(Update::TakenAway(selectors));
                        }
                        told => updates.extend(update_of(told)),
                    }
                }
            }
        });
        broken.iter().for_each(|topic| self.read_whole(topic));
        match received {
            Ok(true) => (self.heard_at, self.is_pinged) = (Instant::now(), false),
            Ok(false) => {}
            Err(error) => self.handle_break(&error),
        }
    }

    /// Subscribes again, without deltas, to what reads a topic of which a delta did not apply.
    fn read_whole(&mut self, topic: &TopicName) {
        let positions = self.tracker.positions();
        let Some((index, subscribe)) = self.subscriptions.without_deltas(topic, &positions) else {
            return;
        };
        let id = self.say(&Command::Subscribe(subscribe));
        self.subscriptions.handle_asked(index, id);
    }

    /// Pings a server that was not heard for a while; gives it up when that does not help.
    fn handle_silence(&mut self) {
        if self.is_pinged {
            self.handle_break(&ConnectError { text: "the server is silent".into() });
        } else {
            self.is_pinged = true;
            self.say(&Command::Ping);
        }
    }

    fn handle_break(&mut self, error: &ConnectError) {
        let pause = self.backoff.next_pause(self.retry_after);
        self.state = State::Waiting { until: Instant::now() + pause };
        self.tracker.handle_disconnect();
        self.subscriptions.handle_disconnect();
        let lost: Vec<CommandId> = self.unanswered.drain().map(|(id, _)| id).collect();
        lost.into_iter().for_each(|id| self.refuse_unsent(id));
        self.updates.push_back(Update::Disconnected { why: error.text.clone(), pause });
    }

    fn refuse_unsent(&mut self, id: CommandId) {
        let text = "cannot tell whether it was published: the connection broke before the answer; \
                    publish again, with the same idempotency key";
        let refusal = Refusal::new(Code::NotKept, text);
        self.updates.push_back(Update::Refused { id: Some(id), refusal });
    }
}

fn update_of(told: Told) -> Option<Update> {
    match told {
        Told::Message(message) => Some(Update::Message(message)),
        Told::Gap(gap) => Some(Update::Gap(gap)),
        Told::Resumed { topic, recovered } => Some(Update::Resumed { topic, recovered }),
        Told::Lag(ms) => Some(Update::Lag(ms)),
        Told::TakenAway(selectors) => Some(Update::TakenAway(selectors)),
        Told::Broken { .. } | Told::Nothing => None,
    }
}
