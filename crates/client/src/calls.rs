//! Commands that are answered: publish, history, acknowledge, request, ping. Pure.
//!
//! Each waits for a connection, is sent, and then answered, or interrupted by a break. The meaning of a break depends on
//! the command: asking again does no harm to a `history`, and none to a `publish` with an idempotency key as
//! long as the server remembers it. Of a publish without a key nobody can tell whether it was kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use model::{CommandId, Features};

use crate::errors::{ClientError, ErrorCode};

/// The fate of a command whose connection breaks before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterBreak {
    AskAgain,
    /// As long as the server remembers its key.
    AskAgainWhileRemembered,
    Fail,
}

/// How many commands may wait for a connection.
pub(crate) const WAITING_MAX: usize = 1_000;
/// How long a keyed command is sent again: less than the server's usual `idempotency_window_ms`.
const REMEMBERED: Duration = Duration::from_secs(240);

#[derive(Debug)]
struct Call {
    record: Vec<u8>,
    /// The feature that the server must have.
    needs: Features,
    after_break: AfterBreak,
    first_sent_at: Option<Instant>,
    is_sent: bool,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) within: Duration,
}

/// All commands of one client whose answers are awaited.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: BTreeMap<u64, Call>,
    /// Those to be sent, in the order in which they were asked for.
    unsent: VecDeque<u64>,
    /// Of those that have one, in the order in which they were asked for, which is that of their times.
    deadlines: VecDeque<(u64, Deadline)>,
    is_connected: bool,
}

impl Calls {
    /// Adds a command, encoded as `record`, which a server must have some features for.
    ///
    /// # Errors
    /// 4902: too many wait for a connection.
    pub(crate) fn add(
        &mut self,
        id: CommandId,
        record: Vec<u8>,
        needs: Features,
        after_break: AfterBreak,
    ) -> Result<(), ClientError> {
        if !self.is_connected && self.unsent.len() >= WAITING_MAX {
            let text = format!(
                "cannot take another command: {WAITING_MAX} wait for a connection already; wait for it"
            );
            return Err(ClientError::new(ErrorCode::QueueFull, text));
        }
        let call = Call { record, needs, after_break, first_sent_at: None, is_sent: false };
        self.waiting.insert(id.0, call);
        self.unsent.push_back(id.0);
        Ok(())
    }

    /// Notes how long a command that was just added may take: all take as long.
    pub(crate) fn set_deadline(&mut self, id: CommandId, deadline: Deadline) {
        self.deadlines.push_back((id.0, deadline));
    }

    /// When to look for what takes too long.
    pub(crate) fn wake_at(&mut self) -> Option<Instant> {
        while let Some((id, deadline)) = self.deadlines.front() {
            if self.waiting.contains_key(id) {
                return Some(deadline.at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Gives up what has taken too long; answers what did.
    pub(crate) fn handle_wake(&mut self, now: Instant) -> Vec<(CommandId, ClientError)> {
        let mut late = Vec::new();
        while self.wake_at().is_some_and(|at| at <= now)
            && let Some((id, deadline)) = self.deadlines.pop_front()
        {
            let call = self.waiting.remove(&id).expect("it has a deadline because it waits");
            let error = match call.first_sent_at {
                Some(_) => unanswered("there was none in time"),
                None => not_sent(deadline.within),
            };
            late.push((CommandId(id), error));
        }
        late
    }

    /// How many are awaited.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes an answer; says whether it was awaited.
    pub(crate) fn handle_answer(&mut self, id: CommandId, has_more: bool) -> bool {
        match has_more {
            true => self.waiting.contains_key(&id.0),
            false => self.waiting.remove(&id.0).is_some(),
        }
    }

    /// Notes that commands can be sent.
    pub(crate) fn handle_connected(&mut self) {
        self.is_connected = true;
    }

    /// Notes that the connection is gone; answers what failed with it.
    pub(crate) fn handle_disconnect(&mut self, now: Instant) -> Vec<(CommandId, ClientError)> {
        let is_lost = |call: &Call| match (call.after_break, call.first_sent_at) {
            _ if !call.is_sent => false,
            (AfterBreak::AskAgain, _) => false,
            (AfterBreak::AskAgainWhileRemembered, Some(sent_at)) => now - sent_at > REMEMBERED,
            _ => true,
        };
        let lost: Vec<u64> =
            self.waiting.iter().filter(|(_, call)| is_lost(call)).map(|(id, _)| *id).collect();
        lost.iter().for_each(|id| drop(self.waiting.remove(id)));
        self.waiting.values_mut().for_each(|call| call.is_sent = false);
        self.unsent = self.waiting.keys().copied().collect();
        self.is_connected = false;
        let lost_so = |id| (CommandId(id), unanswered("the connection broke before the answer"));
        lost.into_iter().map(lost_so).collect()
    }

    /// Fails everything with `why`, because there will be no connection.
    pub(crate) fn handle_stop(&mut self, why: &ClientError) -> Vec<(CommandId, ClientError)> {
        self.unsent.clear();
        let failed = |(id, call): (u64, Call)| {
            let is_doubtful =
                call.first_sent_at.is_some() && call.after_break != AfterBreak::AskAgain;
            let broken = || unanswered("the connection broke before the answer");
            (CommandId(id), if is_doubtful { broken() } else { why.clone() })
        };
        std::mem::take(&mut self.waiting).into_iter().map(failed).collect()
    }

    /// The next command to send, and what it needs, while there is a connection.
    pub(crate) fn poll_unsent(&mut self, now: Instant) -> Option<(CommandId, &[u8], Features)> {
        if !self.is_connected {
            return None;
        }
        let id = loop {
            let id = self.unsent.pop_front()?;
            if self.waiting.contains_key(&id) {
                break id;
            }
        };
        let call = self.waiting.get_mut(&id)?;
        call.is_sent = true;
        call.first_sent_at.get_or_insert(now);
        Some((CommandId(id), &call.record, call.needs))
    }
}

fn unanswered(why: &str) -> ClientError {
    let text = format!(
        "cannot tell what became of the command: {why}; with an idempotency key it can be sent again, and is after a \
         break by itself"
    );
    ClientError::new(ErrorCode::Unanswered, text)
}

fn not_sent(within: Duration) -> ClientError {
    let text = format!(
        "cannot send the command: there was no connection within {within:?}, and it was not carried out; try again, \
         or wait longer"
    );
    ClientError::new(ErrorCode::NotSent, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_fails_what_nobody_can_tell_of_and_asks_for_the_rest_again() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        let all = [AfterBreak::Fail, AfterBreak::AskAgainWhileRemembered, AfterBreak::AskAgain];
        for (id, after_break) in (0..).zip(all) {
            calls
                .add(CommandId(id), vec![id as u8], Features::default(), after_break)
                .expect("there is room");
        }
        assert_eq!(calls.poll_unsent(now), None, "there is no connection");
        calls.handle_connected();
        for id in 0..3 {
            assert_eq!(
                calls.poll_unsent(now),
                Some((CommandId(id), &[id as u8][..], Features::default()))
            );
        }
        calls
            .add(CommandId(3), vec![3], Features::default(), AfterBreak::Fail)
            .expect("there is room");
        let lost = calls.handle_disconnect(now);
        assert!(matches!(&lost[..], [(CommandId(0), error)] if error.code.number() == 4900));
        calls.handle_connected();
        let again = std::iter::from_fn(|| calls.poll_unsent(now).map(|(id, ..)| id.0));
        assert_eq!(again.collect::<Vec<_>>(), [1, 2, 3]);
        let much_later = now + REMEMBERED + Duration::from_secs(1);
        let lost = calls.handle_disconnect(much_later);
        assert_eq!(lost.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn one_that_is_late_says_whether_it_was_sent_and_is_not_sent_any_more() {
        let (mut calls, start) = (Calls::default(), Instant::now());
        let within = Duration::from_secs(1);
        let add = |calls: &mut Calls, id, at| {
            let after_break = AfterBreak::AskAgainWhileRemembered;
            calls.add(CommandId(id), vec![], Features::default(), after_break).expect("room");
            calls.set_deadline(CommandId(id), Deadline { at: at + within, within });
        };
        calls.handle_connected();
        [0, 1].into_iter().for_each(|id| add(&mut calls, id, start));
        while calls.poll_unsent(start).is_some() {}
        assert!(calls.handle_answer(CommandId(0), false), "answered in time");
        assert!(calls.handle_disconnect(start).is_empty(), "they have keys");
        [2, 3].into_iter().for_each(|id| add(&mut calls, id, start + within * id as u32));
        assert_eq!(calls.wake_at(), Some(start + within));
        assert!(calls.handle_wake(start).is_empty());
        let late = calls.handle_wake(start + within * 3);
        let late: Vec<_> = late.iter().map(|(id, error)| (id.0, error.code.number())).collect();
        assert_eq!(late, [(1, 4900), (2, 4906)]);
        assert_eq!(calls.wake_at(), Some(start + within * 4));
        calls.handle_connected();
        assert_eq!(calls.poll_unsent(start).map(|(id, ..)| id.0), Some(3));
        assert_eq!(calls.poll_unsent(start), None);
    }

    #[test]
    fn only_so_many_wait_for_a_connection() {
        let mut calls = Calls::default();
        for id in 0..WAITING_MAX as u64 {
            calls
                .add(CommandId(id), vec![], Features::default(), AfterBreak::AskAgain)
                .expect("there is room");
        }
        let refused =
            calls.add(CommandId(5_000), vec![], Features::default(), AfterBreak::AskAgain);
        assert!(refused.is_err_and(|error| error.code == ErrorCode::QueueFull));
    }
}
