//! The thread that writes: batches that are made durable, then what need not stay any more.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use fjall::PersistMode;
use model::Sequence;

use super::open::Files;
use super::{Deliver, StoreMail};
use crate::record::{self, key_of};
use crate::retention::{Front, Kept};
use crate::{Record, StoreFault, Written};

/// The thread that writes.
pub(super) struct Writer {
    pub files: Files,
    pub deliver: Arc<Vec<Deliver>>,
    /// When the oldest record of a topic grows too old (milliseconds since 1970), and which topic.
    pub due: BTreeSet<(u64, u64)>,
}

/// Records and bytes in one batch.
const BATCH_LEN: usize = 8_192;
const BATCH_BYTES: usize = 16 << 20;

/// How often the writer looks for records that grew too old.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Writer {
    pub fn run(mut self, incoming: &Receiver<(usize, Record)>) {
        let mut batch = Vec::new();
        let found: Vec<u64> = self.files.kept.keys().copied().collect();
        let mut result = self.forget(found);
        while result.is_ok() {
            match incoming.recv_timeout(LOOK_EVERY) {
                Ok(first) => {
                    gather(first, incoming, &mut batch);
                    result = self.write(&batch);
                    self.answer(&batch, &result.as_ref().copied().map_err(fault_of));
                    if result.is_ok() {
                        result = self.forget_after(&batch);
                    }
                    batch.clear();
                }
                Err(RecvTimeoutError::Timeout) => result = self.forget_due(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        if let Err(error) = result {
            let fault = fault_of(&error);
            tracing::error!(%fault, "the store has stopped: durable topics take nothing more");
            // Whoever still hands something over hears the same.
            while let Ok(late) = incoming.recv() {
                self.answer(&[late], &Err(fault.clone()));
            }
        }
    }

    fn write(&mut self, batch: &[(usize, Record)]) -> fjall::Result<()> {
        let files = &mut self.files;
        let written = files.written + batch.len() as u64;
        let mut writes = files.database.batch().durability(Some(PersistMode::SyncData));
        for (_, record) in batch {
            if record.publication.sequence() == Sequence::START.next() {
                let number = record.topic_number.to_be_bytes();
                writes.insert(&files.topics, number, record.topic.as_str());
            }
            writes.insert(&files.records, record.key(), record.value());
        }
        writes.insert(&files.meta, "written", written.to_be_bytes());
        let began = Instant::now();
        writes.commit()?;
        let took = began.elapsed();
        if took >= SLOW_DISK {
            let (ms, records) = (took.as_millis() as u64, batch.len());
            tracing::warn!(ms, records, "the disk was slow: publications waited for it");
        }
        files.written = written;
        // Not made durable by itself: it may be behind after a power loss, never ahead.
        files.mark.write_all_at(&written.to_be_bytes(), 0)?;
        Ok(())
    }

    /// Tells each shard what became of its records, in their order.
    fn answer(&self, batch: &[(usize, Record)], result: &Result<(), StoreFault>) {
        for (shard, deliver) in self.deliver.iter().enumerate() {
            let count = batch.iter().filter(|(of, _)| *of == shard).count();
            if count > 0 {
                deliver(StoreMail::Written(Written { count, result: result.clone() }));
            }
        }
    }

    /// Counts what was written, and removes what it made too much.
    fn forget_after(&mut self, batch: &[(usize, Record)]) -> fjall::Result<()> {
        let mut touched = Vec::new();
        for (_, record) in batch {
            let number = record.topic_number;
            let Files { kept, retention, .. } = &mut self.files;
            let kept = kept.entry(number).or_insert_with(|| Kept::new(retention(&record.topic)));
            kept.push(&record.publication);
            if kept.is_too_much(0) || (kept.ages() && !kept.is_due) {
                touched.push(number);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        self.forget(touched)
    }

    fn forget_due(&mut self) -> fjall::Result<()> {
        let now = unix_ms();
        let mut due = Vec::new();
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.due.pop_first().map(|(_, number)| number));
        }
        for number in &due {
            if let Some(kept) = self.files.kept.get_mut(number) {
                kept.is_due = false;
            }
        }
        self.forget(due)
    }

    /// Removes what need not stay any more of these topics. It is not made durable: what comes back
    /// after a crash is removed again.
    fn forget(&mut self, topics: Vec<u64>) -> fjall::Result<()> {
        let now = unix_ms();
        let Files { database, records, kept, .. } = &mut self.files;
        let mut removals = database.batch();
        for number in topics {
            let Some(kept) = kept.get_mut(&number) else { continue };
            let load = |oldest| load_front(records, number, oldest);
            while let Some(sequence) = kept.pop_unwanted(now, load)? {
                removals.remove(records, key_of(number, sequence));
            }
            if let Some(at) = kept.due_at()
                && !kept.is_due
            {
                kept.is_due = self.due.insert((at, number));
            }
        }
        if removals.is_empty() { Ok(()) } else { removals.commit() }
    }
}

/// A batch that takes longer is worth a line in the log.
const SLOW_DISK: Duration = Duration::from_millis(100);

/// Takes what waits into one batch.
fn gather(
    first: (usize, Record),
    incoming: &Receiver<(usize, Record)>,
    batch: &mut Vec<(usize, Record)>,
) {
    let mut bytes = first.1.publication.payload().len();
    batch.push(first);
    while batch.len() < BATCH_LEN
        && bytes < BATCH_BYTES
        && let Ok(next) = incoming.try_recv()
    {
        bytes += next.1.publication.payload().len();
        batch.push(next);
    }
}

/// The oldest records of a topic from `oldest` on: some of them.
fn load_front(
    records: &fjall::Keyspace,
    number: u64,
    oldest: Sequence,
) -> fjall::Result<Vec<Front>> {
    const AHEAD: usize = 32;
    let range = records.range(key_of(number, oldest)..=key_of(number, Sequence::MAX));
    let mut front = Vec::new();
    for entry in range.take(AHEAD) {
        let (key, value) = entry.into_inner()?;
        let Some((_, sequence)) = record::parse_key(&key) else { continue };
        let (bytes, unix_ms) = match record::read(&key, &value) {
            Ok(stored) => (stored.publication.payload().len() as u64, stored.publication.unix_ms()),
            // It was told when the store was opened.
            Err(_) => (0, 0),
        };
        front.push(Front { sequence, bytes, unix_ms });
    }
    Ok(front)
}

fn fault_of(error: &fjall::Error) -> StoreFault {
    let text = format!(
        "the store cannot write ({error}); free some space or mend the disk, then restart the server"
    );
    StoreFault { text }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
