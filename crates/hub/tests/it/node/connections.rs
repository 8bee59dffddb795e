//! Connections that take as little as the test says, and what came on them: gaps are held against what could be had.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::rc::Rc;

use model::{HashMap, HashSet};
use tidegate_hub::{ConnectionId, Outlet, Sent};

/// What one client received, and how much more its connection takes.
#[derive(Default)]
pub struct Connection {
    pub room: usize,
    pub bytes: Vec<u8>,
    pub is_full: bool,
    pub sends: usize,
    /// Bytes of the messages that were looked at.
    pub(super) seen: usize,
    /// What could be had when a message was begun that is not whole yet.
    pub(super) begun: Option<Rc<Available>>,
    /// Where it stands in each topic, by the messages that were looked at.
    pub places: HashMap<String, u64>,
    /// Which topics it knows to be of a later epoch than the first.
    pub(super) renewed: HashSet<String>,
}

/// The sequences of each topic that a shard could have told at one moment: from memory, from disk, or because they are
/// among the recent deliveries.
pub(super) type Available = HashMap<String, HashSet<u64>>;

/// What was published to each topic, by sequence.
pub(super) type Published = HashMap<String, BTreeMap<u64, String>>;

/// What a gap may cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// What cannot be had, and nothing else.
    Exact,
    /// Something that cannot be had: topics go on with their value, whatever else is kept.
    Snapshot,
}

/// The whole messages at the beginning of `bytes`, and how many bytes they are.
pub(super) fn whole_messages(bytes: &[u8]) -> (Vec<&str>, usize) {
    let (mut messages, mut at) = (Vec::new(), 0);
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        let Some(message) = bytes.get(at + 4..at + 4 + length) else { break };
        messages.push(std::str::from_utf8(message).expect("messages are not torn"));
        at += 4 + length;
    }
    (messages, at)
}

impl Connection {
    /// Whether what could be had must be known to look at what came since the last time.
    pub(super) fn has_gap_or_rest(&self) -> bool {
        let (messages, length) = whole_messages(&self.bytes[self.seen..]);
        let has_rest = self.begun.is_none() && self.seen + length < self.bytes.len();
        has_rest || messages.iter().any(|message| message.contains("gap "))
    }

    /// Looks at what came since the last time. A gap must not cover what could be had when it was told.
    pub(super) fn look(&mut self, available: &Rc<Available>, published: &Published, gaps: Gaps) {
        let (messages, length) = whole_messages(&self.bytes[self.seen..]);
        for message in messages {
            let begun = self.begun.take();
            let available = begun.as_ref().unwrap_or(available);
            for line in message.lines() {
                let mut words = line.split(' ');
                let (Some(word), Some(topic)) = (words.next(), words.next()) else { continue };
                if word == "epoch" {
                    self.renewed.insert(topic.to_owned());
                }
                let Some(to) = words.next().and_then(|it| it.parse::<u64>().ok()) else { continue };
                let last = words.next();
                if word == "gap" {
                    let place = self.places.get(topic).copied().unwrap_or(0);
                    let published = published.get(topic).into_iter();
                    let covered: Vec<u64> = published
                        .flat_map(|it| it.range((Excluded(place.min(to)), Included(to))))
                        .map(|(sequence, _)| *sequence)
                        .collect();
                    check_gap(line, available.get(topic), &covered, last, gaps);
                }
                if word != "fragment" || last == Some("0") {
                    self.places.insert(topic.to_owned(), to);
                }
            }
        }
        self.seen += length;
        if self.seen < self.bytes.len() && self.begun.is_none() {
            self.begun = Some(Rc::clone(available));
        }
    }
}

/// Checks a gap against what could be had when it was told.
fn check_gap(
    line: &str,
    held: Option<&HashSet<u64>>,
    covered: &[u64],
    reason: Option<&str>,
    gaps: Gaps,
) {
    // The numbering begins anew: what was taken is of another one.
    if reason == Some("epoch") {
        return;
    }
    assert!(!covered.is_empty(), "`{line}` covers nothing that was published");
    let can_be_had = |sequence: &u64| held.is_some_and(|held| held.contains(sequence));
    match gaps {
        Gaps::Exact => {
            let had = covered.iter().find(|it| can_be_had(it));
            assert_eq!(had, None, "`{line}` for {covered:?} covers what can be had");
        }
        Gaps::Snapshot => {
            let is_true = covered.iter().any(|sequence| !can_be_had(sequence));
            assert!(is_true, "`{line}` covers nothing but what can be had");
        }
    }
}

/// All connections of a shard, by link.
#[derive(Default)]
pub struct Wire {
    pub connections: HashMap<ConnectionId, Connection>,
}

impl Outlet for Wire {
    fn send(&mut self, link: ConnectionId, bytes: &[u8]) -> Sent {
        let connection = self.connections.get_mut(&link).expect("the link is open");
        assert!(!connection.is_full, "nothing is sent to a full connection");
        let taken = bytes.len().min(connection.room);
        connection.room -= taken;
        connection.bytes.extend_from_slice(&bytes[..taken]);
        connection.is_full = taken < bytes.len();
        connection.sends += 1;
        Sent::Taken(taken)
    }
}
