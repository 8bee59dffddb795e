//! A reader that knows the protocol and no SDK, and what it must have been told.
//!
//! Each topic that it reads has a track: where reading began, what came, which gaps were told. At the end, and whenever
//! reading ended on the way, a track must hold all that is true of the topic, less what the reader gave leave to skip.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Acknowledge, Code, Command, CommandId, Conflation, Epoch, Event, Gap, GapReason, Limits,
    Position, Selector, Sequence, Stamps, Start, Subscribe, SubscribeOptions, SubscribedTopic,
    SubscriberName, TopicName, Unsubscribe,
};

use crate::carriage::{Carriage, Input, SimSession};
use crate::counts::Counts;
use crate::network::Network;
use crate::random::Random;
use crate::truth::{COLOURS, Truth};

/// Topics that there are once each was published to.
pub(crate) const TOPICS_COUNT: usize = 5;

/// How it reads.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub carriage: Carriage,
    /// Only what is of this colour.
    pub colour: Option<u64>,
    pub conflation: Conflation,
    pub name: Option<SubscriberName>,
}

impl Manner {
    /// Whether it is told everything.
    fn is_dense(&self) -> bool {
        self.colour.is_none() && self.conflation == Conflation::Off
    }
}

/// The events of one topic, as it was told them.
#[derive(Clone, Debug)]
struct Track {
    epoch: Epoch,
    start: Sequence,
    at: Sequence,
    told: BTreeSet<Sequence>,
    /// Gaps, each from after a sequence up to another one.
    gaps: Vec<(Sequence, Sequence)>,
    /// It said that it had more than there was.
    has_claimed: bool,
    /// The wishes that gave that position and are not answered: a second one may be said before the answer to the first.
    claims: u32,
    /// It came with a position that counts no more: a gap may say from where it begins anew, before anything else comes.
    begins_anew: bool,
}

impl Track {
    /// Hears that the numbering is of another epoch than its position. Answers whether it reads on where it is: the
    /// epoch began meanwhile.
    fn handle_epoch(&mut self, gap: &Gap, is_dense: bool) -> bool {
        // Of which epoch a topic is it may have been told before.
        let has_begun = gap.epoch != self.epoch || gap.epoch.as_str().starts_with("disk-");
        assert!(has_begun || self.has_claimed || self.begins_anew, "{gap:?}, and no epoch began");
        self.epoch = gap.epoch.clone();
        if self.begins_anew || self.has_claimed {
            // What it claimed may be taken for true until all shards were asked: another gap may follow.
            (self.at, self.start, self.begins_anew) = (gap.to, gap.to, false);
            self.told.clear();
            self.gaps.clear();
            return false;
        }
        assert!(!is_dense || gap.to == self.at, "{gap:?}: it has all up to {}", self.at);
        self.at = self.at.max(gap.to);
        true
    }
}

/// A command that is not answered yet.
#[derive(Clone, Debug)]
enum Asked {
    Subscribe {
        start: Start,
        /// Publications that were acknowledged to publishers before.
        heads: BTreeMap<TopicName, Sequence>,
        /// How far its name was acknowledged to be by then.
        acknowledged: BTreeMap<TopicName, Position>,
    },
    Unsubscribe,
    Acknowledge(BTreeMap<TopicName, Position>),
}

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub manner: Manner,
    pub session: Option<SimSession>,
    selectors: Vec<Selector>,
    tracks: BTreeMap<TopicName, Track>,
    ended: Vec<(TopicName, Track)>,
    asked: BTreeMap<u64, Asked>,
    /// The least and the greatest position that it gave in a topic: several wishes may be answered one after another.
    given: BTreeMap<TopicName, (Sequence, Sequence)>,
    /// How far its name came: what was answered, and what was said.
    acknowledged: BTreeMap<TopicName, Position>,
    said: BTreeMap<TopicName, Sequence>,
    /// How far it was known to be when what it reads now was asked for.
    begun_at: BTreeMap<TopicName, Position>,
    next_id: u64,
    /// Gaps that were told, to be compared with what the node may have lost.
    pub gaps: Vec<Gap>,
    /// Why the server closed, until somebody looks at it.
    pub closed: Option<Code>,
    /// There is one shard: it knows at once what was published.
    pub is_alone: bool,
}

impl Reader {
    pub fn new(random: &mut Random, number: usize, has_store: bool) -> Self {
        let carriages =
            [Carriage::WebSocket, Carriage::WebSocket, Carriage::Stream, Carriage::Poll];
        let conflations =
            [Conflation::Off, Conflation::Off, Conflation::Lagging, Conflation::Always];
        let manner = Manner {
            carriage: carriages[random.below(4)],
            colour: random.one_in(3).then(|| random.below(COLOURS as usize) as u64),
            conflation: conflations[random.below(4)],
            name: None,
        };
        let is_named = has_store && random.one_in(4);
        let name = SubscriberName::parse(&format!("reader-{number}")).filter(|_| is_named);
        let manner = match name {
            // Positions are acknowledged of what was told: nothing is left out.
            Some(_) => Manner { name, colour: None, conflation: Conflation::Off, ..manner },
            None => manner,
        };
        Self {
            manner,
            session: None,
            selectors: Vec::new(),
            tracks: BTreeMap::new(),
            ended: Vec::new(),
            asked: BTreeMap::new(),
            given: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            said: BTreeMap::new(),
            begun_at: BTreeMap::new(),
            next_id: 0,
            gaps: Vec::new(),
            closed: None,
            is_alone: false,
        }
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn options(&self) -> SubscribeOptions {
        let filter = self.manner.colour.map(|colour| Arc::from(format!("data.k == {colour}")));
        SubscribeOptions {
            filter,
            conflation: self.manner.conflation,
            stamps: Stamps { time: self.manner.colour.is_some(), principal: false },
            ..SubscribeOptions::default()
        }
    }

    /// Comes back, and goes on where it was; sometimes it says that it has more than there is.
    pub fn connect(
        &mut self,
        session: SimSession,
        network: &RefCell<Network>,
        truth: &Truth,
        random: &mut Random,
        counts: &mut Counts,
    ) {
        self.session = Some(session);
        self.asked.clear();
        self.given.clear();
        self.tracks.values_mut().for_each(|track| track.claims = 0);
        if self.selectors.is_empty() {
            return;
        }
        if self.manner.name.is_some() {
            self.end_tracks();
        }
        if random.one_in(6) && self.manner.colour.is_none() {
            self.claim_too_much(truth, random, counts);
        }
        let selectors = self.selectors.clone();
        let command = self.subscribe_to(selectors, Start::All, truth);
        self.say(network, vec![command]);
    }

    fn claim_too_much(&mut self, truth: &Truth, random: &mut Random, counts: &mut Counts) {
        for (topic, track) in &mut self.tracks {
            if random.one_in(2) {
                let beyond = truth.head_of(topic).get() + 1 + random.below(4) as u64;
                let beyond = Sequence::new(beyond.max(track.at.get())).expect("small");
                let ended = Track {
                    has_claimed: true,
                    start: beyond,
                    at: beyond,
                    claims: 0,
                    ..track.clone()
                };
                self.ended.push((topic.clone(), std::mem::replace(track, ended)));
                (track.told, track.gaps) = Default::default();
                counts.note("position beyond the head");
            }
        }
    }

    fn subscribe_to(
        &mut self,
        selectors: Vec<Selector>,
        start: Start,
        truth: &Truth,
    ) -> (CommandId, Command) {
        let is_read = |topic: &TopicName| selectors.iter().any(|it| it.matches(topic.as_str()));
        let known = self.tracks.iter().filter(|(topic, _)| is_read(topic));
        let positions = known.map(|(topic, track)| {
            let position = Position { epoch: track.epoch.clone(), sequence: track.at };
            (topic.clone(), position)
        });
        let positions: Vec<_> = positions.collect();
        for (_, track) in self.tracks.iter_mut().filter(|(topic, _)| is_read(topic)) {
            track.claims += u32::from(track.has_claimed && track.told.is_empty());
        }
        // Until a topic is described again it may be read from any of the places that were given.
        for (topic, at) in &positions {
            let at = at.sequence;
            let (least, most) = self.given.entry(topic.clone()).or_insert((at, at));
            (*least, *most) = ((*least).min(at), (*most).max(at));
        }
        let heads = truth.topics().map(|(topic, head)| (topic.clone(), head)).collect();
        let id = self.take_id();
        let acknowledged = self.acknowledged.clone();
        self.asked.insert(id, Asked::Subscribe { start: start.clone(), heads, acknowledged });
        let name = self.manner.name.clone();
        let wanted = Subscribe {
            subscription: None,
            selectors,
            start,
            positions,
            name,
            options: self.options(),
        };
        (CommandId(id), Command::Subscribe(wanted))
    }

    fn say(&mut self, network: &RefCell<Network>, commands: Vec<(CommandId, Command)>) {
        if let Some(session) = &mut self.session {
            session.say(network, &commands);
        }
    }

    fn end_tracks(&mut self) {
        self.given.clear();
        self.ended.extend(std::mem::take(&mut self.tracks));
    }

    /// Reads something else from now on; says it in one go, sometimes with a change of mind between.
    pub fn change(
        &mut self,
        network: &RefCell<Network>,
        selector: &str,
        other: &str,
        truth: &Truth,
        random: &mut Random,
        counts: &mut Counts,
    ) {
        if self.session.is_none() || !self.asked.is_empty() {
            return;
        }
        let parse = |text: &str| Selector::parse(text, &Limits::default()).expect("valid");
        let mut commands = Vec::new();
        let starts = [Start::Snapshot, Start::Now, Start::All, Start::Last(3)];
        if random.one_in(4) && self.may_merge(truth) {
            // More than before, and some of it the same: what is read together is merged.
            let selector = parse(selector);
            if !self.selectors.contains(&selector) {
                self.selectors.push(selector.clone());
            }
            counts.note("subscription merged");
            commands.push(self.subscribe_to(vec![selector], Start::All, truth));
            return self.say(network, commands);
        }
        if !self.selectors.is_empty() {
            let selectors = std::mem::take(&mut self.selectors);
            commands.push(self.unsubscribe(selectors));
            counts.note("unsubscribe");
        }
        if random.one_in(3) {
            let other = vec![parse(other)];
            commands.push(self.subscribe_afresh(other.clone(), Start::All, truth));
            commands.push(self.unsubscribe(other));
            counts.note("subscribe and unsubscribe in one go");
        }
        let start = match self.manner.name {
            Some(_) => Start::All,
            None => starts[random.below(4)].clone(),
        };
        self.selectors = vec![parse(selector)];
        let selectors = self.selectors.clone();
        commands.push(self.subscribe_afresh(selectors, start, truth));
        counts.note("subscribe");
        self.say(network, commands);
    }

    /// Whether it knows where it is in all that it reads: of what is merged it gives the places.
    fn may_merge(&self, truth: &Truth) -> bool {
        let is_read =
            |topic: &TopicName| self.selectors.iter().any(|it| it.matches(topic.as_str()));
        let mut read = truth.topics().filter(|(topic, _)| is_read(topic));
        let is_plain = self.manner.name.is_none() && !self.selectors.is_empty();
        let is_known = read.all(|(topic, _)| self.tracks.contains_key(topic));
        is_plain && is_known && truth.topics().count() == TOPICS_COUNT
    }

    /// Without positions: what came before is of another reading.
    fn subscribe_afresh(
        &mut self,
        selectors: Vec<Selector>,
        start: Start,
        truth: &Truth,
    ) -> (CommandId, Command) {
        let kept = std::mem::take(&mut self.tracks);
        let command = self.subscribe_to(selectors, start, truth);
        self.tracks = kept;
        command
    }

    fn unsubscribe(&mut self, selectors: Vec<Selector>) -> (CommandId, Command) {
        let id = self.take_id();
        self.asked.insert(id, Asked::Unsubscribe);
        (CommandId(id), Command::Unsubscribe(Unsubscribe::Selectors(selectors)))
    }

    /// Acknowledges what it has, if it has a name.
    pub fn acknowledge(&mut self, network: &RefCell<Network>, counts: &mut Counts) {
        let Some(name) = self.manner.name.clone() else { return };
        let is_new = |(topic, track): &(&TopicName, &Track)| {
            track.at > Sequence::START && self.said.get(*topic).is_none_or(|said| *said < track.at)
        };
        let news: Vec<_> = self.tracks.iter().filter(is_new).collect();
        if self.session.is_none() || news.is_empty() {
            return;
        }
        let positions = news.iter().map(|(topic, track)| {
            ((*topic).clone(), Position { epoch: track.epoch.clone(), sequence: track.at })
        });
        let positions: Vec<_> = positions.collect();
        self.said.extend(positions.iter().map(|(topic, at)| (topic.clone(), at.sequence)));
        let id = self.take_id();
        self.asked.insert(id, Asked::Acknowledge(positions.iter().cloned().collect()));
        let command = Command::Acknowledge(Acknowledge { name, positions });
        self.say(network, vec![(CommandId(id), command)]);
        counts.note("acknowledge");
    }

    /// Reads a part of what came. Answers whether the session is over.
    pub fn read(
        &mut self,
        network: &RefCell<Network>,
        bytes_max: usize,
        truth: &mut Truth,
        counts: &mut Counts,
    ) {
        let Some(session) = &mut self.session else { return };
        let heard = session.read(network, bytes_max);
        let mut is_over = session.is_over;
        for heard in heard {
            match heard {
                Input::Publication { topic, sequence, payload, headers, has_time } => {
                    truth.handle_read(&topic, sequence, &payload, &headers);
                    assert_eq!(has_time, self.options().stamps.time, "{topic} {sequence}");
                    if !headers.is_empty() {
                        counts.note("headers read");
                    }
                    self.handle_publication(&topic, sequence, truth.has_holes);
                    counts.note("publication read");
                }
                Input::Event(event) => is_over |= !self.handle_event(event, counts),
            }
        }
        if is_over && let Some(mut session) = self.session.take() {
            session.drop_links(network);
            counts.note("session ended");
        }
    }

    /// Answers whether the session goes on.
    fn handle_event(&mut self, event: Event, counts: &mut Counts) -> bool {
        match event {
            Event::Subscribed(subscribed) => {
                let id = subscribed.id.expect("it had one").0;
                let asked = self.asked.remove(&id);
                let Some(Asked::Subscribe { start, heads, acknowledged }) = asked else {
                    panic!("{id}: {asked:?}")
                };
                self.begun_at = acknowledged;
                for topic in &subscribed.topics {
                    let known = heads.get(&topic.topic).copied().unwrap_or_default();
                    let known = if self.is_alone { known } else { Sequence::START };
                    assert!(topic.head >= known, "{topic:?} and {known} was told before");
                    let is_fresh = start == Start::Now && topic.recovered.is_none();
                    assert!(
                        !is_fresh || topic.start >= known,
                        "{topic:?} and only news was wanted"
                    );
                    // What is kept in any case is told to whoever wants more than news.
                    let wants_some = start != Start::Now && topic.recovered.is_none();
                    let is_there = topic.head > Sequence::START;
                    assert!(
                        !wants_some || !is_there || topic.start < topic.head,
                        "{topic:?}, and {start:?} was wanted"
                    );
                    self.handle_topic(topic);
                }
            }
            Event::Topic(topic) => self.handle_topic(&topic),
            Event::Gap(gap) => {
                counts.note(match gap.reason {
                    GapReason::Epoch => "gap: epoch",
                    GapReason::History => "gap: history",
                    GapReason::Lagged => "gap: lagged",
                    GapReason::Other => panic!("{gap:?}: a reason that nobody knows"),
                });
                self.handle_gap(&gap, counts);
                self.gaps.push(gap);
            }
            Event::Unsubscribed { id, .. } => {
                let asked = id.and_then(|id| self.asked.remove(&id.0));
                assert!(matches!(asked, Some(Asked::Unsubscribe)), "{asked:?}");
                // What is still to be answered is of a later reading.
                self.ended.extend(std::mem::take(&mut self.tracks));
            }
            Event::Acknowledged { id } => {
                let asked = id.and_then(|id| self.asked.remove(&id.0));
                let Some(Asked::Acknowledge(positions)) = asked else { panic!("{asked:?}") };
                for (topic, at) in positions {
                    let known = self.acknowledged.entry(topic).or_insert_with(|| at.clone());
                    if known.epoch != at.epoch || known.sequence < at.sequence {
                        *known = at;
                    }
                }
                counts.note("acknowledged");
            }
            // Memory is short, or the disk is behind: it comes back later.
            Event::Refused { refusal, .. } => {
                counts.note("reader refused");
                // What was not subscribed to for want of memory cannot be ended.
                let is_later = refusal.code.number() < 4200 || refusal.code == Code::NotSubscribed;
                assert!(is_later, "{refusal}");
                return false;
            }
            Event::Closing { refusal, .. } => {
                self.closed = Some(refusal.code);
                return false;
            }
            _ => {}
        }
        true
    }

    fn handle_topic(&mut self, topic: &SubscribedTopic) {
        let given = self.given.get(&topic.topic).copied();
        let Some(track) = self.tracks.get_mut(&topic.topic) else {
            let start = topic.start;
            if self.manner.name.is_some() {
                self.check_named_start(topic);
            }
            let told = BTreeSet::new();
            let (at, epoch) = (start, topic.epoch.clone());
            let track = Track {
                epoch,
                start,
                at,
                told,
                gaps: Vec::new(),
                has_claimed: false,
                claims: 0,
                begins_anew: false,
            };
            self.tracks.insert(topic.topic.clone(), track);
            return;
        };
        track.begins_anew |= topic.recovered == Some(false);
        let is_claimed_again = track.claims > 0 && !track.told.is_empty();
        track.claims = track.claims.saturating_sub(u32::from(topic.recovered.is_some()));
        let is_same = std::mem::replace(&mut track.epoch, topic.epoch.clone()) == topic.epoch;
        if !is_same && track.begins_anew {
            return;
        }
        // Of what a reader has no wish for it is told nothing: whether it had no wish for all of that, the end shows.
        let given = given.filter(|_| topic.recovered.is_some());
        let is_given = given.is_some_and(|(_, most)| topic.start <= most);
        let is_known = topic.start <= track.at || is_given || !self.manner.is_dense();
        assert!(is_known, "{topic:?} skips from {}, {:?}", track.at, self.manner);
        if let Some((least, most)) = given
            && topic.start >= least
        {
            // Asked for again from where it was then: what came meanwhile comes again. Asked for twice, the answer to the
            // second may come before what the first one would tell it again.
            let at = if topic.start <= most { topic.start } else { track.at };
            let at = at.min(topic.start);
            // What it claimed a second time, before it heard that it counts for nothing, was passed by the numbering of the
            // same epoch meanwhile: nobody can know that it is made up. On disk another epoch begins with the first time.
            if is_claimed_again && track.at < at && topic.epoch.as_str().starts_with("memory-") {
                track.gaps.push((track.at, at));
            }
            track.at = at;
        }
    }

    fn check_named_start(&self, topic: &SubscribedTopic) {
        let said = self.said.get(&topic.topic).copied().unwrap_or_default();
        let known = self.begun_at.get(&topic.topic).filter(|known| known.epoch == topic.epoch);
        let known = known.map_or(Sequence::START, |known| known.sequence);
        let start = topic.start;
        assert!(known <= start, "{topic:?}: its name came to {known}");
        assert!(start <= said, "{topic:?}: its name never said more than {said}");
    }

    fn handle_gap(&mut self, gap: &Gap, counts: &mut Counts) {
        let Some(track) = self.tracks.get_mut(&gap.topic) else {
            panic!("a gap in {}, which it does not read", gap.topic);
        };
        if gap.reason == GapReason::Epoch {
            if track.handle_epoch(gap, self.manner.is_dense()) {
                counts.note("numbering goes on in another epoch");
            }
            return;
        }
        let from = gap.from.map_or(track.at, |from| from.back(1));
        let is_known = from <= track.at || !self.manner.is_dense();
        assert!(is_known, "{gap:?} begins beyond {}", track.at);
        track.begins_anew = false;
        track.gaps.push((from.min(track.at), gap.to));
        track.at = track.at.max(gap.to);
    }

    fn handle_publication(&mut self, topic: &TopicName, sequence: Sequence, has_holes: bool) {
        let manner = &self.manner;
        let Some(track) = self.tracks.get_mut(topic) else {
            panic!("a publication of {topic}, which it does not read");
        };
        // Where there are holes it is known in the end what should have been between.
        let is_next = match manner.is_dense() && !has_holes {
            true => sequence == track.at.next(),
            false => sequence > track.at,
        };
        assert!(is_next, "{topic}: {sequence} after {}, {manner:?}", track.at);
        track.begins_anew = false;
        track.told.insert(sequence);
        track.at = sequence;
    }

    /// Checks all that it read.
    pub fn check(&self, truth: &Truth, epoch: Option<&Epoch>) {
        assert!(self.asked.is_empty(), "never answered: {:?}", self.asked);
        for (topic, head) in truth.topics() {
            if self.selectors.iter().any(|selector| selector.matches(topic.as_str())) {
                let track = self.tracks.get(topic);
                let track = track.unwrap_or_else(|| panic!("{topic} was never described"));
                let is_beyond = track.has_claimed && track.start > head;
                assert!(
                    !is_beyond,
                    "{topic} ends at {head}; it has {}, and no gap told",
                    track.start
                );
                let is_current = epoch.is_none_or(|epoch| *epoch == track.epoch);
                assert!(is_current, "{topic} is of {epoch:?}, and it knows {:?}", track.epoch);
                self.check_track(truth, topic, track, head);
            }
        }
        for (topic, track) in &self.ended {
            let last = track.told.last().copied().unwrap_or_default();
            if self.manner.conflation == Conflation::Off && !track.has_claimed {
                self.check_track(truth, topic, track, last);
            }
        }
    }

    /// Checks that a track has all up to a sequence that it must have.
    fn check_track(&self, truth: &Truth, topic: &TopicName, track: &Track, through: Sequence) {
        let manner = &self.manner;
        let is_wanted = |sequence: Sequence| {
            manner.colour.is_none_or(|colour| truth.is_of_colour(topic, sequence, colour))
        };
        let is_gone = |sequence: Sequence| {
            track.gaps.iter().any(|(after, to)| *after < sequence && sequence <= *to)
        };
        let mut due = truth.due(topic, track.start, through);
        due.retain(|sequence| is_wanted(*sequence) && !is_gone(*sequence));
        if manner.conflation != Conflation::Off {
            // Of what may be skipped the newest may not.
            due.drain(..due.len().saturating_sub(1));
        }
        for sequence in due {
            let Track { at, start, told, gaps, .. } = track;
            assert!(
                told.contains(&sequence),
                "{topic} {sequence} was not told; from {start} to {at}, gaps {gaps:?}, {manner:?}"
            );
        }
        assert!(track.told.iter().all(|told| is_wanted(*told)), "{topic}: not of its colour");
    }
}
