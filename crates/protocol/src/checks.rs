//! Properties that hold for all bytes. The property tests and the fuzzer call the same functions.

use model::{Command, CommandId, Detach, Features, Limits, Refusal, Selector, TopicName, Unhandle};

use crate::device;
use crate::http::{BodyEvent, BodyReader, MessageFraming, MessageReader, parse_head};
use crate::native::{Batch, Conversation, EventId, Undecoded, binary, decode_opening, json};
use crate::websocket::{
    Channel, Deflater, FrameError, Heard, Inbound, Inflater, Message, Opcode, Role, Unread,
    WINDOW_BITS, encode_masked,
};

fn limits() -> Limits {
    Limits { message_bytes_max: 300, head_bytes_max: 400, body_bytes_max: 500, ..Limits::default() }
}

/// The messages that a WebSocket receiver reads from `bytes` that arrive in `pieces` (then all the rest at once).
pub fn receive(bytes: &[u8], pieces: &[usize]) -> (Vec<String>, Option<FrameError>) {
    receive_with(bytes, pieces, None)
}

fn receive_with(
    bytes: &[u8],
    pieces: &[usize],
    mut inflater: Option<Inflater>,
) -> (Vec<String>, Option<FrameError>) {
    let (mut inbound, mut told, mut at) = (Inbound::default(), Vec::new(), 0);
    let mut pieces = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while at < bytes.len() {
        let count = pieces.next().unwrap_or(usize::MAX).clamp(1, bytes.len() - at);
        let mut piece = bytes[at..at + count].to_vec();
        at += count;
        let mut input = Unread::new(&mut piece);
        loop {
            let inflater = inflater.as_mut();
            match inbound.poll_deflated(&mut input, Role::Server, &limits(), inflater) {
                Ok(Some(message)) => told.push(format!("{message:?}")),
                Ok(None) => break,
                Err(error) => return (told, Some(error)),
            }
        }
    }
    (told, None)
}

/// How WebSocket bytes are cut into pieces changes nothing, whether messages may be compressed or not;
/// and any bytes come back from being compressed.
pub fn check_websocket(bytes: &[u8], pieces: &[usize]) {
    assert_eq!(receive(bytes, pieces), receive(bytes, &[]));
    let inflating = |pieces: &[usize]| receive_with(bytes, pieces, Some(Inflater::default()));
    assert_eq!(inflating(pieces), inflating(&[]));
    let mut deflater = Deflater::new(1, WINDOW_BITS);
    let compressed = deflater.deflate(bytes);
    assert_eq!(Inflater::default().inflate(compressed, bytes.len()), Ok(bytes));
}

/// The things that a conversation of the native dialect over a WebSocket heard of `bytes` that arrive in `pieces`, and the
/// bytes that it said at once.
fn converse(bytes: &[u8], pieces: &[usize]) -> (Vec<String>, Vec<u8>) {
    let (mut channel, mut inbound) = (Channel::default(), Inbound::default());
    let (mut conversation, mut told, mut out, mut at) =
        (Conversation::default(), Vec::new(), Vec::new(), 0);
    let mut pieces = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while at < bytes.len() {
        let count = pieces.next().unwrap_or(usize::MAX).clamp(1, bytes.len() - at);
        let mut piece = bytes[at..at + count].to_vec();
        at += count;
        let mut input = Unread::new(&mut piece);
        loop {
            let polled = channel.poll_heard(&mut inbound, &mut input, &limits(), None, &mut out);
            let Some(heard) = polled else { break };
            told.push(format!("{heard:?}"));
            assert!(told.len() <= 2 * bytes.len(), "it hears the same again: {told:?}");
            let commands = match heard {
                Heard::Text(text) => {
                    let decoded = json::decode_command(text, &limits());
                    vec![decoded.map(|(id, command)| (id, command, binary::IsBinary::No))]
                }
                Heard::Binary(bytes) => binary::decode_commands(bytes, &limits()).collect(),
                Heard::Broken(error) => {
                    channel.close(error.close_code(), "", &mut out);
                    Vec::new()
                }
                Heard::Control(_) | Heard::Closed => Vec::new(),
            };
            let answers = commands.into_iter().map(|command| answer_of(&mut conversation, command));
            told.extend(answers);
        }
    }
    (told, out)
}

/// The answer of a conversation to a command.
fn answer_of(conversation: &mut Conversation, command: binary::Decoded) -> String {
    let is_first = conversation.handle_command();
    let result = command.map_err(|undecoded| undecoded.refusal).and_then(|(_, command, _)| {
        conversation.check(&command, Features::ALL)?;
        if let Command::Hello(hello) = &command {
            Conversation::check_greeting(is_first)?;
            conversation.handle_greeting(hello.features);
        }
        Ok(command)
    });
    format!("{result:?}")
}

/// How a peer's bytes are cut into pieces changes nothing of a conversation; what it says a client can read, its last frame comes last
/// and once, and it greets once.
pub fn check_conversation(bytes: &[u8], pieces: &[usize]) {
    let torn = converse(bytes, pieces);
    assert_eq!(torn, converse(bytes, &[]));
    let (told, mut out) = torn;
    let count = |of: &str| told.iter().filter(|told| told.starts_with(of)).count();
    assert!(count("Ok(Hello") <= 1, "{told:?}");
    let ends = count("Closed") + count("Broken");
    assert!(ends <= 1, "{told:?}");
    let last =
        told.iter().rposition(|told| told.starts_with("Closed") || told.starts_with("Broken"));
    assert!(last.is_none_or(|at| at + 1 == told.len()), "nothing is heard after the end: {told:?}");
    let (mut inbound, mut input, mut said) =
        (Inbound::default(), Unread::new(&mut out), Vec::new());
    let all = Limits { message_bytes_max: usize::MAX, ..limits() };
    while let Some(message) =
        inbound.poll_message(&mut input, Role::Client, &all).expect("a client can read it")
    {
        said.push(matches!(message, Message::Close(_)));
    }
    let closes = said.iter().filter(|is_close| **is_close).count();
    assert_eq!((closes, said.last().is_some_and(|is_close| *is_close)), (ends, ends == 1));
}

/// A client and a conversation, with nothing between them but bytes in `pieces`: every command arrives as it was said and in order, every
/// ping is answered, and so is the end.
pub fn check_pair(kinds: &[u8], pieces: &[usize]) {
    let (mut bytes, mut said, mut pings) = (Vec::new(), Vec::new(), 0);
    encode_masked(Opcode::Text, br#"{"type":"hello","id":1}"#, [9; 4], &mut bytes);
    for (number, kind) in kinds.iter().enumerate() {
        let id = CommandId(2 + number as u64);
        let command = match kind % 4 {
            0 => Command::Ping,
            1 => Command::Unhandle(Unhandle {
                selectors: vec![Selector::parse(&format!("a/{number}"), &limits()).expect("valid")],
            }),
            2 => Command::Detach(Detach { device: format!("a/{number}").into() }),
            _ => {
                pings += 1;
                encode_masked(Opcode::Ping, &[*kind], [*kind; 4], &mut bytes);
                continue;
            }
        };
        let mut record = Vec::new();
        binary::append_command(Some(id), &command, &mut record);
        encode_masked(Opcode::Binary, &record, [*kind; 4], &mut bytes);
        said.push(format!("{:?}", Ok::<_, Refusal>(command)));
    }
    encode_masked(Opcode::Close, &4001u16.to_be_bytes(), [7; 4], &mut bytes);
    let (told, mut out) = converse(&bytes, pieces);
    let commands: Vec<&String> =
        told.iter().filter(|told| told.starts_with("Ok(")).skip(1).collect();
    assert_eq!(commands, said.iter().collect::<Vec<_>>());
    let (mut inbound, mut input, mut pongs) = (Inbound::default(), Unread::new(&mut out), 0);
    loop {
        match inbound.poll_message(&mut input, Role::Client, &limits()) {
            Ok(Some(Message::Pong(_))) => pongs += 1,
            Ok(Some(Message::Close(reason))) => break assert_eq!(reason, Some((4001, ""))),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pongs, pings);
}

/// The messages of an open body, and what ended it.
fn hear_device(bytes: &[u8], pieces: &[usize], framing: MessageFraming) -> Vec<String> {
    let (mut reader, mut told, mut at) = (MessageReader::new(framing), Vec::new(), 0);
    let mut pieces = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while at < bytes.len() {
        let count = pieces.next().unwrap_or(usize::MAX).clamp(1, bytes.len() - at);
        let mut input = &bytes[at..at + count];
        at += count;
        loop {
            match reader.poll(&mut input, 60) {
                Ok(Some(BodyEvent::Message(message))) => {
                    told.push(format!("{:?}", device::decode(&message)))
                }
                Ok(Some(BodyEvent::End)) => {
                    told.push("end".into());
                    return told;
                }
                Ok(None) => break,
                Err(refusal) => {
                    told.push(format!("{:?}", refusal.code));
                    return told;
                }
            }
        }
    }
    told
}

/// How a device's bytes are cut into pieces changes nothing.
pub fn check_device(bytes: &[u8], pieces: &[usize]) {
    for framing in [MessageFraming::Chunks, MessageFraming::Lines] {
        assert_eq!(hear_device(bytes, pieces, framing), hear_device(bytes, &[], framing));
    }
}

/// A target that opens a session, and a body of commands: read or refused, never more. An id of an event is
/// written as it was read.
pub fn check_opening(bytes: &[u8]) {
    let limits = limits();
    let text = String::from_utf8_lossy(bytes);
    let target: String = text.chars().filter(|letter| letter.is_ascii_graphic()).collect();
    let head = format!("GET /v1/sse?{target} HTTP/1.1\r\nLast-Event-ID: {target}\r\n\r\n");
    if let Ok(Some((head, _))) = parse_head(head.as_bytes(), &limits) {
        // Either is right; it must not panic.
        let _ = decode_opening(&head, &limits);
    }
    let id = EventId::parse(&text);
    assert_eq!(EventId::parse(&id.to_string()), id);
    if let Ok(mut batch) = Batch::read(bytes.to_vec(), &limits) {
        while batch.take(&limits).is_some() {}
    }
}

/// The requests that are pipelined in `bytes`, and what ended them.
fn hear_requests(bytes: &[u8], pieces: &[usize]) -> Vec<String> {
    let limits = limits();
    let (mut told, mut input, mut at) = (Vec::new(), Vec::new(), 0);
    let mut reading: Option<(String, BodyReader)> = None;
    let mut pieces = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while at < bytes.len() {
        let count = pieces.next().unwrap_or(usize::MAX).clamp(1, bytes.len() - at);
        input.extend_from_slice(&bytes[at..at + count]);
        at += count;
        loop {
            let read = match reading.take() {
                None => parse_head(&input, &limits).and_then(|parsed| {
                    let body = |(head, len)| {
                        BodyReader::new(&head, &limits).map(|body| (head.target, body, len))
                    };
                    parsed.map(body).transpose()
                }),
                Some((target, mut body)) => {
                    body.handle_bytes(&input).map(|taken| Some((target, body, taken)))
                }
            };
            let (target, body, taken) = match read {
                Ok(None) => break,
                Ok(Some(read)) => read,
                Err(refusal) => {
                    told.push(format!("{:?}", refusal.code));
                    return told;
                }
            };
            input.drain(..taken);
            if body.is_done() {
                told.push(format!("{target} {:?}", body.into_body()));
            } else {
                reading = Some((target, body));
                if input.is_empty() {
                    break;
                }
            }
        }
    }
    told
}

/// A request head is whole from one byte on and not before; its body is read alike in any pieces, and so are the
/// requests after it.
pub fn check_http(bytes: &[u8], pieces: &[usize]) {
    let limits = limits();
    assert_eq!(hear_requests(bytes, pieces), hear_requests(bytes, &[]));
    let Ok(Some((head, len))) = parse_head(bytes, &limits) else { return };
    assert!(len <= bytes.len());
    for end in [0, len / 2, len - 1] {
        assert!(!matches!(parse_head(&bytes[..end], &limits), Ok(Some(_))), "whole at {end}");
    }
    let read_in = |pieces: &[usize]| {
        let mut reader = BodyReader::new(&head, &limits)?;
        let (mut at, mut pieces) = (len, pieces.iter().copied());
        while at < bytes.len() && !reader.is_done() {
            let count = pieces.next().unwrap_or(usize::MAX).clamp(1, bytes.len() - at);
            at += reader.handle_bytes(&bytes[at..at + count])?;
        }
        Ok::<_, Refusal>((reader.is_done(), at, reader.into_body()))
    };
    let (whole, cut) = (read_in(&[]), read_in(pieces));
    match (whole, cut) {
        // Where an unfinished body ends does not matter, only what was read of it.
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (whole, cut) => assert_eq!(whole.is_err(), cut.is_err()),
    }
}

/// A command that can be read is read again from what is written of it.
pub fn check_json_command(text: &str) {
    let limits = limits();
    if let Ok((id, command)) = json::decode_command(text, &limits) {
        let mut written = Vec::new();
        json::append_command(id, &command, &mut written);
        let written = std::str::from_utf8(&written).expect("JSON is UTF-8");
        assert_eq!(json::decode_command(written, &limits), Ok((id, command)), "{written}");
    }
}

/// The same for every command of a binary message.
pub fn check_binary_commands(message: &[u8]) {
    let limits = limits();
    for (id, command, _) in binary::decode_commands(message, &limits).flatten() {
        let mut written = Vec::new();
        binary::append_command(id, &command, &mut written);
        let again: Result<Vec<_>, Undecoded> = binary::decode_commands(&written, &limits).collect();
        let again = again.expect("what we write can be read");
        assert!(matches!(&again[..], [(i, c, _)] if *i == id && *c == command), "{again:?}");
    }
}

/// A client survives any message of a server, text or binary.
pub fn check_server_message(message: &[u8]) {
    let limits = limits();
    // Whether it can be read does not matter here.
    let _ = binary::decode_server_message(message, &limits);
    if let Ok(text) = std::str::from_utf8(message) {
        let _ = json::decode_server_message(text, &limits);
    }
}

/// A valid name is a selector that selects itself and nothing longer; every selector covers itself.
pub fn check_selector(text: &str) {
    let limits = limits();
    let name = TopicName::parse(text, &limits);
    let selector = Selector::parse(text, &limits);
    if let Ok(name) = &name {
        let selector = selector.as_ref().expect("a name is a selector");
        assert!(selector.matches(name.as_str()) && !selector.has_wildcard());
        assert!(!selector.matches(&format!("{name}/more")));
    }
    if let Ok(selector) = &selector {
        assert!(selector.covers(selector) && selector.overlaps(selector));
        assert_eq!(name.is_err(), selector.has_wildcard());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Something like a command: the words of the dialect in any order.
    const NEARLY_JSON: &str = r#"[{}\[\]:,"0-9a-z/+# \\]{0,20}|\{"id":[0-9]{1,3},"type":"(subscribe|publish|hello|ping|unsubscribe)","topic":"[a-c/+#]{0,6}"(,"data":[0-9]{1,3}|,"text":"[a-zé"\\]{0,4}"|,"from":("now"|"snapshot"|[0-9]{1,2}|\{"last":[0-9]{1,2}\})|,"conflation":"(off|lagging)"|,"key":"k"){0,3}\}"#;
    const NEARLY_HTTP: &str = "(GET|POST) /[a-z/?=]{0,9} HTTP/1\\.[01]\r\n(Host: a\r\n|Content-Length: [0-9]{1,3}\r\n|Transfer-Encoding: chunked\r\n|X: [a-z ]{0,5}\r\n){0,3}\r\n([0-9a-f]{1,2}\r\n|[a-z]{0,9}|\r\n|0\r\n\r\n){0,6}";

    proptest! {
        #[test]
        fn commands_nearly_right(text in NEARLY_JSON) {
            check_json_command(&text);
            check_server_message(text.as_bytes());
        }

        #[test]
        fn requests_nearly_right(
            text in NEARLY_HTTP,
            more in prop::collection::vec(NEARLY_HTTP, 0..4),
            pieces in prop::collection::vec(1usize..20, 0..20),
        ) {
            check_http(text.as_bytes(), &pieces);
            check_http((text.clone() + &more.concat()).as_bytes(), &pieces);
            check_device(text.as_bytes(), &pieces);
            check_opening(text.as_bytes());
        }

        #[test]
        fn records_nearly_right(
            tags in prop::collection::vec((
                prop::sample::select(vec![
                    0u8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x31, 0x32, 0x33, 0x40, 0x81, 0x92, 0xA1, 0xB3,
                ]),
                prop::collection::vec(0u8..12, 0..12),
            ), 0..4),
        ) {
            let message: Vec<u8> =
                tags.into_iter().flat_map(|(tag, rest)| [vec![tag], rest].concat()).collect();
            check_binary_commands(&message);
            check_server_message(&message);
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            check_binary_commands(&bytes);
            check_server_message(&bytes);
            check_http(&bytes, &[]);
            check_device(&bytes, &[3, 1, 4]);
            check_opening(&bytes);
        }

        #[test]
        fn conversations_nearly_right(
            frames in prop::collection::vec((
                prop::sample::select(vec![0x01u8, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8A, 0x8B]),
                NEARLY_JSON,
            ), 0..6),
            cut in 0usize..200,
            pieces in prop::collection::vec(1usize..40, 0..20),
        ) {
            let mut bytes = Vec::new();
            for (first, text) in &frames {
                // A last frame that can be read is what most of them would not be.
                let text = match first {
                    0x88 => &4001u16.to_be_bytes()[..],
                    _ => &text.as_bytes()[..text.len().min(125)],
                };
                bytes.extend([*first, 0x80 | text.len() as u8, 0, 0, 0, 0]);
                bytes.extend(text);
            }
            check_conversation(&bytes, &pieces);
            bytes.truncate(cut);
            check_conversation(&bytes, &pieces);
        }

        #[test]
        fn a_client_and_a_conversation_understand_each_other(
            kinds in prop::collection::vec(any::<u8>(), 0..20),
            pieces in prop::collection::vec(1usize..40, 0..40),
        ) {
            check_pair(&kinds, &pieces);
        }

        #[test]
        fn selectors_nearly_right(text in "[a$+#/é\u{7f}]{0,8}") {
            check_selector(&text);
        }
    }
}
