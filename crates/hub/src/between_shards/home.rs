//! The home side of topics: what the backbone kept goes to this shard's readers and to the shards
//! that follow.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use model::{Moment, Position, Publication, Selector, Sequence, TopicName};

use crate::between_shards::followers::Introducing;
use crate::between_shards::mail::{HubMail, ToldFor, TopicNumber, TopicState};
use crate::hub::Hub;
use crate::operations::Operation;
use crate::sending::encoder::Encoder;
use crate::tables::index::{ShardIndex, Slot, TopicIndex};
use crate::topics::history::History;
use crate::topics::name_walk::Walk;
use crate::topics::topic::{Follower, PolicyIndex, Topic};

/// Topics in one piece of an answer to `FollowSelector`.
const SELECTED_PIECE: usize = 256;

impl<E: Encoder> Hub<E> {
    /// Hears from the backbone where a topic stands that is at home here.
    pub fn handle_head(&mut self, name: &TopicName, position: &Position) {
        let Some(index) = self.topics.find(name.as_str()) else { return };
        if self.topics.at(index).is_live {
            return;
        }
        self.take_home(index, position, position.sequence);
    }

    /// Hears of a topic at home here that a store held when it was opened: where it stands, and the
    /// newest publications, oldest first, each following the one before it.
    pub fn handle_stored(
        &mut self,
        name: &TopicName,
        position: &Position,
        newest: Vec<Publication>,
        now: Moment,
    ) {
        let index = self.find_or_make_topic(name);
        let policy = self.policy(self.topics.at(index).policy).clone();
        for publication in newest {
            let push = |history: &mut History| history.push(0, publication, &policy, now);
            self.topics.change_history(index, push);
        }
        self.watch_age(index, now);
        self.take_home(index, position, position.sequence);
    }

    /// Hears from the backbone that a publication to a topic at home here was kept. Answers the topic's policy.
    pub fn handle_kept(
        &mut self,
        name: &TopicName,
        position: &Position,
        publication: Publication,
        now: Moment,
    ) -> PolicyIndex {
        let index = self.find_or_make_topic(name);
        let policy = self.topics.at(index).policy;
        let publication = self.with_known_previous(index, publication);
        let (before, is_known) = (publication.previous(), self.topics.at(index).is_live);
        if !is_known {
            self.take_home(index, position, before);
        }
        self.take_epoch(index, &position.epoch, before);
        if !is_known || before == Sequence::START {
            self.tell_interested(index);
        }
        self.tell_followers(index, &publication);
        self.take_publication(index, publication, now);
        policy
    }

    /// Where nobody knows what was before a publication, and something was: it is taken to be right before it. Readers are told a
    /// gap up to there, and from then on no reader takes it for the topic's first.
    fn with_known_previous(&self, index: TopicIndex, publication: Publication) -> Publication {
        let is_unknown = publication.previous() == Sequence::START
            && self.topics.at(index).newest_known() > Sequence::START;
        match is_unknown {
            true => publication.moved_after(publication.sequence().back(1)),
            false => publication,
        }
    }

    /// Makes a topic live at its home: it gets its number, and askers get its state.
    fn take_home(&mut self, index: TopicIndex, position: &Position, head: Sequence) {
        let epoch = self.topics.intern_epoch(&position.epoch);
        let number = index.0.place() * u32::from(self.settings.shard_count)
            + u32::from(self.settings.shard.0);
        let topic = self.topics.at_mut(index);
        (topic.epoch, topic.number, topic.head) = (epoch, number, head);
        topic.home_generation = index.0.generation().get();
        self.go_live(index);
        for (shard, serial) in self.followers.askers.remove(&index).unwrap_or_default() {
            self.add_follower(index, shard, ToldFor::Wish(serial));
        }
    }

    /// Lets shards with a pattern that selects a new topic follow it.
    fn tell_interested(&mut self, index: TopicIndex) {
        let shards = self.followers.interested_in(&self.topics.at(index).name);
        for shard in shards {
            if !self.has_follower(index, shard) {
                self.add_follower(index, shard, self.followers.told_for_pattern(shard));
            }
        }
    }

    fn is_interested(&self, shard: ShardIndex, name: &TopicName) -> bool {
        self.followers.interested_in(name).contains(&shard)
    }

    fn tell_followers(&mut self, index: TopicIndex, publication: &Publication) {
        let (topic, before) = (self.topics.at(index), self.outbox.mail.len());
        for follower in topic.followers.iter().filter(|follower| !follower.is_lapped) {
            let (number, publication) = (topic.home_number(), publication.clone());
            self.outbox.mail.push_back((follower.shard, HubMail::Deliver { number, publication }));
        }
        self.note_mail(self.outbox.mail.len() - before);
    }

    /// Hears another shard's hub.
    pub fn handle_mail(&mut self, from: ShardIndex, mail: HubMail, now: Moment) {
        match mail {
            HubMail::Follow { topic, serial } => self.handle_follow(from, &topic, serial),
            HubMail::Unfollow(topic) => self.handle_unfollow(from, &topic),
            HubMail::FollowSelector { selector, serial } => {
                self.handle_follow_selector(from, selector, serial);
            }
            HubMail::UnfollowSelector(selector) => self.handle_unfollow_selector(from, selector),
            HubMail::Topic(state) => self.handle_topic(*state, now),
            HubMail::Selected { selector, serial, topics, is_last } => {
                self.handle_selected(&selector, serial, topics, is_last, now);
            }
            HubMail::Deliver { number, publication } => {
                self.handle_delivery(number, publication, now);
            }
            HubMail::Epoch { number, epoch, ended_at } => {
                if let Some(index) = self.topics.find_number(number) {
                    self.take_epoch(index, &epoch, ended_at);
                }
            }
            HubMail::Tail { number, publications, head } => {
                self.handle_tail(number, publications, head, now);
            }
        }
    }

    fn handle_follow(&mut self, from: ShardIndex, name: &TopicName, serial: u64) {
        self.followers.note_heard(from, serial);
        let is_new = self.topics.find(name.as_str()).is_none();
        let index = self.find_or_make_topic(name);
        if is_new {
            self.ask_for(index);
        }
        if self.has_follower(index, from) {
            // It follows because of a pattern or an older wish. What it has already it will skip.
            let state = Box::new(self.state_of(index, ToldFor::Wish(serial)));
            self.post(from, HubMail::Topic(state));
        } else if self.topics.at(index).is_live {
            self.add_follower(index, from, ToldFor::Wish(serial));
        } else {
            self.followers.askers.entry(index).or_default().push((from, serial));
        }
    }

    fn handle_unfollow(&mut self, from: ShardIndex, name: &TopicName) {
        let Some(index) = self.topics.find(name.as_str()) else { return };
        if self.topics.at(index).is_revealed() && self.is_interested(from, name) {
            // It wrote before it heard that one of its patterns selects the topic, and may have
            // thrown away what it was told of it since.
            self.add_follower(index, from, self.followers.told_for_pattern(from));
            return;
        }
        self.drop_follower(index, from);
        if let Some(askers) = self.followers.askers.get_mut(&index) {
            askers.retain(|(asker, _)| *asker != from);
        }
        self.forget_if_unused(index);
    }

    fn handle_follow_selector(&mut self, from: ShardIndex, selector: Selector, serial: u64) {
        self.followers.note_heard(from, serial);
        self.followers.interests.insert(&selector, from);
        let introducing = Introducing { walk: Walk::of(&[&selector]), serial };
        self.followers.introducing.insert((from, selector.clone()), introducing);
        self.begin_operation(Operation::Introduce(from, selector));
    }

    fn handle_unfollow_selector(&mut self, from: ShardIndex, selector: Selector) {
        self.followers.interests.remove(&selector, from);
        self.followers.introducing.remove(&(from, selector));
    }

    /// Answers whether the other shard was told of all topics, or wants to hear of no more.
    pub(crate) fn go_on_introducing(
        &mut self,
        to: ShardIndex,
        selector: &Selector,
        steps: &mut usize,
    ) -> bool {
        let key = (to, selector.clone());
        let Some(mut introducing) = self.followers.introducing.remove(&key) else { return true };
        let mut found = Vec::new();
        let is_done = self.find_next(&mut introducing.walk, steps, &mut found);
        found.retain(|index| self.is_home_of(&self.topics.at(*index).name));
        let mut pieces = found.chunks(SELECTED_PIECE).peekable();
        if pieces.peek().is_none() && is_done {
            self.tell_selected(to, selector, introducing.serial, Vec::new(), true);
        }
        while let Some(piece) = pieces.next() {
            let told_for = self.followers.told_for_pattern(to);
            let topics = piece.iter().map(|index| self.state_of(*index, told_for)).collect();
            for index in piece {
                if !self.has_follower(*index, to) {
                    self.note_follower(*index, to);
                }
            }
            let is_last = is_done && pieces.peek().is_none();
            self.tell_selected(to, selector, introducing.serial, topics, is_last);
        }
        if !is_done {
            self.followers.introducing.insert(key, introducing);
        }
        is_done
    }

    fn tell_selected(
        &mut self,
        to: ShardIndex,
        selector: &Selector,
        serial: u64,
        topics: Vec<TopicState>,
        is_last: bool,
    ) {
        let mail = HubMail::Selected { selector: selector.clone(), serial, topics, is_last };
        self.post(to, mail);
    }

    fn has_follower(&self, index: TopicIndex, shard: ShardIndex) -> bool {
        self.topics.at(index).followers.iter().any(|follower| follower.shard == shard)
    }

    fn note_follower(&mut self, index: TopicIndex, shard: ShardIndex) {
        self.drop_follower(index, shard);
        self.topics.at_mut(index).followers.push(Follower { shard, is_lapped: false });
    }

    fn drop_follower(&mut self, index: TopicIndex, shard: ShardIndex) {
        let mut was_lapped = false;
        self.topics.at_mut(index).followers.retain(|follower| {
            let is_it = follower.shard == shard;
            was_lapped |= is_it && follower.is_lapped;
            !is_it
        });
        if was_lapped {
            self.followers.forget_lapped(shard, index);
        }
    }

    fn add_follower(&mut self, index: TopicIndex, shard: ShardIndex, told_for: ToldFor) {
        self.note_follower(index, shard);
        let state = Box::new(self.state_of(index, told_for));
        self.post(shard, HubMail::Topic(state));
    }

    fn state_of(&self, index: TopicIndex, told_for: ToldFor) -> TopicState {
        let topic = self.topics.at(index);
        let kept = topic.history.iter().flat_map(|history| history.iter());
        TopicState {
            told_for,
            topic: topic.name.clone(),
            number: topic.home_number(),
            epoch: self.topics.epoch(topic.epoch).clone(),
            head: topic.newest_known(),
            history: kept.chain(topic.withheld()).cloned().collect(),
            lateness: topic.lateness(),
        }
    }

    /// Hears that mail to another shard found no room. A publication is sent again from history
    /// once there is room; any other mail the caller must keep and send later, in order.
    pub fn handle_mail_refused(&mut self, shard: ShardIndex, mail: &HubMail) {
        let HubMail::Deliver { number, publication } = mail else { return };
        let Some(topic) = self.topic_at_home(*number) else { return };
        let Some(known) = self.topics.get_mut(topic) else { return };
        let follower = known.followers.iter_mut().find(|follower| follower.shard == shard);
        if let Some(follower) = follower.filter(|follower| !follower.is_lapped) {
            follower.is_lapped = true;
            self.counters.lapped_followers += 1;
            self.followers.lap(shard, topic, publication.previous());
        }
    }

    /// Hears that a shard's mailbox has room again: it gets what it missed.
    pub fn handle_room(&mut self, shard: ShardIndex) {
        for lapped in self.followers.take_lapped(shard) {
            let Some(topic) = self.topics.get(lapped.topic) else { continue };
            let publications = self.known_after(lapped.topic, topic, lapped.after);
            let (number, head) = (topic.home_number(), topic.newest_known());
            let topic = self.topics.at_mut(lapped.topic);
            for follower in topic.followers.iter_mut().filter(|follower| follower.shard == shard) {
                follower.is_lapped = false;
            }
            self.post(shard, HubMail::Tail { number, publications, head });
        }
    }

    /// What this shard has of a topic after `after`, oldest first: among the recent deliveries, in memory, held back.
    fn known_after(&self, index: TopicIndex, topic: &Topic, after: Sequence) -> Vec<Publication> {
        let history = topic.history.iter().flat_map(|history| history.after(after));
        let withheld = topic.withheld().filter(|it| it.sequence() > after);
        let mut known: VecDeque<&Publication> = history.chain(withheld).collect();
        let kept_after = known.front().map_or(topic.head, |oldest| oldest.previous());
        if kept_after > after {
            let recent = self.recent_between(index, after, kept_after).publications;
            recent.into_iter().rev().for_each(|publication| known.push_front(publication));
        }
        known.into_iter().cloned().collect()
    }

    /// Whether a follower waits for room in its mailbox.
    pub fn has_lapped_followers(&self) -> bool {
        self.followers.has_lapped()
    }

    /// The topic at home here that other shards know by `number`.
    fn topic_at_home(&self, number: TopicNumber) -> Option<TopicIndex> {
        let place = number.number / u32::from(self.settings.shard_count);
        Some(TopicIndex(Slot::of(place, NonZeroU32::new(number.generation)?)))
    }

    fn handle_delivery(&mut self, number: TopicNumber, publication: Publication, now: Moment) {
        let Some(index) = self.topics.find_number(number) else { return };
        if publication.sequence() > self.topics.at(index).newest_known() {
            self.take_publication(index, publication, now);
        }
    }

    pub(crate) fn handle_tail(
        &mut self,
        number: TopicNumber,
        publications: Vec<Publication>,
        head: Sequence,
        now: Moment,
    ) {
        let Some(index) = self.topics.find_number(number) else { return };
        for publication in publications {
            if publication.sequence() > self.topics.at(index).newest_known() {
                self.take_publication(index, publication, now);
            }
        }
        if head > self.topics.at(index).newest_known() {
            self.reveal_to_patterns(index);
            self.take_gap(index, head, now);
        }
    }
}
