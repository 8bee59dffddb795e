//! Mail to other shards: what must not be lost waits for a full mailbox, in order, and how much of that may wait is bounded.

use engine::Io;
use hub::{HubMail, ShardIndex};
use model::{Code, Command, Refusal};

use crate::mail::ShardMail;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Sends mail that must not be lost, behind what waits already.
    pub(crate) fn mail_to(&mut self, shard: ShardIndex, mail: ShardMail) {
        let waiting = &mut self.waiting[usize::from(shard.0)];
        if !waiting.is_empty() {
            waiting.push_back(mail);
        } else if let Err(mail) = self.peers[usize::from(shard.0)].send(mail) {
            waiting.push_back(mail);
        }
    }

    /// Whether there is room for mail to the other shards, if need be for what waits until their mailboxes have room.
    ///
    /// # Errors
    /// `mail_waiting_max` wait for one of them.
    pub(crate) fn check_mail(&self, what: &str) -> Result<(), Refusal> {
        let len_max = self.config.limits.mail_waiting_max;
        if self.waiting.iter().all(|mail| mail.len() < len_max.max(1)) {
            return Ok(());
        }
        let text = format!(
            "cannot {what} now: mail_waiting_max ({len_max}) messages wait for a shard whose mailbox is full; try again"
        );
        Err(Refusal::new(Code::Busy, text))
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

    /// Sends mail that the sender of a command can repeat; gives it back when there is no room.
    pub(crate) fn try_mail_to(
        &mut self,
        shard: ShardIndex,
        mail: ShardMail,
    ) -> Result<(), ShardMail> {
        if !self.waiting[usize::from(shard.0)].is_empty() {
            return Err(mail);
        }
        self.peers[usize::from(shard.0)].send(mail)
    }

    /// Sends what waits, and what the hub has for other shards.
    pub(crate) fn send_mail(&mut self) {
        for shard in 0..self.peers.len() {
            while let Some(mail) = self.waiting[shard].pop_front() {
                if let Err(mail) = self.peers[shard].send(mail) {
                    self.waiting[shard].push_front(mail);
                    break;
                }
            }
            let has_room = self.waiting[shard].is_empty() && self.peers[shard].has_room();
            if has_room && self.hub.has_lapped_followers() {
                self.hub.handle_room(ShardIndex(shard as u16));
            }
        }
        let from = self.index;
        while let Some((to, mail)) = self.hub.poll_mail() {
            if !matches!(mail, HubMail::Deliver { .. }) {
                self.mail_to(to, ShardMail::Hub { from, mail });
            } else if let Err(ShardMail::Hub { mail, .. }) =
                self.try_mail_to(to, ShardMail::Hub { from, mail })
            {
                self.hub.handle_mail_refused(to, &mail);
            }
        }
    }
}
