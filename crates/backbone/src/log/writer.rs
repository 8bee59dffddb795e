//! The thread that writes: batches that are made durable, then what need not stay any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use fjall::PersistMode;
use model::{Limits, Sequence};

use super::keys;
use super::mail::{Deliver, SharedFault, StoreMail};
use super::open::{Files, named, spare_of};
use super::outbox::{Outbox, RETRY_EVERY};
use crate::record::{self, key_of};
use crate::retention::{Front, Kept};
use crate::{Record, StoreFault, Written};

/// The thread that writes.
pub(super) struct Writer {
    files: Files,
    outbox: Outbox,
    /// When the oldest record of a topic grows too old (milliseconds since 1970), and which topic.
    due: BTreeSet<(u64, u64)>,
    /// When that was looked at last.
    looked_at: Instant,
    wants_epoch: Arc<AtomicBool>,
    fault: SharedFault,
    /// How long idempotency keys stay, and since when those on disk are at the earliest (milliseconds).
    key_window_ms: u64,
    keys_since_ms: u64,
}

/// Records and bytes in one batch.
const BATCH_LEN: usize = 8_192;
const BATCH_BYTES: usize = 16 << 20;

/// How often the writer looks for records that grew too old.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Writer {
    pub fn new(
        files: Files,
        deliver: Arc<Vec<Deliver>>,
        wants_epoch: Arc<AtomicBool>,
        fault: SharedFault,
        limits: &Limits,
    ) -> Self {
        let window = limits.idempotency_window_ms.as_millis();
        Self {
            files,
            outbox: Outbox::new(deliver),
            due: BTreeSet::new(),
            looked_at: Instant::now(),
            wants_epoch,
            fault,
            key_window_ms: u64::try_from(window).unwrap_or(u64::MAX),
            keys_since_ms: 0,
        }
    }

    /// Writes until nobody can hand anything over any more.
    pub fn run(mut self, incoming: &Receiver<(usize, Record)>) {
        let Err(error) = self.write_all(incoming) else { return };
        let fault = fault_of(&error);
        tracing::error!(%fault, "the store has stopped: durable topics take nothing more");
        // It is set once: only this thread sets it.
        let _ = self.fault.set(fault.clone());
        self.refuse_all(incoming, &fault);
    }

    fn write_all(&mut self, incoming: &Receiver<(usize, Record)>) -> fjall::Result<()> {
        let mut batch = Vec::new();
        let found: Vec<u64> = self.files.kept.keys().copied().collect();
        self.forget(found)?;
        self.forget_keys()?;
        loop {
            let patience = if self.outbox.is_empty() { LOOK_EVERY } else { RETRY_EVERY };
            match incoming.recv_timeout(patience) {
                Ok(first) => {
                    gather(first, incoming, &mut batch);
                    let result = self.write(&batch);
                    self.answer(&batch, &result.as_ref().copied().map_err(fault_of));
                    result?;
                    self.forget_after(&batch)?;
                    batch.clear();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.wants_epoch.load(Ordering::Relaxed) {
                self.begin_epoch()?;
            }
            self.outbox.retry();
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.looked_at = Instant::now();
                self.forget_due()?;
                self.forget_keys()?;
            }
        }
    }

    /// Begins the next epoch, durably before anybody hears of it. There is one for each life of the process: what was given in an
    /// epoch that it began itself nobody can know better.
    fn begin_epoch(&mut self) -> fjall::Result<()> {
        let Some(epoch) = self.files.next_epoch.take() else { return Ok(()) };
        let files = &self.files;
        let mut batch = files.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&files.meta, "epoch", epoch.as_str());
        batch.commit()?;
        tracing::error!(
            %epoch,
            "the store is an older copy that was put back: a client has a position that it never gave; positions of before mean \
             nothing any more: a new epoch begins"
        );
        for shard in 0..self.outbox.shard_count() {
            self.outbox.send(shard, StoreMail::Epoch(epoch.clone()));
        }
        Ok(())
    }

    /// Whoever still hands something over hears what the first one heard.
    fn refuse_all(&mut self, incoming: &Receiver<(usize, Record)>, fault: &StoreFault) {
        loop {
            let patience = if self.outbox.is_empty() { LOOK_EVERY } else { RETRY_EVERY };
            match incoming.recv_timeout(patience) {
                Ok(late) => self.answer(&[late], &Err(fault.clone())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.outbox.retry();
        }
    }

    fn write(&mut self, batch: &[(usize, Record)]) -> fjall::Result<()> {
        let files = &mut self.files;
        let written = files.written + batch.len() as u64;
        let mut writes = files.database.batch().durability(Some(PersistMode::SyncData));
        let now = unix_ms();
        self.keys_since_ms = self.keys_since_ms.min(now);
        for (_, record) in batch {
            let (number, sequence) = (record.topic_number, record.publication.sequence());
            if let Some(key) = &record.idempotency_key {
                let place = keys::place_of(now, number, sequence);
                writes.insert(&files.keys, place, keys::value_of(&place, key));
            }
            if sequence == Sequence::START.next() {
                let name = named(number, record.topic.as_str());
                writes.insert(&files.topics, number.to_be_bytes(), name.clone());
                writes.insert(&files.meta, spare_of(number), name);
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
        files.write_mark()?;
        Ok(())
    }

    /// Tells each shard what became of its records, in their order.
    fn answer(&mut self, batch: &[(usize, Record)], result: &Result<(), StoreFault>) {
        for shard in 0..self.outbox.shard_count() {
            let count = batch.iter().filter(|(of, _)| *of == shard).count();
            if count > 0 {
                let written = Written { count, result: result.clone() };
                self.outbox.send(shard, StoreMail::Written(written));
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

    /// Removes keys whose window is over. The wall clock says so: it is all that outlives the process.
    fn forget_keys(&mut self) -> fjall::Result<()> {
        let Files { database, keys, .. } = &self.files;
        let until_ms = unix_ms().saturating_sub(self.key_window_ms);
        let place = |unix_ms| keys::place_of(unix_ms, 0, Sequence::START);
        if until_ms <= self.keys_since_ms {
            return Ok(());
        }
        let mut old = keys.range(place(self.keys_since_ms)..place(until_ms)).peekable();
        while old.peek().is_some() {
            let mut removals = database.batch();
            for entry in old.by_ref().take(BATCH_LEN) {
                removals.remove(keys, entry.key()?);
            }
            removals.commit()?;
        }
        self.keys_since_ms = until_ms;
        Ok(())
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
    let mut bytes = first.1.publication.kept_bytes();
    batch.push(first);
    while batch.len() < BATCH_LEN
        && bytes < BATCH_BYTES
        && let Ok(next) = incoming.try_recv()
    {
        bytes += next.1.publication.kept_bytes();
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
            Ok(stored) => (stored.publication.kept_bytes() as u64, stored.publication.unix_ms()),
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
