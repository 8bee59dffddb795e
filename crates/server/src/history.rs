//! Reading what is kept: from the hub's memory while that reaches back, from the store otherwise.

use admin::{HistoryPage, HistoryStart};
use backbone::{ReadWanted, Ticket};
use engine::Io;
use hub::PageWanted;
use model::{AckLevel, Position, Publication, Sequence, TopicName};
use tokio::sync::oneshot;

use crate::mail::ShardMail;
use crate::shard::Shard;

/// Who waits for publications from the store.
#[derive(Debug)]
pub(crate) enum PendingRead {
    /// An HTTP request.
    Api { position: Position, after: Sequence, answer: oneshot::Sender<HistoryPage> },
    /// A session of a shard, that reads a topic afresh.
    Session { shard: hub::ShardIndex, page: hub::PageTicket },
}

impl<I: Io> Shard<I> {
    /// Answers the API with a page of a topic's history.
    pub(crate) fn answer_history(
        &mut self,
        topic: &TopicName,
        start: HistoryStart,
        limit: usize,
        answer: oneshot::Sender<HistoryPage>,
    ) {
        let Some((position, oldest)) = self.hub.standing(topic) else {
            let position = Position { epoch: self.epoch.clone(), sequence: Sequence::START };
            let page = HistoryPage { position, after: Sequence::START, publications: Vec::new() };
            // The request may have been given up meanwhile.
            let _ = answer.send(page);
            return;
        };
        let wanted = wanted_of(start, limit, position.sequence);
        let is_in_memory = oldest.is_some_and(|oldest| match start {
            HistoryStart::Since(since) => oldest.unix_ms() < since,
            _ => oldest.sequence() <= wanted.after.next(),
        });
        if is_in_memory || self.hub.policy_for(topic).ack == AckLevel::Memory {
            let kept = self.hub.history(topic, wanted.after);
            let publications: Vec<Publication> = kept
                .filter(|publication| publication.unix_ms() >= wanted.since_ms)
                .take(wanted.count)
                .cloned()
                .collect();
            let after = first_wanted(start, wanted, &publications);
            let _ = answer.send(HistoryPage { position, after, publications });
            return;
        }
        let pending = PendingRead::Api { position, after: wanted.after, answer };
        self.read_store(topic, wanted, pending);
    }

    fn read_store(&mut self, topic: &TopicName, wanted: ReadWanted, pending: PendingRead) {
        let ticket = Ticket(self.reads.insert(pending) as u64);
        self.backbone_of(topic).read(ticket, topic, wanted);
    }

    /// Hears publications from the store.
    pub(crate) fn handle_read(&mut self, ticket: Ticket, publications: Vec<Publication>) {
        let Some(pending) = self.reads.try_remove(ticket.0 as usize) else { return };
        match pending {
            PendingRead::Api { position, after, answer } => {
                // The request may have been given up meanwhile.
                let _ = answer.send(HistoryPage { position, after, publications });
            }
            PendingRead::Session { shard, page } if shard == self.index => {
                self.hub.handle_page(page, publications);
            }
            PendingRead::Session { shard, page } => {
                self.mail_to(shard, ShardMail::Page { page, publications });
            }
        }
    }

    /// Gets the pages that sessions of this shard need to read on.
    pub(crate) fn fetch_pages(&mut self) {
        while let Some(PageWanted { page, topic, after, count }) = self.hub.poll_page() {
            let home = hub::home_shard(&topic, self.shard_count);
            let from = self.index;
            if home == from {
                self.fetch_page(from, page, &topic, after, count);
            } else {
                self.mail_to(home, ShardMail::FetchPage { from, page, topic, after, count });
            }
        }
    }

    pub(crate) fn fetch_page(
        &mut self,
        from: hub::ShardIndex,
        page: hub::PageTicket,
        topic: &TopicName,
        after: Sequence,
        count: usize,
    ) {
        let wanted = ReadWanted { after, since_ms: 0, count };
        self.read_store(topic, wanted, PendingRead::Session { shard: from, page });
    }
}

fn wanted_of(start: HistoryStart, limit: usize, head: Sequence) -> ReadWanted {
    let after = |after, count| ReadWanted { after, since_ms: 0, count };
    match start {
        HistoryStart::After(sequence) => after(sequence.min(head), limit),
        HistoryStart::Last(count) => after(head.back(count.min(limit as u64)), limit),
        HistoryStart::Before(sequence) => {
            let end = sequence.back(1).min(head);
            let begin = end.back(limit as u64);
            after(begin, (end.get() - begin.get()) as usize)
        }
        HistoryStart::Since(since_ms) => {
            ReadWanted { after: Sequence::START, since_ms, count: limit }
        }
    }
}

/// What the page comes after. Asked by time, nothing is missing before it.
fn first_wanted(start: HistoryStart, wanted: ReadWanted, found: &[Publication]) -> Sequence {
    match (start, found.first()) {
        (HistoryStart::Since(_), Some(first)) => first.sequence().back(1),
        _ => wanted.after,
    }
}
