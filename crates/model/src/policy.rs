//! Topic policies: retention, safety and conflation, chosen by ordered patterns.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Selector;

/// The retention of a topic, the safety of its acknowledgements, and the start of its late readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPolicy {
    /// Whether the newest publication is kept for readers who come later.
    pub retain: bool,
    /// How many publications are kept; the retained value is one of them.
    pub history_count: usize,
    /// How many publications are kept also where memory is short.
    pub history_count_min: usize,
    /// How old a kept publication may grow; the retained value stays.
    pub history_age: Option<Duration>,
    /// How many payload bytes are kept; the retained value stays. If `None`, 1 MiB in memory, and on
    /// disk as many as `history_count` publications have.
    pub history_bytes: Option<usize>,
    /// Of a topic on disk, how many publications memory holds too.
    pub memory_count: usize,
    /// Of a topic on disk, how many payload bytes memory holds too.
    pub memory_bytes: usize,
    /// The conflation; the default follows from the retention.
    pub conflation: Option<Conflation>,
    /// The least time between two publications that readers are told of: what comes in between is
    /// gathered and, with `Conflation::Always`, only the newest told.
    pub interval: Duration,
    /// Where a JSON payload says what it is about (RFC 6901): a publication replaces only those about the
    /// same. Without it the topic is about one thing.
    pub conflation_key: Option<Box<str>>,
    /// Whether publications may be compressed for readers that agreed to it.
    pub compress: bool,
    /// The reaction to a reader that fell further behind than history reaches.
    pub lagged: Lagged,
    /// How safe a publication is when it is acknowledged.
    pub ack: AckLevel,
    /// The backbone that orders and keeps the topic; if `None`, the one that is as safe as `ack` says.
    pub backbone: Option<BackboneIndex>,
    /// Bytes in one payload, if fewer than the server's limit.
    pub payload_bytes_max: Option<usize>,
    /// Whether the name of the principal that published is kept with a publication.
    pub record_principal: bool,
}

impl Default for TopicPolicy {
    fn default() -> Self {
        Self {
            retain: true,
            history_count: 100,
            history_count_min: 1,
            history_age: None,
            history_bytes: None,
            memory_count: 1_000,
            memory_bytes: HELD_BYTES,
            conflation: None,
            interval: Duration::ZERO,
            conflation_key: None,
            compress: true,
            lagged: Lagged::Gap,
            ack: AckLevel::Memory,
            backbone: None,
            payload_bytes_max: None,
            record_principal: false,
        }
    }
}

impl TopicPolicy {
    /// The conflation in effect. A topic that keeps only its value is one of values: a newer one replaces
    /// what a reader has not got yet.
    pub fn conflation(&self) -> Conflation {
        self.conflation.unwrap_or(match self.history_count {
            0 | 1 => Conflation::Lagging,
            _ => Conflation::Off,
        })
    }

    /// The backbone that orders and keeps the topic.
    pub fn backbone(&self) -> BackboneIndex {
        self.backbone.unwrap_or(match self.ack {
            AckLevel::Memory => BackboneIndex::MEMORY,
            AckLevel::Disk => BackboneIndex::DISK,
        })
    }

    /// Whether the history reaches further back than what is held in memory.
    pub fn reaches_beyond_memory(&self) -> bool {
        self.backbone() != BackboneIndex::MEMORY
    }

    /// How many publications are held in memory.
    pub fn held_count(&self) -> usize {
        match self.reaches_beyond_memory() {
            false => self.history_count,
            true => self.history_count.min(self.memory_count),
        }
    }

    /// How many payload bytes are held in memory.
    pub fn held_bytes(&self) -> usize {
        match self.reaches_beyond_memory() {
            false => self.history_bytes.unwrap_or(HELD_BYTES),
            true => self.history_bytes.map_or(self.memory_bytes, |b| b.min(self.memory_bytes)),
        }
    }
}

/// Payload bytes of one topic that memory holds, unless a policy says otherwise.
const HELD_BYTES: usize = 1 << 20;

/// The publications that a reader may skip, from the most lenient rule to the strictest: the stricter of topic and
/// subscription wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conflation {
    /// Nothing.
    #[default]
    Off,
    /// While behind, everything but the newest value.
    Lagging,
    /// Also while in step, what an interval gathered but the newest value.
    Always,
    /// A reader that falls too far behind reads the topic no more, and is told so.
    Unsubscribe,
}

impl Conflation {
    /// The mode with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Off, Self::Lagging, Self::Always, Self::Unsubscribe];
        all.into_iter().find(|mode| mode.name() == name)
    }

    /// The name on the wire and in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Lagging => "lagging",
            Self::Always => "always",
            Self::Unsubscribe => "unsubscribe",
        }
    }
}

/// How much a session is sent at most; `None` is without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Bytes a second.
    pub bytes: Option<NonZeroU32>,
    /// Publications a second.
    pub messages: Option<NonZeroU32>,
}

impl Rates {
    /// The stricter of both, each for itself.
    pub fn stricter(self, other: Self) -> Self {
        let stricter = |one: Option<NonZeroU32>, other: Option<NonZeroU32>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            bytes: stricter(self.bytes, other.bytes),
            messages: stricter(self.messages, other.messages),
        }
    }
}

/// The reaction to a reader that fell further behind than history reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lagged {
    /// It is told exactly what it missed, then reads on from the oldest that is kept.
    #[default]
    Gap,
    /// It is told what it missed, then gets the newest only.
    Snapshot,
    /// Its connection is closed with a code; it resumes when it comes back.
    Close,
}

/// Which of a server's backbones orders and keeps a topic: its place in the table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackboneIndex(pub u8);

impl BackboneIndex {
    /// The memory of the process: nothing is kept beyond it.
    pub const MEMORY: Self = Self(0);
    /// The store on this machine's disk.
    pub const DISK: Self = Self(1);
}

/// How safe a publication is when it is acknowledged, the least safe first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AckLevel {
    /// It is in this process's memory.
    #[default]
    Memory,
    /// It is on this machine's disk.
    Disk,
}

impl AckLevel {
    /// The level with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Memory, Self::Disk].into_iter().find(|level| level.name() == name)
    }

    /// The name used on the wire and in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// One rule of the configuration: topics that `selector` selects have this policy.
/// The first rule that selects a topic wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// Which topics.
    pub selector: Selector,
    /// The policy of these topics.
    pub policy: TopicPolicy,
}
