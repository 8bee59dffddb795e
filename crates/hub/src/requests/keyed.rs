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
            self.known.insert(key.clone(), Keyed::Done(outcome.clone()));
            self.done.push_back((now, key));
        }
        waiting
    }

    /// Forgets what was done before `before`, and the oldest beyond `count_max`.
    pub fn forget(&mut self, before: Duration, count_max: usize) {
        while self.done.front().is_some_and(|(at, _)| *at < before || self.done.len() > count_max) {
            if let Some((_, key)) = self.done.pop_front() {
                self.known.remove(&key);
            }
        }
    }
}
