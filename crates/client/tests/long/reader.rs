//! A reader of the long test: a client over a cable, and what each of its subscriptions was told.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, SubscriptionId, Update};
use model::{
    Conflation, DeltaKind, Limits, Position, Selector, Start, Subscribe, SubscribeOptions,
    TopicName,
};

use crate::Chosen;
use crate::cable::Cable;
use crate::twin::{Truth, Twin};

const SELECTORS: [&str; 14] = [
    "kept/a", "kept/b", "kept/+", "kept/#", "mem/a", "mem/b", "mem/+", "mem/#", "mem/+/x",
    "short/a", "short/+", "#", "+/a", "+/+",
];

struct Reading {
    wanted: Subscribe,
    twin: Twin,
}

impl Reading {
    fn skips(&self) -> bool {
        let options = &self.wanted.options;
        options.filter.is_some() || options.conflation != Conflation::Off
    }
}

/// A client, and its subscriptions.
pub(crate) struct Reader {
    name: &'static str,
    pub(crate) cable: Cable,
    pub(crate) is_slow: bool,
    pub(crate) told: u64,
    pub(crate) gaps: u64,
    client: Client,
    skips: bool,
    readings: BTreeMap<SubscriptionId, Reading>,
}

impl Reader {
    /// One that may skip some things, or none.
    pub(crate) fn open(name: &'static str, port: u16, skips: bool) -> Self {
        let cable = Cable::open(port);
        let client = Client::connect(&cable.url(), ClientOptions::default()).expect("it is there");
        let (is_slow, readings) = (name == "slow", BTreeMap::new());
        Self { name, cable, is_slow, told: 0, gaps: 0, client, skips, readings }
    }

    /// Adds a subscription as it comes.
    pub(crate) fn subscribe(&mut self, chosen: &mut Chosen) {
        if self.readings.len() >= 6 {
            return;
        }
        let parse = |text: &str| Selector::parse(text, &Limits::default()).expect("valid");
        let mut selectors = vec![parse(SELECTORS[chosen.below(14) as usize])];
        if chosen.below(4) == 0 {
            selectors.push(parse(SELECTORS[chosen.below(14) as usize]));
            selectors.dedup();
        }
        let start = match chosen.below(4) {
            0 => Start::Snapshot,
            1 => Start::Now,
            2 => Start::All,
            _ => Start::Last(5),
        };
        let plain = SubscribeOptions::default();
        let options = match chosen.below(if self.skips { 8 } else { 5 }) {
            0 => SubscribeOptions { priority: 3, ..plain },
            1 => SubscribeOptions { interval: Duration::from_millis(20), ..plain },
            2 => SubscribeOptions { delta: DeltaKind::JsonPatch, ..plain },
            5 => SubscribeOptions { filter: Some("data.n % 3 == 0".into()), ..plain },
            6 => SubscribeOptions { conflation: Conflation::Lagging, ..plain },
            7 => SubscribeOptions { conflation: Conflation::Always, ..plain },
            _ => plain,
        };
        self.begin(Subscribe {
            subscription: None,
            selectors,
            start,
            positions: Vec::new(),
            name: None,
            options,
        });
    }

    /// Ends one; answers what it was, with its positions as they would be stored.
    pub(crate) fn stop(&mut self, chosen: &mut Chosen) -> Result<Option<Subscribe>, String> {
        let ids: Vec<SubscriptionId> = self.readings.keys().copied().collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let id = *chosen.of(&ids);
        self.check_positions(id)?;
        let positions = self.client.positions(id);
        self.client.unsubscribe(id);
        let ended = self.readings.remove(&id);
        Ok(ended.map(|ended| Subscribe { positions, ..ended.wanted }))
    }

    /// Ends one, and goes on from its stored positions.
    pub(crate) fn go_on(&mut self, chosen: &mut Chosen) -> Result<(), String> {
        if let Some(ended) = self.stop(chosen)? {
            self.begin(Subscribe { start: Start::All, ..ended });
        }
        Ok(())
    }

    fn begin(&mut self, wanted: Subscribe) {
        let at = wanted.positions.iter().cloned().collect();
        let id = self.client.subscribe(wanted.clone());
        let may_skip = self.readings.values().any(|reading| reading.twin.may_skip);
        let reading = Reading { wanted, twin: Twin { at, may_skip } };
        self.readings.insert(id, reading);
        if self.readings.values().any(Reading::skips) {
            self.readings.values_mut().for_each(|reading| reading.twin.may_skip = true);
        }
    }

    /// What has ended does not count any more, once everybody has everything.
    pub(crate) fn note_quiet(&mut self) {
        let any_skips = self.readings.values().any(Reading::skips);
        self.readings.values_mut().for_each(|reading| reading.twin.may_skip = any_skips);
    }

    /// Takes what comes for so long.
    pub(crate) fn read(&mut self, time: Duration, truth: &mut Truth) -> Result<(), String> {
        let until = Instant::now() + time;
        while let Some(update) = self.client.next(until) {
            self.take(update, truth)?;
        }
        Ok(())
    }

    fn take(&mut self, update: Update, truth: &mut Truth) -> Result<(), String> {
        let (of, topic) = match &update {
            Update::Message { of, message } => (*of, message.topic.clone()),
            Update::Gap { of, gap } => (*of, gap.topic.clone()),
            Update::Resumed { .. }
            | Update::Complete { .. }
            | Update::Disconnected { .. }
            | Update::Lag(_) => return Ok(()),
            other => return Err(format!("{}: {other:?}", self.name)),
        };
        let Some(reading) = self.readings.get_mut(&of) else {
            return Err(format!("{}: {of:?} has ended, and was told something", self.name));
        };
        self.told += 1;
        let taken = match &update {
            Update::Message { message, .. } => reading.twin.take_message(message, truth),
            Update::Gap { gap, .. } => {
                self.gaps += 1;
                reading.twin.take_gap(gap)
            }
            _ => Ok(()),
        };
        let described = format!("{} {of:?} {:?}", self.name, reading.wanted);
        taken.map_err(|error| format!("{described}: {error}"))?;
        let said = self.client.positions(of).into_iter().find(|(name, _)| *name == topic);
        let (said, told) = (said.map(|(_, at)| at), reading.twin.at.get(&topic).cloned());
        let is_further = said
            .as_ref()
            .zip(told.as_ref())
            .is_some_and(|(said, told)| said.epoch != told.epoch || said.sequence < told.sequence);
        match is_further {
            true => {
                Err(format!("{described}: positions say {topic} {said:?}, and told was {told:?}"))
            }
            false => Ok(()),
        }
    }

    /// Positions pass over nothing that was to be told.
    fn check_positions(&self, id: SubscriptionId) -> Result<(), String> {
        let reading = &self.readings[&id];
        for (topic, at) in self.client.positions(id) {
            let Some(told) = reading.twin.at.get(&topic) else { continue };
            let is_beyond = told.epoch == at.epoch && told.sequence < at.sequence;
            if is_beyond && !reading.twin.may_skip {
                let name = self.name;
                return Err(format!("{name}: positions say {topic} {at:?}, and told was {told:?}"));
            }
        }
        Ok(())
    }

    /// What it lacks, if it lacks anything.
    pub(crate) fn lacks(&self, heads: &BTreeMap<TopicName, Position>) -> Option<String> {
        for (id, reading) in &self.readings {
            let positions: BTreeMap<_, _> = self.client.positions(*id).into_iter().collect();
            for (topic, head) in heads {
                let selectors = &reading.wanted.selectors;
                if !selectors.iter().any(|selector| selector.matches(topic.as_str())) {
                    continue;
                }
                let at = positions.get(topic);
                let is_there = at.is_some_and(|at| {
                    at.epoch == head.epoch
                        && (at.sequence == head.sequence || reading.twin.may_skip)
                });
                if !is_there {
                    let (name, state) = (self.name, self.client.subscription(*id));
                    let wanted = &reading.wanted;
                    return Some(format!(
                        "{name} {id:?} {state:?} {wanted:?} {topic}: at {at:?}, head {head:?}"
                    ));
                }
            }
        }
        None
    }
}
