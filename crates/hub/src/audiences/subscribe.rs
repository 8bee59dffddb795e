//! Subscribing and unsubscribing: which audience a session is in, and where it starts to read.

use std::collections::VecDeque;

use model::planted::{Fault, is_planted};
use model::{
    Code, CommandId, Event, HashMap, HashSet, Refusal, Selector, Sequence, Subscribe,
    SubscribeOptions, Subscribed, SubscriptionId, Unsubscribe,
};

use crate::audiences::audience::AudienceKey;
use crate::audiences::joining::{PendingJoin, Wish};
use crate::audiences::options::{Manner, OptionsIndex};
use crate::audiences::overlap::{Overlaps, TooMany};
use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sessions::session::Membership;
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::delivery::What;
use crate::topics::history::Place;
use crate::topics::name_walk::Walk;
use crate::topics::selector_tree::SelectorTree;

/// What a session takes along when it leaves audiences for another.
#[derive(Debug, Default)]
struct Luggage {
    /// The audiences that it left. They stay open until it is in the next one, so that topics
    /// which both read are not forgotten in between.
    left: Vec<AudienceIndex>,
    selectors: Vec<Selector>,
    cursor: Option<u64>,
    wishes: VecDeque<Wish>,
}

impl<E: Encoder> Hub<E> {
    /// Subscribes a session. The answer, `Event::Subscribed`, goes to it by itself, at once or when
    /// the topics' homes have answered.
    ///
    /// A session sees each topic once: what overlaps with selectors that it has already is joined
    /// with them into one audience.
    pub fn subscribe(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        wanted: Subscribe,
    ) -> Result<(), Refusal> {
        if let Some(subscription) = wanted.subscription {
            return self.subscribe_by_id(session, id, subscription, wanted);
        }
        let manner = self.manner(session, &wanted.options);
        self.check_count(session, &wanted.selectors, 0)?;
        self.check_options(&manner)?;
        let reader = self.reader_without_ids(session);
        let session = reader.unwrap_or_else(|| self.unused_reader(session));
        let overlapping = self.overlapping(session, &wanted.selectors)?;
        if !overlapping.is_empty() || wanted.selectors.iter().any(Selector::has_wildcard) {
            self.check_operations()?;
        }
        self.check_merge(session, &overlapping)?;
        self.join(session, id, wanted, overlapping, &manner);
        Ok(())
    }

    /// Lets a session read more, together with what it reads that overlaps.
    pub(crate) fn join(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        mut wanted: Subscribe,
        overlapping: Vec<AudienceIndex>,
        manner: &Manner,
    ) {
        let mut luggage = self.pack_all(session, overlapping);
        luggage.selectors.extend(wanted.selectors.iter().cloned());
        let Subscribe { subscription, selectors, start, positions, options, .. } = &mut wanted;
        let (selectors, positions) = (std::mem::take(selectors), std::mem::take(positions));
        let wish =
            Wish::new(id, *subscription, selectors, start.clone(), positions, options.is_resumable);
        luggage.wishes.push_back(wish);
        self.enter(session, luggage, manner);
    }

    /// Ends subscriptions. All selectors must be subscribed, or nothing happens.
    pub fn unsubscribe(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        unwanted: Unsubscribe,
    ) -> Result<(), Refusal> {
        let selectors = match unwanted {
            Unsubscribe::Selectors(selectors) => selectors,
            Unsubscribe::Subscription(subscription) => {
                return self.unsubscribe_by_id(session, id, subscription);
            }
        };
        let reader = self.reader_without_ids(session);
        match (reader, selectors.first()) {
            (Some(reader), _) => self.end_in(reader, &selectors, None)?,
            (None, Some(strange)) => return Err(not_subscribed(strange)),
            (None, None) => {}
        }
        let (subscription, has_lagged) = (None, false);
        self.tell(session, &Event::Unsubscribed { id, subscription, selectors, has_lagged });
        Ok(())
    }

    /// Ends what a reader reads under some selectors, all of which it has, and a `subscribe` of `ended` that is not
    /// answered yet.
    pub(crate) fn end_in(
        &mut self,
        session: SessionIndex,
        unwanted: &[Selector],
        ended: Option<SubscriptionId>,
    ) -> Result<(), Refusal> {
        let mut gone: HashSet<&Selector> = unwanted.iter().collect();
        self.note_work(unwanted.len());
        let mut touched = self.audiences_with(session, &mut gone);
        if let Some(strange) = unwanted.iter().find(|it| gone.contains(it)) {
            return Err(not_subscribed(strange));
        }
        touched.extend(ended.and_then(|ended| self.audience_awaited_by(session, ended)));
        touched.sort_unstable();
        touched.dedup();
        let gone: HashSet<&Selector> = unwanted.iter().collect();
        // The last first: so the others keep their places among the memberships.
        for audience in touched.into_iter().rev() {
            let options = self.audiences.at(audience).key.options;
            let manner = self.options.at(options).manner.clone();
            let mut luggage = self.pack(session, audience);
            luggage.selectors.retain(|selector| !gone.contains(selector));
            for mut wish in std::mem::take(&mut luggage.wishes) {
                let wish_id = wish.subscription;
                let is_wanted = |selector: &Selector| match wish_id {
                    Some(_) => wish_id != ended,
                    None => !gone.contains(selector),
                };
                if wish.selectors.iter().any(is_wanted) {
                    wish.selectors.retain(is_wanted);
                    luggage.wishes.push_back(wish);
                } else {
                    self.answer_taken_back(session, wish);
                }
            }
            self.enter(session, luggage, &manner);
        }
        self.forget_unread_topics(session);
        Ok(())
    }

    /// Answers a `subscribe` that is taken back before its topics are known: nothing of them is told.
    fn answer_taken_back(&mut self, session: SessionIndex, wish: Wish) {
        let Wish { id, subscription, selectors, .. } = wish;
        if is_planted(Fault::UnansweredSubscribe) {
            return;
        }
        let topics = Vec::new();
        let subscribed = Subscribed { id, subscription, selectors, topics };
        self.tell(session, &Event::Subscribed(subscribed));
    }

    pub(crate) fn manner(&self, session: SessionIndex, options: &SubscribeOptions) -> Manner {
        let encoding = self.sessions.at(session).encoding;
        let solo = (!self.settings.audiences).then_some(session);
        Manner { options: options.clone(), encoding, is_by_id: false, solo }
    }

    pub(crate) fn check_options(&self, manner: &Manner) -> Result<(), Refusal> {
        let count_max = self.settings.limits.subscribe_options_max;
        if self.options.len() < count_max || self.options.has(manner) || !self.settings.audiences {
            return Ok(());
        }
        let text = format!(
            "cannot subscribe with these options: subscriptions have {count_max} different ones \
             already and subscribe_options_max is as many; use a filter or interval that others \
             use too, or raise the limit in the configuration"
        );
        Err(Refusal::new(Code::TooManySubscriptions, text))
    }

    /// Whether a session may have more subscriptions, once so many are freed.
    pub(crate) fn check_count(
        &self,
        session: SessionIndex,
        more: &[Selector],
        freed: usize,
    ) -> Result<(), Refusal> {
        let readers = self.all_readers(session).into_iter();
        let has: usize = readers.map(|reader| self.subscriptions_of(reader)).sum();
        let has = has - freed;
        let count_max = self.settings.limits.subscriptions_per_session_max;
        if has + more.len() <= count_max {
            return Ok(());
        }
        let more = more.len();
        Err(Refusal::new(
            Code::TooManySubscriptions,
            format!(
                "cannot subscribe to {more} more: this session has {has} subscriptions and \
                 subscriptions_per_session_max is {count_max}; unsubscribe from some, use a \
                 pattern, or raise the limit in the configuration"
            ),
        ))
    }

    fn subscriptions_of(&self, reader: SessionIndex) -> usize {
        let memberships = self.sessions.at(reader).memberships.iter();
        let selectors =
            memberships.map(|it| self.audiences.at(it.audience).key.selectors.len()).sum();
        self.readers.count_in(reader).max(selectors)
    }

    /// The audience of which a session awaits the topics for a `subscribe` of this id.
    fn audience_awaited_by(
        &self,
        session: SessionIndex,
        subscription: SubscriptionId,
    ) -> Option<AudienceIndex> {
        let memberships = self.sessions.at(session).memberships.iter();
        let mut audiences = memberships.map(|membership| membership.audience);
        audiences.find(|audience| {
            let join = self.joining.joins.get(audience).and_then(|joins| joins.get(session));
            let mut wishes = join.into_iter().flat_map(|join| &join.wishes);
            wishes.any(|wish| wish.subscription == Some(subscription))
        })
    }

    /// The audiences by which a session reads some of these selectors, which it takes out of them.
    fn audiences_with(
        &self,
        session: SessionIndex,
        selectors: &mut HashSet<&Selector>,
    ) -> Vec<AudienceIndex> {
        let mut found = Vec::new();
        for membership in &self.sessions.at(session).memberships {
            let theirs = &self.audiences.at(membership.audience).key.selectors;
            let before = selectors.len();
            if theirs.len() <= before {
                self.note_work(theirs.len());
                for selector in theirs {
                    selectors.remove(selector);
                }
            } else {
                self.note_work(before);
                selectors.retain(|selector| theirs.binary_search(selector).is_err());
            }
            if selectors.len() < before {
                found.push(membership.audience);
            }
        }
        found
    }

    /// The audiences of a session that share a topic with `selectors`.
    pub(crate) fn overlapping(
        &self,
        session: SessionIndex,
        selectors: &[Selector],
    ) -> Result<Vec<AudienceIndex>, Refusal> {
        let memberships = &self.sessions.at(session).memberships;
        if memberships.is_empty() {
            return Ok(Vec::new());
        }
        let steps_max = self.settings.limits.overlap_steps_max;
        let mut overlaps = Overlaps::with(selectors, steps_max);
        let mut overlapping = Vec::new();
        for membership in memberships {
            let theirs = &self.audiences.at(membership.audience).key.selectors;
            match overlaps.any(theirs) {
                Ok(true) => overlapping.push(membership.audience),
                Ok(false) => {}
                Err(TooMany) => {
                    self.note_work(overlaps.steps());
                    let text = format!(
                        "cannot subscribe to these beside what this session reads: its patterns have \
                         their wildcards at so many different levels that finding what they share \
                         takes more than overlap_steps_max ({steps_max}) steps; subscribe to fewer \
                         patterns, or in a session of their own"
                    );
                    return Err(Refusal::new(Code::TooManySubscriptions, text));
                }
            }
        }
        self.note_work(overlaps.steps());
        Ok(overlapping)
    }

    /// Whether what a session stands at different places in has few enough topics to be looked at in one turn.
    pub(crate) fn check_merge(
        &self,
        session: SessionIndex,
        audiences: &[AudienceIndex],
    ) -> Result<(), Refusal> {
        let cursors = audiences.iter().filter_map(|audience| {
            let cursor = self.cursor_in(session, *audience)?;
            Some((*audience, cursor))
        });
        let cursors: Vec<(AudienceIndex, u64)> = cursors.collect();
        let earliest = cursors.iter().map(|(_, cursor)| *cursor).min();
        let later = cursors.iter().filter(|(_, cursor)| Some(*cursor) > earliest);
        let selectors =
            later.flat_map(|(audience, _)| &*self.audiences.at(*audience).key.selectors);
        let patterns: Vec<&Selector> = selectors.filter(|it| it.has_wildcard()).collect();
        let names_max = self.settings.limits.merged_names_max;
        if patterns.is_empty()
            || self.find_next(&mut Walk::of(&patterns), &mut names_max.clone(), &mut Vec::new())
        {
            return Ok(());
        }
        let text = format!(
            "cannot join these with what the session reads: it stands at different places in patterns of more than \
             merged_names_max ({names_max}) topics; subscribe again once it has caught up, or in a session of its own"
        );
        Err(Refusal::new(Code::MustCatchUp, text))
    }

    /// Up to where a session has everything of an audience, if it read something of it.
    fn cursor_in(&self, session: SessionIndex, audience: AudienceIndex) -> Option<u64> {
        let known = self.sessions.at(session);
        let membership = &known.memberships[known.position_of(audience)?];
        if let Some(slot) = membership.slot() {
            return Some(self.place_in_step(audience, slot));
        }
        let waiting = self.joining.joins.get(&audience).and_then(|joins| joins.get(session));
        waiting.map_or(membership.cursor(), |join| join.cursor)
    }

    /// Takes a session out of several audiences, with all that it needs to go on in one.
    fn pack_all(&mut self, session: SessionIndex, audiences: Vec<AudienceIndex>) -> Luggage {
        // The last first: so the others keep their places among the memberships.
        let packed = audiences.into_iter().rev().map(|audience| self.pack(session, audience));
        let packed: Vec<Luggage> = packed.collect();
        let mut all =
            Luggage { cursor: self.merge_cursors(session, &packed), ..Luggage::default() };
        for one in packed {
            all.left.extend(one.left);
            all.selectors.extend(one.selectors);
            all.wishes.extend(one.wishes);
        }
        all
    }

    /// The earliest cursor of several; notes for the topics of later ones what the session has of them already.
    fn merge_cursors(&mut self, session: SessionIndex, packed: &[Luggage]) -> Option<u64> {
        let earliest = packed.iter().filter_map(|one| one.cursor).min()?;
        let later = packed.iter().filter_map(|one| Some((one, one.cursor?)));
        let later: Vec<(&Luggage, u64)> = later.filter(|(_, cursor)| *cursor > earliest).collect();
        let stood_at = self.places_in(&later);
        let Some(latest) = stood_at.values().max().copied() else { return Some(earliest) };
        let mut taken = self.sequences_at(&stood_at);
        // Nothing of these is to be told twice, and perhaps they are not even announced yet.
        taken.retain(|_, through| *through > Sequence::START);
        let replay = self.sessions.at_mut(session).replay.get_or_insert_default();
        if !is_planted(Fault::StepsInTooEarly) {
            replay.done_at = replay.done_at.max(latest);
        }
        taken.retain(|topic, _| !replay.todo.contains(*topic));
        for (topic, through) in taken {
            let known = replay.done.entry(topic).or_insert(through);
            *known = (*known).max(through);
        }
        Some(earliest)
    }

    /// At which delivery a session stands in each topic of what it leaves. Patterns are looked for in one pass over the names,
    /// as `check_merge` does that bounds it, not in one for each: a session may have thousands at different places.
    fn places_in(&self, packed: &[(&Luggage, u64)]) -> HashMap<TopicIndex, u64> {
        let mut stood_at = HashMap::default();
        let (mut patterns, mut tree) = (Vec::new(), SelectorTree::default());
        for (one, cursor) in packed {
            self.note_work(one.selectors.len());
            for selector in &one.selectors {
                match selector.as_topic() {
                    Some(name) => {
                        let topic = self.topics.find(name);
                        stood_at.extend(topic.map(|topic| (topic, *cursor)));
                    }
                    None => {
                        tree.insert(selector, *cursor);
                        patterns.push(selector);
                    }
                }
            }
        }
        for topic in self.revealed_by(&patterns) {
            let name = &self.topics.at(topic).name;
            tree.visit_matches(name.as_str(), &mut |cursor| {
                stood_at.insert(topic, cursor);
            });
        }
        stood_at
    }

    /// The newest sequence of each topic among the deliveries up to the one that is named for it, where that is
    /// known.
    pub(crate) fn sequences_at(
        &self,
        deliveries: &HashMap<TopicIndex, u64>,
    ) -> HashMap<TopicIndex, Sequence> {
        let mut found: HashMap<TopicIndex, Sequence> = HashMap::default();
        let mut sought: HashMap<TopicIndex, u64> = HashMap::default();
        for (&index, &delivery) in deliveries {
            let topic = self.topics.at(index);
            if topic.newest_delivery <= delivery {
                found.insert(index, topic.head);
            } else if self.deliveries.reaches_back_to(delivery) {
                sought.insert(index, delivery);
            } else if let Some(history) = &topic.history
                && let Place::After(sequence) =
                    history.place_at(delivery, topic.head, topic.newest_delivery)
            {
                found.insert(index, sequence);
            }
        }
        self.note_work(deliveries.len());
        let first = sought.values().min().map_or(u64::MAX, |delivery| delivery + 1);
        for number in first..=self.deliveries.newest() {
            self.note_work(1);
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let is_gap = matches!(delivery.what, What::Lost(_));
            if is_gap && is_planted(Fault::GapTakenForKnown) {
                continue;
            }
            let topic = topic_sought(&sought, delivery.topic);
            if sought.get(&topic).is_some_and(|after| *after < number) {
                sought.remove(&topic);
                found.insert(topic, delivery.what.sequence_before());
            }
            if sought.is_empty() {
                break;
            }
        }
        found
    }

    /// Takes a session out of an audience, with all that it needs to go on elsewhere.
    fn pack(&mut self, session: SessionIndex, audience: AudienceIndex) -> Luggage {
        let known = self.sessions.at(session);
        let at = known.position_of(audience).expect("a member knows its audience");
        let membership = known.memberships[at];
        let selectors = self.audiences.at(audience).key.selectors.to_vec();
        let cursor = membership.cursor();
        let wishes = VecDeque::new();
        let mut luggage = Luggage { left: vec![audience], selectors, cursor, wishes };
        if let Some(slot) = membership.slot() {
            luggage.cursor = Some(self.place_in_step(audience, slot));
        }
        let joins = self.joining.joins.get_mut(&audience);
        if let Some(join) = joins.and_then(|joins| joins.remove(session)) {
            // What was granted of a wish is granted anew where it goes.
            (luggage.cursor, luggage.wishes) = (join.cursor, join.wishes);
            luggage.left.extend(join.left);
        }
        self.step_away(session, audience);
        // It stays open until the session is in the next one.
        self.audiences.at_mut(audience).population += 1;
        luggage
    }

    /// Takes a session out of an audience, and closes the audience if it was the last one.
    pub(crate) fn leave(&mut self, session: SessionIndex, audience: AudienceIndex) {
        self.step_away(session, audience);
        self.close_if_empty(audience);
    }

    fn close_if_empty(&mut self, audience: AudienceIndex) {
        if self.audiences.get(audience).is_some_and(|left| left.population == 0) {
            self.close_audience(audience);
        }
    }

    /// Lets go of audiences that a session left, and closes those in which nobody is any more.
    pub(crate) fn release(&mut self, left: Vec<AudienceIndex>) {
        for audience in left {
            self.audiences.at_mut(audience).population -= 1;
            self.close_if_empty(audience);
        }
    }

    fn step_away(&mut self, session: SessionIndex, audience: AudienceIndex) {
        self.step_out(session, audience, 0);
        let known = self.sessions.at_mut(session);
        let at = known.position_of(audience).expect("a member knows its audience");
        known.memberships.remove(at);
        self.audiences.behind -= 1;
        if let Some(replay) = &mut self.sessions.at_mut(session).replay {
            replay.rewinding.retain(|rewinding| rewinding.audience != audience);
        }
        self.counters.subscriptions -= 1;
        self.audiences.at_mut(audience).population -= 1;
        let joins = self.joining.joins.get_mut(&audience);
        if let Some(join) = joins.and_then(|joins| joins.remove(session)) {
            self.release(join.left);
        }
    }

    /// Puts a session into the audience of these selectors, if any are left, and closes those
    /// that it came from if it was their last.
    fn enter(&mut self, session: SessionIndex, luggage: Luggage, manner: &Manner) {
        if luggage.selectors.is_empty() {
            return self.release(luggage.left);
        }
        let (has_ids, encoder) = (self.encoder.has_ids(manner.encoding), &self.encoder);
        let options = self.options.hold(manner, has_ids, |text| encoder.filter(text));
        self.enter_audience(session, luggage, options);
        self.options.release(options);
    }

    fn enter_audience(&mut self, session: SessionIndex, luggage: Luggage, options: OptionsIndex) {
        let Luggage { mut selectors, cursor, wishes, left } = luggage;
        selectors.sort_unstable();
        selectors.dedup();
        let key = AudienceKey { selectors: selectors.into(), options };
        let audience = match self.audiences.find(&key) {
            Some(audience) => audience,
            None => self.open_audience(key),
        };
        self.counters.subscriptions += 1;
        let known = self.audiences.at_mut(audience);
        known.population += 1;
        let is_waiting = known.waiting > 0;
        self.sessions.at_mut(session).add_membership(Membership::waiting(audience));
        self.audiences.behind += 1;
        let join = PendingJoin { cursor, wishes, left, since: None, grant: None };
        if is_waiting {
            self.joining.joins.entry(audience).or_default().insert(session, join);
        } else {
            self.complete_join(audience, session, join);
        }
    }

    /// Ends what a session no longer reads. Topics of its replay that it does not read are passed by when it comes to
    /// them.
    fn forget_unread_topics(&mut self, session: SessionIndex) {
        self.end_unread_transfers(session);
        let known = self.sessions.at_mut(session);
        if known.memberships.is_empty() {
            known.replay = None;
        }
    }

    /// Tells no more pieces of what a session no longer reads.
    fn end_unread_transfers(&mut self, session: SessionIndex) {
        let known = self.sessions.at_mut(session);
        let Some(outgoing) = &mut known.outgoing else { return };
        let audiences = &self.audiences;
        outgoing.transfers.retain(|transfer| {
            let mut memberships = known.memberships.iter();
            memberships.any(|at| audiences.at(at.audience).selects(transfer.topic.as_str()))
        });
    }
}

fn not_subscribed(strange: &Selector) -> Refusal {
    let text = format!(
        "cannot unsubscribe from `{strange}`: this session is not subscribed to it; give the selector exactly as it was \
         subscribed"
    );
    Refusal::new(Code::NotSubscribed, text)
}

/// The topic that a delivery is of: the one that is sought in its place, if that is what is planted.
fn topic_sought(sought: &HashMap<TopicIndex, u64>, topic: TopicIndex) -> TopicIndex {
    let is_it = |known: &&TopicIndex| known.of_place() == topic.of_place();
    match is_planted(Fault::PlaceInAnEarlierTopic) {
        true => sought.keys().find(is_it).copied().unwrap_or(topic),
        false => topic,
    }
}
