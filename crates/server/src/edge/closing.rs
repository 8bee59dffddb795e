//! Connections that are being closed: each goes once it took what waits for it, or when its time is up. They are looked at when
//! something happened to them, not in every turn.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use hub::ConnectionId;
use model::RandomState;

/// How long a connection that we close may take to receive the reason.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The connections that are being closed.
#[derive(Debug, Default)]
pub(crate) struct ClosingConnections {
    all: HashSet<ConnectionId, RandomState>,
    /// When the time of each is up, the earliest first; some of them may be gone.
    until: VecDeque<(Duration, ConnectionId)>,
    /// To be looked at in this turn.
    touched: Vec<ConnectionId>,
}

impl ClosingConnections {
    /// Lets a connection go once it took what waits for it, or when its time is up.
    pub(crate) fn add(&mut self, link: ConnectionId, now: Duration) {
        self.touched.push(link);
        if self.all.insert(link) {
            self.until.push_back((now + CLOSE_PATIENCE, link));
        }
    }

    /// Hears that something happened to a connection.
    pub(crate) fn touch(&mut self, link: ConnectionId) {
        if !self.all.is_empty() && self.all.contains(&link) {
            self.touched.push(link);
        }
    }

    /// Forgets a connection that is gone.
    pub(crate) fn forget(&mut self, link: ConnectionId) {
        self.all.remove(&link);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn contains(&self, link: ConnectionId) -> bool {
        self.all.contains(&link)
    }

    /// Whether something happened that was not looked at.
    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Those to which something happened since they were last taken.
    #[must_use = "they are looked at once"]
    pub(crate) fn take_touched(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.touched)
    }

    /// When the time of the next one is up.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.until.front().map(|(until, _)| *until)
    }

    /// The next connection whose time is up.
    #[must_use = "it is forgotten here"]
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<ConnectionId> {
        loop {
            let (_, link) = self.until.pop_front_if(|(until, _)| *until <= now)?;
            if self.all.contains(&link) {
                return Some(link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hub::Connections;

    use super::*;

    #[test]
    fn a_connection_is_looked_at_when_it_is_touched_and_goes_when_its_time_is_up() {
        let (mut closing, mut connections) =
            (ClosingConnections::default(), Connections::default());
        let [one, other, open] =
            [1, 2, 3].map(|socket| connections.open(socket, ()).expect("not used up"));
        let at = Duration::from_secs;
        closing.add(one, at(1));
        closing.add(other, at(2));
        closing.add(one, at(3));
        assert_eq!(closing.take_touched(), [one, other, one]);
        closing.touch(open);
        assert!(!closing.is_touched(), "it is not being closed");
        closing.touch(other);
        assert_eq!(closing.take_touched(), [other]);
        assert_eq!((closing.due_at(), closing.pop_due(at(5))), (Some(at(6)), None));
        closing.forget(one);
        assert_eq!(
            closing.pop_due(at(7)),
            Some(other),
            "the first is gone, its time was not moved"
        );
        closing.forget(other);
        assert!(closing.is_empty() && closing.pop_due(at(9)).is_none());
    }
}
