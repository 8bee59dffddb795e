//! The other shards as one sees them: mail of theirs, and mail to them. What must not be lost waits for a full mailbox, in
//! order, and how much of that may wait is bounded.

use std::collections::VecDeque;

use engine::{MailReceiver, MailSender};
use hub::{ShardIndex, home_shard, home_shard_of};
use model::{Code, Refusal, TopicName};

use crate::mail::ShardMail;

/// The mailboxes of all shards, as one of them uses them.
#[derive(Debug)]
pub(crate) struct Peers {
    mailbox: MailReceiver<ShardMail>,
    /// Everybody's mailboxes, by shard.
    senders: Vec<MailSender<ShardMail>>,
    /// Mail that found no room, per shard, in order. Only what must not be lost waits here.
    waiting: Vec<VecDeque<ShardMail>>,
}

impl Peers {
    pub(crate) fn new(
        mailbox: MailReceiver<ShardMail>,
        senders: Vec<MailSender<ShardMail>>,
    ) -> Self {
        let waiting = senders.iter().map(|_| VecDeque::new()).collect();
        Self { mailbox, senders, waiting }
    }

    /// How many shards there are.
    pub(crate) fn count(&self) -> u16 {
        self.senders.len() as u16
    }

    /// The shard that orders a topic.
    pub(crate) fn home_of(&self, topic: &TopicName) -> ShardIndex {
        home_shard(topic, self.count())
    }

    /// The shard that knows where a device is.
    pub(crate) fn home_of_device(&self, name: &str) -> ShardIndex {
        home_shard_of(name, self.count())
    }

    /// The mailbox of a shard, for other threads.
    pub(crate) fn sender_to(&self, shard: ShardIndex) -> MailSender<ShardMail> {
        self.senders[usize::from(shard.0)].clone()
    }

    /// The next mail for this shard.
    #[must_use = "mail is lost otherwise"]
    pub(crate) fn receive(&mut self) -> Option<ShardMail> {
        self.mailbox.receive()
    }

    /// Says that this shard is about to wait. Answers false if there is mail, so that it must not wait.
    #[must_use = "mail may be there already"]
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        self.mailbox.prepare_to_sleep()
    }

    /// Says that this shard waits no more.
    pub(crate) fn wake_up(&mut self) {
        self.mailbox.wake_up();
    }

    /// Sends mail that must not be lost, behind what waits already.
    pub(crate) fn send(&mut self, shard: ShardIndex, mail: ShardMail) {
        if let Err(mail) = self.try_send(shard, mail) {
            self.waiting[usize::from(shard.0)].push_back(mail);
        }
    }

    /// Sends mail that the sender of a command can repeat; gives it back when there is no room.
    #[must_use = "it may not have been sent"]
    pub(crate) fn try_send(&mut self, shard: ShardIndex, mail: ShardMail) -> Result<(), ShardMail> {
        let shard = usize::from(shard.0);
        match self.waiting[shard].is_empty() {
            true => self.senders[shard].send(mail),
            false => Err(mail),
        }
    }

    /// Sends what waits for a shard, as far as its mailbox has room; answers whether there is room for more.
    pub(crate) fn send_waiting(&mut self, shard: ShardIndex) -> bool {
        let (sender, waiting) =
            (&self.senders[usize::from(shard.0)], &mut self.waiting[usize::from(shard.0)]);
        while let Some(mail) = waiting.pop_front() {
            if let Err(mail) = sender.send(mail) {
                waiting.push_front(mail);
                return false;
            }
        }
        sender.has_room()
    }

    /// Whether mail waits for a mailbox.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|mail| !mail.is_empty())
    }

    /// How much mail waits for a mailbox.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Whether there is room for mail to the other shards, if need be for what waits until their mailboxes have room.
    ///
    /// # Errors
    /// `mail_waiting_max` wait for one of them.
    pub(crate) fn check_room(&self, what: &str, len_max: usize) -> Result<(), Refusal> {
        if self.waiting.iter().all(|mail| mail.len() < len_max.max(1)) {
            return Ok(());
        }
        let text = format!(
            "cannot {what} now: mail_waiting_max ({len_max}) messages wait for a shard whose mailbox is full; try again"
        );
        Err(Refusal::new(Code::Busy, text))
    }
}

#[cfg(test)]
mod tests {
    use engine::{Waker, mailbox};

    use super::*;
    use crate::parking::Place;

    const OTHER: ShardIndex = ShardIndex(1);

    fn mail(number: u64) -> ShardMail {
        ShardMail::Positions { place: Place::of_bits(number), positions: Vec::new() }
    }

    fn number_of(mail: ShardMail) -> u64 {
        let ShardMail::Positions { place, .. } = mail else { panic!("{mail:?}") };
        place.to_bits()
    }

    #[test]
    fn mail_that_must_not_be_lost_waits_in_order_and_within_a_bound() {
        let (own, inbox) = mailbox(1, Waker::none());
        let (other, mut others) = mailbox(1, Waker::none());
        let mut peers = Peers::new(inbox, vec![own, other]);
        peers.send(OTHER, mail(0));
        assert_eq!((peers.waiting(), peers.check_room("ask", 2)), (0, Ok(())));
        peers.send(OTHER, mail(1));
        assert_eq!(peers.check_room("ask", 2), Ok(()));
        peers.send(OTHER, mail(2));
        let refused = peers.check_room("ask", 2).expect_err("two wait");
        assert_eq!((refused.code, peers.waiting()), (Code::Busy, 2));
        // What can be repeated does not pass what waits.
        assert_eq!(others.receive().map(number_of), Some(0));
        assert_eq!(peers.try_send(OTHER, mail(9)).map_err(number_of), Err(9));
        assert!(!peers.send_waiting(OTHER), "one of them fills the mailbox");
        assert_eq!(others.receive().map(number_of), Some(1));
        assert!(!peers.send_waiting(OTHER) && peers.waiting() == 0);
        assert_eq!(others.receive().map(number_of), Some(2));
        assert!(peers.send_waiting(OTHER) && peers.try_send(OTHER, mail(3)).is_ok());
        assert!(peers.receive().is_none(), "nothing of it was for this shard");
    }
}
