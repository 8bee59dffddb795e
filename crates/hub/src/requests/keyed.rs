//! Requests with a key, at the key's home: one that comes again has the first one's outcome.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;
use model::TopicName;

use super::{Outcome, Ticket};

/// What makes two requests the same: who asks, about what, and the key.
pub(super) type KeyName = (std::sync::Arc<str>, TopicName, Box<str>);

/// What is known of a key.
#[derive(Clone, Debug)]
pub(super) enum Keyed {
    /// The request is under way; these wait for its outcome.
    UnderWay(Vec<Ticket>),
    /// It had this outcome.
    Done(Outcome),
}

/// The keys that are remembered.
#[derive(Debug, Default)]
pub(super) struct Keys {
    known: HashMap<KeyName, Keyed, RandomState>,
    /// Those that are done, the oldest first, and when they were.
    done: VecDeque<(Duration, KeyName)>,
    /// Payload bytes of their outcomes.
    bytes: usize,
}

fn bytes_of(outcome: &Outcome) -> usize {
    outcome.result.as_ref().map_or(0, |(_, payload)| payload.bytes().len())
}

impl Keys {
    /// Notes one who asks with a key; answers the outcome if there is one, and whether it is the first.
    pub fn ask(&mut self, key: KeyName, ticket: Ticket) -> (Option<Outcome>, bool) {
        match self.known.get_mut(&key) {
            Some(Keyed::Done(outcome)) => (Some(outcome.clone()), false),
            Some(Keyed::UnderWay(waiting)) => {
                waiting.push(ticket);
                (None, false)
            }
            None => {
                self.known.insert(key, Keyed::UnderWay(vec![ticket]));
                (None, true)
            }
        }
    }

    /// Notes the outcome, unless asking again may have another one; answers who waits for it.
    pub fn settle(&mut self, key: KeyName, outcome: &Outcome, now: Duration) -> Vec<Ticket> {
        let Some(Keyed::UnderWay(waiting)) = self.known.remove(&key) else { return Vec::new() };
        if outcome.is_final() {
            self.bytes += bytes_of(outcome);
            self.known.insert(key.clone(), Keyed::Done(outcome.clone()));
            self.done.push_back((now, key));
        }
        waiting
    }

    /// Forgets what was done before `before`, and the oldest beyond so many, or so many bytes of answers.
    pub fn forget(&mut self, before: Duration, count_max: usize, bytes_max: usize) {
        let is_over = |it: &Self, at: Duration| {
            at < before || it.done.len() > count_max || it.bytes > bytes_max
        };
        while self.done.front().is_some_and(|(at, _)| is_over(self, *at)) {
            let Some((_, key)) = self.done.pop_front() else { return };
            if let Some(Keyed::Done(outcome)) = self.known.remove(&key) {
                self.bytes -= bytes_of(&outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{Limits, Payload, PayloadKind};

    use super::*;

    #[test]
    fn outcomes_are_remembered_within_bounds() {
        let (mut keys, payload) = (Keys::default(), Payload::new(PayloadKind::Bytes, &[0; 100]));
        let outcome = Outcome { result: Ok(("s".into(), Arc::new(payload))) };
        let topic = TopicName::parse("t", &Limits::default()).expect("valid");
        let name = |number: u64| -> KeyName {
            ("p".into(), topic.clone(), number.to_string().as_str().into())
        };
        for number in 0..10 {
            assert_eq!(keys.ask(name(number), number), (None, true));
            let at = Duration::from_secs(number);
            assert_eq!(keys.settle(name(number), &outcome, at), [number]);
        }
        keys.forget(Duration::from_secs(2), 7, 1 << 20);
        assert_eq!((keys.known.len(), keys.bytes), (7, 700), "old ones and the oldest of too many");
        keys.forget(Duration::ZERO, 100, 250);
        assert_eq!((keys.known.len(), keys.bytes), (2, 200), "too many bytes");
        assert_eq!(keys.ask(name(9), 1).0, Some(outcome));
    }
}
