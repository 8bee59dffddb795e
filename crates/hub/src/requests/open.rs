//! Requests that are with sessions and devices of this shard.

use model::HashMap;
use std::time::Duration;

use super::ticket::Ticket;
use crate::tables::connections::ConnectionId;

/// A request that somebody here has, and has not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub ticket: Ticket,
    pub link: ConnectionId,
    pub due: Duration,
    /// Its place among those of its connection.
    at: u32,
}

/// The open requests of a shard.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    all: HashMap<u64, Open>,
    /// How many there were: the number of the newest. A JavaScript number holds 2^53 of them.
    inserted: u64,
    /// The numbers of those that each connection has.
    of_link: HashMap<ConnectionId, Vec<u64>>,
}

impl OpenRequests {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// How many a connection has.
    pub fn count_of(&self, link: ConnectionId) -> usize {
        self.of_link.get(&link).map_or(0, Vec::len)
    }

    /// Notes a request; answers its number, which no other one of this shard ever has.
    pub fn insert(&mut self, ticket: Ticket, link: ConnectionId, due: Duration) -> u64 {
        self.inserted += 1;
        let number = self.inserted;
        let numbers = self.of_link.entry(link).or_default();
        let at = numbers.len() as u32;
        numbers.push(number);
        self.all.insert(number, Open { ticket, link, due, at });
        number
    }

    pub fn get(&self, number: u64) -> Option<&Open> {
        self.all.get(&number)
    }

    pub fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.all.remove(&number)?;
        if let Some(numbers) = self.of_link.get_mut(&open.link) {
            numbers.swap_remove(open.at as usize);
            if let Some(moved) = numbers.get(open.at as usize)
                && let Some(moved) = self.all.get_mut(moved)
            {
                moved.at = open.at;
            }
            if numbers.is_empty() {
                self.of_link.remove(&open.link);
            }
        }
        Some(open)
    }

    /// The numbers of what a connection has.
    pub fn numbers_of(&self, link: ConnectionId) -> Vec<u64> {
        self.of_link.get(&link).cloned().unwrap_or_default()
    }
}
