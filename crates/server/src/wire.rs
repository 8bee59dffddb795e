//! Sending what the hub has for its sessions, and what follows from it.

use engine::Io;
use hub::{ConnectionId, Hub, SessionIndex};

use crate::edge::Wire;
use crate::encoder::NativeEncoder;
use crate::shard::Shard;

/// Sends before the shard looks for received bytes again: about a millisecond.
const SENDS_PER_TURN: usize = 256;

impl<I: Io> Shard<I> {
    /// Sends what the hub has for its sessions, as much as a turn may; answers whether there is more.
    #[must_use = "there may be more"]
    pub(crate) fn flush(&mut self) -> bool {
        let now = self.now;
        let (hub, mut wire) = self.hub_and_wire();
        let has_more = hub.flush(&mut wire, SENDS_PER_TURN, now);
        let (told, broken) = wire.into_told_and_broken();
        self.settle_wire(told, broken);
        has_more
    }

    /// Sends a session's answers now, if its connection takes them.
    pub(crate) fn send_answers(&mut self, session: SessionIndex) {
        let (hub, mut wire) = self.hub_and_wire();
        hub.send_answers(session, &mut wire);
        let (told, broken) = wire.into_told_and_broken();
        self.settle_wire(told, broken);
    }

    /// The hub, and where it sends.
    fn hub_and_wire(&mut self) -> (&mut Hub<NativeEncoder>, Wire<'_, I>) {
        let poll_bytes_max = self.config.limits.poll_bytes_max;
        (&mut self.hub, Wire::new(&mut self.edge, &self.memory, poll_bytes_max))
    }

    /// Does what follows from what was sent.
    fn settle_wire(&mut self, told: Vec<ConnectionId>, broken: Vec<ConnectionId>) {
        for link in told {
            match self.edge.transports.locals.contains_key(&link) {
                true => self.tell_local(link),
                false => self.answer_told_poll(link),
            }
        }
        self.forget_told();
        broken.into_iter().for_each(|link| self.drop_connection(link));
    }
}
