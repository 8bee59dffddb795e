//! The thread that reads a webhook's topics, as a subscriber of the server like any other.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use client::{Client, ClientError, ClientOptions, Message, SubscriptionId, Update};
use model::{
    CommandId, Gap, HistoryPage, HistoryQuery, HistoryStart, Limits, Position, Selector, Start,
    Subscribe, SubscribeOptions, TopicName,
};

use crate::driver::{Input, unix_ms};
use crate::gate::{Gate, Passage};
use crate::letter::Missed;
use crate::places::Places;
use crate::posting::Posting;

/// How one of the webhook's threads reaches the server.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub webhook: Arc<str>,
    pub server: Arc<str>,
    pub token: Arc<str>,
}

/// How long to wait before what should have worked is tried again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        let options = ClientOptions {
            token: Some(self.token.to_string().into()),
            name: Some(format!("webhook {}", self.webhook)),
            ..ClientOptions::default()
        };
        Client::connect(&self.server, options)
    }
}

/// What a webhook reads.
#[derive(Debug)]
pub(crate) struct Reader {
    pub link: Link,
    pub topics: Vec<Selector>,
    pub places: Places,
    pub limits: Limits,
    pub gate: Arc<Gate>,
    pub inputs: Sender<Input>,
}

/// Why reading stopped.
enum End {
    /// Nobody wants more.
    Shut,
    /// It can be tried again.
    Broken(ClientError),
}

impl Reader {
    /// Reads until the gate is shut.
    pub(crate) fn run(self) {
        while !self.gate.is_shut() {
            let result = self.link.connect().map(|client| self.read(client));
            let (Err(error) | Ok(End::Broken(error))) = result else { return };
            tracing::warn!(webhook = %self.link.webhook, %error, "cannot read; trying again");
            std::thread::sleep(PAUSE);
        }
    }

    fn read(&self, mut client: Client) -> End {
        match self.positions(&mut client) {
            Ok(positions) => self.subscribe(&mut client, positions),
            Err(error) => return End::Broken(error),
        };
        loop {
            match self.gate.wait(PAUSE) {
                Passage::Shut => return End::Shut,
                Passage::Full => continue,
                Passage::Open => {}
            }
            match client.next(Instant::now() + PAUSE) {
                Some(Update::Message { message, .. }) => self.hand_on(posting_of(message)),
                Some(Update::Gap { gap, .. }) => {
                    self.gate.enter(1, 0);
                    self.tell(Input::Missed(missed_of(gap)));
                }
                Some(Update::Ended { refusal, .. }) => return End::Broken(refusal),
                Some(Update::Stopped(error)) => return End::Broken(error),
                _ => {}
            }
        }
    }

    /// How far the webhook came before.
    fn positions(&self, client: &mut Client) -> Result<Vec<(TopicName, Position)>, ClientError> {
        let mut positions = Vec::new();
        for topic in self.places.topics(&self.limits) {
            let query = HistoryQuery { topic, start: HistoryStart::Last(1), limit: 1 };
            let id = client.history(query);
            let page = page_of(id, client)?;
            let values = page.publications.iter();
            positions.extend(values.flat_map(|it| Places::read(it.payload(), &self.limits)));
        }
        Ok(positions)
    }

    /// Reads on from there; all that there is of a topic of which nothing is known. What was read before is known
    /// by its position.
    fn subscribe(
        &self,
        client: &mut Client,
        positions: Vec<(TopicName, Position)>,
    ) -> SubscriptionId {
        let is_read = |topic: &TopicName| self.topics.iter().any(|it| it.matches(topic.as_str()));
        client.subscribe(Subscribe {
            subscription: None,
            selectors: self.topics.clone(),
            start: Start::All,
            positions: positions.into_iter().filter(|(topic, _)| is_read(topic)).collect(),
            name: None,
            options: SubscribeOptions::default(),
        })
    }

    fn hand_on(&self, posting: Posting) {
        self.gate.enter(1, posting.payload.len());
        self.tell(Input::Publication(posting));
    }

    fn tell(&self, input: Input) {
        // Whoever listens is gone only when all of it ends.
        let _ = self.inputs.send(input);
    }
}

/// Waits for a page.
pub(crate) fn page_of(id: CommandId, client: &mut Client) -> Result<HistoryPage, ClientError> {
    const LONG: Duration = Duration::from_secs(3_600);
    loop {
        match client.next(Instant::now() + LONG) {
            Some(Update::History { id: known, page, .. }) if known == id => return Ok(page),
            Some(Update::Refused { id: known, refusal }) if known == Some(id) => {
                return Err(refusal);
            }
            Some(Update::Stopped(error)) => return Err(error),
            _ => {}
        }
    }
}

fn posting_of(message: Message) -> Posting {
    let Message { topic, epoch, sequence, kind, payload, .. } = message;
    Posting { topic, position: Position { epoch, sequence }, kind, payload, read_ms: unix_ms() }
}

fn missed_of(gap: Gap) -> Missed {
    let Gap { topic, epoch, from, to, reason, .. } = gap;
    let position = Position { epoch, sequence: to };
    Missed { topic, position, from, reason, read_ms: unix_ms() }
}
