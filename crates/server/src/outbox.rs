//! What a shard and its hub have for other shards.

use engine::Io;
use hub::{HubMail, ShardIndex};
use model::{Command, Refusal};

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

    /// The same for what a command may need of other shards. What ends something is carried out in any case.
    pub(crate) fn check_mail_for(&self, command: &Command) -> Result<(), Refusal> {
        let what = match command {
            Command::Subscribe(_) => "subscribe",
            Command::History(_) => "read the history",
            Command::Acknowledge(_) => "acknowledge",
            Command::Handle(_) => "handle requests",
            Command::Request(_) => "ask",
            Command::Attach(_) => "attach the device",
            // A publication for which a mailbox has no room is refused by itself.
            Command::Publish(_)
            | Command::Hello(_)
            | Command::Unsubscribe(_)
            | Command::Unhandle(_)
            | Command::Respond(_)
            | Command::Detach(_)
            | Command::Close
            | Command::Ping => return Ok(()),
        };
        self.check_mail(what)
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
