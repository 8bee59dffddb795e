//! Large payloads told in pieces, so that they hold up neither a session's other topics nor a turn.
//!
//! The first piece stands in the batch, where the publication would. The others follow one at a time, each
//! a message of its own, while batches go on in between. The reader puts them together and hands the
//! publication on before later ones of its topic.

use model::{Publication, Stamps, TopicName};

use crate::sending::encoder::{Piece, Record};

/// A publication whose first pieces were told.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub topic: TopicName,
    pub number: u32,
    pub publication: Publication,
    /// Bytes of the payload that were told.
    pub told_bytes: usize,
    pub compress: bool,
    /// The stamps that its first piece is told with.
    pub stamps: Stamps,
}

/// With so many transfers under way a session falls behind until one ends. (What it is sent in one go may begin
/// some more.)
pub(crate) const TRANSFERS_MAX: usize = 4;

impl Transfer {
    /// The next piece.
    pub(crate) fn next(&self, fragment_bytes: usize) -> Piece {
        let end = self.publication.payload().len().min(self.told_bytes + fragment_bytes);
        Piece { start: self.told_bytes, end }
    }

    pub(crate) fn record(&self, piece: Piece) -> Record<'_> {
        Record::Fragment {
            topic: &self.topic,
            number: self.number,
            publication: &self.publication,
            piece,
            compress: self.compress,
            stamps: self.stamps,
        }
    }
}
