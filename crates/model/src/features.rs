//! Features: optional parts of the protocol, negotiated in `hello` and `welcome`.

use crate::{Command, Unsubscribe};

/// Features by name: neither side sends what belongs to one that the other did not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

impl Features {
    /// Several records in one message.
    pub const BATCH: Self = Self(1);
    /// Publications as differences.
    pub const DELTAS: Self = Self(1 << 1);
    /// Devices on sessions.
    pub const DEVICES: Self = Self(1 << 2);
    /// Records of the binary dialect that say more of a publication: headers, time, principal, what was before it.
    pub const EXTENDED: Self = Self(1 << 3);
    /// Large payloads in pieces.
    pub const FRAGMENTS: Self = Self(1 << 4);
    /// Pages of histories.
    pub const HISTORY: Self = Self(1 << 5);
    /// Subscriptions with ids of their own.
    pub const IDS: Self = Self(1 << 6);
    /// Requests and their handlers.
    pub const REQUESTS: Self = Self(1 << 7);
    /// Subscribers with names.
    pub const SUBSCRIBERS: Self = Self(1 << 8);
    /// All that this version knows.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);
    /// The features of a peer that names none: those that there were before others were added.
    pub const UNNAMED: Self = Self::ALL.without(Self::IDS).without(Self::EXTENDED);

    /// The features that a command needs. Devices are asked with requests.
    pub fn needed_by(command: &Command) -> Self {
        match command {
            Command::Subscribe(wanted) => {
                let named = if wanted.name.is_some() { Self::SUBSCRIBERS } else { Self::default() };
                let by_id = if wanted.subscription.is_some() { Self::IDS } else { Self::default() };
                named.with(by_id)
            }
            Command::Unsubscribe(Unsubscribe::Subscription(_)) => Self::IDS,
            Command::Acknowledge(_) => Self::SUBSCRIBERS,
            Command::History(_) => Self::HISTORY,
            Command::Handle(_)
            | Command::Unhandle(_)
            | Command::Request(_)
            | Command::Respond(_) => Self::REQUESTS,
            Command::Attach(_) | Command::Detach(_) => Self::DEVICES.with(Self::REQUESTS),
            Command::Hello(_)
            | Command::Unsubscribe(Unsubscribe::Selectors(_))
            | Command::Publish(_)
            | Command::Close
            | Command::Ping => Self::default(),
        }
    }

    /// The feature with this name, if it is known here.
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|known| *known == name).map(|at| Self(1 << at))
    }

    /// Their names, in order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |at: &usize| self.0 & (1 << at) != 0;
        (0..NAMES.len()).filter(has).map(|at| NAMES[at])
    }

    /// These and others.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These but not the others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Those that are among the others as well.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether all of `wanted` are among them.
    pub fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

const NAMES: [&str; 9] = [
    "batch",
    "deltas",
    "devices",
    "extended",
    "fragments",
    "history",
    "ids",
    "requests",
    "subscribers",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_names() {
        let some = Features::DELTAS.with(Features::SUBSCRIBERS);
        assert_eq!(some.names().collect::<Vec<_>>(), ["deltas", "subscribers"]);
        assert!(Features::ALL.names().eq(NAMES));
        assert_eq!(Features::from_name("history"), Some(Features::HISTORY));
        assert_eq!(Features::from_name("telepathy"), None);
        assert!(Features::ALL.has(some) && !some.has(Features::BATCH));
    }
}
