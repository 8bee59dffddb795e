//! A new epoch while the server runs. A session came back with a position that this life of the store never gave: an older copy of
//! the store was put back, and its numbering must not go on under the same name. Decision 0029.
//!
//! The hub tells of such a position ([`Hub::poll_beyond`]). Its owner decides, has the store begin an epoch, and says so to every
//! shard ([`Hub::handle_epoch`]). A topic changes over at its home, in one of the next turns or with its next publication,
//! whichever comes first; shards that follow it hear of that in order with its publications, and readers as a gap.

use model::planted::{Fault, is_planted};
use model::{Epoch, Position, Sequence};

use crate::between_shards::epochs::Beyond;
use crate::between_shards::mail::HubMail;
use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::tables::index::{SessionIndex, TopicIndex};
use crate::topics::conflation_keys::EntityIndex;
use crate::topics::delivery::What;
use crate::topics::topic::{EpochIndex, Topic};

impl<E: Encoder> Hub<E> {
    /// Notes that a session has a position of a durable topic beyond all that its home knows. One at a time: another
    /// one would say no more.
    pub(crate) fn note_beyond(&mut self, session: SessionIndex, index: TopicIndex) {
        let (Some(session), Some(topic)) = (self.sessions.get(session), self.topics.get(index))
        else {
            return;
        };
        if self.renewal.beyond.is_none() && self.is_on_disk(topic) {
            let epoch = self.topics.epoch(topic.epoch).clone();
            let position = Position { epoch, sequence: topic.newest_known() };
            let (link, topic) = (session.link, topic.name.clone());
            self.renewal.beyond = Some(Beyond { link, topic, position });
        }
    }

    /// A position that shows that an older copy of the store was put back, if the session that has it can be believed.
    pub fn poll_beyond(&mut self) -> Option<Beyond> {
        self.renewal.beyond.take()
    }

    /// Hears that the numbering of the topics at home here that were of epoch `old` goes on in epoch `new`.
    pub fn handle_epoch(&mut self, old: &Epoch, new: &Epoch) {
        let begun = (self.topics.intern_epoch(old), self.topics.intern_epoch(new));
        (self.renewal.begun, self.renewal.next) = (Some(begun), Some(0));
    }

    /// Whether topics at home here have still to change over.
    pub fn is_renewing(&self) -> bool {
        self.renewal.next.is_some()
    }

    /// Lets some topics change over, so that a turn stays short however many there are.
    pub fn renew_some(&mut self) {
        /// Topics looked at in one go.
        const TOPICS_MAX: u32 = 512;
        let (Some(from), Some((old, new))) = (self.renewal.next, self.renewal.begun) else {
            return;
        };
        let end = self.topics.end().min(from + TOPICS_MAX);
        self.note_work((end - from) as usize);
        for place in from..end {
            let Some(index) = self.topics.find_at(place) else { continue };
            let topic = self.topics.at(index);
            if topic.is_live && topic.epoch == old && self.is_home_of(&topic.name) {
                let ended_at = topic.newest_known();
                self.renew(index, new, ended_at);
            }
        }
        self.renewal.next = (end < self.topics.end()).then_some(end);
    }

    /// Has a live topic be of this epoch from now on. The one before ended with the sequence `ended_at`.
    pub(crate) fn take_epoch(&mut self, index: TopicIndex, epoch: &Epoch, ended_at: Sequence) {
        if self.topics.epoch(self.topics.at(index).epoch) != epoch {
            let epoch = self.topics.intern_epoch(epoch);
            self.renew(index, epoch, ended_at);
        }
    }

    fn renew(&mut self, index: TopicIndex, epoch: EpochIndex, ended_at: Sequence) {
        let is_followed = !self.is_home_of(&self.topics.at(index).name);
        let topic = self.topics.at_mut(index);
        let ended = std::mem::replace(&mut topic.epoch, epoch);
        let (at, readers, number) = (topic.head, topic.readers.clone(), topic.home_number());
        let followers: Vec<_> = topic.followers.iter().map(|follower| follower.shard).collect();
        if !readers.is_empty() && !is_planted(Fault::EpochUntold) {
            self.deliver(index, EntityIndex::NONE, What::Epoch { at }, &readers);
            self.renewal.told_at = self.deliveries.newest();
        }
        for shard in followers {
            let epoch = self.topics.epoch(epoch).clone();
            self.post(shard, HubMail::Epoch { number, epoch, ended_at });
        }
        self.renewal.count += 1;
        if is_followed {
            self.renewal.ended.insert(index, (ended, ended_at));
            self.wake_all_ahead(index);
        }
    }

    /// Of which epoch a reader that stands at `cursor` knows a topic to be; of none, if it may not have heard yet.
    pub(crate) fn epoch_known_at(&self, topic: &Topic, cursor: u64) -> EpochIndex {
        let is_renewed = cursor < self.renewal.told_at && self.is_on_disk(topic);
        match is_renewed && !is_planted(Fault::EpochFallsOffTheRing) {
            true => EpochIndex::NONE,
            false => topic.epoch,
        }
    }

    /// Whether a topic that changed over may be among the deliveries after `cursor`.
    pub(crate) fn has_renewed_after(&self, cursor: u64) -> bool {
        cursor < self.renewal.told_at
    }
}
