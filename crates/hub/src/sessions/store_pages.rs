//! Publications that memory does not hold any more, fetched for a session that reads a topic afresh.

use model::planted::{Fault, is_planted};
use model::{Publication, Sequence};

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sessions::fetched::{PageTicket, PageWanted};
use crate::tables::index::SessionIndex;
use crate::topics::topic::Topic;

impl<E: Encoder> Hub<E> {
    /// Whether a topic's publications are kept beyond memory.
    pub(crate) fn is_on_disk(&self, topic: &Topic) -> bool {
        self.policy(topic.policy).reaches_beyond_memory()
    }

    /// Whether publications of a topic after `after` are on disk and not in memory.
    pub(crate) fn is_beyond_memory(&self, topic: &Topic, after: Sequence) -> bool {
        if !self.is_on_disk(topic) || is_planted(Fault::DiskIsNotAsked) {
            return false;
        }
        topic.in_memory_after() > after
    }

    /// Asks for the page that a session needs to read on, unless it was asked for already.
    pub(crate) fn want_page(&mut self, index: SessionIndex) {
        let Some(replay) = self.sessions.at(index).replay.as_deref() else { return };
        let Some(wanted) = replay.todo.front().copied() else { return };
        let Some(topic) = self.topics.get(wanted.topic) else { return };
        if !self.is_beyond_memory(topic, wanted.after) {
            return;
        }
        let page = replay.page_of(&wanted);
        if page.is_some_and(|page| !page.is_read(wanted.after)) {
            return;
        }
        let name = topic.name.clone();
        let topic = (wanted.topic, name);
        let page = self.outbox.pages.ask(index, topic, wanted.after);
        self.sessions.at_mut(index).replay.as_mut().expect("it has one").page = Some(page);
    }

    /// The next page that must be fetched from the store.
    pub fn poll_page(&mut self) -> Option<PageWanted> {
        self.outbox.pages.pop()
    }

    /// Hears a page: the publications after what was asked, oldest first; none of them where the
    /// store keeps nothing after it.
    pub fn handle_page(&mut self, ticket: PageTicket, publications: Vec<Publication>) {
        let Some(session) = self.sessions.get_mut(ticket.session) else { return };
        let Some(page) = session.replay.as_mut().and_then(|replay| replay.page.as_mut()) else {
            return;
        };
        if page.serial == ticket.serial {
            page.publications = Some(publications);
            if !session.is_blocked {
                self.flush.queue(ticket.session, session);
            }
        }
    }
}
