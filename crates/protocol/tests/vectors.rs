//! Runs the vectors of docs/protocol.md in both directions, and holds its tables against the code.

use std::time::Duration;

use model::HeaderOrigin;
use model::{
    AckLevel, Code, Command, CommandId, DeltaKind, Draft, Epoch, Event, GapReason, HashMap,
    Headers, Limits, Moment, Payload, PayloadKind, Publication, Publish, Refusal, Sequence,
    TopicName,
};
use tidegate_protocol::native::{
    DeliveryRef, DeltaRef, Encoding, Extras, PreviousRef, SequenceRef, ServerRecord, Told,
    TopicRef, binary, json,
};

const PROTOCOL: &str = include_str!("../../../docs/protocol.md");

/// The lines of all blocks marked `vector KIND`.
fn vectors(kind: &str) -> Vec<&'static str> {
    let mut lines = Vec::new();
    let mut is_inside = false;
    for line in PROTOCOL.lines() {
        if line.starts_with("```") {
            is_inside = line == format!("```vector {kind}");
        } else if is_inside {
            lines.push(line);
        }
    }
    assert!(!lines.is_empty(), "docs/protocol.md has vectors of {kind}");
    lines
}

fn as_value(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).expect("JSON")
}

#[test]
fn json_commands_are_read_and_written() {
    let limits = Limits::default();
    for line in vectors("json-command") {
        let (id, command) = json::decode_command(line, &limits).expect(line);
        let mut written = Vec::new();
        json::append_command(id, &command, &mut written);
        let text = std::str::from_utf8(&written).expect("UTF-8");
        let again = json::decode_command(text, &limits).expect(text);
        assert_eq!(again, (id, command), "{line} was written as {text}");
    }
}

#[test]
fn json_events_are_read_and_written() {
    let limits = Limits::default();
    for line in vectors("json-event") {
        let records = json::decode_server_message(line, &limits).expect(line);
        let [ServerRecord::Event(event)] = &records[..] else { panic!("{line}") };
        let mut written = Vec::new();
        json::append_event(event, &mut written);
        assert_eq!(as_value(&written), as_value(line.as_bytes()));
        let mut control = Vec::new();
        binary::append_event(event, &mut control);
        assert_eq!(binary::decode_server_message(&control, &limits).expect(line), records);
    }
}

fn publication(kind: PayloadKind, payload: &[u8], sequence: u64) -> Publication {
    let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
    let sequence = Sequence::new(sequence).expect("small");
    Publication::new(Payload::new(kind, payload), sequence, now)
}

/// The topic that a record of JSON names, and its number if it tells one.
fn topic_told(line: &str, topic: &TopicRef<'_>, limits: &Limits) -> (TopicName, Option<u32>) {
    let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let name = record["topic"].as_str().expect("a topic");
    let number = match topic {
        TopicRef::Name(topic) => {
            assert_eq!(topic, name, "{line}");
            None
        }
        TopicRef::Number(number) => Some(*number),
    };
    (TopicName::parse(name, limits).expect("valid"), number)
}

#[test]
fn json_publications_are_read_and_written_byte_for_byte() {
    let limits = Limits::default();
    for line in vectors("json-publication") {
        let records = json::decode_server_message(line, &limits).expect(line);
        let [ServerRecord::Publication { topic, sequence, kind, payload, extras }] = &records[..]
        else {
            panic!("{line}")
        };
        let SequenceRef::Full(sequence) = sequence else { panic!("{line}") };
        let (topic, number) = topic_told(line, topic, &limits);
        let mut written = Vec::new();
        let told = publication(*kind, payload, sequence.get());
        json::append_publication(&topic, number, &told, extras, &mut written);
        assert_eq!(String::from_utf8(written).expect("UTF-8"), line);
    }
}

/// `key=value` words of a vector; the last value may hold spaces.
fn words(line: &str) -> HashMap<&str, String> {
    let mut found: HashMap<&str, String> = HashMap::default();
    let mut key = "";
    for word in line.split(' ') {
        match word.split_once('=') {
            Some((name, value)) if name.bytes().all(|b| b.is_ascii_lowercase()) => {
                key = name;
                found.insert(name, value.to_owned());
            }
            _ => found.get_mut(key).expect("a key comes first").push_str(word),
        }
    }
    found
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn payload(text: &str) -> Vec<u8> {
    text.strip_prefix("hex:").map_or_else(|| text.as_bytes().to_vec(), hex)
}

#[test]
fn binary_publications_are_read_and_written() {
    for line in vectors("binary-publication") {
        let words = words(line);
        let number: u32 = words["topic"].parse().expect("a number");
        let sequence: u64 = words["sequence"].parse().expect("a number");
        let kind: PayloadKind = words["kind"].parse().expect("a kind");
        let told = publication(kind, &payload(&words["payload"]), sequence);
        let mut written = Vec::new();
        let is_after = words.get("previous").is_some_and(|previous| previous == "told");
        let expected = match (words.get("short"), words.get("full")) {
            (Some(short), _) if is_after => {
                binary::append_publication_next(number, &told, &mut written);
                hex(short)
            }
            (Some(short), _) => {
                binary::append_publication_short(number, &told, &mut written);
                hex(short)
            }
            (_, Some(full)) => {
                binary::append_publication_full(number, &told, &mut written);
                hex(full)
            }
            _ => panic!("{line}"),
        };
        assert_eq!(written, expected, "{line}");
        let records = binary::decode_server_message(&written, &Limits::default()).expect(line);
        let [ServerRecord::Publication { topic, sequence: read, kind: read_kind, payload, extras }] =
            &records[..]
        else {
            panic!("{line}")
        };
        let previous = if is_after { PreviousRef::LastTold } else { PreviousRef::OneBefore };
        assert_eq!(extras, &Extras { previous, ..Extras::default() }, "{line}");
        assert_eq!((topic, *read_kind), (&TopicRef::Number(number), kind));
        assert_eq!(&payload[..], told.payload());
        let last = Sequence::new(sequence - 1).expect("small");
        assert_eq!(read.resolve(last), Some(told.sequence()), "{line}");
    }
}

/// What a vector says of a publication beside its payload.
fn extras(words: &HashMap<&str, String>, sequence: u64) -> Extras<'static> {
    let number = |name: &str| words.get(name).map(|it| it.parse::<u64>().expect("a number"));
    let text = |name: &str| words.get(name).cloned().map(Into::into);
    let previous = number("previous").map(|it| Sequence::new(it).expect("small"));
    assert!(previous.is_none_or(|previous| previous.get() < sequence));
    let headers = words.get("headers").map(|text| {
        json::decode_headers(text, HeaderOrigin::Server).expect("an object of headers")
    });
    let attempt = number("attempt");
    Extras {
        previous: previous.map_or(PreviousRef::OneBefore, PreviousRef::At),
        headers,
        entity: text("entity"),
        time_ms: number("time"),
        principal: text("principal"),
        delivery: number("delivery")
            .zip(attempt)
            .map(|(delivery, attempt)| DeliveryRef { delivery, attempt }),
    }
}

#[test]
fn extended_publications_are_read_and_written() {
    let limits = Limits::default();
    for line in vectors("binary-extended") {
        let words = words(line);
        let number: u32 = words["topic"].parse().expect("a number");
        let sequence: u64 = words["sequence"].parse().expect("a number");
        let kind: PayloadKind = words["kind"].parse().expect("a kind");
        let told = publication(kind, &payload(&words["payload"]), sequence);
        let extras = extras(&words, sequence);
        let mut written = Vec::new();
        binary::append_publication_extended(number, &told, &extras, &mut written);
        assert_eq!(written, hex(&words["record"]), "{line}");
        let read = binary::decode_server_message(&written, &limits).expect(line);
        let expected = ServerRecord::Publication {
            topic: TopicRef::Number(number),
            sequence: SequenceRef::Full(told.sequence()),
            kind,
            payload: told.payload().into(),
            extras,
        };
        assert_eq!(read, [expected], "{line}");
        // The publication itself has its headers, and what it takes to say where it stands.
        let headers = words.get("headers").map_or_else(Headers::default, |text| {
            json::decode_headers(text, HeaderOrigin::Server).expect("headers")
        });
        let with_headers = Payload::with_headers(kind, &headers, told.payload());
        assert_eq!(with_headers.headers().unwrap_or_default(), headers);
        // A flag of a later version may stand for anything: what follows cannot be read.
        let mut later = written.clone();
        later[flags_at(number, sequence, &written)] |= 0x40;
        assert!(binary::decode_server_message(&later, &limits).is_err(), "{line}");
        for cut in 1..written.len() {
            assert!(binary::decode_server_message(&written[..cut], &limits).is_err(), "{line}");
        }
    }
}

/// Where the flags of an extended record stand.
fn flags_at(number: u32, sequence: u64, record: &[u8]) -> usize {
    let bytes = |value: u64| (64 - value.max(1).leading_zeros() as usize).div_ceil(7);
    1 + bytes(record.len() as u64 - 2) + bytes(u64::from(number)) + bytes(sequence)
}

#[test]
fn json_deltas_and_pieces_are_read_and_written() {
    let limits = Limits::default();
    for line in vectors("json-delta") {
        let records = json::decode_server_message(line, &limits).expect(line);
        let [ServerRecord::Delta { topic, sequence, base, kind, delta, crc, bytes, extras }] =
            &records[..]
        else {
            panic!("{line}")
        };
        let (topic, number) = topic_told(line, topic, &limits);
        let told = publication(*kind, b"", sequence.get());
        let delta = DeltaRef { base: *base, kind: *delta, crc: *crc, bytes };
        let mut written = Vec::new();
        json::append_delta(&topic, number, &told, &delta, extras, &mut written);
        assert_eq!(String::from_utf8(written).expect("UTF-8"), line);
    }
    for line in vectors("json-fragment") {
        let records = json::decode_server_message(line, &limits).expect(line);
        let [ServerRecord::Fragment { topic, sequence, kind, total, offset, bytes, extras }] =
            &records[..]
        else {
            panic!("{line}")
        };
        let (topic, number) = topic_told(line, topic, &limits);
        let start = *offset as usize;
        let mut payload = vec![0; *total as usize];
        payload[start..start + bytes.len()].copy_from_slice(bytes);
        let told = publication(*kind, &payload, sequence.get());
        let mut written = Vec::new();
        json::append_fragment(
            &topic,
            number,
            &told,
            start..start + bytes.len(),
            extras,
            &mut written,
        );
        assert_eq!(String::from_utf8(written).expect("UTF-8"), line);
    }
}

#[test]
fn binary_deltas_and_pieces_are_read_and_written() {
    let limits = Limits::default();
    let number = |words: &HashMap<&str, String>, name: &str| -> u64 {
        words[name].parse().expect("a number")
    };
    for line in vectors("binary-delta") {
        let words = words(line);
        let (topic, sequence) = (number(&words, "topic") as u32, number(&words, "sequence"));
        let base = Sequence::new(number(&words, "base")).expect("small");
        let kind: PayloadKind = words["kind"].parse().expect("a kind");
        let crc = number(&words, "crc") as u32;
        let delta = DeltaKind::from_name(&words["delta"]).expect("a kind of delta");
        let bytes = payload(&words["bytes"]);
        let told = publication(kind, b"", sequence);
        let mut written = Vec::new();
        let to_write = DeltaRef { base, kind: delta, crc, bytes: &bytes };
        let extras = extras(&words, sequence);
        match extras.is_empty() {
            true => binary::append_delta(topic, &told, &to_write, &mut written),
            false => binary::append_delta_extended(topic, &told, &to_write, &extras, &mut written),
        }
        assert_eq!(written, hex(&words["record"]), "{line}");
        let read = binary::decode_server_message(&written, &limits).expect(line);
        let (topic, sequence) = (TopicRef::Number(topic), told.sequence());
        let bytes = bytes.into();
        let expected =
            ServerRecord::Delta { topic, sequence, base, kind, delta, crc, bytes, extras };
        assert_eq!(read, [expected]);
    }
    for line in vectors("binary-fragment") {
        let words = words(line);
        let kind: PayloadKind = words["kind"].parse().expect("a kind");
        let told = publication(kind, &payload(&words["payload"]), number(&words, "sequence"));
        let piece = number(&words, "start") as usize..number(&words, "end") as usize;
        let mut written = Vec::new();
        let topic = number(&words, "topic") as u32;
        let extras = extras(&words, told.sequence().get());
        let range = piece.clone();
        match extras.is_empty() {
            true => binary::append_fragment(topic, &told, range, &mut written),
            false => {
                binary::append_fragment_extended(topic, &told, range, &extras, &mut written);
            }
        }
        assert_eq!(written, hex(&words["record"]), "{line}");
        let read = binary::decode_server_message(&written, &limits).expect(line);
        let expected = ServerRecord::Fragment {
            topic: TopicRef::Number(topic),
            sequence: told.sequence(),
            kind,
            total: told.payload().len() as u64,
            offset: piece.start as u64,
            bytes: told.payload()[piece].into(),
            extras,
        };
        assert_eq!(read, [expected]);
    }
}

#[test]
fn binary_publishes_are_read_and_written() {
    let limits = Limits::default();
    for line in vectors("binary-publish") {
        let words = words(line);
        let id = words["id"].parse().ok().map(CommandId);
        let kind: PayloadKind = words["kind"].parse().expect("a kind");
        let draft = Draft {
            topic: TopicName::parse(&words["topic"], &limits).expect("valid"),
            payload: Payload::new(kind, &payload(&words["payload"])),
            idempotency_key: None,
            expected: None,
        };
        let command = Command::Publish(Publish { draft });
        let mut written = Vec::new();
        binary::append_command(id, &command, &mut written);
        assert_eq!(written, hex(&words["record"]), "{line}");
        let read: Vec<_> = binary::decode_commands(&written, &limits).collect();
        assert_eq!(read, [Ok((id, command, binary::IsBinary::Yes))]);
    }
    for line in vectors("binary-published") {
        let words = words(line);
        let (id, sequence) = (words["id"].parse(), words["sequence"].parse());
        let (id, sequence) = (CommandId(id.expect("a number")), sequence.expect("a number"));
        let mut written = Vec::new();
        let epoch = Epoch::new(&words["epoch"]);
        let sequence = Sequence::new(sequence).expect("small");
        binary::append_published(id, sequence, &epoch, &mut written);
        assert_eq!(written, hex(&words["record"]), "{line}");
        let read = binary::decode_server_message(&written, &limits).expect(line);
        let epoch = epoch.to_string();
        assert_eq!(read, [ServerRecord::Published { id, sequence, epoch }]);
    }
}

#[test]
fn a_batched_publication_costs_at_most_eight_bytes() {
    for (number, payload) in [(0, vec![0; 125]), (16_383, vec![0; 125]), (16_383, vec![0; 512])] {
        let told = publication(PayloadKind::Bytes, &payload, 1 << 52);
        let mut written = Vec::new();
        binary::append_publication_short(number, &told, &mut written);
        // A batch of 16 KiB shares a WebSocket header of 4 bytes: well below 1 byte a record.
        let overhead = written.len() - payload.len() + 1;
        assert!(overhead <= 8, "{overhead} bytes around topic {number}");
    }
}

#[test]
fn the_table_of_codes_is_that_of_the_code() {
    let rows: Vec<&str> =
        PROTOCOL.lines().filter(|line| line.starts_with("| 4") && line.contains('`')).collect();
    let expected: Vec<String> = Code::ALL
        .iter()
        .map(|code| format!("| {} | `{}` | {} |", code.number(), code.word(), code.http_status()))
        .collect();
    assert_eq!(rows.len(), expected.len(), "docs/protocol.md#codes, lists every code once");
    for (row, start) in rows.iter().zip(&expected) {
        assert!(row.starts_with(start.as_str()), "{row} should start with {start}");
    }
}

#[test]
fn bad_commands_are_refused_with_their_id() {
    let limits = Limits { payload_bytes_max: 10, ..Limits::default() };
    let cases = [
        ("{", None, Code::BadCommand),
        ("[]", None, Code::BadCommand),
        (r#"{"id":3}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"dance"}"#, Some(3), Code::UnknownCommand),
        (r#"{"id":3,"type":7}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"subscribe"}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"subscribe","topic":"a//b"}"#, Some(3), Code::BadSelector),
        (r#"{"id":3,"type":"subscribe","topic":"a","from":"then"}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"subscribe","topic":"a","conflation":"x"}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"publish","topic":"a/+","data":1}"#, Some(3), Code::BadTopic),
        (r#"{"id":3,"type":"publish","topic":"a"}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"publish","topic":"a","data":1,"text":""}"#, Some(3), Code::BadCommand),
        (r#"{"id":3,"type":"publish","topic":"a","base64":"?"}"#, Some(3), Code::BadPayload),
        (
            r#"{"id":3,"type":"publish","topic":"a","text":"01234567890"}"#,
            Some(3),
            Code::PayloadTooLarge,
        ),
    ];
    for (text, id, code) in cases {
        let undecoded = json::decode_command(text, &limits).expect_err(text);
        assert_eq!((undecoded.id, undecoded.refusal.code), (id.map(CommandId), code), "{text}");
    }
}

#[test]
fn what_a_later_server_says_is_passed_over() {
    let (limits, pong) = (Limits::default(), r#"{"type":"pong","later":{"x":[1]}}"#);
    for line in vectors("json-unknown") {
        assert_eq!(json::decode_server_message(line, &limits), Ok(Vec::new()), "{line}");
        let list = format!("[{},{pong}]", line.trim_matches(['[', ']']));
        let records = json::decode_server_message(&list, &limits).expect(line);
        assert_eq!(records, [ServerRecord::Event(Event::Pong { id: None })], "{line}");
    }
    for bad in
        [r#"{"type":"gap","topic":7}"#, r#"{"topic":"a"}"#, r#"{"type":"pong","id":[]}"#, "7"]
    {
        assert!(json::decode_server_message(bad, &limits).is_err(), "{bad}");
    }
    for line in vectors("binary-unknown") {
        let record = hex(&line.replace(' ', ""));
        let mut message = record.clone();
        binary::append_event(&Event::Pong { id: None }, &mut message);
        message.extend_from_slice(&record);
        let records = binary::decode_server_message(&message, &limits).expect(line);
        assert_eq!(records, [ServerRecord::Event(Event::Pong { id: None })], "{line}");
        let cut = &record[..record.len() - 1];
        assert!(binary::decode_server_message(cut, &limits).is_err(), "cut short: {line}");
    }
}

#[test]
fn a_known_event_may_say_something_of_a_later_version() {
    let limits = Limits::default();
    let event = |text: &str| match json::decode_server_message(text, &limits).as_deref() {
        Ok([ServerRecord::Event(event)]) => event.clone(),
        other => panic!("{text}: {other:?}"),
    };
    let refused = event(r#"{"type":"refused","id":3,"code":4298,"error":"not now"}"#);
    let refusal = Refusal::new(Code::Other(4298), "not now");
    assert_eq!(refused, Event::Refused { id: Some(CommandId(3)), refusal: refusal.clone() });
    let closing = event(r#"{"type":"closing","code":4298,"error":"not now","retry_after_ms":5}"#);
    assert_eq!(closing, Event::Closing { refusal: refusal.clone(), retry_after_ms: 5 });
    let detached = event(r#"{"type":"detached","device":"a/d","code":4298,"error":"not now"}"#);
    let device = "a/d".into();
    assert_eq!(detached, Event::Detached { id: None, device, refusal: Some(refusal) });
    let gap =
        r#"{"type":"gap","topic":"a","number":1,"epoch":"e","from":1,"to":2,"reason":"later"}"#;
    assert!(matches!(event(gap), Event::Gap(gap) if gap.reason == GapReason::Other));
    let published = r#"{"type":"published","topic":"a","epoch":"e","sequence":1,"level":"later"}"#;
    assert!(matches!(event(published), Event::Published { level: AckLevel::Memory, .. }));
}

#[test]
fn what_a_later_client_asks_is_refused_and_the_rest_goes_on() {
    let limits = Limits::default();
    for line in vectors("binary-unknown") {
        let record = hex(&line.replace(' ', ""));
        let mut message = record.clone();
        binary::append_command(Some(CommandId(7)), &Command::Ping, &mut message);
        message.extend_from_slice(&record[..record.len() - 1]);
        let decoded: Vec<_> = binary::decode_commands(&message, &limits).collect();
        let [Err(refused), Ok((Some(CommandId(7)), Command::Ping, _)), Err(cut)] = &decoded[..]
        else {
            panic!("{line}: {decoded:?}")
        };
        assert_eq!(refused.refusal.code, Code::UnknownCommand, "{line}");
        assert_eq!(cut.refusal.code, Code::BadCommand, "{line}");
    }
}

/// Which record a binary client is told a publication by.
#[test]
fn the_shortest_record_is_chosen_that_says_what_was_before() {
    let tag = |encoding: Encoding, previous: u64, sequence: u64, is_next: bool| {
        let place = |number| Sequence::new(number).expect("small");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
        let payload = Payload::new(PayloadKind::Text, b"x");
        let publication = Publication::after(place(previous), payload, place(sequence), now);
        let topic = TopicName::parse("a", &Limits::default()).expect("valid");
        let (told, mut bytes) = (Told { is_next, ..Told::default() }, Vec::new());
        encoding.append_publication(&topic, 7, &publication, told, &mut bytes);
        (bytes[0], bytes.len())
    };
    let cases = [
        // Where it is one more, nothing changes.
        (Encoding::BinaryExtended, 4, 5, true, (0x12, 6)),
        (Encoding::BinaryExtended, 4, 5, false, (0x22, 5)),
        (Encoding::Binary, 4, 5, true, (0x12, 6)),
        // After the last that was told, as long as 16 bits tell which one it is.
        (Encoding::BinaryExtended, 4, 9, true, (0x15, 6)),
        (Encoding::BinaryExtended, 0, 65_535, true, (0x15, 6)),
        (Encoding::BinaryExtended, 4, 65_540, true, (0x82, 11)),
        (Encoding::BinaryExtended, 4, 9, false, (0x82, 7)),
        // Who does not know the newer records is told the sequence, and not what was before.
        (Encoding::Binary, 4, 9, true, (0x22, 5)),
        (Encoding::Binary, 4, 9, false, (0x22, 5)),
    ];
    for (encoding, previous, sequence, is_next, expected) in cases {
        let found = tag(encoding, previous, sequence, is_next);
        assert_eq!(found, expected, "{encoding:?} {previous} {sequence} {is_next}");
    }
}
