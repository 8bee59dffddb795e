//! Telling large payloads in pieces.

use model::{Publication, Stamps};

use crate::hub::Hub;
use crate::sending::encoder::{Encoder, Piece, Progress};
use crate::sending::transfer::Transfer;
use crate::tables::index::SessionIndex;
use crate::topics::topic::Topic;

impl<E: Encoder> Hub<E> {
    /// The transfer of a publication that is too large for one message to sessions of this encoding.
    pub(crate) fn transfer_of(
        &self,
        encoding: crate::sending::encoder::EncodingIndex,
        number: u32,
        topic: &Topic,
        publication: &Publication,
        stamps: Stamps,
    ) -> Option<Transfer> {
        let fragment_bytes = self.settings.limits.fragment_bytes;
        let is_large = publication.payload().len() > fragment_bytes;
        (is_large && self.encoder.fragments(encoding)).then(|| Transfer {
            topic: topic.name.clone(),
            number,
            publication: publication.clone(),
            told_bytes: 0,
            compress: self.policy(topic.policy).compress,
            stamps,
        })
    }

    /// Notes that a session was told the first piece. One of the same publication that goes on already is
    /// given up: the reader starts over.
    pub(crate) fn begin_transfer(&mut self, index: SessionIndex, transfer: &Transfer) {
        let told_bytes = transfer.next(self.settings.limits.fragment_bytes).end;
        let session = self.sessions.at_mut(index);
        let outgoing = session.outgoing.get_or_insert_default();
        outgoing.transfers.retain(|known| {
            known.number != transfer.number
                || known.topic != transfer.topic
                || known.publication.sequence() != transfer.publication.sequence()
        });
        outgoing.transfers.push_back(Transfer { told_bytes, ..transfer.clone() });
        self.flush.queue(index, session);
    }

    /// Appends the next piece of a session's oldest transfer.
    pub(crate) fn gather_piece(&mut self, index: SessionIndex, out: &mut Vec<u8>) -> Option<Piece> {
        let session = self.sessions.at(index);
        let transfer = session.outgoing.as_ref()?.transfers.front()?;
        let piece = transfer.next(self.settings.limits.fragment_bytes);
        let mut message = self.encoder.begin(session.encoding, out);
        self.encoder.append(&mut message, transfer.record(piece), Progress::Unknown, out);
        self.encoder.finish(message, out);
        Some(piece)
    }

    /// Notes that the piece was begun to be sent; the next one is of another transfer, if there is one.
    pub(crate) fn settle_piece(&mut self, index: SessionIndex, piece: Piece) {
        let Some(outgoing) = &mut self.sessions.at_mut(index).outgoing else { return };
        let Some(mut transfer) = outgoing.transfers.pop_front() else { return };
        transfer.told_bytes = piece.end;
        if piece.end < transfer.publication.payload().len() {
            outgoing.transfers.push_back(transfer);
        }
    }
}
