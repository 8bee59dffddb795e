//! Places that do not go into one command, because the server takes only so many bytes. Pure.
//!
//! A pattern may select more topics than their places fit into one `subscribe`. It is asked for with as many as fit; the
//! others are asked for by name afterwards, some at a time, and the names given back: the pattern goes on reading them.

use std::collections::VecDeque;

use model::{Command, CommandId, Position, Subscribe, TopicName};
use protocol::native::binary;

use crate::subscription_id::SubscriptionId;

/// Topics that are asked for by name at a time: a session may have only so many selectors.
const TOPICS_MAX: usize = 1_000;
/// The bytes of a position beside its texts, at most: `:{"epoch":,"sequence":}` and a number.
const PLACE_BYTES: usize = 40;

/// Topics that are asked for by name, on account of a subscription.
#[derive(Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) of: SubscriptionId,
    pub(crate) topics: Vec<TopicName>,
}

/// A command to be sent later, and its subscriptions.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Bytes that a command may have.
    bytes_max: usize,
    waiting: VecDeque<Part>,
    /// The one whose answer is awaited. Its names are given back also if its subscription has ended meanwhile.
    asked: Option<(CommandId, Part)>,
}

impl Default for Parts {
    fn default() -> Self {
        Self { bytes_max: usize::MAX, waiting: VecDeque::new(), asked: None }
    }
}

impl Parts {
    /// Takes how large a command may be.
    pub(crate) fn handle_limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Forgets everything, because the connection is gone.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.asked = None;
    }

    /// Whether something is to be asked for one.
    pub(crate) fn has(&self, of: SubscriptionId) -> bool {
        self.waiting.iter().any(|part| part.of == of)
    }

    /// Forgets what was to be asked for one.
    pub(crate) fn remove(&mut self, of: SubscriptionId) {
        self.waiting.retain(|part| part.of != of);
    }

    /// The places that go with a command, and the topics of the others, which wait from now on.
    pub(crate) fn split(
        &mut self,
        of: SubscriptionId,
        command: &Subscribe,
        mut places: Vec<(TopicName, Position)>,
    ) -> (Vec<(TopicName, Position)>, Vec<TopicName>) {
        self.remove(of);
        if places.is_empty() {
            return (places, vec![]);
        }
        let mut room = Room(self.bytes_max.saturating_sub(bytes_of(command)));
        let mut fits = |(topic, at): &(TopicName, Position)| room.take(bytes_of_place(topic, at));
        let count = places.iter().take_while(|place| fits(place)).count();
        let others = places.split_off(count);
        let unnamed = Subscribe { selectors: Vec::new(), ..command.clone() };
        let bytes_max = self.bytes_max.saturating_sub(bytes_of(&unnamed));
        let parts = parts_of(&others, bytes_max);
        self.waiting.extend(parts.into_iter().map(|topics| Part { of, topics }));
        (places, others.into_iter().map(|(topic, _)| topic).collect())
    }

    /// The next command, once the previous one is answered: of a subscription that `is_answered`.
    pub(crate) fn next(&mut self, is_answered: impl Fn(SubscriptionId) -> bool) -> Option<Part> {
        if self.asked.is_some() {
            return None;
        }
        let index = self.waiting.iter().position(|part| is_answered(part.of))?;
        self.waiting.remove(index)
    }

    /// Notes that a part is asked for.
    pub(crate) fn handle_asked(&mut self, as_id: CommandId, part: Part) {
        self.asked = Some((as_id, part));
    }

    /// The part that was asked for with this command, if it is one.
    pub(crate) fn handle_answered(&mut self, id: CommandId) -> Option<Part> {
        self.asked.take_if(|(asked_as, _)| *asked_as == id).map(|(_, part)| part)
    }

    /// Has a part asked for as two; answers whether that can be.
    pub(crate) fn halve(&mut self, of: SubscriptionId, mut topics: Vec<TopicName>) -> bool {
        let other = topics.split_off(topics.len() / 2);
        if topics.is_empty() {
            return false;
        }
        self.waiting.push_front(Part { of, topics: other });
        self.waiting.push_front(Part { of, topics });
        true
    }
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
        let id = SubscriptionId::of(7);
        let selector = |text| Selector::parse(text, &Limits::default()).expect("valid");
        for (count, bytes_max) in [(0, 500), (3, 500), (100, 5_000), (2_500, 150_000)] {
            let mut parts = Parts::default();
            parts.handle_limit(bytes_max);
            let all: Vec<_> = (0..count).map(place).collect();
            let asked = command(vec![selector("a/+")], vec![]);
            let (first, later) = parts.split(id, &asked, all.clone());
            assert!(bytes_of(&command(asked.selectors, first.clone())) <= bytes_max);
            let first_count = first.len();
            let mut given = first;
            let mut named = Vec::new();
            while let Some(part) = parts.next(|_| true) {
                assert!(part.of == id && part.topics.len() <= TOPICS_MAX);
                let selectors = part.topics.iter().map(Selector::of_topic).collect();
                let begun = first_count + named.len();
                let places = all[begun..begun + part.topics.len()].to_vec();
                assert!(bytes_of(&command(selectors, places.clone())) <= bytes_max);
                given.extend(places);
                named.extend(part.topics);
            }
            assert_eq!((given, named), (all, later));
        }
    }

    #[test]
    fn one_part_is_asked_for_at_a_time_and_only_of_those_that_are_there() {
        let mut parts = Parts::default();
        parts.handle_limit(300);
        let (one, other) = (SubscriptionId::of(1), SubscriptionId::of(2));
        for id in [one, other] {
            parts.split(id, &command(vec![], vec![]), (0..6).map(place).collect());
        }
        assert_eq!(parts.next(|_| false), None);
        let part = parts.next(|of| of == other).expect("there is one");
        parts.handle_asked(CommandId(1), part);
        assert_eq!(parts.next(|_| true), None, "one is not answered");
        parts.remove(other);
        assert_eq!(parts.handle_answered(CommandId(2)), None);
        let answered = parts.handle_answered(CommandId(1)).expect("its names are to be given back");
        assert_eq!(answered.of, other);
        while let Some(part) = parts.next(|_| true) {
            assert_eq!(part.of, one);
        }
        let topics = (0..3).map(|number| place(number).0).collect();
        assert!(parts.halve(one, topics));
        let halves = std::iter::from_fn(|| parts.next(|_| true)).map(|part| part.topics.len());
        assert_eq!(halves.collect::<Vec<_>>(), [1, 2]);
        assert!(!parts.halve(one, vec![place(0).0]));
    }
}
