//! The thread that reads pages.
//!
//! Many sessions that come back at once read the same records: for as long as readings go on, pages are kept
//! and shared for a moment. A record never changes, so a page stays true; only its end may be out of date, and
//! whoever reads on from there asks again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fjall::Keyspace;
use model::{Publication, Sequence};

use super::mail::{Deliver, StoreMail};
use super::outbox::{Outbox, RETRY_EVERY};
use crate::record::{self, key_of};
use crate::{PageEnd, ReadWanted};

/// A wish to read.
pub(super) struct Reading {
    pub shard: usize,
    pub ticket: u64,
    pub topic_number: u64,
    pub wanted: ReadWanted,
}

/// Readings that wait, beyond which the reader rests as long as each took: who sends what is new goes first.
const READINGS_MANY: usize = 32;
/// How long it rests at most.
const REST_MAX: Duration = Duration::from_millis(5);
/// Payload bytes of pages that are kept.
const KEPT_BYTES: usize = 32 << 20;
/// How long they are: what retention removes must not seem to stay.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The thread that reads.
pub(super) struct Reader {
    records: Keyspace,
    outbox: Outbox,
    /// Readings of shards that have not taken the last page yet: there is one at a time for each.
    held: Vec<VecDeque<Reading>>,
    pages: Pages,
}

impl Reader {
    pub fn new(records: Keyspace, deliver: Arc<Vec<Deliver>>) -> Self {
        let held = deliver.iter().map(|_| VecDeque::new()).collect();
        Self { records, outbox: Outbox::new(deliver), held, pages: Pages::default() }
    }

    /// Answers readings until nobody can ask any more. In a storm it takes half of a core at most. (A low
    /// priority would do that, too, but whoever waits for a lock that it holds would wait for the rest of
    /// the storm.)
    pub fn run(mut self, readings: &Receiver<Reading>) {
        let mut waiting = VecDeque::new();
        loop {
            self.offer_again(&mut waiting);
            if waiting.is_empty() {
                let patience = if self.outbox.is_empty() { KEPT_FOR } else { RETRY_EVERY };
                match readings.recv_timeout(patience) {
                    Ok(reading) => waiting.push_back(reading),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) if !self.outbox.is_empty() => continue,
                    Err(RecvTimeoutError::Timeout) => {
                        self.pages = Pages::default();
                        let Ok(reading) = readings.recv() else { return };
                        waiting.push_back(reading);
                    }
                }
            }
            waiting.extend(readings.try_iter());
            let Some(reading) = waiting.pop_front() else { continue };
            if self.outbox.is_waiting(reading.shard) {
                self.held[reading.shard].push_back(reading);
                continue;
            }
            let began = Instant::now();
            let is_kept = self.answer(&reading);
            if !is_kept && waiting.len() > READINGS_MANY {
                std::thread::sleep(began.elapsed().min(REST_MAX));
            }
        }
    }

    /// Offers pages again, and goes on with the readings of shards that took theirs.
    fn offer_again(&mut self, waiting: &mut VecDeque<Reading>) {
        if self.outbox.is_empty() {
            return;
        }
        self.outbox.retry();
        for (shard, held) in self.held.iter_mut().enumerate() {
            if !self.outbox.is_waiting(shard) {
                waiting.append(held);
            }
        }
    }

    /// Answers one reading, and whether that took no look at the disk.
    fn answer(&mut self, reading: &Reading) -> bool {
        let Reading { shard, ticket, topic_number, wanted } = *reading;
        self.pages.drop_old(Instant::now());
        let kept = match wanted.keep {
            PageEnd::Oldest => self.pages.find(topic_number, wanted.after),
            PageEnd::Newest => None,
        };
        let is_kept = kept.is_some();
        let page = kept.cloned().unwrap_or_else(|| self.read(topic_number, wanted));
        let publications = wanted.take(page.iter().cloned());
        if is_kept && publications.is_empty() {
            // All of the kept page is older than what is wanted.
            self.pages.forget(topic_number);
            return self.answer(reading);
        }
        self.outbox.send(shard, StoreMail::Read { ticket, publications });
        is_kept
    }

    fn read(&mut self, topic_number: u64, wanted: ReadWanted) -> Arc<[Publication]> {
        let page: Arc<[Publication]> = Self::read_anew(&self.records, topic_number, wanted).into();
        // A page that starts at a time says nothing about what is before it.
        if wanted.since_ms == 0 && wanted.keep == PageEnd::Oldest && !page.is_empty() {
            self.pages.keep((topic_number, wanted.after), Arc::clone(&page), Instant::now());
        }
        page
    }

    fn read_anew(records: &Keyspace, topic_number: u64, wanted: ReadWanted) -> Vec<Publication> {
        let first = match wanted.keep {
            PageEnd::Oldest => wanted.after.next(),
            PageEnd::Newest => Sequence::START,
        };
        let range = records.range(key_of(topic_number, first)..key_of(topic_number, wanted.before));
        // What is damaged was told when the store was opened: readers are told a gap, and go on after it.
        let found = range.filter_map(|entry| {
            let (key, value) = entry.into_inner().ok()?;
            record::read(&key, &value).ok().map(|stored| stored.publication)
        });
        wanted.take(found)
    }
}

/// Pages that were read, by topic and by the sequence after which they were.
#[derive(Default)]
struct Pages {
    pages: BTreeMap<(u64, Sequence), Arc<[Publication]>>,
    /// In the order in which they were read, and when.
    order: VecDeque<((u64, Sequence), Instant)>,
    bytes: usize,
}

impl Pages {
    /// A page with the publication that follows `after`.
    fn find(&self, topic_number: u64, after: Sequence) -> Option<&Arc<[Publication]>> {
        let upto = (topic_number, after);
        let ((topic, _), page) = self.pages.range(..=upto).next_back()?;
        let reaches = page.last().is_some_and(|last| last.sequence() > after);
        (*topic == topic_number && reaches).then_some(page)
    }

    fn keep(&mut self, place: (u64, Sequence), page: Arc<[Publication]>, now: Instant) {
        self.remove(place);
        self.order.retain(|(known, _)| *known != place);
        self.bytes += bytes_of(&page);
        self.order.push_back((place, now));
        self.pages.insert(place, page);
        while self.bytes > KEPT_BYTES
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn drop_old(&mut self, now: Instant) {
        while let Some((oldest, read_at)) = self.order.front().copied()
            && now.duration_since(read_at) > KEPT_FOR
        {
            self.order.pop_front();
            self.remove(oldest);
        }
    }

    fn forget(&mut self, topic_number: u64) {
        let of_topic = self.order.iter().map(|(place, _)| *place);
        for place in of_topic.filter(|(topic, _)| *topic == topic_number).collect::<Vec<_>>() {
            self.remove(place);
        }
        self.order.retain(|((topic, _), _)| *topic != topic_number);
    }

    fn remove(&mut self, place: (u64, Sequence)) {
        let removed = self.pages.remove(&place);
        self.bytes -= removed.map_or(0, |removed| bytes_of(&removed));
    }
}

/// The bytes of a page: payloads, and roughly the overhead of each publication.
fn bytes_of(page: &[Publication]) -> usize {
    const OF_EACH: usize = 64;
    page.iter().map(|publication| publication.kept_bytes() + OF_EACH).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fjall::{Database, KeyspaceCreateOptions};
    use model::{Limits, Moment, Payload, PayloadKind, TopicName};

    use super::*;

    fn page(range: std::ops::RangeInclusive<u64>, bytes: usize) -> Arc<[Publication]> {
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        let payload = || Payload::new(PayloadKind::Bytes, &vec![0; bytes]);
        range
            .map(|number| Publication::new(payload(), Sequence::new(number).expect("small"), now))
            .collect()
    }

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).expect("small")
    }

    #[test]
    fn a_page_serves_whoever_reads_on_inside_it() {
        let mut pages = Pages::default();
        let now = Instant::now();
        pages.keep((1, sequence(10)), page(11..=20, 8), now);
        pages.keep((2, sequence(0)), page(1..=3, 8), now + KEPT_FOR);
        let reaches = |topic, after| pages.find(topic, sequence(after)).is_some();
        assert!(reaches(1, 10) && reaches(1, 19) && reaches(2, 2));
        assert!(!reaches(1, 9) && !reaches(1, 20) && !reaches(2, 3) && !reaches(3, 0));
        pages.drop_old(now + 2 * KEPT_FOR);
        let reaches = |topic, after| pages.find(topic, sequence(after)).is_some();
        assert!(!reaches(1, 10) && reaches(2, 2));
    }

    #[test]
    fn pages_take_no_more_than_their_share_of_memory() {
        let mut pages = Pages::default();
        for topic in 0..100 {
            for _ in 0..2 {
                pages.keep((topic, sequence(0)), page(1..=10, 100 << 10), Instant::now());
            }
        }
        assert!(pages.bytes <= KEPT_BYTES, "{}", pages.bytes);
        assert_eq!(pages.bytes, pages.pages.values().map(|page| bytes_of(page)).sum::<usize>());
        pages.forget(99);
        assert!(pages.find(99, sequence(0)).is_none() && pages.find(98, sequence(0)).is_some());
    }

    #[test]
    fn reading_goes_on_after_a_damaged_record() {
        let name = format!("tidegate-reader-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let database = Database::builder(&folder).open().expect("a database");
        let records = database.keyspace("records", KeyspaceCreateOptions::default).expect("opens");
        for publication in page(1..=10, 8).iter() {
            let record = crate::Record {
                topic: TopicName::parse("a", &Limits::default()).expect("valid"),
                topic_number: 1,
                publication: publication.clone(),
                idempotency_key: None,
            };
            let mut value = record.value();
            if publication.sequence() == sequence(4) {
                value[20] ^= 1;
            }
            records.insert(record.key(), value).expect("room");
        }
        let reader = Reader::new(records, Arc::new(Vec::new()));
        let found = |wanted| -> Vec<u64> {
            Reader::read_anew(&reader.records, 1, wanted)
                .iter()
                .map(|it| it.sequence().get())
                .collect()
        };
        assert_eq!(found(ReadWanted::after(sequence(1), 4)), [2, 3, 5, 6]);
        let backwards = ReadWanted {
            before: sequence(7),
            count: 4,
            keep: PageEnd::Newest,
            ..ReadWanted::after(sequence(2), 4)
        };
        assert_eq!(found(backwards), [2, 3, 5, 6]);
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
