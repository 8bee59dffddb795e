//! Requests that are with sessions and devices of this shard.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use slab::Slab;

use super::Ticket;

/// A request that somebody here has, and has not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub ticket: Ticket,
    pub link: u32,
    pub serial: u32,
    pub due: Duration,
    generation: u32,
}

/// The open requests of a shard.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    all: Slab<Open>,
    generations: u32,
    /// The numbers of those that each connection has.
    of_link: HashMap<u32, Vec<u64>, RandomState>,
}

/// Numbers stay below 2^53, so that a JavaScript number holds them.
const GENERATION_BITS: u32 = 20;

fn number_of(slot: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | slot as u64
}

impl OpenRequests {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// How many a connection has.
    pub fn count_of(&self, link: u32) -> usize {
        self.of_link.get(&link).map_or(0, Vec::len)
    }

    /// Notes a request; answers its number.
    pub fn insert(&mut self, ticket: Ticket, link: u32, serial: u32, due: Duration) -> u64 {
        self.generations = self.generations.wrapping_add(1) & ((1 << GENERATION_BITS) - 1);
        let generation = self.generations;
        let slot = self.all.insert(Open { ticket, link, serial, due, generation });
        let number = number_of(slot, generation);
        self.of_link.entry(link).or_default().push(number);
        number
    }

    pub fn get(&self, number: u64) -> Option<&Open> {
        let open = self.all.get((number & u64::from(u32::MAX)) as usize)?;
        (u64::from(open.generation) == number >> 32).then_some(open)
    }

    pub fn remove(&mut self, number: u64) -> Option<Open> {
        let open = *self.get(number)?;
        self.all.remove((number & u64::from(u32::MAX)) as usize);
        if let Some(numbers) = self.of_link.get_mut(&open.link) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.of_link.remove(&open.link);
            }
        }
        Some(open)
    }

    /// The numbers of what a connection has.
    pub fn numbers_of(&self, link: u32) -> Vec<u64> {
        self.of_link.get(&link).cloned().unwrap_or_default()
    }
}
