//! What a request that opens a session over plain HTTP asks for. docs/protocol.md, section 7a.

use model::{Code, Command, Limits, Refusal, Since, Start, Subscribe};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::binary::{Decoded, IsBinary};
use super::events::EventId;
use super::{EventPlace, json};
use crate::http::RequestHead;

/// What a request asks for.
#[derive(Debug, Default)]
pub struct Opening {
    /// Who asks.
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

fn bad_request(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the request: {why}"))
}

/// Reads the target and fields of a request.
///
/// # Errors
/// A parameter that is not understood, or a subscription that breaks a rule.
pub fn decode_opening(head: &RequestHead, limits: &Limits) -> Result<Opening, Refusal> {
    let bearer = head.field("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let mut opening = Opening { token: bearer.map(str::to_owned), ..Opening::default() };
    let (mut wanted, mut topics) = (Map::new(), Vec::new());
    let mut last_event_id = head.field("last-event-id").map(str::to_owned);
    for (name, value) in head.query() {
        let not_a = |what: &str| bad_request(format!("`{name}` is `{value}`; give a {what}"));
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
                return Err(bad_request(format!(
                    "`{name}` is no parameter; use topic, from, conflation, interval_ms, priority, delta, \
                     filter, name, token, last_event_id, padding, session and batch"
                )));
            }
        }
    }
    // A browser sends an empty one when it never had any.
    if let Some(text) = last_event_id.filter(|text| !text.is_empty()) {
        let why =
            || bad_request(format!("`{text}` is no id that we gave; leave it out to start afresh"));
        opening.last_event_id = Some(EventId::parse(&text).ok_or_else(why)?);
    }
    if !topics.is_empty() {
        wanted.insert("topics".into(), topics.into());
        opening.subscribe = Some(subscribe_of(wanted, limits)?);
    } else if let Some((name, _)) = wanted.iter().next() {
        return Err(bad_request(format!("it has `{name}` and no `topic`; add one")));
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
        Ok((_, Command::Subscribe(subscribe))) => Ok(subscribe),
        Ok(_) => Err(bad_request("it does not subscribe; name a `topic`".into())),
        Err(undecoded) => Err(undecoded.refusal),
    }
}

impl Opening {
    /// Lets the subscription go on from the last event that its reader had, if it had one. Readers of several
    /// topics go back some seconds more, for clocks that differ.
    pub fn resume(&mut self) {
        const OVERLAP_MS: u64 = 2_000;
        let (Some(EventId { epochs, place }), Some(subscribe)) =
            (&self.last_event_id, &mut self.subscribe)
        else {
            return;
        };
        match place {
            EventPlace::UnixMs(unix_ms) => {
                let (unix_ms, epochs) = (unix_ms.saturating_sub(OVERLAP_MS), Some(epochs.clone()));
                subscribe.start = Start::Since(Since { unix_ms, epochs });
            }
            // Which epoch the topic is of only the server knows; this place is put there.
            EventPlace::Sequence(_) => {}
        }
    }
}

/// Reads the commands of a request's body: one, an array of them, or one after another.
///
/// # Errors
/// The body is no JSON, or holds too many commands. What is wrong with single commands is told in their place.
pub fn decode_commands(body: &[u8], limits: &Limits) -> Result<Vec<Decoded>, Refusal> {
    let text = std::str::from_utf8(body)
        .map_err(|_| bad_request("its body is not UTF-8; send JSON commands".into()))?;
    let mut commands = Vec::new();
    let bad_json =
        |error| bad_request(format!("its body does not parse ({error}); send JSON commands"));
    let mut take = |command: &str| {
        if commands.len() >= limits.batch_len_max {
            let text = format!(
                "cannot take so many commands: batch_len_max is {}; send fewer at a time",
                limits.batch_len_max
            );
            return Err(Refusal::new(Code::BatchTooLarge, text));
        }
        let decoded = json::decode_command(command, limits);
        commands.push(decoded.map(|(id, command)| (id, command, IsBinary::No)));
        Ok(())
    };
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value = value.map_err(bad_json)?.get();
        if value.starts_with('[') {
            let list: Vec<&RawValue> = serde_json::from_str(value).map_err(bad_json)?;
            list.iter().try_for_each(|command| take(command.get()))?;
        } else {
            take(value)?;
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
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
        let field = "Last-Event-ID: e1~e2@10000\r\n";
        let mut opened = opening("/v1/sse?topic=a/%23", field).expect("valid");
        opened.resume();
        let Start::Since(since) = opened.subscribe.expect("it subscribes").start else {
            panic!("not by time");
        };
        assert_eq!((since.unix_ms, since.epochs.map(|it| it.len())), (8_000, Some(2)));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_a_reason() {
        let cases = [
            ("/v1/sse?topics=a", "", "no parameter"),
            ("/v1/sse?topic=a//b", "", "a//b"),
            ("/v1/sse?topic=a&from=yesterday", "", "yesterday"),
            ("/v1/sse?topic=a&interval_ms=x", "", "whole number"),
            ("/v1/sse?interval_ms=5", "", "no `topic`"),
            ("/v1/sse?topic=a&padding=x", "", "`padding` is `x`; give a whole number"),
            ("/v1/sse?topic=a&padding=-1", "", "`padding` is `-1`; give a whole number"),
            ("/v1/poll?session=s&batch=-7", "", "`batch` is `-7`; give a whole number"),
            ("/v1/poll?session=s&batch=18446744073709551615", "", "below 2^63"),
            ("/v1/sse?topic=a", "Last-Event-ID: 7\r\n", "no id"),
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
        let count = |body: &str| decode_commands(body.as_bytes(), &limits).map(|it| it.len());
        assert_eq!(count(""), Ok(0));
        assert_eq!(count(ping), Ok(1));
        assert_eq!(count(&format!("[{ping},{ping}]")), Ok(2));
        assert_eq!(count(&format!("{ping}\n{ping}\n")), Ok(2));
        assert_eq!(count(&[ping; 4].join("\n")).map_err(|it| it.code), Err(Code::BatchTooLarge));
        assert_eq!(count("{").map_err(|it| it.code), Err(Code::BadRequest));
        let decoded = decode_commands(b"{\"id\":7,\"type\":\"dance\"}", &limits).expect("JSON");
        assert!(decoded[0].as_ref().is_err_and(|undecoded| undecoded.id.is_some()));
    }
}
