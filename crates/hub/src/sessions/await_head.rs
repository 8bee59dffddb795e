//! Sessions that have more of a topic than this shard: they read it on another one, a moment ago.
//!
//! Such a session waits out of step until the shard has what it took already, so that nothing comes twice. After a
//! second or two the topic's home is asked: where it has no more either, nobody ever told that position, and the
//! session is told a gap.

use model::planted::{Fault, is_planted};
use model::{GapReason, Sequence};

use crate::between_shards::mail::HubMail;
use crate::hub::Hub;
use crate::operations::Operation;
use crate::sending::encoder::Encoder;
use crate::sessions::awaited::{Ahead, Waiting};
use crate::sessions::replay::{AheadIn, Replay};
use crate::sessions::replay_queue::{Announce, ReplayGap, ReplayTopic};
use crate::tables::index::{SessionIndex, TopicIndex};
use crate::topics::topic::{Topic, TopicTable};

/// Up to where a session has a topic, if that is further than this shard does.
fn ahead_through(topics: &TopicTable, replay: &Replay, topic: TopicIndex) -> Option<Sequence> {
    // It may be about to be read afresh: the session fell off the recent deliveries while it waited.
    let through = match is_planted(Fault::SilentBeyondTheHead) {
        true => replay.done.get(&topic).copied()?,
        false => replay.through(topic)?,
    };
    topics.get(topic).is_some_and(|topic| topic.head < through).then_some(through)
}

impl<E: Encoder> Hub<E> {
    /// Parks a session that has more of one of its topics than this shard; answers whether it did.
    pub(crate) fn park_if_ahead(&mut self, index: SessionIndex) -> bool {
        let Some(replay) = self.sessions.at_mut(index).replay.as_deref_mut() else { return false };
        let ended = |it: &AheadIn| self.topics.get(it.topic).is_some_and(|at| at.epoch != it.epoch);
        // What this shard has by now it has for good. The session has what was delivered of it meanwhile.
        let last = loop {
            let Some(&last) = replay.ahead.last() else {
                replay.is_parked = false;
                return false;
            };
            if ended(&last) || ahead_through(&self.topics, replay, last.topic).is_some() {
                break last;
            }
            let topic = self.topics.get(last.topic);
            if !is_planted(Fault::StepsInTooEarly) {
                let caught_up_at = topic.map_or(0, |topic| topic.newest_delivery);
                replay.done_at = replay.done_at.max(caught_up_at);
            }
            replay.ahead.pop();
        };
        if ended(&last) {
            // It is looked at before anything more is read.
            replay.is_parked = false;
            return true;
        }
        let through = ahead_through(&self.topics, replay, last.topic);
        if let Some(through) = through.filter(|_| !replay.is_parked) {
            replay.is_parked = true;
            let waiting = Waiting { session: index, through };
            self.ahead.waiting.entry(last.topic).or_default().push(waiting);
        }
        true
    }

    /// Wakes the sessions that are no longer ahead in `topic`.
    pub(crate) fn wake_those_ahead(&mut self, topic: TopicIndex) {
        if self.ahead.is_empty() {
            return;
        }
        let head = self.topics.at(topic).head;
        let Ahead { waiting, waited, .. } = &mut self.ahead;
        let mut woken = Vec::new();
        for all in [waiting, waited] {
            let Some(sessions) = all.get_mut(&topic) else { continue };
            woken.extend(sessions.extract_if(.., |waiting| waiting.through <= head));
            if sessions.is_empty() {
                all.remove(&topic);
            }
        }
        woken.into_iter().for_each(|waiting| self.unpark(waiting.session));
    }

    /// Wakes all who may be ahead in `topic`: another epoch of it began.
    pub(crate) fn wake_all_ahead(&mut self, topic: TopicIndex) {
        let Ahead { waiting, waited, .. } = &mut self.ahead;
        let woken = [waiting, waited].into_iter().filter_map(|all| all.remove(&topic));
        let woken: Vec<Waiting> = woken.flatten().collect();
        self.note_work(woken.len());
        woken.into_iter().for_each(|waiting| self.unpark(waiting.session));
    }

    /// Has a session begin anew in topics of which it has more than was ever given in an epoch that ended meanwhile. The
    /// numbering that passes its position is that of another epoch: it has nothing of that. Where its position was given it
    /// goes on from there, once it is told of the epoch: the delivery that says so may be before what it has.
    pub(crate) fn begin_anew_in_ended_epochs(&mut self, index: SessionIndex) {
        let count = self.renewal.count();
        let replay = self.sessions.get_mut(index).and_then(|known| known.replay.as_deref_mut());
        let is_due =
            |it: &Replay| !it.ahead.is_empty() && it.renewals_seen != count && !it.is_adding();
        let Some(replay) = replay.filter(|it| is_due(it)) else { return };
        replay.renewals_seen = count;
        let mut ahead = std::mem::take(&mut replay.ahead);
        self.note_work(ahead.len());
        let (mut anew, mut renewed) = (Vec::new(), Vec::new());
        let replay = self.sessions.at(index).replay.as_deref().expect("it has one");
        ahead.retain_mut(|AheadIn { topic, epoch }| {
            let (Some(known), Some(through)) = (self.topics.get(*topic), replay.through(*topic))
            else {
                return false;
            };
            // At its home nobody is ahead but of what is held back.
            let is_given =
                self.is_home_of(&known.name) || self.renewal.was_given(*topic, *epoch, through);
            if known.epoch == *epoch {
                return true;
            }
            if !is_given {
                anew.push(self.begun_anew(*topic, known));
                return false;
            }
            if !is_planted(Fault::EpochUntold) {
                renewed.push(ReplayTopic::going_on(*topic, through, *epoch));
            }
            *epoch = known.epoch;
            true
        });
        let replay = self.sessions.at_mut(index).replay.as_deref_mut().expect("it has one");
        replay.ahead = ahead;
        for wanted in anew {
            replay.done.remove(&wanted.topic);
            replay.add_one(wanted);
        }
        renewed.into_iter().for_each(|wanted| replay.add_one(wanted));
    }

    /// A topic of which nothing that a session has counts any more.
    fn begun_anew(&self, index: TopicIndex, topic: &Topic) -> ReplayTopic {
        let newest = topic.newest_known();
        ReplayTopic {
            begins_after: None,
            topic: index,
            after: self.had_after(index),
            conflates_after: newest,
            gap: Some(ReplayGap { from: None, reason: GapReason::Epoch }),
            reason: GapReason::History,
            announce: Announce::of_named(newest),
            epoch: topic.epoch,
            recovered: None,
        }
    }

    /// Hears that about a second passed. Of the topics in which sessions are still ahead after a whole one, the homes
    /// are asked.
    pub fn handle_tick(&mut self) {
        let next = std::mem::take(&mut self.ahead.waiting);
        let waited = std::mem::replace(&mut self.ahead.waited, next);
        self.ahead.questions.clear();
        for Waiting { session, .. } in waited.into_values().flatten() {
            self.note_work(1);
            if is_planted(Fault::SilentBeyondTheHead) {
                self.set_back(session);
                continue;
            }
            if is_planted(Fault::SlotOfAParkedSession) && self.sessions.get(session).is_none() {
                let there = self.sessions.in_place_of(session);
                there.into_iter().for_each(|other| self.set_back(other));
            }
            self.begin_operation(Operation::AskHomes(session, 0));
        }
    }

    /// Asks the homes of all topics that a session is ahead in, not only of that for which it waits; `asked` of them were.
    /// Answers whether that is all, or the session went.
    pub(crate) fn go_on_asking_homes(
        &mut self,
        session: SessionIndex,
        asked: &mut usize,
        steps: &mut usize,
    ) -> bool {
        let known = self.sessions.get(session).and_then(|known| known.replay.as_deref());
        let Some(replay) = known else { return true };
        let rest = replay.ahead.get(*asked..).unwrap_or_default();
        let count = rest.len().min(*steps);
        let find = |AheadIn { topic, .. }: &AheadIn| {
            Some((*topic, ahead_through(&self.topics, replay, *topic)?))
        };
        let found: Vec<(TopicIndex, Sequence)> = rest[..count].iter().filter_map(find).collect();
        let is_done = count == rest.len();
        (*asked, *steps) = (*asked + count, *steps - count);
        self.note_work(count);
        for (topic, through) in found {
            self.ask_home(topic, Waiting { session, through });
        }
        if is_done {
            self.unpark(session);
        }
        is_done
    }

    /// Asks a topic's home whether it has more of it than this shard, once in a tick for all who wait.
    fn ask_home(&mut self, topic: TopicIndex, waiting: Waiting) {
        let name = self.topics.at(topic).name.clone();
        if self.is_home_of(&name) {
            return self.end_waiting(topic, vec![waiting]);
        }
        let question = self.ahead.questions.get(&topic);
        if let Some((_, sessions)) = question.and_then(|it| self.ahead.asked.get_mut(it)) {
            return sessions.push(waiting);
        }
        let serial = self.following.next_serial();
        let home = self.home_of(&name);
        self.post(home, HubMail::Follow { topic: name, serial });
        self.ahead.questions.insert(topic, serial);
        self.ahead.asked.insert(serial, (topic, vec![waiting]));
    }

    /// Hears that everything is here that a topic's home had when it was asked.
    pub(crate) fn handle_asked(&mut self, serial: u64) {
        if let Some((topic, sessions)) = self.ahead.asked.remove(&serial) {
            self.end_waiting(topic, sessions);
        }
    }

    /// Tells a gap to those who are ahead in a topic of which all is here that there is: nobody ever told them that
    /// position. What they took was of another life of the numbering.
    fn end_waiting(&mut self, index: TopicIndex, sessions: Vec<Waiting>) {
        let known = self.topics.get(index);
        let anew = known.map(|topic| (topic.newest_known(), self.begun_anew(index, topic)));
        let mut beyond = None;
        for Waiting { session, .. } in sessions {
            self.begin_anew_in_ended_epochs(session);
            let replay = self.sessions.get_mut(session).and_then(|it| it.replay.as_deref_mut());
            if let (Some(replay), Some((newest, anew))) = (replay, anew)
                && ahead_through(&self.topics, replay, index).is_some_and(|it| it > newest)
            {
                beyond = Some(session);
                replay.done.remove(&index);
                replay.add_one(anew);
            }
            self.unpark(session);
        }
        if let Some(session) = beyond {
            self.note_beyond(session, index);
        }
    }

    /// Lets a session read on from what is here: the fault of 8 and 76.
    fn set_back(&mut self, session: SessionIndex) {
        let replay = self.sessions.get_mut(session).and_then(|known| known.replay.as_deref_mut());
        for (topic, through) in replay.into_iter().flat_map(|replay| &mut replay.done) {
            *through = self.topics.get(*topic).map_or(*through, |topic| topic.head.min(*through));
        }
        self.unpark(session);
    }

    fn unpark(&mut self, session: SessionIndex) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if let Some(replay) = known.replay.as_deref_mut() {
            replay.is_parked = false;
        }
        if !known.is_blocked {
            self.flush.queue(session, known);
        }
    }
}
