//! The truth about a run: publications that were sent, and the positions that the server gave them.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::{Epoch, HeaderOrigin, HeaderValue, Headers, Position, Sequence, TopicName};

/// The member of the payload that filters ask for has so many values.
pub(crate) const COLOURS: u64 = 3;

/// A publication that was sent.
#[derive(Clone, Debug)]
struct Sent {
    topic: TopicName,
    /// Where it is, once anybody was told.
    at: Option<Sequence>,
}

/// Everything that was sent, by number, and what is at each place.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    sent: BTreeMap<u64, Sent>,
    at: BTreeMap<(TopicName, Sequence), u64>,
    counts: BTreeMap<TopicName, u64>,
    heads: BTreeMap<TopicName, Sequence>,
    epochs: BTreeMap<TopicName, u64>,
    /// Whether the sequences of a topic have holes.
    pub has_holes: bool,
}

/// The payload of publication `number`.
pub(crate) fn payload_of(number: u64) -> Vec<u8> {
    let padding = "x".repeat((number * 37 % 200) as usize);
    format!("{{\"n\":{number},\"k\":{},\"x\":\"{padding}\"}}", colour_of(number)).into()
}

/// The headers of publication `number`: every third has some.
pub(crate) fn headers_of(number: u64) -> Headers<'static> {
    let (mut headers, text) = (Headers::default(), "h".repeat((number * 13 % 90) as usize));
    if number.is_multiple_of(3) {
        let own = HeaderOrigin::Client;
        headers.push("n", HeaderValue::Number(&number.to_string()), own).expect("valid");
        headers.push("text", HeaderValue::Text(&text), own).expect("valid");
    }
    headers
}

fn colour_of(number: u64) -> u64 {
    number * 7 / 5 % COLOURS
}

/// Which epoch it is of those of its kind: they are numbered as they begin.
pub(crate) fn number_of(epoch: &Epoch) -> u64 {
    let number = epoch.as_str().rsplit('-').next().and_then(|number| number.parse().ok());
    number.expect("epochs of the simulation end with a number")
}

impl Truth {
    /// Nothing, of a node whose sequences have holes or not.
    pub fn new(has_holes: bool) -> Self {
        Self { has_holes, ..Self::default() }
    }

    /// Notes a publication that is about to be sent for the first time.
    pub fn handle_sent(&mut self, number: u64, topic: &TopicName) {
        self.sent.insert(number, Sent { topic: topic.clone(), at: None });
        *self.counts.entry(topic.clone()).or_default() += 1;
    }

    /// How many were sent to a topic: its head is not beyond that.
    pub fn count_of(&self, topic: &TopicName) -> u64 {
        self.counts.get(topic).copied().unwrap_or(0)
    }

    /// How many publications of a topic are known to be kept through a sequence.
    pub fn count_through(&self, topic: &TopicName, through: Sequence) -> u64 {
        self.places(topic, Sequence::START, through).count() as u64
    }

    /// The places of a topic after one sequence, through another, at which publications are: where sequences are dense all of them,
    /// and else those where somebody was told that one is.
    pub fn due(&self, topic: &TopicName, after: Sequence, through: Sequence) -> Vec<Sequence> {
        match self.has_holes {
            true => self.places(topic, after, through).collect(),
            false => (after.get() + 1..=through.get()).filter_map(Sequence::new).collect(),
        }
    }

    /// The places of a topic after one sequence, through another, at which publications are known to be.
    fn places(
        &self,
        topic: &TopicName,
        after: Sequence,
        through: Sequence,
    ) -> impl Iterator<Item = Sequence> {
        let place = |sequence| (topic.clone(), sequence);
        let (after, through) = (place(after.min(through)), place(through));
        let places = self.at.range((Bound::Excluded(after), Bound::Included(through)));
        places.map(|((_, sequence), _)| *sequence)
    }

    /// The newest sequence of a topic that anybody was told.
    pub fn head_of(&self, topic: &TopicName) -> Sequence {
        self.heads.get(topic).copied().unwrap_or(Sequence::START)
    }

    /// The topic of a publication.
    pub fn topic_of(&self, number: u64) -> &TopicName {
        &self.sent[&number].topic
    }

    /// The topics of which anything was told.
    pub fn topics(&self) -> impl Iterator<Item = (&TopicName, Sequence)> {
        self.heads.iter().map(|(topic, head)| (topic, *head))
    }

    /// Hears that the server acknowledged a publication.
    ///
    /// # Panics
    /// A later one of its topic was acknowledged in a later epoch, or what [`Truth::handle_place`] says.
    pub fn handle_acknowledged(&mut self, number: u64, topic: &TopicName, at: &Position) {
        self.handle_place(number, topic, at.sequence);
        let known = self.epochs.entry(topic.clone()).or_default();
        let epoch = number_of(&at.epoch);
        assert!(*known <= epoch, "{topic} goes on in {}, and was further", at.epoch.as_str());
        *known = epoch;
    }

    /// Hears where a publication is.
    ///
    /// # Panics
    /// It was somewhere else before, or something else was there.
    pub fn handle_place(&mut self, number: u64, topic: &TopicName, sequence: Sequence) {
        let known = self.sent.get_mut(&number).unwrap_or_else(|| panic!("nobody sent {number}"));
        assert_eq!(known.topic, *topic, "{number} was told under another name");
        let at = *known.at.get_or_insert(sequence);
        assert_eq!(at, sequence, "{number} of {topic} is kept twice");
        let there = *self.at.entry((topic.clone(), sequence)).or_insert(number);
        assert_eq!(there, number, "{topic} has two publications at {sequence}");
        let head = self.heads.entry(topic.clone()).or_insert(sequence);
        *head = (*head).max(sequence);
    }

    /// The same of a publication that was read.
    pub fn handle_read(
        &mut self,
        topic: &TopicName,
        sequence: Sequence,
        payload: &[u8],
        headers: &Headers<'_>,
    ) {
        let text = std::str::from_utf8(payload).unwrap_or_default();
        let number = text.strip_prefix("{\"n\":").and_then(|rest| rest.split(',').next());
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        let number = number.unwrap_or_else(|| panic!("{topic} {sequence}: nobody sent {text}"));
        assert_eq!(payload, payload_of(number), "{topic} {sequence} was changed");
        assert_eq!(headers, &headers_of(number), "{topic} {sequence} has other headers");
        self.handle_place(number, topic, sequence);
    }

    /// Whether a filter for this colour accepts what is at a place.
    pub fn is_of_colour(&self, topic: &TopicName, sequence: Sequence, colour: u64) -> bool {
        let number = self.at.get(&(topic.clone(), sequence));
        let number = number.unwrap_or_else(|| panic!("nobody knows what is at {topic} {sequence}"));
        colour_of(*number) == colour
    }
}
