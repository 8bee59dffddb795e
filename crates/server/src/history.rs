//! Reading what is kept: from the hub's memory while that reaches back, from the store otherwise.

use backbone::{ReadWanted, Ticket, take_page};
use engine::{Io, Socket};
use hub::{PageTicket, PageWanted, ShardIndex, home_shard};
use model::{
    AckLevel, CommandId, Event, HistoryPage, HistoryQuery, HistoryStart, Position, Publication,
    Sequence, TopicName,
};
use tokio::sync::oneshot;

use crate::mail::ShardMail;
use crate::shard::Shard;

/// Who waits for publications from the store.
#[derive(Debug)]
pub(crate) enum PendingRead {
    /// Somebody who asked for a page of a history.
    History { asker: HistoryAsker, position: Position, wanted: ReadWanted },
    /// A session of a shard, that reads a topic afresh.
    Session { shard: ShardIndex, page: PageTicket },
}

/// Who asked for a page of a history.
#[derive(Debug)]
pub enum HistoryAsker {
    /// An HTTP request.
    Api(oneshot::Sender<HistoryPage>),
    /// A session's command.
    Session {
        /// The shard that holds the session's connection.
        shard: ShardIndex,
        /// The connection.
        socket: Socket,
        /// Which connection of that number.
        serial: u32,
        /// The command.
        id: Option<CommandId>,
        /// The topic asked for.
        topic: TopicName,
    },
}

impl<I: Io> Shard<I> {
    /// Takes a session's wish for a page of a history to the topic's home.
    pub(crate) fn ask_history(
        &mut self,
        socket: Socket,
        serial: u32,
        id: Option<CommandId>,
        query: HistoryQuery,
    ) {
        let (shard, topic) = (self.index, query.topic.clone());
        let asker = HistoryAsker::Session { shard, socket, serial, id, topic };
        let home = home_shard(&query.topic, self.shard_count);
        if home == self.index {
            self.read_history(query, asker);
        } else {
            self.mail_to(home, ShardMail::ReadHistory { query, asker });
        }
    }

    /// Reads a page of a topic that is at home here, for whoever asked.
    pub(crate) fn read_history(&mut self, query: HistoryQuery, asker: HistoryAsker) {
        let HistoryQuery { topic, start, limit } = query;
        let Some((position, oldest)) = self.hub.standing(&topic) else {
            let position = Position { epoch: self.epoch.clone(), sequence: Sequence::START };
            let after = Sequence::START;
            return self
                .answer_history(asker, HistoryPage { position, after, publications: vec![] });
        };
        let wanted = wanted_of(start, limit, position.sequence);
        let is_in_memory = oldest.is_some_and(|oldest| match start {
            HistoryStart::Since(since) => oldest.unix_ms() < since,
            _ => oldest.sequence() <= wanted.after.next(),
        });
        if is_in_memory || self.hub.policy_for(&topic).ack == AckLevel::Memory {
            let kept = self.hub.history(&topic, wanted.after);
            let mut kept = kept.filter(|kept| kept.unix_ms() >= wanted.since_ms).cloned();
            let publications = take_page(&mut kept, wanted.count);
            drop(kept);
            let after = page_start(wanted, &publications);
            return self.answer_history(asker, HistoryPage { position, after, publications });
        }
        let pending = PendingRead::History { asker, position, wanted };
        self.read_store(&topic, wanted, pending);
    }

    /// Hands a page to whoever asked for it.
    pub(crate) fn answer_history(&mut self, asker: HistoryAsker, page: HistoryPage) {
        match asker {
            // The request may have been given up meanwhile.
            HistoryAsker::Api(answer) => drop(answer.send(page)),
            HistoryAsker::Session { shard, .. } if shard != self.index => {
                self.mail_to(shard, ShardMail::History { asker, page });
            }
            HistoryAsker::Session { socket, serial, id, topic, .. } => {
                let connection = self.connection(socket).filter(|open| open.serial == serial);
                if let Some(native) = connection.and_then(|open| open.state.native()) {
                    let session = native.session;
                    self.hub.tell(session, &Event::History { id, topic, page });
                }
            }
        }
    }

    fn read_store(&mut self, topic: &TopicName, wanted: ReadWanted, pending: PendingRead) {
        let ticket = Ticket(self.reads.insert(pending) as u64);
        self.backbone_of(topic).read(ticket, topic, wanted);
    }

    /// Hears publications from the store.
    pub(crate) fn handle_read(&mut self, ticket: Ticket, publications: Vec<Publication>) {
        let Some(pending) = self.reads.try_remove(ticket.0 as usize) else { return };
        match pending {
            PendingRead::History { asker, position, wanted } => {
                let after = page_start(wanted, &publications);
                self.answer_history(asker, HistoryPage { position, after, publications });
            }
            PendingRead::Session { shard, page } if shard == self.index => {
                self.handle_page(page, publications);
            }
            PendingRead::Session { shard, page } => {
                self.mail_to(shard, ShardMail::Page { page, publications });
            }
        }
    }

    /// Hears a page for a session of this shard.
    pub(crate) fn handle_page(&mut self, page: PageTicket, publications: Vec<Publication>) {
        self.pages_under_way -= 1;
        self.hub.handle_page(page, publications);
    }

    /// Gets the pages that sessions of this shard need to read on. Those that cannot be sent soon are
    /// asked for later: a storm of them would stand before what is new in the mailbox.
    pub(crate) fn fetch_pages(&mut self) {
        const UNDER_WAY_MAX: usize = 64;
        while self.pages_under_way < UNDER_WAY_MAX
            && let Some(PageWanted { page, topic, after, count }) = self.hub.poll_page()
        {
            self.pages_under_way += 1;
            let home = home_shard(&topic, self.shard_count);
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
        from: ShardIndex,
        page: PageTicket,
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
fn page_start(wanted: ReadWanted, found: &[Publication]) -> Sequence {
    match found.first() {
        Some(first) if wanted.since_ms > 0 => first.sequence().back(1),
        _ => wanted.after,
    }
}
