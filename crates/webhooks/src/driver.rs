//! Joins the parts of one webhook: its deliveries, and the threads that read, post and keep.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admin::WebhookCounters;
use model::TopicName;

use crate::deliveries::{Deliveries, Heard, News, Outcome, Page};
use crate::gate::Gate;
use crate::keeper::Order;
use crate::letter::{Letter, Missed};
use crate::post::Poster;
use crate::posting::Posting;

/// What the driver hears.
#[derive(Debug)]
pub(crate) enum Input {
    Publication(Posting),
    Missed(Missed),
    Attempted(TopicName, Outcome),
    Recorded(Letter),
    Fetched(Page),
    Acknowledged,
    Stop,
}

/// How often the server is told what was delivered, at most; and how much less often for each topic that it is told
/// of, for it writes those that it knows already as well.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(200);
const ACKNOWLEDGE_PAUSE: Duration = Duration::from_micros(100);
/// How long attempts that are under way may still take when the server stops.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(3);
/// How long nothing may happen.
const IDLE: Duration = Duration::from_secs(60);

/// One webhook at work.
#[derive(Debug)]
pub(crate) struct Driver {
    pub name: Arc<str>,
    pub deliveries: Deliveries,
    pub counters: Arc<WebhookCounters>,
    pub gate: Arc<Gate>,
    pub inputs: Receiver<Input>,
    pub jobs: Sender<Arc<Posting>>,
    pub orders: Sender<Order>,
    pub random: Random,
    /// What waits as far as the gate was told.
    pub entered: (usize, usize),
    pub acknowledging: bool,
    pub acknowledge_at: Instant,
    pub stop_by: Option<Instant>,
}

impl Driver {
    /// Works until it is told to stop, or its endpoint is gone.
    pub(crate) fn run(mut self) {
        while !self.is_done() {
            let now = Instant::now();
            if self.drive(now).is_err() {
                tracing::error!(webhook = %self.name, "nobody posts or keeps any more: the webhook stops");
                break;
            }
            let until = self.wake_at(now);
            match self.inputs.recv_timeout(until.saturating_duration_since(now)) {
                Ok(input) => self.handle(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Ok(input) = self.inputs.try_recv() {
                self.handle(input);
            }
        }
        self.gate.shut();
        self.show();
    }

    fn is_done(&self) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        let is_idle = self.deliveries.in_flight() == 0 && !self.acknowledging;
        Instant::now() >= stop_by || (is_idle && !self.deliveries.has_settled())
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Publication(posting) => {
                self.entered.0 += 1;
                self.entered.1 += posting.payload.len();
                self.deliveries.handle_publication(posting);
            }
            Input::Missed(missed) => {
                self.entered.0 += 1;
                self.deliveries.handle_missed(missed);
            }
            Input::Attempted(topic, outcome) => {
                let (at, random) = (Instant::now(), self.random.next());
                let heard = Heard { at, unix_ms: unix_ms(), random };
                self.deliveries.handle_outcome(&topic, outcome, heard);
            }
            Input::Recorded(letter) => self.deliveries.handle_recorded(&letter),
            Input::Fetched(page) => {
                let before = self.deliveries.pending();
                self.deliveries.handle_page(page);
                let after = self.deliveries.pending();
                let (count, bytes) = (after.0 - before.0, after.1 - before.1);
                self.gate.enter(count, bytes);
                self.entered = (self.entered.0 + count, self.entered.1 + bytes);
            }
            Input::Acknowledged => self.acknowledging = false,
            Input::Stop => self.stop(),
        }
    }

    /// Begins nothing new, and has what is under way come to its end.
    fn stop(&mut self) {
        self.gate.shut();
        self.stop_by.get_or_insert(Instant::now() + STOP_MAX);
    }

    /// Does all that can be done now.
    fn drive(&mut self, now: Instant) -> Result<(), Deserted> {
        while let Some(news) = self.deliveries.poll_news() {
            self.log(&news);
            if news == News::Gone {
                self.stop();
            }
        }
        while self.stop_by.is_none()
            && let Some(posting) = self.deliveries.poll_attempt(now)
        {
            self.jobs.send(posting)?;
        }
        while let Some(letter) = self.deliveries.poll_letter() {
            self.orders.send(Order::Record(letter))?;
        }
        while self.stop_by.is_none()
            && let Some((topic, after)) = self.deliveries.poll_fetch()
        {
            self.orders.send(Order::Fetch(topic, after))?;
        }
        let is_due = self.acknowledge_at <= now || self.stop_by.is_some();
        if self.deliveries.has_settled() && !self.acknowledging && is_due {
            let settled = self.deliveries.take_settled();
            let pause = ACKNOWLEDGE_EVERY + ACKNOWLEDGE_PAUSE * settled.len() as u32;
            (self.acknowledging, self.acknowledge_at) = (true, now + pause);
            self.orders.send(Order::Acknowledge(settled))?;
        }
        self.settle_gate();
        self.show();
        Ok(())
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let due_at = self.deliveries.wake_at(now).unwrap_or(now + IDLE);
        let is_waiting = self.deliveries.has_settled() && !self.acknowledging;
        let due_at = if is_waiting { due_at.min(self.acknowledge_at) } else { due_at };
        due_at.min(self.stop_by.unwrap_or(due_at))
    }

    /// Lets in as much as was settled, or was not wanted.
    fn settle_gate(&mut self) {
        let pending = self.deliveries.pending();
        let (count, bytes) = (self.entered.0 - pending.0, self.entered.1 - pending.1);
        if count > 0 {
            self.gate.leave(count, bytes);
            self.entered = pending;
        }
    }

    fn show(&self) {
        let counts = self.deliveries.counts();
        let (pending, pending_bytes) = self.deliveries.pending();
        let failing = match (self.deliveries.is_gone(), self.deliveries.is_failing()) {
            (true, _) => 2,
            (false, is_failing) => u64::from(is_failing),
        };
        let it = &self.counters;
        for (counter, value) in [
            (&it.delivered, counts.delivered),
            (&it.attempts_failed, counts.attempts_failed),
            (&it.dead_letters, counts.dead_letters),
            (&it.missed, counts.missed),
            (&it.conflated, counts.conflated),
            (&it.pending, pending as u64),
            (&it.pending_bytes, pending_bytes as u64),
            (&it.topics, self.deliveries.topics() as u64),
            (
                &it.oldest_pending_timestamp_seconds,
                self.deliveries.oldest_ms().unwrap_or(0) / 1_000,
            ),
            (&it.last_success_timestamp_seconds, counts.last_success_ms / 1_000),
            (&it.failing, failing),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }

    fn log(&self, news: &News) {
        let webhook = &self.name;
        match news {
            News::Failing { error } => {
                tracing::warn!(%webhook, %error, "the endpoint fails; its publications wait");
            }
            News::Recovered => tracing::info!(%webhook, "the endpoint works again"),
            News::Gone => tracing::error!(
                %webhook,
                "the endpoint answered 410: nothing is posted to it any more; remove the webhook, or \
                 mend the endpoint and start the server again"
            ),
            News::Dead(Letter::Undelivered(posting, trouble)) => {
                let (topic, sequence) = (&posting.topic, posting.position.sequence);
                let (attempts, error) = (trouble.attempts, &trouble.error);
                tracing::warn!(%webhook, %topic, %sequence, attempts, %error, "not delivered: a dead letter");
            }
            News::Dead(Letter::Missed(missed)) => {
                let from = missed.from.map_or("?".into(), |from| from.to_string());
                let (topic, to) = (&missed.topic, missed.position.sequence);
                let reason = missed.reason.name();
                tracing::warn!(%webhook, %topic, from, %to, reason, "missed: cannot be had any more");
            }
        }
    }
}

/// The threads that post or keep have ended. They do so before the driver only by a panic, and that ends the process.
#[derive(Debug)]
struct Deserted;

impl<T> From<SendError<T>> for Deserted {
    fn from(_: SendError<T>) -> Self {
        Self
    }
}

/// Posts what it is given until nobody has anything any more. Several do so side by side.
pub(crate) fn post_all(
    poster: &Poster,
    jobs: &Mutex<Receiver<Arc<Posting>>>,
    inputs: &Sender<Input>,
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(posting) = job else { return };
        let outcome = poster.post(&posting);
        if inputs.send(Input::Attempted(posting.topic.clone(), outcome)).is_err() {
            return;
        }
    }
}

/// Spreads pauses: SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// The next number from 0 to 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 33) as f64 / f64::from(1u32 << 31)
    }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use model::{Limits, PayloadKind, Selector};

    use super::*;
    use crate::deliveries::Rules;
    use crate::posting::tests::posting;
    use crate::schedule::Schedule;

    #[test]
    fn it_stops_when_nobody_posts_any_more() {
        let limits = Limits::default();
        let rules = Rules {
            letters: TopicName::parse("webhooks/own/dead", &limits).expect("valid"),
            topics: vec![Selector::parse("#", &limits).expect("valid")],
            schedule: Schedule { pause_min: IDLE, pause_max: IDLE },
            attempts_max: 3,
            concurrency: 1,
            ahead_max: 3,
            topics_max: 3,
        };
        let ((heard, inputs), (jobs, _), (orders, _)) = (channel(), channel(), channel());
        let gate = Arc::new(Gate::new(&limits));
        let driver = Driver {
            name: "own".into(),
            deliveries: Deliveries::new(rules),
            counters: Arc::default(),
            gate: Arc::clone(&gate),
            inputs,
            jobs,
            orders,
            random: Random(1),
            entered: (0, 0),
            acknowledging: false,
            acknowledge_at: Instant::now(),
            stop_by: None,
        };
        gate.enter(1, 4);
        let publication = posting("a", 1, PayloadKind::Text, b"four");
        heard.send(Input::Publication(publication)).expect("the driver listens");
        driver.run();
        assert!(heard.send(Input::Acknowledged).is_err(), "it has ended");
        let passage = gate.wait(Duration::ZERO);
        assert_eq!(passage, crate::gate::Passage::Shut, "and nothing is read for it any more");
    }
}
