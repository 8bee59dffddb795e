//! The reading side of topics: getting them from their homes, and handing on what comes.

use model::{GapReason, Moment, Publication, Selector, Sequence, TopicName};
use smallvec::SmallVec;

use crate::audience::AudienceKey;
use crate::delivery::{Delivery, What};
use crate::encoder::Encoder;
use crate::entity::EntityIndex;
use crate::hub::Hub;
use crate::index::{AudienceIndex, TopicIndex};
use crate::mail::{HubMail, TopicState};
use crate::subscribe::PendingJoin;

/// A pattern about which this shard asked all others.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    audiences: SmallVec<[AudienceIndex; 2]>,
    /// The number of the wish; an answer to an older one counts for nothing.
    serial: u32,
    /// Shards that have not told all they have yet.
    unanswered: u16,
}

impl<E: Encoder> Hub<E> {
    /// Opens an audience, and asks for those of its topics that are not known here.
    pub(crate) fn open_audience(&mut self, key: AudienceKey) -> AudienceIndex {
        let selectors = key.selectors.clone();
        self.options.hold_again(key.options);
        let audience = self.audiences.insert(key);
        for selector in &selectors {
            match selector.to_topic() {
                Some(topic) => self.read_topic(audience, &topic),
                None => self.read_pattern(audience, selector),
            }
        }
        audience
    }

    fn read_topic(&mut self, audience: AudienceIndex, name: &TopicName) {
        let is_new = self.topics.find(name.as_str()).is_none();
        let index = self.find_or_make_topic(name);
        if is_new {
            self.ask_for(index);
        }
        let topic = self.topics.at_mut(index);
        if !topic.readers.contains(&audience) {
            topic.readers.push(audience);
        }
        if !topic.is_live {
            self.audiences.at_mut(audience).waiting += 1;
        }
    }

    /// Asks the topic's home, or the backbone if it is at home here.
    pub(crate) fn ask_for(&mut self, index: TopicIndex) {
        let name = self.topics.at(index).name.clone();
        let home = self.home_of(&name);
        if home == self.settings.shard {
            self.asks.push_back(name);
        } else {
            self.follows = self.follows.wrapping_add(1);
            self.topics.at_mut(index).follow_serial = self.follows;
            self.mail.push_back((home, HubMail::Follow { topic: name, serial: self.follows }));
        }
    }

    fn read_pattern(&mut self, audience: AudienceIndex, selector: &Selector) {
        self.patterns.insert(selector, audience);
        for index in self.revealed_by(selector) {
            let readers = &mut self.topics.at_mut(index).readers;
            if !readers.contains(&audience) {
                readers.push(audience);
            }
        }
        if !self.interests.contains_key(selector) {
            let others = self.other_shards();
            let asked: Vec<_> = others.collect();
            let unanswered = asked.len() as u16;
            self.follows = self.follows.wrapping_add(1);
            let serial = self.follows;
            for shard in asked {
                let selector = selector.clone();
                self.mail.push_back((shard, HubMail::FollowSelector { selector, serial }));
            }
            let interest = Interest { serial, unanswered, ..Interest::default() };
            self.interests.insert(selector.clone(), interest);
        }
        let interest = self.interests.get_mut(selector).expect("was just made");
        interest.audiences.push(audience);
        if interest.unanswered > 0 {
            self.audiences.at_mut(audience).waiting += 1;
        }
    }

    /// The revealed topics that a pattern selects.
    pub(crate) fn revealed_by(&self, selector: &Selector) -> Vec<TopicIndex> {
        let prefix = selector.literal_prefix().trim_end_matches('/');
        self.topics
            .revealed_from(prefix)
            .take_while(|(name, _)| name.as_str().starts_with(prefix))
            .filter(|(name, _)| selector.matches(name.as_str()))
            .map(|(_, index)| index)
            .collect()
    }

    /// Closes an audience in which nobody is any more.
    pub(crate) fn close_audience(&mut self, index: AudienceIndex) {
        let topics = self.topics_of(index);
        let Some(audience) = self.audiences.remove(index) else { return };
        self.options.release(audience.key.options);
        self.bases.remove(&index);
        if let Some(work) = audience.work {
            self.flush.drop_work(work);
        }
        self.joins.remove(&index);
        for selector in audience.key.selectors.iter().filter(|selector| selector.has_wildcard()) {
            self.patterns.remove(selector, index);
            self.drop_interest(selector, index);
        }
        for topic in topics {
            self.topics.at_mut(topic).readers.retain(|reader| *reader != index);
            self.forget_if_unused(topic);
        }
    }

    fn drop_interest(&mut self, selector: &Selector, audience: AudienceIndex) {
        let Some(interest) = self.interests.get_mut(selector) else { return };
        interest.audiences.retain(|kept| *kept != audience);
        if interest.audiences.is_empty() {
            self.interests.remove(selector);
            for shard in self.other_shards() {
                self.mail.push_back((shard, HubMail::UnfollowSelector(selector.clone())));
            }
        }
    }

    /// Forgets a topic that nobody reads, unless this shard is where it is kept.
    pub(crate) fn forget_if_unused(&mut self, index: TopicIndex) {
        let topic = self.topics.at(index);
        if !topic.readers.is_empty() {
            return;
        }
        let home = self.home_of(&topic.name);
        if home != self.settings.shard {
            let name = topic.name.clone();
            self.mail.push_back((home, HubMail::Unfollow(name)));
            self.topics.remove(index);
            return;
        }
        let is_asked_for = self.askers.get(&index).is_some_and(|askers| !askers.is_empty());
        let has_followers = is_asked_for || !topic.followers.is_empty();
        if !topic.is_revealed() && !has_followers {
            self.askers.remove(&index);
            self.topics.remove(index);
        }
    }

    /// Hears a topic's state from its home.
    pub(crate) fn handle_topic(&mut self, state: TopicState, now: Moment) {
        let Some(index) = self.find_or_want(&state) else {
            let home = self.home_of(&state.topic);
            self.mail.push_back((home, HubMail::Unfollow(state.topic)));
            return;
        };
        let topic = self.topics.at(index);
        if topic.is_live {
            self.handle_tail(state.number, state.history, state.head, now);
            return;
        }
        let is_asked = topic.follow_serial != 0;
        if is_asked && state.serial.is_some_and(|serial| serial != topic.follow_serial) {
            return;
        }
        let epoch = self.topics.intern_epoch(&state.epoch);
        self.topics.set_number(index, state.number);
        if self.is_awaited(&state.topic) {
            // Readers by pattern are here already: all of it is news to them, whoever asked.
            self.topics.at_mut(index).epoch = epoch;
            self.go_live(index);
            self.handle_tail(state.number, state.history, state.head, now);
            return;
        }
        let policy = self.policy(self.topics.at(index).policy).clone();
        let newest = self.deliveries.newest();
        let topic = self.topics.at_mut(index);
        (topic.epoch, topic.head, topic.newest_delivery) = (epoch, state.head, newest);
        for publication in state.history {
            topic.history.get_or_insert_default().push(newest, publication, &policy, now);
        }
        self.go_live(index);
    }

    /// Whether somebody who reads already selects `topic` by a pattern.
    fn is_awaited(&self, topic: &TopicName) -> bool {
        let mut is_awaited = false;
        self.patterns.visit_matches(topic.as_str(), &mut |audience| {
            let reads_on = |join: &PendingJoin| join.cursor.is_some();
            is_awaited |= self.audiences.at(audience).waiting == 0
                || self.joins.get(&audience).is_some_and(|joins| joins.iter().any(reads_on));
        });
        is_awaited
    }

    /// The topic that `state` is about, made if one of this shard's patterns selects it.
    fn find_or_want(&mut self, state: &TopicState) -> Option<TopicIndex> {
        let known = self.topics.find(state.topic.as_str());
        let mut is_wanted = false;
        if known.is_none() && state.is_selectable() {
            self.patterns.visit_matches(state.topic.as_str(), &mut |_| is_wanted = true);
        }
        known.or_else(|| is_wanted.then(|| self.find_or_make_topic(&state.topic)))
    }

    /// Hears which topics of another shard a pattern selects.
    pub(crate) fn handle_selected(
        &mut self,
        selector: &Selector,
        serial: u32,
        topics: Vec<TopicState>,
        is_last: bool,
        now: Moment,
    ) {
        for state in topics {
            self.handle_topic(state, now);
        }
        if !is_last {
            return;
        }
        let Some(interest) = self.interests.get_mut(selector) else { return };
        if interest.unanswered == 0 || interest.serial != serial {
            return;
        }
        interest.unanswered -= 1;
        if interest.unanswered == 0 {
            for audience in interest.audiences.clone() {
                self.answer_awaited(audience);
            }
        }
    }

    /// Starts reading of a topic whose state has become known.
    pub(crate) fn go_live(&mut self, index: TopicIndex) {
        let topic = self.topics.at_mut(index);
        topic.is_live = true;
        let readers = topic.readers.clone();
        if topic.is_revealed() {
            self.topics.reveal(index);
            self.attach_patterns(index);
        }
        for audience in readers {
            self.answer_awaited(audience);
        }
    }

    fn answer_awaited(&mut self, audience: AudienceIndex) {
        let known = self.audiences.at_mut(audience);
        known.waiting -= 1;
        if known.waiting == 0 {
            self.complete_joins(audience);
        }
    }

    /// Lets the audiences whose patterns select a topic read it; answers those that are new to it,
    /// or `None` if no pattern selects it.
    fn attach_patterns(&mut self, index: TopicIndex) -> Option<SmallVec<[AudienceIndex; 4]>> {
        let mut selected: SmallVec<[AudienceIndex; 4]> = SmallVec::new();
        let name = self.topics.at(index).name.clone();
        self.patterns.visit_matches(name.as_str(), &mut |audience| {
            if !selected.contains(&audience) {
                selected.push(audience);
            }
        });
        if selected.is_empty() {
            return None;
        }
        let readers = &mut self.topics.at_mut(index).readers;
        selected.retain(|audience| {
            let is_new = !readers.contains(audience);
            if is_new {
                readers.push(*audience);
            }
            is_new
        });
        Some(selected)
    }

    /// Takes the next publication of a topic: keeps it, and gives it to this shard's readers.
    pub(crate) fn take_publication(
        &mut self,
        index: TopicIndex,
        publication: Publication,
        now: Moment,
    ) {
        let (before, sequence) = (self.topics.at(index).newest_known(), publication.sequence());
        self.reveal_to_patterns(index);
        if sequence > before.next() {
            self.take_gap(index, sequence.back(1), now);
        }
        if let Some(publication) = self.withhold(index, publication, now) {
            let entity = self.entity_of(index, &publication);
            self.tell_readers(index, publication, entity, now);
        }
    }

    /// Delivers the next publication to this shard's readers, and keeps it.
    pub(crate) fn tell_readers(
        &mut self,
        index: TopicIndex,
        publication: Publication,
        entity: EntityIndex,
        now: Moment,
    ) {
        self.topics.at_mut(index).head = publication.sequence();
        self.wake_those_ahead(index);
        let readers = self.topics.at(index).readers.clone();
        if !readers.is_empty() {
            self.counters.deliveries += 1;
            self.deliver(index, entity, What::Publication(publication.clone()), &readers);
            if let Some(rare) = &mut self.topics.at_mut(index).rare {
                rare.entities.note(entity, self.deliveries.newest());
            }
        }
        self.keep(index, publication, now);
    }

    /// Lets patterns select a topic that is about to get its first publication.
    pub(crate) fn reveal_to_patterns(&mut self, index: TopicIndex) {
        let before = self.topics.at(index).head;
        if before > Sequence::START {
            return;
        }
        self.topics.reveal(index);
        // Also without new readers: one that asked for the topic by name as well may drop the name
        // before it is answered, and then reads of the announcement here.
        if let Some(new_readers) = self.attach_patterns(index) {
            let what = What::Announcement { start: before };
            self.deliver(index, EntityIndex::NONE, what, &new_readers);
        }
    }

    pub(crate) fn keep(&mut self, index: TopicIndex, publication: Publication, now: Moment) {
        let newest = self.deliveries.newest();
        let policy_index = self.topics.at(index).policy;
        let policy = self.settings.policy(policy_index);
        let topic = self.topics.at_mut(index);
        topic.newest_delivery = newest;
        if policy.retain || policy.history_count > 0 {
            topic.history.get_or_insert_default().push(newest, publication, policy, now);
        }
    }

    /// Notes that this shard lost a topic's publications up to `to`, and tells its readers.
    pub(crate) fn take_gap(&mut self, index: TopicIndex, to: Sequence, now: Moment) {
        self.release_withheld(index, now);
        let topic = self.topics.at_mut(index);
        let after = std::mem::replace(&mut topic.head, to);
        let readers = topic.readers.clone();
        let what = What::Gap { after, to, reason: GapReason::Lagged };
        self.deliver(index, EntityIndex::NONE, what, &readers);
        let newest = self.deliveries.newest();
        let topic = self.topics.at_mut(index);
        topic.newest_delivery = newest;
        topic.history.get_or_insert_default().lose(newest);
        self.wake_those_ahead(index);
    }

    /// Numbers a delivery and notes it for the audiences that have members in step.
    fn deliver(
        &mut self,
        topic: TopicIndex,
        entity: EntityIndex,
        what: What,
        readers: &[AudienceIndex],
    ) {
        let number = self.deliveries.push(Delivery { topic, entity, what });
        for &reader in readers {
            let audience = self.audiences.at_mut(reader);
            let work = match audience.work {
                Some(work) => work,
                None if audience.members.is_empty() => continue,
                None => {
                    let work = self.flush.open_work(reader, number - 1);
                    audience.work = Some(work);
                    work
                }
            };
            let work = self.flush.work_mut(work);
            if work.rests_until.is_some() && work.pending.is_empty() {
                // Nothing was held back yet: its members have everything before this.
                work.since = number - 1;
            }
            work.pending.push(number);
        }
    }
}
