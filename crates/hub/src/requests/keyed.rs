//! Requests with a key, at the key's home: one that comes again has the first one's outcome.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::planted::{Fault, is_planted};
use model::{HashMap, TopicName};

use super::mail::Outcome;
use super::ticket::Ticket;

/// What makes two requests the same: who asks, about what, and the key.
pub(super) type KeyName = (Arc<str>, TopicName, Arc<str>);

/// What is known of a key.
#[derive(Clone, Debug)]
pub(super) enum Keyed {
    /// The request is under way; these wait for its outcome.
    UnderWay(HashMap<Ticket, Duration>),
    /// It had this outcome.
    Done(Outcome),
}

/// The keys that are remembered.
#[derive(Debug, Default)]
pub(super) struct Keys {
    known: HashMap<KeyName, Keyed>,
    /// Those who wait, by when they wait no more.
    waiting: BTreeMap<(Duration, Ticket), KeyName>,
    /// Those that are done, the oldest first, and when they were.
    done: VecDeque<(Duration, KeyName)>,
    /// Payload bytes of their outcomes.
    bytes: usize,
}

fn bytes_of(outcome: &Outcome) -> usize {
    outcome.result.as_ref().map_or(0, |(_, payload)| payload.bytes().len())
}

impl Keys {
    /// Notes one who asks with a key and waits until `due`; answers the outcome if there is one, and whether it is the
    /// first.
    pub fn ask(&mut self, key: KeyName, ticket: Ticket, due: Duration) -> (Option<Outcome>, bool) {
        let is_first = match self.known.get_mut(&key) {
            Some(Keyed::Done(outcome)) => return (Some(outcome.clone()), false),
            Some(Keyed::UnderWay(waiting)) => {
                waiting.insert(ticket, due);
                false
            }
            None => {
                let first = HashMap::from_iter([(ticket, due)]);
                self.known.insert(key.clone(), Keyed::UnderWay(first));
                true
            }
        };
        self.waiting.insert((due, ticket), key);
        (None, is_first)
    }

    pub fn has_outcome(&self, key: &KeyName) -> bool {
        matches!(self.known.get(key), Some(Keyed::Done(_)))
    }

    /// How many wait for outcomes.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets those who wait no more: their own shards told them so.
    pub fn forget_waiting(&mut self, now: Duration) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
            && !is_planted(Fault::TicketGivenTwice)
        {
            let ((_, ticket), key) = first.remove_entry();
            if let Some(Keyed::UnderWay(waiting)) = self.known.get_mut(&key) {
                waiting.remove(&ticket);
            }
        }
    }

    /// Notes the outcome, unless asking again may have another one; answers who waits for it.
    pub fn settle(&mut self, key: KeyName, outcome: &Outcome, now: Duration) -> Vec<Ticket> {
        let Some(Keyed::UnderWay(waiting)) = self.known.remove(&key) else { return Vec::new() };
        for (ticket, due) in &waiting {
            self.waiting.remove(&(*due, *ticket));
        }
        if outcome.is_final() {
            self.bytes += bytes_of(outcome);
            self.known.insert(key.clone(), Keyed::Done(outcome.clone()));
            self.done.push_back((now, key));
        }
        let mut waiting: Vec<Ticket> = waiting.into_keys().collect();
        waiting.sort_unstable();
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
    use model::{Limits, Payload, PayloadKind};

    use super::*;
    use crate::tables::index::ShardIndex;

    #[test]
    fn outcomes_are_remembered_within_bounds() {
        let (mut keys, payload) = (Keys::default(), Payload::new(PayloadKind::Bytes, &[0; 100]));
        let outcome = Outcome { result: Ok(("s".into(), Arc::new(payload))) };
        let topic = TopicName::parse("t", &Limits::default()).expect("valid");
        let name = |number: u64| -> KeyName {
            ("p".into(), topic.clone(), number.to_string().as_str().into())
        };
        let ticket = |number| Ticket { shard: ShardIndex(0), number };
        for number in 0..10 {
            let at = Duration::from_secs(number);
            assert_eq!(keys.ask(name(number), ticket(number), at), (None, true));
            assert_eq!(keys.settle(name(number), &outcome, at), [ticket(number)]);
        }
        keys.forget(Duration::from_secs(2), 7, 1 << 20);
        assert_eq!((keys.known.len(), keys.bytes), (7, 700), "old ones and the oldest of too many");
        keys.forget(Duration::ZERO, 100, 250);
        assert_eq!((keys.known.len(), keys.bytes), (2, 200), "too many bytes");
        assert_eq!(keys.ask(name(9), ticket(1), Duration::MAX).0, Some(outcome));
    }
}
