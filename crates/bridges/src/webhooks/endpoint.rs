//! How an endpoint as a whole is doing: whether to leave it alone for a while. Pure.
//!
//! A topic whose publications fail has pauses of its own (`deliveries`). An endpoint that fails for several topics
//! is down, more likely: then one attempt at a time finds out whether it is back. So an hour of that costs some
//! attempts, not some of each topic.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use model::TopicName;

use super::schedule::Schedule;

/// Topics that have to fail, with no success between, for the endpoint to count as down.
const TOPICS_DOWN: usize = 3;
/// Attempts that have to fail so for the operator to be told.
const ATTEMPTS_TOLD: u32 = 3;
/// The longest pause between attempts to find out.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The state of an endpoint since it last took something.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    /// Topics that failed; no more than are needed.
    failed: BTreeSet<TopicName>,
    failed_in_a_row: u32,
    is_told: bool,
    /// Attempts that failed while it was down.
    probes: u32,
    /// It is left alone until then.
    due_at: Option<Instant>,
}

impl Endpoint {
    /// Whether the operator was told that it fails.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_told
    }

    fn is_down(&self) -> bool {
        self.failed.len() >= TOPICS_DOWN
    }

    /// Whether another attempt may begin beside `in_flight` others.
    pub(crate) fn admits(&self, in_flight: usize, now: Instant) -> bool {
        let is_due = self.due_at.is_none_or(|due_at| due_at <= now);
        is_due && (in_flight == 0 || !self.is_down())
    }

    /// When it is due, if it is not.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.due_at.filter(|due_at| *due_at > now)
    }

    /// Notes a success. Answers whether the operator should be told that it works again.
    pub(crate) fn handle_delivered(&mut self) -> bool {
        // What it asked for while this was under way still goes.
        let due_at = if self.is_down() { None } else { self.due_at };
        std::mem::replace(self, Self { due_at, ..Self::default() }).is_told
    }

    /// Notes a failure. Answers whether the operator should be told that it fails.
    pub(crate) fn handle_failed(
        &mut self,
        topic: &TopicName,
        asked: Option<Duration>,
        (schedule, random): (&Schedule, f64),
        now: Instant,
    ) -> bool {
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        if !self.is_down() {
            self.failed.insert(topic.clone());
        }
        // Attempts that were under way when it went down tell nothing new.
        if self.is_down() && self.wake_at(now).is_none() {
            self.probes = self.probes.saturating_add(1);
            let pause = schedule.pause(self.probes, random).min(PROBE_PAUSE_MAX);
            self.due_at = Some(now + pause);
        }
        if let Some(asked) = asked {
            self.due_at = self.due_at.max(Some(now + asked));
        }
        let is_news = !self.is_told && self.failed_in_a_row >= ATTEMPTS_TOLD;
        self.is_told |= is_news;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;

    const SCHEDULE: Schedule =
        Schedule { pause_min: Duration::from_secs(1), pause_max: Duration::from_secs(300) };

    fn topic(name: &str) -> TopicName {
        TopicName::parse(name, &Limits::default()).expect("valid")
    }

    #[test]
    fn one_topic_that_fails_holds_no_other() {
        let (mut endpoint, now) = (Endpoint::default(), Instant::now());
        let told: Vec<bool> = (0..9)
            .map(|_| endpoint.handle_failed(&topic("a"), None, (&SCHEDULE, 1.0), now))
            .collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1, "it is said once");
        assert!(told[2], "after the third");
        assert!(endpoint.admits(7, now));
        assert!(endpoint.handle_delivered(), "it works again");
        assert!(!endpoint.handle_delivered() && !endpoint.is_failing());
    }

    #[test]
    fn an_endpoint_that_is_down_is_asked_one_at_a_time() {
        let (mut endpoint, now) = (Endpoint::default(), Instant::now());
        for name in ["a", "b", "c", "d", "e"] {
            endpoint.handle_failed(&topic(name), None, (&SCHEDULE, 1.0), now);
        }
        assert!(!endpoint.admits(0, now));
        let due_at = endpoint.wake_at(now).expect("there is a pause");
        assert_eq!(due_at, now + SCHEDULE.pause_min, "those under way count once");
        assert!(endpoint.admits(0, due_at) && !endpoint.admits(1, due_at));
        endpoint.handle_failed(&topic("a"), None, (&SCHEDULE, 1.0), due_at);
        assert_eq!(endpoint.wake_at(due_at), Some(due_at + SCHEDULE.pause_min * 2));
        let mut at = due_at;
        for _ in 0..20 {
            at = endpoint.wake_at(at).expect("there is a pause");
            endpoint.handle_failed(&topic("a"), None, (&SCHEDULE, 1.0), at);
        }
        assert_eq!(endpoint.wake_at(at), Some(at + PROBE_PAUSE_MAX));
        endpoint.handle_delivered();
        assert!(endpoint.admits(7, at));
    }

    #[test]
    fn an_endpoint_that_asks_for_time_gets_it() {
        let (mut endpoint, now) = (Endpoint::default(), Instant::now());
        let asked = Duration::from_secs(9);
        endpoint.handle_failed(&topic("a"), Some(asked), (&SCHEDULE, 1.0), now);
        endpoint.handle_failed(&topic("b"), Some(asked / 2), (&SCHEDULE, 1.0), now);
        endpoint.handle_delivered();
        assert!(!endpoint.admits(0, now) && endpoint.wake_at(now) == Some(now + asked));
        assert!(endpoint.admits(7, now + asked));
    }
}
