//! What is kept of a topic and what its readers may miss: chosen by ordered patterns.

use std::time::Duration;

use crate::Selector;

/// What is kept of a topic, how safe an acknowledgement is, what a late reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPolicy {
    /// Whether the newest publication is kept for readers who come later.
    pub retain: bool,
    /// How many publications are kept; the retained value is one of them.
    pub history_count: usize,
    /// How old a kept publication may grow; the retained value stays.
    pub history_age: Option<Duration>,
    /// How many payload bytes are kept; the retained value stays. If `None`, 1 MiB in memory, and on
    /// disk as many as `history_count` publications have.
    pub history_bytes: Option<usize>,
    /// Of a topic on disk, how many publications memory holds too.
    pub memory_count: usize,
    /// Of a topic on disk, how many payload bytes memory holds too.
    pub memory_bytes: usize,
    /// What a reader that is behind may skip.
    pub conflation: Conflation,
    /// What happens to a reader that fell further behind than history reaches.
    pub lagged: Lagged,
    /// How safe a publication is when it is acknowledged.
    pub ack: AckLevel,
    /// Bytes in one payload, if fewer than the server's limit.
    pub payload_bytes_max: Option<usize>,
}

impl Default for TopicPolicy {
    fn default() -> Self {
        Self {
            retain: true,
            history_count: 100,
            history_age: None,
            history_bytes: None,
            memory_count: 1_000,
            memory_bytes: HELD_BYTES,
            conflation: Conflation::Off,
            lagged: Lagged::Gap,
            ack: AckLevel::Memory,
            payload_bytes_max: None,
        }
    }
}

impl TopicPolicy {
    /// How many publications are held in memory.
    pub fn held_count(&self) -> usize {
        match self.ack {
            AckLevel::Memory => self.history_count,
            AckLevel::Disk => self.history_count.min(self.memory_count),
        }
    }

    /// How many payload bytes are held in memory.
    pub fn held_bytes(&self) -> usize {
        match self.ack {
            AckLevel::Memory => self.history_bytes.unwrap_or(HELD_BYTES),
            AckLevel::Disk => {
                self.history_bytes.map_or(self.memory_bytes, |b| b.min(self.memory_bytes))
            }
        }
    }
}

/// Payload bytes of one topic that memory holds, unless a policy says otherwise.
const HELD_BYTES: usize = 1 << 20;

/// What a reader that is behind may skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Conflation {
    /// Nothing.
    #[default]
    Off,
    /// While behind, everything but the newest value of each topic.
    Lagging,
}

/// What happens to a reader that fell further behind than history reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lagged {
    /// It is told exactly what it missed, then reads on.
    #[default]
    Gap,
    /// Its connection is closed with a code; it resumes when it comes back.
    Close,
}

/// How safe a publication is when it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// What goes for them.
    pub policy: TopicPolicy,
}
