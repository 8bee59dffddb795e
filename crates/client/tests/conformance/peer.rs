//! One client of a scenario, and what it told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Client, HandlingId, Message, SubscriptionId, Update};
use model::{
    CommandId, Gap, HeaderValue, HistoryPage, PayloadKind, Position, Publication, Selector,
    TopicName,
};
use serde_json::{Value, json};

use crate::cable::Cable;

/// How long one look at a client may take.
const LOOK: Duration = Duration::from_millis(2);

/// A refusal's code and text.
pub(crate) type Failed = (u16, String);

/// What `answers` says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answers {
    Echo,
    Decline,
    Never,
}

pub(crate) struct Handler {
    pub selectors: Vec<Selector>,
    pub answers: Answers,
    pub asked: u64,
}

pub(crate) struct Peer {
    pub client: Client,
    pub cable: Cable,
    /// It cannot be reached, on purpose: it is not looked at meanwhile.
    pub is_away: bool,
    /// What was told, by subscription.
    pub notes: HashMap<SubscriptionId, Vec<Value>>,
    pub ended: HashMap<SubscriptionId, Failed>,
    /// How often each was complete.
    pub completed: HashMap<SubscriptionId, u64>,
    pub answers: HashMap<CommandId, Result<Value, Failed>>,
    pub handlers: HashMap<HandlingId, Handler>,
    pub ended_handlers: HashMap<HandlingId, Failed>,
}

impl Peer {
    pub(crate) fn new(client: Client, cable: Cable) -> Self {
        Self {
            client,
            cable,
            is_away: false,
            notes: HashMap::new(),
            ended: HashMap::new(),
            completed: HashMap::new(),
            answers: HashMap::new(),
            handlers: HashMap::new(),
            ended_handlers: HashMap::new(),
        }
    }

    /// Takes what the client has to tell now.
    pub(crate) fn look(&mut self) {
        let until = Instant::now() + LOOK;
        while let Some(update) = self.client.next(until) {
            self.take(update);
            // Of a client that cannot come back one look is enough: it would wait in vain.
            if !self.client.is_connected() {
                return;
            }
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Message { of, message } => self.note(of, told_message(&message)),
            Update::Gap { of, gap } => self.note(of, told_gap(&gap)),
            Update::Resumed { of, topic, recovered, missed } => {
                let topic = topic.as_str();
                let told = json!({"event": "resumed", "topic": topic, "recovered": recovered, "missed": missed});
                self.note(of, told);
            }
            Update::Complete { of } => *self.completed.entry(of).or_default() += 1,
            Update::Ended { of, refusal } => {
                self.ended.insert(of, (refusal.code.number(), refusal.text));
            }
            Update::Published { id, topic, position, level } => {
                let mut told = told_position(&topic, &position);
                told["level"] = level.name().into();
                self.answers.insert(id, Ok(told));
            }
            Update::History { id, topic, page } => {
                self.answers.insert(id, Ok(told_page(&topic, &page)));
            }
            Update::Response(response) => {
                let payload = payload_of(response.payload.kind(), response.payload.bytes());
                let value =
                    payload.as_object().and_then(|members| members.values().next()).cloned();
                let id = response.id.expect("every request has an id");
                self.answers.insert(id, Ok(value.unwrap_or(Value::Null)));
            }
            Update::Acknowledged { id } | Update::Pong { id } | Update::Responded { id, .. } => {
                self.answers.insert(id, Ok(Value::Null));
            }
            Update::Refused { id: Some(id), refusal } => {
                self.answers.insert(id, Err((refusal.code.number(), refusal.text)));
            }
            Update::HandlingEnded { of, refusal } => {
                self.ended_handlers.insert(of, (refusal.code.number(), refusal.text));
            }
            Update::Asked { ticket, asked } => self.answer(ticket, &asked),
            Update::Refused { id: None, .. }
            | Update::Lag(_)
            | Update::Disconnected { .. }
            | Update::Stopped(_) => {}
        }
    }

    fn note(&mut self, of: SubscriptionId, told: Value) {
        self.notes.entry(of).or_default().push(told);
    }

    fn answer(&mut self, ticket: client::Ticket, asked: &model::Asked) {
        let topic = asked.topic.as_str();
        let is_it = |handler: &&mut Handler| {
            handler.selectors.iter().any(|selector| selector.matches(topic))
        };
        let Some(handler) = self.handlers.values_mut().find(is_it) else { return };
        handler.asked += 1;
        let result = match handler.answers {
            Answers::Echo => Ok(Arc::clone(&asked.payload)),
            Answers::Decline => Err("declined".into()),
            Answers::Never => return,
        };
        self.client.respond(ticket, result);
    }
}

fn told_message(message: &Message) -> Value {
    let Message { topic, epoch, sequence, kind, payload, is_snapshot, .. } = message;
    let mut told = payload_of(*kind, payload);
    told["event"] = if *is_snapshot { "snapshot" } else { "update" }.into();
    told["topic"] = topic.as_str().into();
    told["epoch"] = epoch.as_str().into();
    told["sequence"] = sequence.get().into();
    told["previous"] = message.previous.get().into();
    let value = |value| match value {
        HeaderValue::Text(text) => text.into(),
        HeaderValue::Number(text) => serde_json::from_str(text).expect("a number"),
        HeaderValue::Boolean(is_true) => is_true.into(),
        HeaderValue::Bytes(bytes) => json!({ "base64": STANDARD.encode(bytes) }),
    };
    let headers = message.headers.iter().map(|(name, it)| (name.to_owned(), value(it)));
    told["headers"] = Value::Object(headers.collect());
    told
}

fn told_gap(gap: &Gap) -> Value {
    let position = Position { epoch: gap.epoch.clone(), sequence: gap.to };
    let mut told = told_position(&gap.topic, &position);
    told["event"] = "gap".into();
    told["to"] = gap.to.get().into();
    told["reason"] = gap.reason.name().into();
    if let Some(from) = gap.from {
        told["from"] = from.get().into();
    }
    told
}

fn told_position(topic: &TopicName, position: &Position) -> Value {
    let (topic, epoch) = (topic.as_str(), position.epoch.as_str());
    json!({"topic": topic, "epoch": epoch, "sequence": position.sequence.get()})
}

fn told_page(topic: &TopicName, page: &HistoryPage) -> Value {
    let kept = |publication: &Publication| {
        let mut told = payload_of(publication.kind(), publication.payload());
        told["sequence"] = publication.sequence().get().into();
        told["time_ms"] = publication.unix_ms().into();
        told
    };
    json!({
        "topic": topic.as_str(),
        "epoch": page.position.epoch.as_str(),
        "head": page.position.sequence.get(),
        "start": page.after.get(),
        "publications": page.publications.iter().map(kept).collect::<Vec<_>>(),
    })
}

/// A payload as scenarios write it: `data`, `text` or `base64`.
fn payload_of(kind: PayloadKind, bytes: &[u8]) -> Value {
    match kind {
        PayloadKind::Json => {
            let data: Value = serde_json::from_slice(bytes).expect("the server checked it");
            json!({ "data": data })
        }
        PayloadKind::Text => json!({ "text": String::from_utf8_lossy(bytes) }),
        PayloadKind::Bytes => json!({ "base64": STANDARD.encode(bytes) }),
    }
}
