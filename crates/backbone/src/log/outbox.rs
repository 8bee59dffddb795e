//! Messages from the store's threads to the shards: a shard that takes nothing does not stop the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::mail::{Deliver, StoreMail};
use crate::Written;

/// How often mail is offered again to a shard that had no room for it.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(1);

/// Mail for shards, in order for each.
///
/// Answers to writes that wait are added up, so they take no room; a thread that sends pages asks
/// [`Outbox::is_waiting`] first.
pub(super) struct Outbox {
    deliver: Arc<Vec<Deliver>>,
    waiting: Vec<VecDeque<StoreMail>>,
    waiting_count: usize,
}

impl Outbox {
    pub fn new(deliver: Arc<Vec<Deliver>>) -> Self {
        let waiting = deliver.iter().map(|_| VecDeque::new()).collect();
        Self { deliver, waiting, waiting_count: 0 }
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        self.deliver.len()
    }

    /// Whether a shard has not taken all that it was sent.
    pub fn is_waiting(&self, shard: usize) -> bool {
        !self.waiting[shard].is_empty()
    }

    /// Whether every shard has taken all that it was sent.
    pub fn is_empty(&self) -> bool {
        self.waiting_count == 0
    }

    /// Sends `mail`, now or as soon as there is room for it.
    pub fn send(&mut self, shard: usize, mail: StoreMail) {
        let waiting = &mut self.waiting[shard];
        let refused =
            if waiting.is_empty() { (self.deliver[shard])(mail).err() } else { Some(mail) };
        let Some(mail) = refused else { return };
        if !add_up(waiting.back_mut(), &mail) {
            self.waiting_count += 1;
            waiting.push_back(mail);
        }
    }

    /// Offers what waits again.
    pub fn retry(&mut self) {
        if self.is_empty() {
            return;
        }
        for (deliver, waiting) in self.deliver.iter().zip(&mut self.waiting) {
            while let Some(mail) = waiting.pop_front() {
                if let Err(mail) = deliver(mail) {
                    waiting.push_front(mail);
                    break;
                }
                self.waiting_count -= 1;
            }
        }
    }
}

/// Adds an answer to writes to the one before it, if both say the same.
fn add_up(last: Option<&mut StoreMail>, mail: &StoreMail) -> bool {
    match (last, mail) {
        (Some(StoreMail::Written(last)), StoreMail::Written(Written { count, result }))
            if last.result == *result =>
        {
            last.count += count;
            true
        }
        _ => false,
    }
}
