//! Reading what is kept: from the hub's memory while that reaches back, from the store otherwise.

use backbone::{PAGE_BYTES, PageEnd, ReadWanted, Ticket};
use engine::Io;
use hub::{ConnectionId, PageTicket, PageWanted, ShardIndex};
use model::{
    CommandId, Event, HistoryPage, HistoryQuery, Position, Publication, Refusal, Sequence,
    TopicName,
};

use crate::desks::{HistoryRead, HistoryReply, StoreRead};
use crate::mail::ShardMail;
use crate::reply::{ReplyTo, SessionReply};
use crate::shard::Shard;

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
        let reserved = u32::try_from(reserved).unwrap_or(u32::MAX);
        let to = ReplyTo::Session(SessionReply { connection, id, reserved });
        let reply = HistoryReply { to, topic };
        let home = self.peers.home_of(&query.topic);
        if home == self.index {
            self.read_history(query, reply);
        } else {
            self.mail_to(home, ShardMail::ReadHistory(Box::new((query, reply))));
        }
    }

    /// Reads a page of a topic that is at home here, for whoever asked.
    pub(crate) fn read_history(&mut self, query: HistoryQuery, reply: HistoryReply) {
        let topic = &query.topic;
        let Some((position, oldest)) = self.hub.standing(topic) else {
            let epoch = self.backbones.epoch_of(self.hub.policy_for(topic)).clone();
            let position = Position { epoch, sequence: Sequence::START };
            let page = HistoryPage { position, after: Sequence::START, publications: vec![] };
            return self.answer_history(reply, Ok(page));
        };
        let room = match &reply.to {
            ReplyTo::Session(SessionReply { reserved, .. }) => *reserved as usize,
            _ => self.config.limits.answers_bytes_max,
        };
        let read = HistoryRead::of(&query, position, room);
        let has_more = self.backbones.has_history(self.hub.policy_for(topic));
        let older = || self.hub.history_before(topic, read.wanted.before);
        if read.is_in_memory(oldest, older()) || !has_more {
            let since = match read.wanted.since_ms {
                0 => read.wanted.after,
                since_ms => read.wanted.after.max(self.hub.sequence_before(topic, since_ms)),
            };
            let publications = match read.wanted.keep {
                PageEnd::Oldest => read.wanted.take_oldest(self.hub.history(topic, since).cloned()),
                PageEnd::Newest => read.wanted.take(older().cloned()),
            };
            self.note_publications(&publications);
            return self.answer_history(reply, Ok(read.into_page(publications)));
        }
        if let Err(refusal) = self.check_reading(topic) {
            return self.answer_history(reply, Err(refusal));
        }
        let wanted = read.wanted;
        self.read_store(topic, wanted, StoreRead::History(reply, read));
    }

    /// Counts the work of looking for publications, or of telling them.
    fn note_publications(&mut self, publications: &[Publication]) {
        let bytes = publications.iter().map(|it| it.kept_bytes()).sum();
        self.note_work(publications.len() as u64);
        self.note_bytes(bytes);
    }

    /// Hands a page to whoever asked for it.
    pub(crate) fn answer_history(
        &mut self,
        reply: HistoryReply,
        page: Result<HistoryPage, Refusal>,
    ) {
        match reply.to {
            // The request may have been given up meanwhile.
            ReplyTo::Api(answer) => drop(answer.send(page)),
            ReplyTo::Session(to) if to.connection.shard != self.index => {
                self.mail_to(to.connection.shard, ShardMail::History(Box::new((reply, page))));
            }
            ReplyTo::Session(to) => self.tell_history(to, reply.topic, page),
            // Nobody else asks for histories.
            ReplyTo::Device { .. } | ReplyTo::Http(_) | ReplyTo::Nobody => {}
        }
    }

    fn tell_history(
        &mut self,
        to: SessionReply,
        topic: TopicName,
        page: Result<HistoryPage, Refusal>,
    ) {
        let (link, id) = (to.connection.id, to.id);
        self.release(link, to.reserved as usize);
        let connection = self.connection(link);
        let Some(native) = connection.and_then(|open| open.conversation.native()) else { return };
        let session = native.session;
        if let Ok(page) = &page {
            self.note_publications(&page.publications);
        }
        let told = page.and_then(|page| {
            let bytes = page.publications.iter().map(Publication::told_bytes).sum();
            self.check_telling(session, bytes, "read the history")?;
            Ok(Event::History { id, topic, page })
        });
        let told = told.unwrap_or_else(|refusal| {
            self.note_refusal(link, &refusal);
            Event::Refused { id, refusal }
        });
        self.hub.tell(session, &told);
    }

    /// Whether one more page may be read from the store, and memory is left for it.
    fn check_reading(&self, topic: &TopicName) -> Result<(), Refusal> {
        self.reading.check_room(topic)?;
        self.memory.check((self.reading.len() + 1) * PAGE_BYTES, "read the history")
    }

    fn read_store(&mut self, topic: &TopicName, wanted: ReadWanted, read: StoreRead) {
        let ticket = self.reading.park(read, self.now.elapsed);
        self.backbones.of(self.hub.policy_for(topic)).read(ticket, topic, wanted);
    }

    /// Hears publications from the store.
    pub(crate) fn handle_read(&mut self, ticket: Ticket, publications: Vec<Publication>) {
        match self.reading.handle_read(ticket) {
            None => {}
            Some(StoreRead::History(reply, read)) => {
                self.answer_history(reply, Ok(read.into_page(publications)));
            }
            Some(StoreRead::Session { shard, page }) if shard == self.index => {
                self.handle_page(page, publications);
            }
            Some(StoreRead::Session { shard, page }) => {
                self.mail_to(shard, ShardMail::Page { page, publications });
            }
        }
    }

    /// Hears a page for a session of this shard.
    pub(crate) fn handle_page(&mut self, page: PageTicket, publications: Vec<Publication>) {
        self.reading.handle_page();
        self.hub.handle_page(page, publications);
    }

    /// Gets the pages that sessions of this shard need to read on.
    pub(crate) fn fetch_pages(&mut self) {
        while self.reading.has_room_for_page()
            && self.memory.has_room(PAGE_BYTES)
            && let Some(PageWanted { page, topic, after, count }) = self.hub.poll_page()
        {
            self.reading.expect_page(self.memory.claim(PAGE_BYTES));
            let home = self.peers.home_of(&topic);
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
        self.read_store(topic, wanted, StoreRead::Session { shard: from, page });
    }
}
