//! The thread that has the server keep things: how far the webhook came, and its dead letters.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use client::{Client, ClientError, Update};
use model::{
    Advice, CommandId, Draft, HistoryPage, HistoryQuery, HistoryStart, Payload, PayloadKind,
    Position, Publication, TopicName,
};

use crate::deliveries::Page;
use crate::driver::{Input, unix_ms};
use crate::letter::{Letter, With};
use crate::places::Places;
use crate::posting::Posting;
use crate::reader::{Link, PAUSE, page_of};

/// Something to keep.
#[derive(Debug)]
pub(crate) enum Order {
    Acknowledge(Vec<(TopicName, Position)>),
    Record(Letter),
    /// Brings what follows a position.
    Fetch(TopicName, Position),
}

/// Keeps what it is told to, in order.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub link: Link,
    pub places: Places,
    pub letters: TopicName,
    /// Publications to fetch at a time.
    pub page_len_max: usize,
    pub orders: Receiver<Order>,
    pub inputs: Sender<Input>,
}

/// How often the connection is looked after while there is nothing to do.
const IDLE: Duration = Duration::from_secs(5);

impl Keeper {
    /// Works until nobody has orders any more.
    pub(crate) fn run(self) {
        let mut client = None;
        loop {
            let order = match self.orders.recv_timeout(IDLE) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => {
                    look_after(client.as_mut());
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let done = self.carry_out(order, &mut client);
            if self.inputs.send(done).is_err() {
                return;
            }
        }
    }

    fn carry_out(&self, order: Order, client: &mut Option<Client>) -> Input {
        match order {
            Order::Acknowledge(positions) => {
                self.acknowledge(positions, client);
                Input::Acknowledged
            }
            Order::Record(letter) => {
                self.record(&letter, client);
                Input::Recorded(letter)
            }
            Order::Fetch(topic, after) => Input::Fetched(self.fetch(topic, after, client)),
        }
    }

    /// Has the positions kept. If they are refused, the same publications come again after a restart: nothing
    /// is lost.
    fn acknowledge(&self, positions: Vec<(TopicName, Position)>, client: &mut Option<Client>) {
        for (name, share) in self.places.share(positions) {
            let ask = |client: &mut Client| {
                let id = client.acknowledge(name.clone(), share.clone());
                answer_to(id, client)
            };
            if let Err(error) = self.ask(ask, client) {
                let webhook = &self.link.webhook;
                tracing::warn!(%webhook, %error, "cannot remember what was delivered; it comes again later");
            }
        }
    }

    /// Has a letter kept, without its payload if it is too large. What is refused all the same is in the log.
    fn record(&self, letter: &Letter, client: &mut Option<Client>) {
        let mut refused = None;
        for with in [With::Payload, With::Size] {
            let json = letter.json(&self.link.webhook, with);
            let ask = |client: &mut Client| {
                let id = client.publish(Draft {
                    topic: self.letters.clone(),
                    payload: Payload::new(PayloadKind::Json, &json),
                    idempotency_key: Some(letter.id().into()),
                    expected: None,
                });
                answer_to(id, client)
            };
            match self.ask(ask, client) {
                Ok(()) => return,
                Err(error) => refused = Some((error, json)),
            }
        }
        let Some((error, json)) = refused else { return };
        let (webhook, letter) = (&self.link.webhook, String::from_utf8_lossy(&json));
        tracing::error!(%webhook, %error, %letter, "cannot record a dead letter");
    }

    /// Fetches what a topic's history has after `after`. If that is refused it has nothing, as far as one can tell.
    fn fetch(&self, topic: TopicName, after: Position, client: &mut Option<Client>) -> Page {
        let start = HistoryStart::After(after.sequence);
        let query = || HistoryQuery { topic: topic.clone(), start, limit: self.page_len_max };
        let fetch = |client: &mut Client| {
            let id = client.history(query());
            page_of(id, client)
        };
        match self.ask(fetch, client) {
            Ok(page) => page_from(topic, page),
            Err(error) => {
                tracing::error!(webhook = %self.link.webhook, %topic, %error, "cannot read a history");
                Page { topic, after, postings: Vec::new(), read_ms: unix_ms() }
            }
        }
    }

    /// Asks until the server answers.
    ///
    /// # Errors
    /// It refuses, and would do so again.
    fn ask<T>(
        &self,
        ask: impl Fn(&mut Client) -> Result<T, ClientError>,
        client: &mut Option<Client>,
    ) -> Result<T, ClientError> {
        loop {
            let connected = match client.take() {
                Some(client) => Ok(client),
                None => self.link.connect(),
            };
            let answer = connected.map(|mut connected| {
                let answer = ask(&mut connected);
                *client = Some(connected);
                answer
            });
            match answer {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) if error.code.advice() == Some(Advice::ChangeFirst) => {
                    return Err(error);
                }
                Ok(Err(error)) | Err(error) => {
                    tracing::debug!(webhook = %self.link.webhook, %error, "asking again");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// Waits for the answer to a command.
fn answer_to(id: CommandId, client: &mut Client) -> Result<(), ClientError> {
    const LONG: Duration = Duration::from_secs(3_600);
    loop {
        match client.next(Instant::now() + LONG) {
            Some(Update::Acknowledged { id: known }) if known == id => return Ok(()),
            Some(Update::Published { id: known, .. }) if known == id => return Ok(()),
            Some(Update::Refused { id: known, refusal }) if known == Some(id) => {
                return Err(refusal);
            }
            Some(Update::Stopped(error)) => return Err(error),
            _ => {}
        }
    }
}

fn page_from(topic: TopicName, page: HistoryPage) -> Page {
    let HistoryPage { position, after, publications } = page;
    let at = |sequence| Position { epoch: position.epoch.clone(), sequence };
    let posting = |publication: &Publication| Posting {
        topic: topic.clone(),
        position: at(publication.sequence()),
        kind: publication.kind(),
        payload: publication.payload().to_vec(),
        read_ms: publication.unix_ms(),
    };
    let postings = publications.iter().map(posting).collect();
    Page { after: at(after), postings, read_ms: unix_ms(), topic }
}

/// Answers the server's signs of life.
fn look_after(client: Option<&mut Client>) {
    const MOMENT: Duration = Duration::from_millis(1);
    if let Some(client) = client {
        while client.next(Instant::now() + MOMENT).is_some() {}
    }
}
