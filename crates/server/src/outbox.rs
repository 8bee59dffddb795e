//! What a shard and its hub have for other shards.

use engine::Io;
use hub::{HubMail, ShardIndex};
use model::Refusal;

use crate::mail::ShardMail;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Sends mail that must not be lost, behind what waits already.
    pub(crate) fn mail_to(&mut self, shard: ShardIndex, mail: ShardMail) {
        self.peers.send(shard, mail);
    }

    /// Whether there is room for mail to the other shards, if need be for what waits until their mailboxes have room.
    ///
    /// # Errors
    /// `mail_waiting_max` wait for one of them.
    pub(crate) fn check_mail(&self, what: &str) -> Result<(), Refusal> {
        self.peers.check_room(what, self.config.limits.mail_waiting_max)
    }

    /// Sends what waits, and what the hub has for other shards.
    pub(crate) fn send_mail(&mut self) {
        for shard in (0..self.peers.count()).map(ShardIndex) {
            let has_room = self.peers.send_waiting(shard);
            if has_room && self.hub.has_lapped_followers() {
                self.hub.handle_room(shard);
            }
        }
        let from = self.index;
        while let Some((to, mail)) = self.hub.poll_mail() {
            if !matches!(mail, HubMail::Deliver { .. }) {
                self.mail_to(to, ShardMail::Hub { from, mail });
            } else if let Err(ShardMail::Hub { mail, .. }) =
                self.peers.try_send(to, ShardMail::Hub { from, mail })
            {
                self.hub.handle_mail_refused(to, &mail);
            }
        }
    }
}
