//! Reading what is kept: what a page takes, whether memory has it, and who waits for the store.

use std::time::Duration;

use backbone::{PAGE_BYTES, PageEnd, ReadWanted, Ticket};
use hub::{PageTicket, ShardIndex};
use model::{
    Code, HistoryPage, HistoryQuery, HistoryStart, Limits, Position, Publication, Refusal,
    Sequence, TopicName,
};

use crate::memory::Reservation;
use crate::parking::{Parking, Place};
use crate::reply::{ApiReply, ReplyTo};

/// Who asked for a page of a topic's history.
#[derive(Debug)]
pub struct HistoryReply {
    /// Who hears it.
    pub to: ReplyTo<ApiReply<HistoryPage>>,
    /// The topic asked for.
    pub topic: TopicName,
}

/// A page of a topic that is at home here, as it is to be read.
#[derive(Clone, Debug)]
pub(crate) struct HistoryRead {
    /// Where the topic stands.
    pub position: Position,
    pub wanted: ReadWanted,
    start: HistoryStart,
}

impl HistoryRead {
    /// What a query takes of a topic that stands at `position`, for whoever has room for `bytes`.
    pub(crate) fn of(query: &HistoryQuery, position: Position, bytes: usize) -> Self {
        let wanted = ReadWanted::of_history(query.start, query.limit, position.sequence);
        let wanted = ReadWanted { bytes_max: PAGE_BYTES.min(bytes), ..wanted };
        Self { position, wanted, start: query.start }
    }

    /// Whether memory reaches back far enough, whose oldest publication this is, and which holds `older` before the end of the page.
    pub(crate) fn is_in_memory<'a>(
        &self,
        oldest: Option<&Publication>,
        mut older: impl Iterator<Item = &'a Publication>,
    ) -> bool {
        oldest.is_some_and(|oldest| match (self.start, self.wanted.keep) {
            (HistoryStart::Since(since), _) => oldest.unix_ms() < since,
            (_, PageEnd::Oldest) => oldest.previous() <= self.wanted.after,
            // As many as are wanted, or all that there ever were.
            (_, PageEnd::Newest) => {
                oldest.previous() == Sequence::START
                    || older.nth(self.wanted.count.saturating_sub(1)).is_some()
            }
        })
    }

    /// The page that these publications make.
    pub(crate) fn into_page(self, publications: Vec<Publication>) -> HistoryPage {
        let Self { position, wanted, .. } = self;
        let after = wanted.page_start(&publications, position.sequence);
        HistoryPage { position, after, publications }
    }
}

/// Who waits for publications from the store.
#[derive(Debug)]
pub(crate) enum StoreRead {
    /// Somebody who asked for a page of a history.
    History(HistoryReply, HistoryRead),
    /// A session of a shard, that reads a topic again from its history.
    Session { shard: ShardIndex, page: PageTicket },
}

/// What a shard waits for from the store, and which pages its sessions wait for.
#[derive(Debug)]
pub(crate) struct HistoryDesk {
    reads: Parking<StoreRead>,
    reads_max: usize,
    wait_ms: u128,
    /// Pages that sessions of this shard wait for, with the memory that they will take.
    pages: Vec<Reservation>,
}

impl HistoryDesk {
    /// Pages that sessions of a shard wait for at once.
    const PAGES_MAX: usize = 64;

    pub(crate) fn new(limits: &Limits) -> Self {
        let (reads_max, wait_max) = (limits.store_reads_max, limits.parked_ms);
        let reads = Parking::new(reads_max, wait_max);
        Self { reads, reads_max, wait_ms: wait_max.as_millis(), pages: Vec::new() }
    }

    /// Whether one more history may be read from the store.
    ///
    /// # Errors
    /// As many pages as may be are being read.
    pub(crate) fn check_room(&self, topic: &TopicName) -> Result<(), Refusal> {
        if self.reads.has_room() {
            return Ok(());
        }
        let text = format!(
            "cannot read the history of `{topic}` now: store_reads_max ({}) pages of this shard are being read from the \
             store; try again later, or raise the limit in the configuration",
            self.reads_max
        );
        Err(Refusal::new(Code::TooManyReads, text))
    }

    /// How many reads of the store are under way.
    pub(crate) fn len(&self) -> usize {
        self.reads.len()
    }

    /// The number under which the store answers.
    #[must_use = "the store answers with it"]
    pub(crate) fn park(&mut self, read: StoreRead, now: Duration) -> Ticket {
        let place = match read {
            // A session that waits for a page could not go on without it.
            StoreRead::Session { .. } => self.reads.park_until_answered(read),
            StoreRead::History(..) => self.reads.park(read, now),
        };
        Ticket(place.to_bits())
    }

    /// Who waits for what the store answers, if somebody still does.
    #[must_use = "somebody waits for the answer"]
    pub(crate) fn handle_read(&mut self, ticket: Ticket) -> Option<StoreRead> {
        self.reads.handle_answer(Place::of_bits(ticket.0))
    }

    /// Those who waited for as long as anybody may, and what they are told.
    #[must_use = "they wait for an answer"]
    pub(crate) fn poll_timed_out(
        &mut self,
        now: Duration,
        steps: &mut u64,
    ) -> Vec<(HistoryReply, Refusal)> {
        let refusal = |topic: &TopicName| {
            let text = format!(
                "cannot read the history of `{topic}`: the store did not answer within parked_ms ({}); try again later",
                self.wait_ms
            );
            Refusal::new(Code::TimedOut, text)
        };
        let timed_out = self.reads.poll_timed_out(now, steps).into_iter();
        let histories = timed_out.filter_map(|read| match read {
            StoreRead::History(reply, _) => Some(reply),
            StoreRead::Session { .. } => None,
        });
        histories
            .map(|reply| (refusal(&reply.topic), reply))
            .map(|(it, reply)| (reply, it))
            .collect()
    }

    /// Whether somebody may have waited for that long.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.reads.is_due(now)
    }

    /// How many histories were given up.
    pub(crate) fn timed_out(&self) -> u64 {
        self.reads.timed_out()
    }

    /// Whether a session's page may be fetched now. Those that cannot be had soon are asked for later: a storm of them
    /// would stand before what is new in the mailbox.
    pub(crate) fn has_room_for_page(&self) -> bool {
        self.pages.len() < Self::PAGES_MAX
    }

    /// A page for a session of this shard is under way.
    pub(crate) fn expect_page(&mut self, memory: Reservation) {
        self.pages.push(memory);
    }

    /// A page for a session of this shard is here.
    pub(crate) fn handle_page(&mut self) {
        self.pages.pop();
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Moment, Payload, PayloadKind, Sequence};
    use tokio::sync::oneshot;

    use super::*;

    fn topic() -> TopicName {
        TopicName::parse("a", &Limits::default()).expect("valid")
    }

    fn read(start: HistoryStart) -> HistoryRead {
        let sequence = Sequence::new(9).expect("small");
        let query = HistoryQuery { topic: topic(), start, limit: 3 };
        HistoryRead::of(&query, Position { epoch: Epoch::new("e"), sequence }, PAGE_BYTES)
    }

    fn kept(from: u64) -> Vec<Publication> {
        let publication = |number: u64| {
            let now = Moment { elapsed: Duration::ZERO, unix_ms: 1_000 * number };
            let sequence = Sequence::new(number).expect("small");
            Publication::new(Payload::new(PayloadKind::Text, b"x"), sequence, now)
        };
        (from..=9).map(publication).collect()
    }

    #[test]
    fn a_page_is_in_memory_if_memory_reaches_back_far_enough() {
        let at = |number| Sequence::new(number).expect("small");
        for (start, from, is_in_memory, page) in [
            (HistoryStart::After(at(4)), 5, true, [5, 6, 7]),
            (HistoryStart::After(at(4)), 6, false, [6, 7, 8]),
            (HistoryStart::Last(3), 7, true, [7, 8, 9]),
            (HistoryStart::Last(3), 8, false, [8, 9, 0]),
            (HistoryStart::Before(at(8)), 5, true, [5, 6, 7]),
            (HistoryStart::Since(6_000), 5, true, [6, 7, 8]),
            (HistoryStart::Since(5_000), 5, false, [5, 6, 7]),
        ] {
            let (read, kept) = (read(start), kept(from));
            let older = kept.iter().filter(|it| it.sequence() < read.wanted.before);
            let found = read.is_in_memory(kept.first(), older);
            assert_eq!(found, is_in_memory, "{start:?} from {from}");
            let taken = read.wanted.take(kept.iter().cloned());
            let mut found: Vec<u64> = taken.iter().map(|it| it.sequence().get()).collect();
            found.resize(3, 0);
            assert_eq!(found, page, "{start:?} from {from}");
        }
        assert!(!read(HistoryStart::Last(3)).is_in_memory(None, [].iter()));
    }

    #[test]
    fn where_sequences_have_holes_a_page_counts_publications() {
        let at = |number| Sequence::new(number).expect("small");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 1_000 };
        let place = |(previous, number)| {
            let payload = Payload::new(PayloadKind::Text, b"x");
            Publication::after(at(previous), payload, at(number), now)
        };
        let kept = [(2, 4), (4, 7), (7, 9)].map(place);
        for (start, is_in_memory, page) in [
            (HistoryStart::After(at(2)), true, &[4, 7, 9][..]),
            (HistoryStart::After(at(3)), true, &[4, 7, 9]),
            (HistoryStart::After(at(1)), false, &[4, 7, 9]),
            (HistoryStart::After(at(5)), true, &[7, 9]),
            (HistoryStart::Last(3), true, &[4, 7, 9]),
            (HistoryStart::Last(2), true, &[7, 9]),
            (HistoryStart::Before(at(8)), false, &[4, 7]),
        ] {
            let read = read(start);
            let older = kept.iter().filter(|it| it.sequence() < read.wanted.before);
            assert_eq!(read.is_in_memory(kept.first(), older), is_in_memory, "{start:?}");
            let taken = read.wanted.take(kept.iter().cloned());
            let found: Vec<u64> = taken.iter().map(|it| it.sequence().get()).collect();
            assert_eq!(found, page, "{start:?}");
        }
        let whole = [(0, 4), (4, 7)].map(place);
        assert!(read(HistoryStart::Last(3)).is_in_memory(whole.first(), whole.iter()));
    }

    #[test]
    fn a_page_of_the_newest_says_after_what_it_comes() {
        let at = |number| Sequence::new(number).expect("small");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 1_000 };
        let place = |(previous, number)| {
            let payload = Payload::new(PayloadKind::Text, b"x");
            Publication::after(at(previous), payload, at(number), now)
        };
        let after = |kept: &[(u64, u64)]| {
            let kept: Vec<Publication> = kept.iter().copied().map(place).collect();
            read(HistoryStart::Last(3)).into_page(kept).after.get()
        };
        assert_eq!(after(&[(2, 4), (4, 7), (7, 9)]), 2, "it is whole");
        assert_eq!(after(&[(0, 7), (7, 9)]), 0, "there never were more");
        assert_eq!(after(&[(4, 7), (7, 9)]), 3, "one at least is gone");
    }

    #[test]
    fn a_history_that_the_store_does_not_read_is_given_up() {
        let limits =
            Limits { store_reads_max: 1, parked_ms: Duration::from_secs(5), ..Limits::default() };
        let mut desk = HistoryDesk::new(&limits);
        let (tell, _told) = oneshot::channel();
        let reply = HistoryReply { to: ReplyTo::Api(tell), topic: topic() };
        let history = StoreRead::History(reply, read(HistoryStart::Last(1)));
        let history = desk.park(history, Duration::ZERO);
        assert_eq!(desk.check_room(&topic()).expect_err("full").code, Code::TooManyReads);
        let timed_out = desk.poll_timed_out(Duration::from_secs(100), &mut 100);
        assert!(timed_out.iter().all(|(_, refusal)| refusal.code == Code::TimedOut));
        assert_eq!((timed_out.len(), desk.timed_out(), desk.len()), (1, 1, 1));
        assert!(desk.handle_read(history).is_none());
        assert_eq!(desk.check_room(&topic()), Ok(()));
    }
}
