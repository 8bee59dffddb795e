//! Records in lines and in Server-Sent Events. docs/protocol.md, section 7a; HTML Living Standard, section 9.2.
//!
//! A line break inside a record would end it. In JSON one can only stand between tokens, where a space is the same.

use std::fmt;
use std::sync::Arc;

use model::{Epoch, Sequence};

use super::Encoding;

/// The id of a Server-Sent Event, from which a reader goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The epochs that were under way.
    pub epochs: Arc<[Epoch]>,
    /// Up to where the reader has everything.
    pub place: EventPlace,
}

/// Where a reader of Server-Sent Events is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPlace {
    /// In its one topic.
    Sequence(Sequence),
    /// In several: a time in milliseconds since 1970.
    UnixMs(u64),
}

impl EventId {
    /// The id spelt `text`: the epochs joined by `~`, then `:` and a sequence or `@` and a time.
    pub fn parse(text: &str) -> Option<Self> {
        let (epochs, mark, number) = match text.rsplit_once([':', '@']) {
            Some((epochs, number)) => (epochs, text.as_bytes()[epochs.len()], number),
            None => return None,
        };
        let number = number.parse().ok()?;
        let place = match mark {
            b':' => EventPlace::Sequence(Sequence::new(number)?),
            _ => EventPlace::UnixMs(number),
        };
        Some(Self { epochs: epochs.split('~').map(Epoch::new).collect(), place })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join_epochs(&self.epochs))?;
        match self.place {
            EventPlace::Sequence(sequence) => write!(f, ":{sequence}"),
            EventPlace::UnixMs(unix_ms) => write!(f, "@{unix_ms}"),
        }
    }
}

/// Epochs as they stand in an id.
pub fn join_epochs(epochs: &[Epoch]) -> String {
    let texts: Vec<&str> = epochs.iter().map(Epoch::as_str).collect();
    texts.join("~")
}

/// What stands before a record.
#[derive(Clone, Copy, Debug)]
pub enum RecordHead<'a> {
    /// A publication, whole: with its place, it is what readers wait for.
    Publication(Sequence, u64),
    /// A publication told otherwise, and its place if that is all of it.
    Other(&'a str, Option<(Sequence, u64)>),
}

impl Encoding {
    /// Appends what stands before a record; answers where the record starts.
    pub fn begin_record(self, head: RecordHead<'_>, epochs: &str, out: &mut Vec<u8>) -> usize {
        if matches!(self, Self::Events | Self::EventsOfMany) {
            let (name, place) = match head {
                RecordHead::Publication(sequence, unix_ms) => (None, Some((sequence, unix_ms))),
                RecordHead::Other(name, place) => (Some(name), place),
            };
            if let Some((sequence, unix_ms)) = place {
                let (mark, number) = match self {
                    Self::Events => (b':', sequence.get()),
                    _ => (b'@', unix_ms),
                };
                out.extend_from_slice(b"id: ");
                out.extend_from_slice(epochs.as_bytes());
                out.push(mark);
                out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                out.push(b'\n');
            }
            if let Some(name) = name {
                out.extend_from_slice(b"event: ");
                out.extend_from_slice(name.as_bytes());
                out.push(b'\n');
            }
            out.extend_from_slice(b"data: ");
        }
        out.len()
    }

    /// Appends what stands after the record that starts at `start`.
    pub fn end_record(self, start: usize, out: &mut Vec<u8>) {
        let end: &[u8] = match self {
            Self::Lines => b"\n",
            Self::Events | Self::EventsOfMany => b"\n\n",
            _ => return,
        };
        for byte in out[start..].iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        out.extend_from_slice(end);
    }

    /// A sign of life between records, that a reader does not hear.
    pub fn keep_alive(self) -> &'static [u8] {
        match self {
            Self::Lines => b"\n",
            _ => b":\n\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_id(text: &str, count: usize, place: EventPlace) {
        let id = EventId::parse(text).unwrap_or_else(|| panic!("no id: {text}"));
        assert_eq!((id.epochs.len(), id.place), (count, place), "{text}");
        assert_eq!(id.to_string(), text);
    }

    #[test]
    fn ids_name_a_sequence_or_a_time() {
        check_id("1a-2b:7", 1, EventPlace::Sequence(Sequence::new(7).expect("small")));
        check_id("1a-2b~3c-4d@1700000000000", 2, EventPlace::UnixMs(1_700_000_000_000));
        for text in ["", "7", "a:b", "a:99999999999999999", "a@-1"] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_break_in_json_becomes_a_space() {
        let mut out = Vec::new();
        let place = RecordHead::Publication(Sequence::new(7).expect("small"), 5);
        let start = Encoding::Events.begin_record(place, "e", &mut out);
        out.extend_from_slice(b"{\r\n}");
        Encoding::Events.end_record(start, &mut out);
        let start = Encoding::Lines.begin_record(place, "e", &mut out);
        out.extend_from_slice(b"{\n}");
        Encoding::Lines.end_record(start, &mut out);
        let start =
            Encoding::EventsOfMany.begin_record(RecordHead::Other("gap", None), "e", &mut out);
        out.extend_from_slice(b"{}");
        Encoding::EventsOfMany.end_record(start, &mut out);
        let expected = "id: e:7\ndata: {  }\n\n{ }\nevent: gap\ndata: {}\n\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
