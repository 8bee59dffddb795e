//! The request that opens a session over plain HTTP. docs/protocol.md#sessions-over-plain-http.

use std::ops::Range;
use std::sync::Arc;

use model::{
    Code, Command, Limits, Refusal, Resume, Sequence, Start, Subscribe, TopicName, Unread,
};
use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::binary::{Decoded, IsBinary};
use super::events::EventId;
use super::{EventPlace, json};
use crate::http::RequestHead;

/// The contents of such a request.
#[derive(Debug, Default)]
pub struct Opening {
    /// The token of the request.
    pub token: Option<String>,
    /// The first subscription, from the target's query.
    pub subscribe: Option<Subscribe>,
    /// The place from which a reader of Server-Sent Events goes on.
    pub last_event_id: Option<EventId>,
    /// Bytes to send first, for proxies that hold back so many.
    pub padding_bytes: usize,
    /// The key of the session that it is about, if it is about one.
    pub session: Option<String>,
    /// The last batch that a poller took.
    pub batch: u64,
}

/// Reads the target and fields of a request.
///
/// # Errors
/// A parameter that is not understood, or a subscription that breaks a rule.
pub fn decode_opening(head: &RequestHead, limits: &Limits) -> Result<Opening, Refusal> {
    let token = head.bearer_token()?.map(str::to_owned);
    let mut opening = Opening { token, ..Opening::default() };
    let (mut wanted, mut topics) = (Map::new(), Vec::new());
    let mut last_event_id = head.field("last-event-id").map(str::to_owned);
    for (name, value) in head.query() {
        let not_a =
            |what: &str| Refusal::bad_request(format!("`{name}` is `{value}`; give a {what}"));
        // Half the numbers there are: whoever adds one to it stays within them.
        let count = || match value.parse::<u64>() {
            Ok(count) if count <= i64::MAX as u64 => Ok(count),
            _ => Err(not_a("whole number that is not negative, and below 2^63")),
        };
        match name.as_str() {
            "topic" => topics.push(Value::String(value)),
            "token" => opening.token = opening.token.or(Some(value)),
            "session" => opening.session = Some(value),
            "batch" => opening.batch = count()?,
            "padding" => {
                let bytes = usize::try_from(count()?).unwrap_or(usize::MAX);
                opening.padding_bytes = bytes.min(limits.padding_bytes_max);
            }
            "last_event_id" => last_event_id = last_event_id.or(Some(value)),
            "from" => drop(wanted.insert(name, start_of(&value))),
            "interval_ms" | "priority" => {
                let number = value.parse::<i64>().map_err(|_| not_a("whole number"))?;
                wanted.insert(name, number.into());
            }
            "conflation" | "delta" | "filter" | "name" => drop(wanted.insert(name, value.into())),
            _ => {
                return Err(Refusal::bad_request(format!(
                    "`{name}` is not a parameter; use topic, from, conflation, interval_ms, priority, delta, \
                     filter, name, token, last_event_id, padding, session and batch"
                )));
            }
        }
    }
    // A browser sends an empty one when it never had any.
    let last_event_id = last_event_id.filter(|text| !text.is_empty());
    opening.last_event_id = last_event_id.as_deref().map(EventId::parse);
    if !topics.is_empty() {
        wanted.insert("topics".into(), topics.into());
        opening.subscribe = Some(subscribe_of(wanted, limits)?);
    } else if let Some((name, _)) = wanted.iter().next() {
        return Err(Refusal::bad_request(format!("it has `{name}` and no `topic`; add one")));
    }
    Ok(opening)
}

/// `last:10`, `since:1700000000000` and `epoch:7` mean what they do in JSON, other words are themselves.
fn start_of(text: &str) -> Value {
    match text.rsplit_once(':') {
        Some((name, number)) => match (name, number.parse::<u64>()) {
            ("last" | "since", Ok(number)) => serde_json::json!({ name: number }),
            (epoch, Ok(number)) => serde_json::json!({ "epoch": epoch, "sequence": number }),
            _ => text.into(),
        },
        None => text.into(),
    }
}

fn subscribe_of(mut wanted: Map<String, Value>, limits: &Limits) -> Result<Subscribe, Refusal> {
    wanted.insert("type".into(), "subscribe".into());
    match json::decode_command(&Value::Object(wanted).to_string(), limits) {
        Ok((_, Command::Subscribe(mut subscribe))) => {
            subscribe.options.is_resumable = true;
            Ok(subscribe)
        }
        Ok(_) => Err(Refusal::bad_request("it does not subscribe; name a `topic`")),
        Err(undecoded) => Err(undecoded.refusal),
    }
}

impl Opening {
    /// Lets the subscription go on from the last event that its reader had, if it had one. Answers the topic of
    /// which the reader knows its place, and the place: its epoch only the server can tell.
    pub fn resume(&mut self, limits: &Limits) -> Option<(TopicName, Sequence)> {
        let (Some(EventId { epochs, place }), Some(subscribe)) =
            (&self.last_event_id, &mut self.subscribe)
        else {
            return None;
        };
        let only = match &subscribe.selectors[..] {
            [only] => only.to_topic(),
            _ => None,
        };
        let mut resume = Resume { epochs: epochs.clone(), has_before_ms: 0, unread: None };
        let mut known = None;
        match (place, only) {
            (EventPlace::Sequence(sequence), Some(topic)) => known = Some((topic, *sequence)),
            // Of which topic it was is not known any more.
            (EventPlace::Sequence(_) | EventPlace::Unknown, _) => resume.epochs = Arc::new([]),
            (EventPlace::UnixMs(unix_ms), _) => resume.has_before_ms = *unix_ms,
            (EventPlace::Afresh { topic, sequence, has_before_ms, unread_before_ms, .. }, _) => {
                match TopicName::parse(topic, limits) {
                    Ok(topic) => {
                        let is_start_unread =
                            matches!(place, EventPlace::Afresh { is_start_unread: true, .. });
                        resume.has_before_ms = *has_before_ms;
                        resume.unread = Some(Unread {
                            after: topic.clone(),
                            has_before_ms: *unread_before_ms,
                            start: is_start_unread.then(|| subscribe.start.clone()),
                        });
                        known = Some((topic, *sequence));
                    }
                    Err(_) => resume.epochs = Arc::new([]),
                }
            }
        }
        subscribe.start = Start::Resume(Box::new(resume));
        known
    }
}

/// The commands of a request's body: one, an array of them, or one after another. Each is decoded when it is its turn.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    body: String,
    /// Where in the body each command is.
    places: Vec<Range<usize>>,
    next: usize,
}

impl Batch {
    /// Finds the commands in a body.
    ///
    /// # Errors
    /// The body is not JSON, or has too many commands. A single bad command is refused when it is its turn.
    pub fn read(body: Vec<u8>, limits: &Limits) -> Result<Self, Refusal> {
        let body = String::from_utf8(body)
            .map_err(|_| Refusal::bad_request("its body is not UTF-8; send JSON commands"))?;
        let mut places = Places { body: &body, found: Vec::new(), count_max: limits.batch_len_max };
        let refuse = |places: &Places<'_>, error| match places.found.len() > limits.batch_len_max {
            true => {
                let text = format!(
                    "cannot take so many commands: batch_len_max is {}; send fewer at a time",
                    limits.batch_len_max
                );
                Refusal::new(Code::BatchTooLarge, text)
            }
            false => Refusal::bad_request(format!(
                "its body does not parse ({error}); send JSON commands"
            )),
        };
        for value in serde_json::Deserializer::from_str(&body).into_iter::<&RawValue>() {
            let taken = value.and_then(|value| match value.get().starts_with('[') {
                true => {
                    serde_json::Deserializer::from_str(value.get()).deserialize_seq(&mut places)
                }
                false => places.take(value),
            });
            taken.map_err(|error| refuse(&places, error))?;
        }
        let found = places.found;
        Ok(Self { body, places: found, next: 0 })
    }

    /// How many commands were not taken yet.
    pub fn len(&self) -> usize {
        self.places.len() - self.next
    }

    /// Whether every command was taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes it holds until its last command is taken.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Where in the body the next command begins: what is before it was taken.
    pub fn taken_bytes(&self) -> usize {
        self.places.get(self.next).map_or(self.body.len(), |place| place.start)
    }

    /// Decodes the next command without taking it.
    pub fn peek(&self, limits: &Limits) -> Option<Decoded> {
        let place = self.places.get(self.next)?.clone();
        let decoded = json::decode_command(&self.body[place], limits);
        Some(decoded.map(|(id, command)| (id, command, IsBinary::No)))
    }

    /// Takes the next command.
    pub fn take(&mut self, limits: &Limits) -> Option<Decoded> {
        let decoded = self.peek(limits)?;
        self.next += 1;
        Some(decoded)
    }
}

/// Where in a body commands were found; one more than may be, and it ends.
struct Places<'a> {
    body: &'a str,
    found: Vec<Range<usize>>,
    count_max: usize,
}

impl Places<'_> {
    fn take<E: serde::de::Error>(&mut self, command: &RawValue) -> Result<(), E> {
        let start = command.get().as_ptr().addr() - self.body.as_ptr().addr();
        self.found.push(start..start + command.get().len());
        match self.found.len() > self.count_max {
            true => Err(E::custom("there are too many commands")),
            false => Ok(()),
        }
    }
}

impl<'de> Visitor<'de> for &mut Places<'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array of commands")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut commands: A) -> Result<(), A::Error> {
        while let Some(command) = commands.next_element::<&RawValue>()? {
            self.take(command)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::CommandId;

    use super::*;
    use crate::http::parse_head;

    fn opening(target: &str, field: &str) -> Result<Opening, Refusal> {
        let text = format!("GET {target} HTTP/1.1\r\n{field}\r\n");
        let head = parse_head(text.as_bytes(), &Limits::default()).expect("valid").expect("whole");
        decode_opening(&head.0, &Limits::default())
    }

    #[test]
    fn a_target_subscribes() {
        let opened =
            opening("/v1/sse?topic=a/b&topic=c/%2B&from=last:3&interval_ms=50&token=t", "");
        let opened = opened.expect("a valid opening");
        let subscribe = opened.subscribe.expect("it subscribes");
        assert_eq!(subscribe.start, Start::Last(3));
        let selectors: Vec<_> = subscribe.selectors.iter().map(|it| it.as_str()).collect();
        assert_eq!(selectors, ["a/b", "c/+"]);
        assert_eq!(subscribe.options.interval.as_millis(), 50);
        assert_eq!(opened.token.as_deref(), Some("t"));
    }

    #[test]
    fn a_batch_may_have_any_number_and_padding_is_cut() {
        let opened = opening(&format!("/v1/poll?batch={0}&padding={0}", i64::MAX), "");
        let opened = opened.expect("a valid opening");
        assert_eq!(opened.batch, i64::MAX as u64);
        assert_eq!(opened.padding_bytes, Limits::default().padding_bytes_max);
    }

    #[test]
    fn a_reader_of_many_goes_on_from_a_time() {
        let resume = resumed("/v1/sse?topic=a/%23", "t.e1.e2@10000").0;
        assert_eq!((resume.has_before_ms, resume.epochs.len()), (10_000, 2));
        let (resume, known) = resumed("/v1/sse?topic=a/%23&from=all", "r.e1@20@10s@a/b@7");
        let unread = resume.unread.expect("it was reading afresh");
        assert_eq!((resume.has_before_ms, unread.has_before_ms), (20, 10));
        assert_eq!((unread.after.as_str(), unread.start), ("a/b", Some(Start::All)));
        assert_eq!(known, Some(("a/b".to_owned(), 7)));
    }

    #[test]
    fn an_id_that_says_nothing_of_what_is_read_has_no_epoch() {
        for id in ["7", "e1:7", "z.later@7", "e1~e2@1700000000000", "r.e1@2@1@a//b@7"] {
            let (resume, known) = resumed("/v1/sse?topic=a&topic=b", id);
            assert_eq!((resume.epochs.len(), known), (0, None), "{id}");
        }
        let known = resumed("/v1/sse?topic=a", "e1~e2:7").1;
        assert_eq!(known, Some(("a".to_owned(), 7)), "of before, of one topic");
    }

    fn resumed(target: &str, id: &str) -> (Resume, Option<(String, u64)>) {
        let mut opened = opening(target, &format!("Last-Event-ID: {id}\r\n")).expect("valid");
        let known = opened.resume(&Limits::default());
        let Start::Resume(resume) = opened.subscribe.expect("it subscribes").start else {
            panic!("it starts afresh: {id}");
        };
        (*resume, known.map(|(topic, sequence)| (topic.as_str().to_owned(), sequence.get())))
    }

    #[test]
    fn what_is_not_understood_is_refused_with_a_reason() {
        let cases = [
            ("/v1/sse?topics=a", "", "not a parameter"),
            ("/v1/sse?topic=a//b", "", "a//b"),
            ("/v1/sse?topic=a&from=yesterday", "", "yesterday"),
            ("/v1/sse?topic=a&interval_ms=x", "", "whole number"),
            ("/v1/sse?interval_ms=5", "", "no `topic`"),
            ("/v1/sse?topic=a&padding=x", "", "`padding` is `x`; give a whole number"),
            ("/v1/sse?topic=a&padding=-1", "", "`padding` is `-1`; give a whole number"),
            ("/v1/poll?session=s&batch=-7", "", "`batch` is `-7`; give a whole number"),
            ("/v1/poll?session=s&batch=18446744073709551615", "", "below 2^63"),
        ];
        for (target, field, part) in cases {
            let refusal = opening(target, field).expect_err(target);
            assert!(refusal.text.contains(part), "{target}: {refusal}");
        }
    }

    #[test]
    fn a_body_has_commands_in_any_shape() {
        let limits = Limits { batch_len_max: 3, ..Limits::default() };
        let ping = r#"{"id":1,"type":"ping"}"#;
        let count = |body: &str| Batch::read(body.into(), &limits).map(|it| it.len());
        assert_eq!(count(""), Ok(0));
        assert_eq!(count(ping), Ok(1));
        assert_eq!(count(&format!("[{ping},{ping}]")), Ok(2));
        assert_eq!(count(&format!("{ping}\n{ping}\n")), Ok(2));
        assert_eq!(count(&[ping; 4].join("\n")).map_err(|it| it.code), Err(Code::BatchTooLarge));
        let many = format!("[{}]", [ping; 4].join(","));
        assert_eq!(count(&many).map_err(|it| it.code), Err(Code::BatchTooLarge));
        assert_eq!(count("{").map_err(|it| it.code), Err(Code::BadRequest));
        assert_eq!(count("[1,").map_err(|it| it.code), Err(Code::BadRequest));
        let bodies = [
            r#"{"id":7,"type":"dance"} {"id":8,"type":"ping"}"#,
            r#" [ {"id":7} , {"id":8,"type":"ping"} ] "#,
        ];
        for body in bodies {
            let mut batch = Batch::read(body.into(), &limits).expect("JSON");
            let first = batch.take(&limits).expect("the first");
            assert_eq!(first.map_err(|undecoded| undecoded.id), Err(Some(CommandId(7))));
            let second = (Some(CommandId(8)), Command::Ping, IsBinary::No);
            assert_eq!(batch.take(&limits), Some(Ok(second)));
            assert!(batch.is_empty() && batch.take(&limits).is_none());
        }
    }
}
