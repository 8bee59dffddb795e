//! Holds the tables of docs/protocol.md against the messages that are read and written: every field has a row, and
//! every row is a field.

use std::collections::{BTreeMap, BTreeSet};

use model::{Event, Limits};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::{Map, Value};

use super::binary::{
    AFTER_LAST_TOLD, CONTROL, DELTA_JSON_PATCH, DELTA_JSON_PATCH_EXTENDED, DELTA_VCDIFF,
    DELTA_VCDIFF_EXTENDED, FRAGMENT, FRAGMENT_EXTENDED, PUBLICATION_EXTENDED, PUBLICATION_FULL,
    PUBLICATION_SHORT, PUBLISH, PUBLISHED,
};
use super::wire::{WireCommand, WireEvent, WireKept, WireTopic};
use super::{ServerRecord, decode_opening, json};
use crate::http::parse_head;

const PROTOCOL: &str = include_str!("../../../../../docs/protocol.md");
const PAYLOAD: [&str; 3] = ["base64", "data", "text"];

type Names = BTreeSet<String>;

/// The rows of the table that begins with `header` below `heading`: the names in their first cell, and `required`.
fn rows(heading: &str, header: &str) -> Vec<(Vec<String>, String)> {
    let start = PROTOCOL.find(&format!("\n{heading}\n")).expect(heading) + 1;
    let section = PROTOCOL[start..].lines().skip(1);
    let section = section.take_while(|line| !line.starts_with('#'));
    let table = section.skip_while(|line| !line.starts_with(header));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    cells.map(|cells| (quoted(cells[0]), (*cells.get(2).unwrap_or(&"")).to_owned())).collect()
}

/// The texts in backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn names(heading: &str, header: &str) -> Names {
    rows(heading, header).into_iter().flat_map(|(names, _)| names).collect()
}

fn vectors(kinds: &[&str]) -> BTreeMap<String, Vec<Map<String, Value>>> {
    let mut found: BTreeMap<String, Vec<Map<String, Value>>> = BTreeMap::new();
    for kind in kinds {
        let (_, block) = PROTOCOL.split_once(&format!("```vector {kind}\n")).expect(kind);
        let (block, _) = block.split_once("```").expect("it ends");
        for line in block.lines() {
            let Ok(Value::Object(record)) = serde_json::from_str(line) else { panic!("{line}") };
            let name = record["type"].as_str().expect("a name").to_owned();
            found.entry(name).or_default().push(record);
        }
    }
    found
}

/// The names of a struct's fields on the wire.
fn fields_of<'de, T: Deserialize<'de>>() -> Names {
    /// Answers with an error that lists the fields.
    struct Fields;

    impl<'de> Deserializer<'de> for Fields {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom("it is not a struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom(fields.join(" ")))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let listed = T::deserialize(Fields).err().expect("the fields").to_string();
    listed.split(' ').map(str::to_owned).collect()
}

/// Holds the table of one type of message against its vectors, and answers with its fields.
fn check(heading: &str, vectors: &[Map<String, Value>]) -> Names {
    let rows = rows(heading, "| field |");
    let listed: Names = rows.iter().flat_map(|(names, _)| names.clone()).collect();
    let shown =
        vectors.iter().flat_map(Map::keys).filter(|name| !["type", "id"].contains(&name.as_str()));
    assert_eq!(
        shown.cloned().collect::<Names>(),
        listed,
        "the vectors of `{heading}` and its table"
    );
    for vector in vectors {
        for (names, required) in &rows {
            let count = names.iter().filter(|name| vector.contains_key(*name)).count();
            match required.as_str() {
                "yes" | "exactly one" => assert_eq!(count, 1, "{names:?} in {vector:?}"),
                _ => assert!(count <= 1, "{names:?} in {vector:?}"),
            }
        }
    }
    listed
}

#[test]
fn every_field_of_a_command_is_in_its_table() {
    let vectors = vectors(&["json-command"]);
    let known = names("## Commands", "| field |");
    let all = vectors.iter().fold(known, |mut all, (name, vectors)| {
        all.extend(check(&format!("### `{name}` command"), vectors));
        all
    });
    assert_eq!(all, fields_of::<WireCommand<'_>>());
    let sections =
        PROTOCOL.lines().filter(|line| line.starts_with("### `") && line.ends_with(" command"));
    assert_eq!(sections.count(), vectors.len());
}

#[test]
fn every_field_of_an_event_is_in_its_table() {
    let vectors = vectors(&["json-event", "json-publication", "json-delta", "json-fragment"]);
    let mut all = names("## Events", "| field |");
    for (name, vectors) in &vectors {
        let heading = match name.as_str() {
            "delta" => "## Deltas".to_owned(),
            "fragment" => "## Fragments".to_owned(),
            name => format!("### `{name}` event"),
        };
        all.extend(check(&heading, vectors));
    }
    assert_eq!(all, fields_of::<WireEvent<'_>>());
    let events: Names = vectors.into_keys().collect();
    let expected = Event::NAMES.iter().chain(&["publication", "delta", "fragment"]);
    assert_eq!(events, expected.map(|name| (*name).to_owned()).collect());
}

#[test]
fn every_field_within_a_field_is_in_its_table() {
    let topic = names("### `subscribed` event", "| description |");
    assert_eq!(topic, fields_of::<WireTopic<'_>>());
    let kept = names("### `history` event", "| kept publication |");
    assert_eq!(kept, fields_of::<WireKept<'_>>());
    assert_eq!(names("### Payloads", "| field |"), PAYLOAD.map(str::to_owned).into());
}

#[test]
fn every_parameter_that_opens_a_session_is_in_its_table() {
    let head = b"GET /v1/sse?nonsense=1 HTTP/1.1\r\n\r\n";
    let (head, _) = parse_head(head, &Limits::default()).expect("valid").expect("whole");
    let text = decode_opening(&head, &Limits::default()).expect_err("no such parameter").text;
    let (_, known) = text.split_once("; use ").expect("it lists what there is");
    let known = known.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and");
    assert_eq!(names("### Opening a session", "| parameter |"), known.map(str::to_owned).collect());
}

#[test]
fn every_binary_record_is_in_its_table() {
    let rows = rows("## Binary dialect", "| tag |");
    let tags = rows.iter().flat_map(|(names, _)| {
        let tag = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).expect(text);
        tag(&names[0])..=tag(names.last().expect("a tag"))
    });
    let after_last = PUBLICATION_SHORT + AFTER_LAST_TOLD;
    let older = [PUBLICATION_SHORT, after_last, PUBLICATION_FULL, PUBLISH, DELTA_VCDIFF, FRAGMENT];
    let extended = [PUBLICATION_EXTENDED, DELTA_VCDIFF_EXTENDED, FRAGMENT_EXTENDED];
    let of_each_kind = older.into_iter().chain(extended).map(|tag| tag + 1..=tag + 3);
    let of_json_only = [DELTA_JSON_PATCH, DELTA_JSON_PATCH_EXTENDED].map(|tag| tag + 1);
    let mut known: Vec<u8> = of_each_kind.flatten().collect();
    known.extend([CONTROL, PUBLISHED]);
    known.extend(of_json_only);
    known.sort_unstable();
    assert_eq!(tags.collect::<Vec<_>>(), known);
}

#[test]
fn the_example_session_can_be_read() {
    let limits = Limits::default();
    let blocks = PROTOCOL.split("```transcript\n").skip(1);
    let lines = blocks.flat_map(|block| block.lines().take_while(|line| *line != "```"));
    let (mut count, mut refused) = (0, None);
    for line in lines {
        let (from, record) = line.split_once(' ').expect("who sends it");
        if from == ">" {
            refused = json::decode_command(record, &limits).err();
        } else if let Some(undecoded) = refused.take() {
            let records = json::decode_server_message(record, &limits).expect(line);
            let [ServerRecord::Event(Event::Refused { id, refusal })] = &records[..] else {
                panic!("{line}")
            };
            assert_eq!((*id, refusal.code), (undecoded.id, undecoded.refusal.code));
        } else {
            assert_eq!(
                json::decode_server_message(record, &limits).map(|it| it.len()),
                Ok(1),
                "{line}"
            );
        }
        count += 1;
    }
    assert_eq!(count, 13);
}
