//! What stands between a session that is polled and its polls: the answer to a poll is kept until the next poll says that it
//! arrived.

use access::Counted;
use model::planted::{Fault, is_planted};

use crate::memory::Memory;
use crate::reply::Asker;

/// State between a polled session and its polls.
#[derive(Debug)]
pub(crate) struct Poll {
    /// Its place among the connections of its client's address.
    pub counted: Option<Counted>,
    /// The poll that waits for something to tell.
    asker: Option<Asker>,
    /// What the next answer will say.
    unsent: Vec<u8>,
    /// The number of the last answer.
    batch: u64,
    /// The last answer, until it is known to have arrived.
    told: Vec<u8>,
}

/// What follows from a poll.
#[derive(Debug)]
pub(crate) enum Polled {
    /// The last answer did not arrive: it is told again.
    Again(Asker, Vec<u8>),
    /// Its sender has what was never told, or misses what is gone.
    Lost(Asker),
    /// It waits for something to tell, instead of an earlier one that was given up.
    Waits(Option<Asker>),
}

impl Poll {
    /// The first poll waits.
    pub(crate) fn new(asker: Asker, counted: Option<Counted>) -> Self {
        Self { counted, asker: Some(asker), unsent: Vec::new(), batch: 0, told: Vec::new() }
    }

    /// Whether a poll waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.asker.is_some()
    }

    /// Takes a poll whose sender has every batch up to `batch`.
    #[must_use = "somebody waits for what follows"]
    pub(crate) fn handle_poll(&mut self, asker: Asker, batch: u64) -> Polled {
        if batch + 1 == self.batch && is_planted(Fault::PollsUnkept) {
            self.batch = batch;
        } else if batch + 1 == self.batch && !self.told.is_empty() {
            return Polled::Again(asker, self.told.clone());
        }
        if batch != self.batch {
            return Polled::Lost(asker);
        }
        self.told = Vec::new();
        // Whoever polls twice at a time gave the first one up.
        Polled::Waits(self.asker.replace(asker))
    }

    /// The poll that waits, and what it is told.
    #[must_use = "a poll waits for it"]
    pub(crate) fn take_answer(&mut self) -> Option<(Asker, &[u8])> {
        let asker = self.asker.take()?;
        self.batch += 1;
        let mut lines = std::mem::take(&mut self.unsent);
        let end = format!("{{\"type\":\"polled\",\"batch\":{}}}\n", self.batch);
        lines.extend_from_slice(end.as_bytes());
        self.told = lines;
        Some((asker, &self.told))
    }

    /// The poll that waits when the session ends.
    pub(crate) fn into_asker(self) -> Option<Asker> {
        self.asker
    }

    /// What a polled session takes of what it is told; nothing while nobody polls.
    #[must_use = "not all may have been taken"]
    pub(crate) fn take(&mut self, bytes: &[u8], bytes_max: usize, memory: &Memory) -> hub::Sent {
        /// A little is taken in any case.
        const LITTLE_BYTES: usize = 4 << 10;
        /// Kept until it is known to have arrived, and on its way twice.
        const COPIES: usize = 4;
        let has_room = self.unsent.len() < bytes_max
            && (self.unsent.len() + bytes.len() <= LITTLE_BYTES
                || memory.has_room(COPIES * bytes.len()));
        if self.asker.is_none() || !has_room {
            return hub::Sent::Taken(0);
        }
        self.unsent.extend_from_slice(bytes);
        hub::Sent::Taken(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use hub::{Connections, ShardConnection, ShardIndex};

    use super::*;

    fn asker() -> Asker {
        let id = Connections::default().open(1, ()).expect("a new table has room");
        let connection = ShardConnection { shard: ShardIndex(0), id };
        Asker { connection, keep_alive: true, is_head: false, network: None, origin: None }
    }

    #[test]
    fn an_answer_is_told_again_until_the_next_poll_says_that_it_arrived() {
        let mut poll = Poll::new(asker(), None);
        let told = |poll: &mut Poll| {
            assert_eq!(poll.take(b"{}\n", 1_000, &Memory::default()), hub::Sent::Taken(3));
            let (_, lines) = poll.take_answer().expect("a poll waits");
            String::from_utf8(lines.to_vec()).expect("text")
        };
        let first = told(&mut poll);
        assert_eq!(first, "{}\n{\"type\":\"polled\",\"batch\":1}\n");
        assert_eq!(poll.take(b"{}\n", 1_000, &Memory::default()), hub::Sent::Taken(0));
        for _ in 0..2 {
            let Polled::Again(_, again) = poll.handle_poll(asker(), 0) else { panic!("{poll:?}") };
            assert_eq!(again, first.as_bytes());
        }
        assert!(matches!(poll.handle_poll(asker(), 1), Polled::Waits(None)));
        assert!(matches!(poll.handle_poll(asker(), 1), Polled::Waits(Some(_))), "given up");
        assert!(told(&mut poll).contains("\"batch\":2"));
        assert!(matches!(poll.handle_poll(asker(), 0), Polled::Lost(_)));
        assert!(matches!(poll.handle_poll(asker(), 3), Polled::Lost(_)));
    }

    #[test]
    fn a_poll_takes_a_little_in_any_case_and_no_more_than_it_may() {
        let (mut poll, memory) = (Poll::new(asker(), None), Memory::fixed(1));
        memory.set_used(1);
        assert_eq!(poll.take(&[0; 4_096], 5_000, &memory), hub::Sent::Taken(4_096));
        assert_eq!(poll.take(&[0; 1], 5_000, &memory), hub::Sent::Taken(0), "no memory is left");
        assert_eq!(poll.take(&[0; 904], 5_000, &Memory::default()), hub::Sent::Taken(904));
        assert_eq!(
            poll.take(&[0; 1], 5_000, &Memory::default()),
            hub::Sent::Taken(0),
            "it is full"
        );
    }
}
