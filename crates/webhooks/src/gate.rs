//! What bounds how much is read ahead of what is delivered: the reader waits here while too much is pending.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Limits;

/// Publications and payload bytes that were read and not settled; shared by who reads and who settles.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    count_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    bytes: usize,
    is_shut: bool,
}

/// How the gate is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    /// Too much is pending, still.
    Full,
    /// It will not open any more.
    Shut,
}

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            count_max: limits.webhook_pending_max,
            bytes_max: limits.webhook_pending_bytes_max,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more, at most for `patience`. One is let in whatever its size.
    pub(crate) fn wait(&self, patience: Duration) -> Passage {
        let is_full = |state: &mut State| {
            !state.is_shut && (state.count >= self.count_max || state.bytes >= self.bytes_max)
        };
        let waited = self.changed.wait_timeout_while(self.state(), patience, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.is_shut, is_full(&mut state)) {
            (true, _) => Passage::Shut,
            (false, true) => Passage::Full,
            (false, false) => Passage::Open,
        }
    }

    /// Notes what was read.
    pub(crate) fn enter(&self, count: usize, bytes: usize) {
        let mut state = self.state();
        (state.count, state.bytes) = (state.count + count, state.bytes + bytes);
    }

    /// Notes what of it is settled.
    pub(crate) fn leave(&self, count: usize, bytes: usize) {
        let mut state = self.state();
        (state.count, state.bytes) = (state.count - count, state.bytes - bytes);
        self.changed.notify_all();
    }

    /// Lets nobody in any more.
    pub(crate) fn shut(&self) {
        self.state().is_shut = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.state().is_shut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_by_count_and_by_bytes_and_opens_again() {
        let limits =
            Limits { webhook_pending_max: 2, webhook_pending_bytes_max: 10, ..Limits::default() };
        let (gate, no_patience) = (Gate::new(&limits), Duration::ZERO);
        gate.enter(1, 1);
        assert_eq!(gate.wait(no_patience), Passage::Open);
        gate.enter(1, 1);
        assert_eq!(gate.wait(no_patience), Passage::Full);
        gate.leave(1, 1);
        assert_eq!(gate.wait(no_patience), Passage::Open);
        gate.leave(1, 1);
        gate.enter(1, 50);
        assert_eq!(gate.wait(no_patience), Passage::Full);
        gate.shut();
        assert_eq!(gate.wait(no_patience), Passage::Shut);
    }
}
