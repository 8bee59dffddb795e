//! Messages of lines of text, in the place of a protocol.

use model::{DeltaKind, Epoch, Event, Publication, Selector, Stamps, SubscribedTopic, TopicName};
use tidegate_hub::{Encoder, EncodingIndex, Form, Payloads, Progress, Record};

pub const SINGLE: EncodingIndex = EncodingIndex(0);
pub const BATCHED: EncodingIndex = EncodingIndex(1);
pub const FRAGMENTED: EncodingIndex = EncodingIndex(2);

/// Messages of four bytes of length and lines of text; encoding 1 puts several lines in one.
pub struct LineEncoder;

impl Payloads for LineEncoder {
    type Filter = String;

    fn filter(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Accepts texts that end with the filter's text.
    fn accepts(&self, filter: &String, _topic: &TopicName, publication: &Publication) -> bool {
        publication.payload().ends_with(filter.as_bytes())
    }

    /// A publication is about its first two letters.
    fn entity(&self, _pointer: &str, publication: &Publication) -> Option<Box<str>> {
        let letters = publication.payload().get(..2)?;
        Some(String::from_utf8_lossy(letters).into_owned().into_boxed_str())
    }

    /// What is after the first two letters.
    fn delta(
        &self,
        _kind: DeltaKind,
        base: &Publication,
        next: &Publication,
    ) -> Option<(Box<[u8]>, u32)> {
        let is_similar = base.payload().get(..2)? == next.payload().get(..2)?;
        is_similar.then(|| (next.payload()[2..].into(), 0))
    }
}

impl Encoder for LineEncoder {
    /// Where it began, and in which encoding.
    type Message = (usize, EncodingIndex);

    fn batches(&self, encoding: EncodingIndex) -> bool {
        encoding.0 & 1 == 1
    }

    fn has_ids(&self, encoding: EncodingIndex) -> bool {
        encoding.0 & 4 == 4
    }

    fn fragments(&self, encoding: EncodingIndex) -> bool {
        encoding.0 & 2 == 2
    }

    fn begin(&self, encoding: EncodingIndex, out: &mut Vec<u8>) -> Self::Message {
        out.extend_from_slice(&[0; 4]);
        (out.len(), encoding)
    }

    fn append(
        &self,
        message: &mut Self::Message,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    ) {
        self.record(message.1, record, progress, out);
    }

    fn append_made(
        &self,
        _message: &mut Self::Message,
        made: &[u8],
        _compress: bool,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(made);
    }

    fn record(
        &self,
        encoding: EncodingIndex,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    ) {
        if self.has_ids(encoding)
            && let Some(line) = line_by_id(record)
        {
            return out.extend_from_slice(line.as_bytes());
        }
        let line = match record {
            Record::Publication { topic, publication, form, stamps, .. } => {
                let form = if form == Form::Short { "short" } else { "full" };
                let text = String::from_utf8_lossy(publication.payload()).into_owned();
                let sequence = publication.sequence();
                format!("publication {topic} {sequence} {form} {text}{}\n", stamp_of(stamps))
            }
            Record::Delta { topic, publication, delta, .. } => {
                let (base, text) = (delta.base, String::from_utf8_lossy(&delta.bytes));
                format!("delta {topic} {} {base} {text}\n", publication.sequence())
            }
            Record::Fragment { topic, publication, piece, stamps, .. } => {
                let payload = publication.payload();
                let text = String::from_utf8_lossy(&payload[piece.start..piece.end]).into_owned();
                let (sequence, total) = (publication.sequence(), payload.len());
                let stamp = if piece.start == 0 { stamp_of(stamps) } else { String::new() };
                format!("fragment {topic} {sequence} {} {total} {text}{stamp}\n", piece.start)
            }
            Record::Topic(topic) => start_line(topic),
            Record::Event(Event::Subscribed(subscribed)) => {
                let starts = subscribed.topics.iter().map(start_line);
                let id = subscribed.id.map_or(0, |id| id.0);
                format!("subscribed {id}\n{}", starts.collect::<String>())
            }
            Record::Event(Event::Gap(gap)) => {
                let epoch = epoch_line(&gap.topic, &gap.epoch);
                format!("{epoch}gap {} {} {}\n", gap.topic, gap.to, gap.reason.name())
            }
            Record::Event(Event::Unsubscribed { selectors, has_lagged: true, .. }) => {
                let names: Vec<&str> = selectors.iter().map(Selector::as_str).collect();
                format!("taken {}\n", names.join(","))
            }
            Record::Event(Event::Unsubscribed { .. }) => "unsubscribed\n".to_owned(),
            Record::Event(Event::Lag { ms }) => format!("lag {ms}\n"),
            Record::Event(other) => format!("other {other:?}\n"),
        };
        out.extend_from_slice(line.as_bytes());
        let id = match (record, progress) {
            (_, Progress::At(unix_ms)) => format!("id {unix_ms}\n"),
            (Record::Publication { publication, .. }, Progress::InOrder) => {
                format!("id {}\n", publication.unix_ms())
            }
            (
                Record::Publication { topic, publication, .. },
                Progress::Afresh { has_before_ms, unread_before_ms, is_start_unread },
            ) => {
                let sequence = publication.sequence();
                let start = if is_start_unread { " start" } else { "" };
                format!("id {has_before_ms} {topic} {sequence} {unread_before_ms}{start}\n")
            }
            _ => return,
        };
        out.extend_from_slice(id.as_bytes());
    }

    fn finish(&self, (message, _): Self::Message, out: &mut Vec<u8>) {
        let length = (out.len() - message) as u32;
        out[message - 4..message].copy_from_slice(&length.to_be_bytes());
    }
}

/// What sessions are told that name their subscriptions: everything is of a number.
fn line_by_id(record: Record<'_>) -> Option<String> {
    Some(match record {
        Record::Publication { topic, number, publication, .. } => {
            let text = String::from_utf8_lossy(publication.payload()).into_owned();
            format!("@publication {number} {topic} {} {text}\n", publication.sequence())
        }
        Record::Fragment { topic, number, publication, piece, .. } => {
            let (sequence, payload) = (publication.sequence(), publication.payload());
            let text = String::from_utf8_lossy(&payload[piece.start..piece.end]).into_owned();
            let (start, total) = (piece.start, payload.len());
            format!("@fragment {number} {topic} {sequence} {start} {total} {text}\n")
        }
        Record::Topic(topic) => topic_line(topic),
        Record::Event(Event::Subscribed(subscribed)) => {
            let id = subscribed.subscription.map_or(0, |id| id.0.get());
            let topics: String = subscribed.topics.iter().map(topic_line).collect();
            format!("@subscribed {id}\n{topics}")
        }
        Record::Event(Event::Gap(gap)) => {
            format!("@gap {} {} {} {}\n", gap.number, gap.topic, gap.to, gap.reason.name())
        }
        Record::Event(Event::Unsubscribed { subscription, .. }) => {
            format!("@unsubscribed {}\n", subscription.map_or(0, |id| id.0.get()))
        }
        Record::Event(Event::Complete { subscription }) => {
            format!("@complete {}\n", subscription.0)
        }
        Record::Delta { .. } | Record::Event(_) => return None,
    })
}

fn topic_line(topic: &SubscribedTopic) -> String {
    let ids: Vec<String> = topic.subscriptions.iter().map(|id| id.0.to_string()).collect();
    format!("@topic {} {} {} {}\n", topic.number, topic.topic, topic.start, ids.join(","))
}

/// The epoch that topics are of at first. That of a later one is told in a line of its own, before what is of it.
pub const FIRST_EPOCH: &str = "e";
pub const SECOND_EPOCH: &str = "f";

pub(super) fn epoch_line(topic: &TopicName, epoch: &Epoch) -> String {
    match epoch.as_str() {
        FIRST_EPOCH => String::new(),
        later => format!("epoch {topic} {later}\n"),
    }
}

pub(super) fn start_line(topic: &SubscribedTopic) -> String {
    let epoch = epoch_line(&topic.topic, &topic.epoch);
    format!("{epoch}start {} {}\n", topic.topic, topic.start)
}

/// What a reader is told beside a text; nothing unless it asked.
fn stamp_of(stamps: Stamps) -> String {
    let word =
        |is_asked: bool, word: &str| if is_asked { format!(" {word}") } else { String::new() };
    word(stamps.time, "+time") + &word(stamps.principal, "+principal")
}
