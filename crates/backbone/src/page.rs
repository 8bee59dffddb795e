//! Pages of a topic's publications: which ones are asked for, and which of them fit.

use model::{HistoryStart, Publication, Sequence};

/// Bytes of payloads, as they are told, in a page of a history; one publication may be larger.
pub const PAGE_BYTES: usize = 4 << 20;

/// Which publications of a topic are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWanted {
    /// Those after this sequence.
    pub after: Sequence,
    /// Of those, the ones before this sequence.
    pub before: Sequence,
    /// Of those, the first that is not older than this (milliseconds since 1970), and what follows.
    pub since_ms: u64,
    /// At most so many.
    pub count: usize,
    /// No more once their payloads have so many bytes as they are told; always one, if there is one.
    pub bytes_max: usize,
    /// Which of them, if not all fit.
    pub keep: PageEnd,
}

/// The end at which a page is whole: it is cut at the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEnd {
    /// A reader that goes forwards continues after it.
    Oldest,
    /// A reader that goes backwards continues before it.
    Newest,
}

impl ReadWanted {
    /// The first `count` after a sequence.
    pub fn after(after: Sequence, count: usize) -> Self {
        Self {
            after,
            before: Sequence::MAX,
            since_ms: 0,
            count,
            bytes_max: PAGE_BYTES,
            keep: PageEnd::Oldest,
        }
    }

    /// The bounds of a page of a history, for a topic whose newest sequence is `head`.
    pub fn of_history(start: HistoryStart, limit: usize, head: Sequence) -> Self {
        let back = |end: Sequence, count: usize| Self {
            after: end.back(count as u64),
            before: end.next(),
            since_ms: 0,
            count,
            bytes_max: PAGE_BYTES,
            keep: PageEnd::Newest,
        };
        match start {
            HistoryStart::After(sequence) => Self::after(sequence.min(head), limit),
            HistoryStart::Last(count) => {
                back(head, limit.min(usize::try_from(count).unwrap_or(limit)))
            }
            HistoryStart::Before(sequence) => back(sequence.back(1).min(head), limit),
            HistoryStart::Since(since_ms) => {
                Self { since_ms, ..Self::after(Sequence::START, limit) }
            }
        }
    }

    /// The page, of publications that come oldest first.
    pub fn take(self, found: impl DoubleEndedIterator<Item = Publication>) -> Vec<Publication> {
        match self.keep {
            PageEnd::Oldest => self.take_oldest(found),
            PageEnd::Newest => {
                // It reaches back over holes, so that nobody who reads backwards takes one for the beginning.
                let found = found.rev().skip_while(|it| it.sequence() >= self.before);
                let mut page = take_page(found, self.count, self.bytes_max);
                page.reverse();
                page
            }
        }
    }

    /// The page, if it is whole at its oldest end.
    pub fn take_oldest(self, found: impl Iterator<Item = Publication>) -> Vec<Publication> {
        let found = found
            .skip_while(|it| it.sequence() <= self.after)
            .take_while(|it| it.sequence() < self.before)
            .skip_while(|it| it.unix_ms() < self.since_ms);
        take_page(found, self.count, self.bytes_max)
    }

    /// Up to where nothing of what was asked for is in the page, of a topic that had everything through `head` kept or removed when it was
    /// read: everything after that is in it, or comes after it.
    pub fn complete_after(&self, page: &[Publication], head: Sequence) -> Sequence {
        match page.first() {
            Some(first) => first.previous().max(self.after),
            None => head.min(self.before.back(1)).max(self.after),
        }
    }

    /// The sequence before the page: publications between it and the first one of the page are not kept.
    pub fn page_start(&self, page: &[Publication], head: Sequence) -> Sequence {
        let Some(first) = page.first() else {
            return if self.keep == PageEnd::Newest { head } else { self.after };
        };
        let just_before = first.previous();
        let bytes: usize = page.iter().map(Publication::told_bytes).sum();
        let is_cut = page.len() >= self.count || bytes >= self.bytes_max;
        match self.keep {
            // Asked by time, nothing is missing before it.
            PageEnd::Oldest if self.since_ms > 0 => just_before,
            PageEnd::Oldest => self.after,
            PageEnd::Newest if is_cut => just_before,
            // As many as it lacks are gone, or there never were so many: those of other topics are not counted.
            PageEnd::Newest => just_before.back((self.count - page.len()) as u64),
        }
    }
}

/// The next publications, at most `count`, and no more once they have `bytes_max` bytes; always one if there is one.
fn take_page(
    mut found: impl Iterator<Item = Publication>,
    count: usize,
    bytes_max: usize,
) -> Vec<Publication> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    while page.len() < count
        && (bytes < bytes_max || page.is_empty())
        && let Some(publication) = found.next()
    {
        bytes += publication.told_bytes();
        page.push(publication);
    }
    page
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Moment, Payload, PayloadKind};

    use super::*;

    fn kept(sequences: impl IntoIterator<Item = u64>, bytes: usize) -> Vec<Publication> {
        let payload = vec![0; bytes];
        let one = |number: u64| {
            let now = Moment { elapsed: Duration::ZERO, unix_ms: number };
            let payload = Payload::new(PayloadKind::Bytes, &payload);
            Publication::new(payload, Sequence::new(number).expect("small"), now)
        };
        sequences.into_iter().map(one).collect()
    }

    fn page(all: &[Publication], start: HistoryStart, limit: usize) -> (u64, Vec<u64>) {
        let head = all.last().expect("not empty").sequence();
        let wanted = ReadWanted::of_history(start, limit, head);
        let page = wanted.take(all.iter().cloned());
        let sequences = page.iter().map(|it| it.sequence().get()).collect();
        (wanted.page_start(&page, head).get(), sequences)
    }

    fn before(number: u64) -> HistoryStart {
        HistoryStart::Before(Sequence::new(number).expect("small"))
    }

    #[test]
    fn a_page_before_a_sequence_never_reaches_it() {
        let all = kept(11..=20, 1);
        assert_eq!(
            page(&all, before(15), 10),
            (4, vec![11, 12, 13, 14]),
            "the oldest were removed"
        );
        assert_eq!(page(&all, before(15), 2), (12, vec![13, 14]));
        assert_eq!(page(&all, before(11), 10), (20, vec![]));
        assert_eq!(page(&all, HistoryStart::Last(3), 100), (17, vec![18, 19, 20]));
        assert_eq!(page(&all, HistoryStart::Last(100), 3), (17, vec![18, 19, 20]));
        assert_eq!(page(&all, HistoryStart::Last(100), 100), (0, (11..=20).collect()));
    }

    #[test]
    fn a_page_since_a_time_has_all_after_its_first() {
        let mut all = kept(1..=3, 1);
        // A store of before times stood still has such.
        let back = Moment { elapsed: Duration::ZERO, unix_ms: 1 };
        let payload = Payload::new(PayloadKind::Text, b"x");
        all.push(Publication::new(payload, Sequence::new(4).expect("small"), back));
        all.extend(kept(5..=6, 1));
        assert_eq!(page(&all, HistoryStart::Since(3), 10), (2, vec![3, 4, 5, 6]));
    }

    #[test]
    fn a_page_is_as_large_as_it_is_told() {
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 1 };
        // As it stands, with escapes of six and two bytes, and in base64.
        let cases = [
            (PayloadKind::Text, "x".repeat(1_000), 10),
            (PayloadKind::Text, "\u{1}".repeat(1_000), 2),
            (PayloadKind::Text, "\n".repeat(1_000), 5),
            (PayloadKind::Bytes, "\u{1}".repeat(1_000), 8),
            (PayloadKind::Json, "1".repeat(1_000), 10),
        ];
        for (kind, payload, count) in cases {
            let one = |number: u64| {
                let payload = Payload::new(kind, payload.as_bytes());
                Publication::new(payload, Sequence::new(number).expect("small"), now)
            };
            let all = (1..=20).map(one);
            let wanted = ReadWanted { bytes_max: 10_000, ..ReadWanted::after(Sequence::START, 20) };
            assert_eq!(wanted.take(all).len(), count, "{kind:?}: {:?}", &payload[..2]);
        }
    }

    /// Reading backwards, or forwards, gives all that is kept exactly once, whatever the pages hold.
    #[test]
    fn paging_sees_everything_once() {
        let mut state = 7u64;
        let mut below = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        for _ in 0..60 {
            let (newest, holes) = (1 + below(60), below(5));
            let bytes = [1, 1 << 20, 5 << 20][below(3) as usize];
            let sequences = (1..=newest).filter(|it| *it == newest || below(5) >= holes);
            let all = kept(sequences.collect::<Vec<_>>(), bytes);
            let expected: Vec<u64> = all.iter().map(|it| it.sequence().get()).collect();
            let limit = 1 + below(12) as usize;
            let mut backwards = Vec::new();
            let mut start = HistoryStart::Last(limit as u64);
            loop {
                let (_, mut found) = page(&all, start, limit);
                let Some(first) = found.first().copied() else { break };
                found.extend(std::mem::take(&mut backwards));
                backwards = found;
                start = before(first);
            }
            assert_eq!(backwards, expected, "backwards by {limit}");
            let (mut forwards, mut after) = (Vec::new(), Sequence::START);
            loop {
                let (_, found) = page(&all, HistoryStart::After(after), limit);
                let Some(last) = found.last() else { break };
                after = Sequence::new(*last).expect("small");
                forwards.extend(found);
            }
            assert_eq!(forwards, expected, "forwards by {limit}");
        }
    }
}
