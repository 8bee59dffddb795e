//! Lists in commands, bounded while they are read: what follows one entry too many is not looked at.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use model::{Code, Limits, Position, Refusal, Selector, TopicName};
use serde::Deserialize;
use serde::de::{Deserializer as _, Error, MapAccess, SeqAccess, Visitor};

use super::super::wire::{WireCommand, WireMany, WirePosition};
use super::fields::{bad_command, position_of, topic_of};

/// How long a list may be, and what is said of one that is longer.
#[derive(Clone, Copy)]
pub(super) struct LenMax {
    limit: &'static str,
    len: usize,
    code: Code,
}

impl LenMax {
    /// Of topics that a session subscribes to, or ends.
    pub(super) fn of_subscriptions(limits: &Limits) -> Self {
        let (len, code) = (limits.subscriptions_per_session_max, Code::TooManySubscriptions);
        Self { limit: "subscriptions_per_session_max", len, code }
    }

    /// Of topics that a session handles, or ends.
    pub(super) fn of_handlers(limits: &Limits) -> Self {
        let (len, code) = (limits.handlers_per_session_max, Code::TooManySubscriptions);
        Self { limit: "handlers_per_session_max", len, code }
    }

    /// Of positions that a session resumes from.
    pub(super) fn of_resumes(limits: &Limits) -> Self {
        let (len, code) = (limits.replay_topics_max, Code::TooManyPositions);
        Self { limit: "replay_topics_max", len, code }
    }

    /// Of positions that a subscriber acknowledges.
    pub(super) fn of_acknowledged(limits: &Limits) -> Self {
        let (len, code) = (limits.subscriber_positions_max, Code::TooManyPositions);
        Self { limit: "subscriber_positions_max", len, code }
    }

    /// Of what the server wrote itself.
    pub(super) const NONE: Self =
        Self { limit: "none", len: usize::MAX, code: Code::TooManyPositions };

    fn check(self, len: usize) -> Result<(), Refusal> {
        if len < self.len {
            return Ok(());
        }
        let Self { limit, len, code } = self;
        let text = format!(
            "cannot take a list of more than {len} entries: {limit} is as many; send several commands, use \
             patterns, or raise the limit in the configuration"
        );
        Err(Refusal::new(code, text))
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

pub(super) fn selector_of(text: &str, limits: &Limits) -> Result<Selector, Refusal> {
    Selector::parse(text, limits)
        .map_err(|error| Refusal::new(Code::BadSelector, error.to_string()))
}

/// The topics of a command, one or several.
pub(super) fn selectors_of(
    wire: &WireCommand<'_>,
    len_max: LenMax,
    limits: &Limits,
) -> Result<Vec<Selector>, Refusal> {
    let one = wire.topic.as_deref().map(|text| selector_of(text, limits)).transpose()?;
    let mut selectors: Vec<Selector> = one.into_iter().collect();
    if let Some(WireMany::Unread(list)) = wire.topics {
        read_selectors(list.get(), len_max, limits, &mut selectors)?;
    }
    if selectors.is_empty() {
        let why = "it has no topic; add `topic` or a non-empty `topics`";
        return Err(bad_command(why.into()));
    }
    Ok(selectors)
}

/// Adds the selectors in a JSON list to `selectors`.
pub(super) fn read_selectors(
    json: &str,
    len_max: LenMax,
    limits: &Limits,
    selectors: &mut Vec<Selector>,
) -> Result<(), Refusal> {
    let mut reader = SelectorReader { len_max, limits, selectors, refusal: None };
    let result = serde_json::Deserializer::from_str(json).deserialize_seq(&mut reader);
    told(reader.refusal, result)
}

/// The positions in a JSON object, in order of topic; of two for one topic the last one counts.
pub(super) fn read_positions(
    json: &str,
    len_max: LenMax,
    limits: &Limits,
) -> Result<BTreeMap<TopicName, Position>, Refusal> {
    let positions = BTreeMap::new();
    let mut reader = PositionReader { len_max, limits, len: 0, positions, refusal: None };
    let result = serde_json::Deserializer::from_str(json).deserialize_map(&mut reader);
    told(reader.refusal, result)?;
    Ok(reader.positions)
}

fn told(refusal: Option<Refusal>, result: Result<(), serde_json::Error>) -> Result<(), Refusal> {
    match (refusal, result) {
        (Some(refusal), _) => Err(refusal),
        (None, result) => result.map_err(|error| bad_command(error.to_string())),
    }
}

/// Ends reading at what is refused.
fn keep<T, E: Error>(result: Result<T, Refusal>, refusal: &mut Option<Refusal>) -> Result<T, E> {
    result.map_err(|refused| {
        *refusal = Some(refused);
        E::custom("refused")
    })
}

struct SelectorReader<'a> {
    len_max: LenMax,
    limits: &'a Limits,
    selectors: &'a mut Vec<Selector>,
    refusal: Option<Refusal>,
}

impl<'de> Visitor<'de> for &mut SelectorReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of topics")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(Text(text)) = list.next_element()? {
            keep(self.len_max.check(self.selectors.len()), &mut self.refusal)?;
            self.selectors.push(keep(selector_of(&text, self.limits), &mut self.refusal)?);
        }
        Ok(())
    }
}

struct PositionReader<'a> {
    len_max: LenMax,
    limits: &'a Limits,
    len: usize,
    positions: BTreeMap<TopicName, Position>,
    refusal: Option<Refusal>,
}

impl<'de> Visitor<'de> for &mut PositionReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of positions by topic")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Text(topic), position)) = map.next_entry::<_, WirePosition>()? {
            keep(self.len_max.check(self.len), &mut self.refusal)?;
            self.len += 1;
            let topic = keep(topic_of(&topic, self.limits), &mut self.refusal)?;
            self.positions
                .insert(topic, keep(position_of(&position, self.limits), &mut self.refusal)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode_command;
    use super::*;

    #[test]
    fn what_follows_one_entry_too_many_is_not_read() {
        let limits = Limits {
            subscriptions_per_session_max: 2,
            handlers_per_session_max: 2,
            subscriber_positions_max: 2,
            replay_topics_max: 2,
            ..Limits::default()
        };
        // The last entry is no topic, which would be refused otherwise.
        let topics = r#""topics":["a","b","c","//"]"#;
        let at = r#"{"epoch":"e","sequence":1}"#;
        let positions = format!(r#""positions":{{"a":{at},"b":{at},"c":{at},"d":7}}"#);
        for (command, code) in [
            (format!(r#""type":"subscribe",{topics}"#), Code::TooManySubscriptions),
            (format!(r#""type":"unsubscribe",{topics}"#), Code::TooManySubscriptions),
            (format!(r#""type":"handle",{topics}"#), Code::TooManySubscriptions),
            (format!(r#""type":"unhandle",{topics}"#), Code::TooManySubscriptions),
            (format!(r#""type":"subscribe","topic":"a",{positions}"#), Code::TooManyPositions),
            (format!(r#""type":"acknowledge","name":"n",{positions}"#), Code::TooManyPositions),
        ] {
            let refused = decode_command(&format!(r#"{{"id":1,{command}}}"#), &limits);
            let refused = refused.expect_err(&command);
            assert_eq!((refused.refusal.code, refused.id.map(|id| id.0)), (code, Some(1)));
        }
        let two = r#"{"type":"unsubscribe","topics":["a","b\u002fc"]}"#;
        assert!(decode_command(two, &limits).is_ok());
        let strange = r#"{"type":"subscribe","topics":7}"#;
        let refused = decode_command(strange, &limits).expect_err("no list");
        assert_eq!(refused.refusal.code, Code::BadCommand);
    }
}
