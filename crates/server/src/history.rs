//! Reading what is kept: from the hub's memory while that reaches back, from the store otherwise.

use backbone::{PAGE_BYTES, PageEnd, ReadWanted, Ticket};
use engine::Io;
use hub::{ConnectionId, PageTicket, PageWanted, ShardConnection, ShardIndex, home_shard};
use model::{
    AckLevel, Code, CommandId, Event, HistoryPage, HistoryQuery, HistoryStart, Position,
    Publication, Refusal, Sequence, TopicName,
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
    Api(oneshot::Sender<Result<HistoryPage, Refusal>>),
    /// A session's command.
    Session {
        /// The session's connection.
        connection: ShardConnection,
        /// The command.
        id: Option<CommandId>,
        /// The topic asked for.
        topic: TopicName,
        /// Bytes that the page may have, which are counted while it is under way.
        reserved: usize,
    },
}

impl<I: Io> Shard<I> {
    /// Takes a session's wish for a page of a history to the topic's home.
    pub(crate) fn ask_history(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        query: HistoryQuery,
    ) {
        let (connection, topic) = (self.name_of(link), query.topic.clone());
        let reserved = self.room_of(link);
        self.reserve(link, reserved);
        let asker = HistoryAsker::Session { connection, id, topic, reserved };
        let home = home_shard(&query.topic, self.shard_count);
        if home == self.index {
            self.read_history(query, asker);
        } else {
            self.mail_to(home, ShardMail::ReadHistory(Box::new((query, asker))));
        }
    }

    /// Reads a page of a topic that is at home here, for whoever asked.
    pub(crate) fn read_history(&mut self, query: HistoryQuery, asker: HistoryAsker) {
        let HistoryQuery { topic, start, limit } = query;
        let Some((position, oldest)) = self.hub.standing(&topic) else {
            let position = Position { epoch: self.epoch.clone(), sequence: Sequence::START };
            let after = Sequence::START;
            let page = HistoryPage { position, after, publications: vec![] };
            return self.answer_history(asker, Ok(page));
        };
        let wanted = ReadWanted::of_history(start, limit, position.sequence);
        let room = match &asker {
            HistoryAsker::Session { reserved, .. } => *reserved,
            HistoryAsker::Api(_) => self.config.limits.answers_bytes_max,
        };
        let wanted = ReadWanted { bytes_max: PAGE_BYTES.min(room), ..wanted };
        let is_in_memory = oldest.is_some_and(|oldest| match start {
            HistoryStart::Since(since) => oldest.unix_ms() < since,
            _ => oldest.sequence() <= wanted.after.next(),
        });
        if is_in_memory || self.hub.policy_for(&topic).ack == AckLevel::Memory {
            let since = match wanted.since_ms {
                0 => wanted.after,
                since_ms => wanted.after.max(self.hub.sequence_before(&topic, since_ms)),
            };
            let kept = self.hub.history(&topic, since);
            let publications = match wanted.keep {
                PageEnd::Oldest => wanted.take_oldest(kept.cloned()),
                // What memory holds has no holes: these are no more than wanted.
                PageEnd::Newest => {
                    let kept: Vec<_> =
                        kept.take_while(|it| it.sequence() < wanted.before).collect();
                    wanted.take(kept.into_iter().cloned())
                }
            };
            self.note_publications(&publications);
            let after = wanted.page_start(&publications, position.sequence);
            return self.answer_history(asker, Ok(HistoryPage { position, after, publications }));
        }
        if let Err(refusal) = self.check_reading(&topic) {
            return self.answer_history(asker, Err(refusal));
        }
        let pending = PendingRead::History { asker, position, wanted };
        self.read_store(&topic, wanted, pending);
    }

    /// Counts the work of looking for publications, or of telling them.
    fn note_publications(&mut self, publications: &[Publication]) {
        let bytes = publications.iter().map(|it| it.payload().len()).sum();
        self.note_work(publications.len() as u64);
        self.note_bytes(bytes);
    }

    /// Hands a page to whoever asked for it.
    pub(crate) fn answer_history(
        &mut self,
        asker: HistoryAsker,
        page: Result<HistoryPage, Refusal>,
    ) {
        match asker {
            // The request may have been given up meanwhile.
            HistoryAsker::Api(answer) => drop(answer.send(page)),
            HistoryAsker::Session { connection, .. } if connection.shard != self.index => {
                self.mail_to(connection.shard, ShardMail::History(Box::new((asker, page))));
            }
            HistoryAsker::Session { connection, id, topic, reserved } => {
                let link = connection.id;
                self.release(link, reserved);
                let connection = self.connection(link);
                let Some(native) = connection.and_then(|open| open.state.native()) else { return };
                let session = native.session;
                if let Ok(page) = &page {
                    self.note_publications(&page.publications);
                }
                let told = page.and_then(|page| {
                    let bytes = page.publications.iter().map(Publication::json_bytes).sum();
                    self.check_telling(session, bytes, "read the history")?;
                    Ok(Event::History { id, topic, page })
                });
                let told = told.unwrap_or_else(|refusal| {
                    self.note_refusal(link, &refusal);
                    Event::Refused { id, refusal }
                });
                self.hub.tell(session, &told);
            }
        }
    }

    /// Whether one more page may be read from the store, and memory is left for it.
    fn check_reading(&self, topic: &TopicName) -> Result<(), Refusal> {
        let reads_max = self.config.limits.store_reads_max;
        if self.reads.len() >= reads_max {
            let text = format!(
                "cannot read the history of `{topic}` now: store_reads_max ({reads_max}) pages of this shard are being read \
                 from the store; try again later, or raise the limit in the configuration"
            );
            return Err(Refusal::new(Code::TooManyReads, text));
        }
        self.memory.check((self.reads.len() + 1) * PAGE_BYTES, "read the history")
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
                let after = wanted.page_start(&publications, position.sequence);
                self.answer_history(asker, Ok(HistoryPage { position, after, publications }));
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
        self.pages_under_way.pop();
        self.hub.handle_page(page, publications);
    }

    /// Gets the pages that sessions of this shard need to read on. Those that cannot be sent soon are
    /// asked for later: a storm of them would stand before what is new in the mailbox.
    pub(crate) fn fetch_pages(&mut self) {
        const UNDER_WAY_MAX: usize = 64;
        while self.pages_under_way.len() < UNDER_WAY_MAX
            && self.memory.has_room(PAGE_BYTES)
            && let Some(PageWanted { page, topic, after, count }) = self.hub.poll_page()
        {
            self.pages_under_way.push(self.memory.claim(PAGE_BYTES));
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
        let wanted = ReadWanted::after(after, count);
        self.read_store(topic, wanted, PendingRead::Session { shard: from, page });
    }
}
