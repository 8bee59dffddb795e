//! The reading side of topics: getting them from their homes, and handing on what comes.

use model::planted::{Fault, is_planted};
use model::{Moment, Publication, Selector, Sequence, TopicName};
use smallvec::SmallVec;

use crate::audiences::audience::AudienceKey;
use crate::audiences::joining::Joins;
use crate::between_shards::following::Interest;
use crate::between_shards::mail::{HubMail, ToldFor, TopicState};
use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::tables::index::{AudienceIndex, TopicIndex};
use crate::topics::conflation_keys::EntityIndex;
use crate::topics::delivery::{Delivery, Lost, What};
use crate::topics::history::History;
use crate::topics::topic::Topic;

impl<E: Encoder> Hub<E> {
    /// Opens an audience, and asks for those of its topics that are not known here.
    pub(crate) fn open_audience(&mut self, key: AudienceKey) -> AudienceIndex {
        let selectors = key.selectors.clone();
        self.options.hold_again(key.options);
        let audience = self.audiences.insert(key);
        let (names, patterns): (Vec<&Selector>, Vec<&Selector>) =
            selectors.iter().partition(|selector| !selector.has_wildcard());
        for name in names.into_iter().filter_map(Selector::to_topic) {
            self.read_topic(audience, &name);
        }
        for pattern in &patterns {
            self.read_pattern(audience, pattern);
        }
        self.attach(audience, &patterns);
        audience
    }

    fn read_topic(&mut self, audience: AudienceIndex, name: &TopicName) {
        let is_new = self.topics.find(name.as_str()).is_none();
        let index = self.find_or_make_topic(name);
        if is_new {
            self.ask_for(index);
        }
        self.topics.at_mut(index).add_reader(audience);
        self.topics.readers_changed += 1;
        if !self.topics.at(index).is_live {
            self.audiences.at_mut(audience).waiting += 1;
        }
    }

    /// Asks the topic's home, or the backbone if it is at home here.
    pub(crate) fn ask_for(&mut self, index: TopicIndex) {
        let name = self.topics.at(index).name.clone();
        let home = self.home_of(&name);
        if home == self.settings.shard {
            self.outbox.asks.push_back(name);
        } else {
            let serial = self.following.next_serial();
            self.topics.at_mut(index).follow_serial = serial;
            self.post(home, HubMail::Follow { topic: name, serial });
        }
    }

    fn read_pattern(&mut self, audience: AudienceIndex, selector: &Selector) {
        self.note_work(1);
        self.following.patterns.insert(selector, audience);
        if !self.following.interests.contains_key(selector) {
            let others = self.other_shards();
            let asked: Vec<_> = others.collect();
            let unanswered = asked.len() as u16;
            let serial = self.following.next_serial();
            for shard in asked {
                let selector = selector.clone();
                self.post(shard, HubMail::FollowSelector { selector, serial });
            }
            let interest = Interest { serial, unanswered, ..Interest::default() };
            self.following.interests.insert(selector.clone(), interest);
        }
        let interest = self.following.interests.get_mut(selector).expect("was just made");
        interest.audiences.insert(audience);
        if interest.unanswered > 0 {
            self.audiences.at_mut(audience).waiting += 1;
        }
    }

    fn remove_topic(&mut self, index: TopicIndex) {
        self.options.forget_topic(index);
        self.topics.remove(index);
    }

    /// Closes an audience in which nobody is any more.
    pub(crate) fn close_audience(&mut self, index: AudienceIndex) {
        let Some((key, work)) = self.audiences.close(index) else { return };
        self.note_work(key.selectors.len());
        self.options.release(key.options);
        self.audiences.bases.remove(&index);
        if let Some(work) = work {
            self.flush.drop_work(work);
        }
        self.joining.joins.remove(&index);
        self.joining.attaching.remove(&index);
        for selector in key.selectors.iter().filter(|selector| selector.has_wildcard()) {
            self.following.patterns.remove(selector, index);
            self.drop_interest(selector, index);
        }
        self.detach(index, &key.selectors);
    }

    fn drop_interest(&mut self, selector: &Selector, audience: AudienceIndex) {
        let Some(interest) = self.following.interests.get_mut(selector) else { return };
        interest.audiences.remove(audience);
        if interest.audiences.is_empty() {
            self.following.interests.remove(selector);
            for shard in self.other_shards() {
                self.post(shard, HubMail::UnfollowSelector(selector.clone()));
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
            self.post(home, HubMail::Unfollow(name));
            self.renewal.forget(index);
            self.remove_topic(index);
            return;
        }
        let is_asked_for =
            self.followers.askers.get(&index).is_some_and(|askers| !askers.is_empty());
        let has_followers = is_asked_for || !topic.followers.is_empty();
        if !topic.is_revealed() && !has_followers {
            self.followers.askers.remove(&index);
            self.remove_topic(index);
        }
    }

    /// Hears a topic's state from its home.
    pub(crate) fn handle_topic(&mut self, state: TopicState, now: Moment) {
        let told_for = state.told_for;
        self.take_state(state, now);
        if let ToldFor::Wish(serial) = told_for {
            self.handle_asked(serial);
        }
    }

    fn take_state(&mut self, state: TopicState, now: Moment) {
        let Some(index) = self.find_or_want(&state) else {
            // What was asked for by name is unknown because it was taken back: its home will hear that.
            if matches!(state.told_for, ToldFor::Pattern { .. }) {
                let home = self.home_of(&state.topic);
                self.post(home, HubMail::Unfollow(state.topic));
            }
            return;
        };
        let topic = self.topics.at(index);
        if topic.is_live {
            let ended_at = topic.newest_known();
            self.take_epoch(index, &state.epoch, ended_at);
            self.handle_tail(state.number, state.history, state.head, now);
            return;
        }
        let is_asked = topic.follow_serial != 0;
        if let ToldFor::Wish(serial) = state.told_for
            && is_asked
            && serial != topic.follow_serial
        {
            return;
        }
        let epoch = self.topics.intern_epoch(&state.epoch);
        self.topics.set_number(index, state.number);
        if self.is_awaited(&state.topic) {
            // Readers by pattern are here already: all of it is news to them, whoever asked. Those who asked by
            // name are answered when it is here, and start where they wanted to.
            let topic = self.topics.at_mut(index);
            (topic.epoch, topic.is_live) = (epoch, true);
            if is_planted(Fault::HistoryAsNews) {
                self.go_live(index);
                self.handle_tail(state.number, state.history, state.head, now);
                return;
            }
            let readers = topic.readers.clone();
            self.handle_tail(state.number, state.history, state.head, now);
            readers.into_iter().for_each(|audience| self.answer_awaited(audience));
            return;
        }
        let policy = self.policy(self.topics.at(index).policy).clone();
        let newest = self.deliveries.newest();
        let topic = self.topics.at_mut(index);
        (topic.epoch, topic.head, topic.newest_delivery) = (epoch, state.head, newest);
        topic.note_lateness(state.lateness);
        for publication in state.history {
            let push = |history: &mut History| history.push(newest, publication, &policy, now);
            self.topics.change_history(index, push);
        }
        self.watch_age(index, now);
        self.go_live(index);
    }

    /// Whether somebody who reads already selects `topic` by a pattern.
    fn is_awaited(&self, topic: &TopicName) -> bool {
        let mut is_awaited = false;
        self.following.patterns.visit_matches(topic.as_str(), &mut |audience| {
            is_awaited |= self.audiences.at(audience).waiting == 0
                || self.joining.joins.get(&audience).is_some_and(Joins::reads_on);
        });
        is_awaited
    }

    /// The topic that `state` is about, made if the home told of it because one of this shard's patterns selects it.
    fn find_or_want(&mut self, state: &TopicState) -> Option<TopicIndex> {
        let known = self.topics.find(state.topic.as_str());
        let ToldFor::Pattern { heard } = state.told_for else { return known };
        known.or_else(|| {
            let is_wanted = self.is_selected_since(&state.topic, heard);
            is_wanted.then(|| self.find_or_make_topic(&state.topic))
        })
    }

    /// Whether a pattern selects `topic` of which its home knew when it had heard of the wishes up to `heard`. Where it
    /// knew of none it may be about to hear that this shard wants no more of the topic, and says anew where that stands
    /// when it hears of the pattern.
    fn is_selected_since(&self, topic: &TopicName, heard: u64) -> bool {
        let mut is_selected = false;
        self.following.patterns.visit_matches(topic.as_str(), &mut |audience| {
            if is_selected {
                return;
            }
            let selectors = &self.audiences.at(audience).key.selectors;
            self.note_work(selectors.len());
            let is_in_force = |it: &Selector| {
                it.has_wildcard()
                    && it.matches(topic.as_str())
                    && self.following.was_heard(it, heard)
            };
            is_selected = is_planted(Fault::StaleStateTaken) || selectors.iter().any(is_in_force);
        });
        is_selected
    }

    /// Hears which topics of another shard a pattern selects.
    pub(crate) fn handle_selected(
        &mut self,
        selector: &Selector,
        serial: u64,
        topics: Vec<TopicState>,
        is_last: bool,
        now: Moment,
    ) {
        self.note_work(topics.len());
        for state in topics {
            self.handle_topic(state, now);
        }
        if !is_last {
            return;
        }
        let Some(interest) = self.following.interests.get_mut(selector) else { return };
        if interest.unanswered == 0 || interest.serial != serial {
            return;
        }
        interest.unanswered -= 1;
        if interest.unanswered == 0 {
            for audience in interest.audiences.as_slice().to_vec() {
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

    pub(crate) fn answer_awaited(&mut self, audience: AudienceIndex) {
        // Those who were let in before this may have been the last to need it.
        let Some(known) = self.audiences.get_mut(audience) else { return };
        known.waiting -= 1;
        if known.waiting == 0 {
            self.complete_joins(audience);
        }
    }

    /// Whether patterns of an audience select a topic, so that it is announced to it.
    pub(crate) fn selects_by_pattern(&self, audience: AudienceIndex, topic: &Topic) -> bool {
        self.note_work(1);
        self.following.patterns.selects_for(topic.name.as_str(), audience)
    }

    /// Lets the audiences whose patterns select a topic read it; answers all of them, and whether they are new to it.
    pub(crate) fn attach_patterns(
        &mut self,
        index: TopicIndex,
    ) -> SmallVec<[(AudienceIndex, bool); 4]> {
        let mut selected: SmallVec<[AudienceIndex; 4]> = SmallVec::new();
        let name = self.topics.at(index).name.clone();
        self.following
            .patterns
            .visit_matches(name.as_str(), &mut |audience| selected.push(audience));
        self.note_work(selected.len());
        // Several patterns of one may select it.
        selected.sort_unstable();
        selected.dedup();
        let topic = self.topics.at_mut(index);
        let added: SmallVec<[(AudienceIndex, bool); 4]> =
            selected.into_iter().map(|audience| (audience, topic.add_reader(audience))).collect();
        self.topics.readers_changed += u64::from(added.iter().any(|(_, is_new)| *is_new));
        added
    }

    /// Takes the next publication of a topic: keeps it, and gives it to this shard's readers.
    pub(crate) fn take_publication(
        &mut self,
        index: TopicIndex,
        publication: Publication,
        now: Moment,
    ) {
        let before = self.topics.at(index).newest_known();
        self.reveal_to_patterns(index);
        if !publication.follows(before) {
            self.take_gap(index, publication.previous(), now);
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
        let topic = self.topics.at_mut(index);
        topic.head = publication.sequence();
        topic.note_told(publication.unix_ms(), now.unix_ms);
        self.wake_those_ahead(index);
        let topic = self.topics.at_mut(index);
        if !topic.readers.is_empty() {
            let readers = std::mem::take(&mut topic.readers);
            self.counters.deliveries += 1;
            self.deliver(index, entity, What::Publication(publication.clone()), &readers);
            let topic = self.topics.at_mut(index);
            topic.readers = readers;
            topic.newest_delivery = self.deliveries.newest();
            if let Some(rare) = &mut topic.rare {
                rare.entities.note(entity, topic.newest_delivery);
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
        let is_first = self.topics.reveal(index);
        let mut readers = self.attach_patterns(index);
        if readers.is_empty() {
            return;
        }
        // Those that read it by name were told of it when they asked for the name, not for the pattern. While its
        // first publications are held back this happens again.
        readers.retain(|(_, is_new)| is_first || *is_new);
        let readers: SmallVec<[AudienceIndex; 4]> = readers.iter().map(|(it, _)| *it).collect();
        // Also without readers: one that asked for the topic by name as well may drop the name
        // before it is answered, and then reads of the announcement here.
        let what = What::Announcement { start: before };
        self.deliver(index, EntityIndex::NONE, what, &readers);
    }

    pub(crate) fn keep(&mut self, index: TopicIndex, publication: Publication, now: Moment) {
        let newest = self.deliveries.newest();
        let policy_index = self.topics.at(index).policy;
        let policy = self.settings.policy(policy_index);
        if policy.retain || policy.history_count > 0 {
            let push = |history: &mut History| history.push(newest, publication, policy, now);
            self.topics.change_history(index, push);
            self.watch_age(index, now);
        }
    }

    /// Notes that this shard lost a topic's publications up to `to`, and tells its readers.
    pub(crate) fn take_gap(&mut self, index: TopicIndex, to: Sequence, now: Moment) {
        self.release_withheld(index, now);
        let topic = self.topics.at_mut(index);
        let after = std::mem::replace(&mut topic.head, to);
        let readers = topic.readers.clone();
        let what = What::Lost(Box::new(Lost { after, to }));
        if !is_planted(Fault::UntoldLossOfAFollower) {
            self.deliver(index, EntityIndex::NONE, what, &readers);
        }
        let newest = self.deliveries.newest();
        let topic = self.topics.at_mut(index);
        topic.newest_delivery = newest;
        self.topics.change_history(index, |history| history.lose(newest));
        self.wake_those_ahead(index);
    }

    /// Numbers a delivery and notes it for the audiences that have members in step.
    pub(crate) fn deliver(
        &mut self,
        topic: TopicIndex,
        entity: EntityIndex,
        what: What,
        readers: &[AudienceIndex],
    ) {
        self.note_work(readers.len());
        let previous = self.topics.at(topic).newest_delivery;
        let number = self.deliveries.push(Delivery { topic, entity, previous, what });
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
