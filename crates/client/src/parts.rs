//! Places that do not go into one command, because the server takes only so many bytes. Pure.
//!
//! A pattern may select more topics than their places fit into one `subscribe`. It is asked for with as many as fit; the
//! others are asked for by name afterwards, some at a time, under an id of their own: they join what the pattern reads.

use std::collections::VecDeque;

use model::{Command, CommandId, Position, Subscribe, TopicName};
use protocol::native::binary;

/// Topics that are asked for by name at a time: a session may have only so many selectors.
const TOPICS_MAX: usize = 1_000;
/// The bytes of a position beside its texts, at most: `:{"epoch":,"sequence":}` and a number.
const PLACE_BYTES: usize = 40;

/// The places that go with a command of so many bytes at most, and the topics of the others, in parts.
pub(crate) fn split(
    bytes_max: usize,
    command: &Subscribe,
    mut places: Vec<(TopicName, Position)>,
) -> (Vec<(TopicName, Position)>, VecDeque<Vec<TopicName>>) {
    if places.is_empty() {
        return (places, VecDeque::new());
    }
    let mut room = Room(bytes_max.saturating_sub(bytes_of(command)));
    let mut fits = |(topic, at): &(TopicName, Position)| room.take(bytes_of_place(topic, at));
    let count = places.iter().take_while(|place| fits(place)).count();
    let others = places.split_off(count);
    let unnamed = Subscribe { selectors: Vec::new(), ..command.clone() };
    let bytes_max = bytes_max.saturating_sub(bytes_of(&unnamed));
    (places, parts_of(&others, bytes_max).into())
}

/// The topics in lists that can be asked for at a time, from their places.
fn parts_of(places: &[(TopicName, Position)], bytes_max: usize) -> Vec<Vec<TopicName>> {
    let mut parts: Vec<Vec<TopicName>> = Vec::new();
    let mut room = Room(0);
    for (topic, at) in places {
        let bytes = bytes_of_text(topic.as_str()) + bytes_of_place(topic, at);
        match parts.last_mut().filter(|part| part.len() < TOPICS_MAX && room.take(bytes)) {
            Some(part) => part.push(topic.clone()),
            None => {
                room = Room(bytes_max.saturating_sub(bytes));
                parts.push(vec![topic.clone()]);
            }
        }
    }
    parts
}

/// Bytes that are left.
struct Room(usize);

impl Room {
    /// Takes so many of them; answers whether there were so many.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        self.0 = self.0.saturating_sub(bytes);
        fits
    }
}

fn bytes_of(command: &Subscribe) -> usize {
    let mut record = Vec::new();
    let command = Command::Subscribe(command.clone());
    binary::append_command(Some(CommandId(u64::MAX)), &command, &mut record);
    record.len()
}

fn bytes_of_place(topic: &TopicName, at: &Position) -> usize {
    bytes_of_text(topic.as_str()) + bytes_of_text(at.epoch.as_str()) + PLACE_BYTES
}

/// As JSON, with a comma.
fn bytes_of_text(text: &str) -> usize {
    let escaped = |byte| match byte {
        b'"' | b'\\' => 2,
        0..b' ' => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 3
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Limits, Selector, Sequence, Start, SubscribeOptions};

    use super::*;

    fn place(number: usize) -> (TopicName, Position) {
        // What JSON escapes counts with its escapes.
        let name = format!("a/{}{number}", "\"".repeat(number % 40));
        let topic = TopicName::parse(&name, &Limits::default()).expect("valid");
        let sequence = Sequence::new((1 << 53) - 1).expect("small");
        (topic, Position { epoch: Epoch::new(&"e".repeat(number % 30)), sequence })
    }

    fn command(selectors: Vec<Selector>, positions: Vec<(TopicName, Position)>) -> Subscribe {
        let options = SubscribeOptions::default();
        Subscribe {
            subscription: None,
            selectors,
            start: Start::All,
            positions,
            name: None,
            options,
        }
    }

    #[test]
    fn every_place_is_given_once_and_no_command_is_too_large() {
        let selector = |text| Selector::parse(text, &Limits::default()).expect("valid");
        for (count, bytes_max) in [(0, 500), (3, 500), (100, 5_000), (2_500, 150_000)] {
            let all: Vec<_> = (0..count).map(place).collect();
            let asked = command(vec![selector("a/+")], vec![]);
            let (first, later) = split(bytes_max, &asked, all.clone());
            assert!(bytes_of(&command(asked.selectors, first.clone())) <= bytes_max);
            let mut given = first;
            for part in later {
                assert!(part.len() <= TOPICS_MAX);
                let selectors = part.iter().map(Selector::of_topic).collect();
                let places = all[given.len()..given.len() + part.len()].to_vec();
                assert!(bytes_of(&command(selectors, places.clone())) <= bytes_max);
                assert!(places.iter().map(|(topic, _)| topic).eq(&part));
                given.extend(places);
            }
            assert_eq!(given, all);
        }
    }
}
