//! What is encoded and not sent yet: for an encoding whose messages name things that are kept elsewhere as long as somebody
//! is to be told of them.

use crate::audiences::job::Telling;
use crate::hub::Hub;
use crate::sending::encoder::{Encoder, EncodingIndex};
use crate::tables::index::SessionIndex;

impl<E: Encoder> Hub<E> {
    /// Whether batches are under way.
    pub fn has_batches_under_way(&self) -> bool {
        !self.flush.active.is_empty()
    }

    /// The batches that are under way to sessions of an encoding.
    pub fn batches_under_way(&self, encoding: EncodingIndex) -> impl Iterator<Item = &[u8]> {
        let works = self.flush.active.iter().map(|work| self.flush.work(*work));
        let is_wanted = move |options| self.options.at(options).manner.encoding == encoding;
        works
            .filter(move |work| is_wanted(self.audiences.at(work.audience).key.options))
            .flat_map(|work| [Telling::Whole, Telling::Deltas].map(|telling| work.batch(telling)))
            .map(|batch| &*batch.bytes)
    }

    /// What a session itself is still to be told.
    pub fn answers(&self, session: SessionIndex) -> &[u8] {
        let session = self.sessions.get(session);
        session.and_then(|known| known.outgoing.as_ref()).map_or(&[], |out| &out.bytes)
    }

    /// Forgets the records that audiences share: each is made again for the next that needs it.
    pub fn forget_made(&mut self) {
        self.flush.made.clear();
    }
}
