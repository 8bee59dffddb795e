//! Records in lines and in Server-Sent Events. docs/protocol.md#sessions-over-plain-http; HTML Living Standard, section 9.2.
//!
//! A line break inside a record would end it. In JSON one can only stand between tokens, where a space is the same.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use model::{Epoch, Sequence};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::Encoding;

/// The id of a Server-Sent Event, from which a reader goes on. It begins with a letter for its form:
///
/// ```text
/// p.EPOCHS:SEQUENCE                          in its one topic
/// t.EPOCHS@TIME                              in several: everything before a time
/// r.EPOCHS@TIME@TIME[s]@TOPIC@SEQUENCE       in several, while it reads them afresh in order of name
/// ```
///
/// Epochs are joined by `.`, times are in milliseconds since 1970. The ids of before had no letter, epochs joined by
/// `~`, then `:` and a sequence or `@` and a time: read in that way, one of these has no epoch that there ever was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The epochs that were under way.
    pub epochs: Arc<[Epoch]>,
    /// Up to where the reader has everything.
    pub place: EventPlace<'static>,
}

/// Where a reader of Server-Sent Events is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventPlace<'a> {
    /// In its one topic.
    Sequence(Sequence),
    /// In several: a time in milliseconds since 1970.
    UnixMs(u64),
    /// In several, while it reads them afresh in order of name.
    Afresh {
        /// The topic that it is at.
        topic: Cow<'a, str>,
        /// Where it is in that.
        sequence: Sequence,
        /// Of the topics with lesser names it has everything before this.
        has_before_ms: u64,
        /// Of those with greater names it has everything before this ...
        unread_before_ms: u64,
        /// ... or nothing, and they start where it asked for.
        is_start_unread: bool,
    },
    /// In a form that this version does not know.
    Unknown,
}

/// Characters that stand for themselves in an id; the others of a topic's name are percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'/');

impl EventId {
    /// The id spelt `text`. One of an unknown form knows no epochs, so that everything in it is a gap.
    pub fn parse(text: &str) -> Self {
        let unknown = Self { epochs: Arc::new([]), place: EventPlace::Unknown };
        known_form(text).unwrap_or(unknown)
    }
}

fn known_form(text: &str) -> Option<EventId> {
    let Some((form, rest)) = text.split_once('.') else { return position_of_before(text) };
    let (epochs, place) = match form {
        "p" => {
            let (epochs, sequence) = rest.split_once(':')?;
            (epochs, EventPlace::Sequence(sequence_of(sequence)?))
        }
        "t" => {
            let (epochs, unix_ms) = rest.split_once('@')?;
            (epochs, EventPlace::UnixMs(unix_ms.parse().ok()?))
        }
        "r" => {
            let mut parts = rest.split('@');
            let mut part = || parts.next();
            let (epochs, has_before, unread) = (part()?, part()?, part()?);
            let (topic, sequence) = (part()?, part()?);
            let (unread_before, is_start_unread) = match unread.strip_suffix('s') {
                Some(time) => (time, true),
                None => (unread, false),
            };
            let place = EventPlace::Afresh {
                topic: percent_decode_str(topic).decode_utf8().ok()?.into_owned().into(),
                sequence: sequence_of(sequence)?,
                has_before_ms: has_before.parse().ok()?,
                unread_before_ms: unread_before.parse().ok()?,
                is_start_unread,
            };
            let is_whole = parts.next().is_none();
            is_whole.then_some((epochs, place))?
        }
        _ => return None,
    };
    Some(EventId { epochs: epochs_of(epochs, '.')?, place })
}

/// Ids without a letter were right in one topic. Their times were not: what they say is not known.
fn position_of_before(text: &str) -> Option<EventId> {
    let (epochs, sequence) = text.rsplit_once(':')?;
    let place = EventPlace::Sequence(sequence_of(sequence)?);
    Some(EventId { epochs: epochs_of(epochs, '~')?, place })
}

/// Epochs of letters, digits, `-` and `_`: no other was ever given, and none of these ends an epoch in an id.
fn epochs_of(text: &str, separator: char) -> Option<Arc<[Epoch]>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let epoch = |text: &str| text.bytes().all(is_part).then(|| Epoch::new(text));
    text.split(separator).map(epoch).collect()
}

fn sequence_of(text: &str) -> Option<Sequence> {
    Sequence::new(text.parse().ok()?)
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        append_id(&self.place, &join_epochs(&self.epochs), &mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

fn append_id(place: &EventPlace<'_>, epochs: &str, out: &mut Vec<u8>) {
    let mut append = |part: &str| out.extend_from_slice(part.as_bytes());
    let (mut number, mut other) = (itoa::Buffer::new(), itoa::Buffer::new());
    match place {
        EventPlace::Sequence(sequence) => {
            for part in ["p.", epochs, ":", number.format(sequence.get())] {
                append(part);
            }
        }
        EventPlace::UnixMs(unix_ms) => {
            for part in ["t.", epochs, "@", number.format(*unix_ms)] {
                append(part);
            }
        }
        EventPlace::Afresh {
            topic,
            sequence,
            has_before_ms,
            unread_before_ms,
            is_start_unread,
        } => {
            let (has_before, unread) =
                (number.format(*has_before_ms), other.format(*unread_before_ms));
            let start = if *is_start_unread { "s" } else { "" };
            for part in ["r.", epochs, "@", has_before, "@", unread, start, "@"] {
                append(part);
            }
            utf8_percent_encode(topic, ENCODED).for_each(&mut append);
            append("@");
            append(itoa::Buffer::new().format(sequence.get()));
        }
        EventPlace::Unknown => append("?"),
    }
}

/// Epochs as they stand in an id.
pub fn join_epochs(epochs: &[Epoch]) -> String {
    let texts: Vec<&str> = epochs.iter().map(Epoch::as_str).collect();
    texts.join(".")
}

impl Encoding {
    /// Appends what stands before a record: the name of the event, where it has one. Answers where the record
    /// starts.
    pub fn begin_record(self, name: Option<&str>, out: &mut Vec<u8>) -> usize {
        if self.has_ids() {
            if let Some(name) = name {
                out.extend_from_slice(b"event: ");
                out.extend_from_slice(name.as_bytes());
                out.push(b'\n');
            }
            out.extend_from_slice(b"data: ");
        }
        out.len()
    }

    /// Appends what stands after the record that starts at `start`. The id comes last: who takes half an event
    /// for a whole one does not believe to have it.
    pub fn end_record(
        self,
        start: usize,
        place: Option<&EventPlace<'_>>,
        epochs: &str,
        out: &mut Vec<u8>,
    ) {
        if self != Self::Lines && !self.has_ids() {
            return;
        }
        for byte in out[start..].iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        out.push(b'\n');
        if !self.has_ids() {
            return;
        }
        if let Some(place) = place {
            out.extend_from_slice(b"id: ");
            append_id(place, epochs, out);
            out.push(b'\n');
        }
        out.push(b'\n');
    }

    /// Whether events have ids.
    pub fn has_ids(self) -> bool {
        matches!(self, Self::Events | Self::EventsOfMany)
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

    fn check_id(text: &str, count: usize, place: EventPlace<'static>) {
        let id = EventId::parse(text);
        assert_eq!((id.epochs.len(), &id.place), (count, &place), "{text}");
        assert_eq!(id.to_string(), text);
    }

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).expect("small")
    }

    #[test]
    fn ids_name_a_sequence_a_time_or_a_place_in_reading_afresh() {
        check_id("p.1a-2b:7", 1, EventPlace::Sequence(sequence(7)));
        check_id("t.1a-2b.3c-4d@1700000000000", 2, EventPlace::UnixMs(1_700_000_000_000));
        let afresh = EventPlace::Afresh {
            topic: "a/b ~@é".into(),
            sequence: sequence(7),
            has_before_ms: 20,
            unread_before_ms: 10,
            is_start_unread: true,
        };
        check_id("r.1a.3c@20@10s@a/b%20%7E%40%C3%A9@7", 2, afresh);
    }

    #[test]
    fn an_id_of_an_unknown_form_knows_no_epoch() {
        let long = [
            "r.a@1@2@t@3@4",
            "q.1a-2b:7",
            "t.1a-2b@7@8",
            "p.a:9007199254740993",
            "r.a@1",
            "a@b:c:7",
        ];
        for text in ["", "7", "a:b", "a@7", "a~b@1700000000000", "t.a@-1"].iter().chain(&long) {
            let id = EventId::parse(text);
            assert_eq!((id.epochs.len(), id.place), (0, EventPlace::Unknown), "{text}");
        }
    }

    #[test]
    fn an_id_of_before_is_right_in_one_topic() {
        let id = EventId::parse("1a-2b~3c-4d:7");
        assert_eq!((id.epochs.len(), id.place), (2, EventPlace::Sequence(sequence(7))));
    }

    #[test]
    fn the_id_comes_last_and_a_line_break_in_json_becomes_a_space() {
        let (mut out, place) = (Vec::new(), EventPlace::Sequence(sequence(7)));
        let start = Encoding::Events.begin_record(None, &mut out);
        out.extend_from_slice(b"{\r\n}");
        Encoding::Events.end_record(start, Some(&place), "e", &mut out);
        let start = Encoding::Lines.begin_record(None, &mut out);
        out.extend_from_slice(b"{\n}");
        Encoding::Lines.end_record(start, Some(&place), "e", &mut out);
        let start = Encoding::EventsOfMany.begin_record(Some("gap"), &mut out);
        out.extend_from_slice(b"{}");
        Encoding::EventsOfMany.end_record(start, None, "e", &mut out);
        let expected = "data: {  }\nid: p.e:7\n\n{ }\nevent: gap\ndata: {}\n\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
