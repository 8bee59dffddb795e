//! Joins the parts of one webhook: its deliveries, its gate to the server, and the threads that post.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admin::WebhookCounters;
use model::{Gap, HistoryPage, PayloadKind, Position, Publication, Refusal, TopicName};
use server::Told;

use super::dead_letter::{DeadLetter, Missed, With};
use super::deliveries::{Deliveries, Heard, News, Outcome, Page};
use super::delivery::Delivery;
use super::post::Poster;
use crate::gate::{self, Gate, Outgoing, Request, SessionNumber};
use crate::random::Random;
use crate::sessions::Sessions;

/// An event for the driver.
#[derive(Debug)]
pub(crate) enum Input {
    Told(SessionNumber, Told),
    Attempted(TopicName, Outcome),
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
pub(crate) struct Driver {
    pub name: Arc<str>,
    /// The topic of its dead letters.
    pub dead_letters: TopicName,
    pub deliveries: Deliveries,
    pub counters: Arc<WebhookCounters>,
    pub gate: Gate,
    pub sessions: Sessions,
    pub inputs: Receiver<Input>,
    pub jobs: Sender<Arc<Delivery>>,
    pub random: Random,
    /// Publications to fetch at a time.
    pub page_len_max: usize,
    /// Dead letters that are being published, in order.
    pub recording: VecDeque<DeadLetter>,
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
                tracing::error!(webhook = %self.name, "nobody posts any more: the webhook stops");
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
            Input::Told(number, told) => {
                if told == Told::Closed {
                    self.sessions.forget(number);
                }
                self.gate.handle_told(number, told, Instant::now());
                while let Some(heard) = self.gate.poll_heard() {
                    self.hear(heard);
                }
            }
            Input::Attempted(topic, outcome) => {
                let (at, random) = (Instant::now(), self.random.next());
                let heard = Heard { at, unix_ms: unix_ms(), random };
                self.deliveries.handle_outcome(&topic, outcome, heard);
            }
            Input::Stop => self.stop(),
        }
    }

    fn hear(&mut self, heard: gate::Heard) {
        let webhook = &self.name;
        match heard {
            gate::Heard::Publication { topic, position, publication } => {
                let read_ms = unix_ms();
                let delivery = Delivery { topic, position, publication, read_ms };
                self.deliveries.handle_publication(delivery);
            }
            gate::Heard::Gap(gap) => self.deliveries.handle_missed(missed_of(gap)),
            gate::Heard::Acknowledged => self.acknowledging = false,
            gate::Heard::Published(result) => {
                let Some(dead_letter) = self.recording.pop_front() else { return };
                if let Err(error) = result {
                    let json = dead_letter.json(webhook, With::Size);
                    let letter = String::from_utf8_lossy(&json);
                    tracing::error!(%webhook, error = %error.text, %letter, "cannot record a dead letter");
                }
                self.deliveries.handle_recorded(&dead_letter);
            }
            gate::Heard::Page { topic, after, page } => {
                if let Err(error) = &page {
                    tracing::error!(%webhook, %topic, error = %error.text, "cannot read a history");
                }
                self.deliveries.handle_page(page_of(topic, after, page));
            }
            gate::Heard::Trouble(what, refusal) => {
                let error = refusal.map_or_else(String::new, |refusal| refusal.text);
                tracing::warn!(%webhook, %error, "{what}");
            }
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
            && let Some(delivery) = self.deliveries.poll_attempt(now)
        {
            self.jobs.send(delivery)?;
        }
        while let Some(dead_letter) = self.deliveries.poll_dead_letter() {
            self.gate.ask(Request::Publish(self.forms_of(&dead_letter)));
            self.recording.push_back(dead_letter);
        }
        while self.stop_by.is_none()
            && let Some((topic, after)) = self.deliveries.poll_fetch()
        {
            self.gate.ask(Request::Fetch(topic, after, self.page_len_max));
        }
        let is_due = self.acknowledge_at <= now || self.stop_by.is_some();
        if self.deliveries.has_settled() && !self.acknowledging && is_due {
            let settled = self.deliveries.take_settled();
            let pause = ACKNOWLEDGE_EVERY + ACKNOWLEDGE_PAUSE * settled.len() as u32;
            (self.acknowledging, self.acknowledge_at) = (true, now + pause);
            self.gate.ask(Request::Acknowledge(settled));
        }
        let (count, bytes) = self.deliveries.pending();
        self.gate.handle_pending(count, bytes);
        while let Some(action) = self.gate.poll_action(now) {
            self.sessions.carry_out(action);
        }
        while let Some(heard) = self.gate.poll_heard() {
            self.hear(heard);
        }
        self.show();
        Ok(())
    }

    /// A dead letter as it may be published: without its payload if it is too large with it.
    fn forms_of(&self, dead_letter: &DeadLetter) -> VecDeque<Outgoing> {
        let form = |with| Outgoing {
            topic: self.dead_letters.clone(),
            kind: PayloadKind::Json,
            payload: dead_letter.json(&self.name, with),
            key: dead_letter.id(),
        };
        [With::Payload, With::Size].map(form).into()
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let due_at = self.deliveries.wake_at(now).unwrap_or(now + IDLE);
        let is_waiting = self.deliveries.has_settled() && !self.acknowledging;
        let due_at = if is_waiting { due_at.min(self.acknowledge_at) } else { due_at };
        let due_at = due_at.min(self.gate.wake_at().unwrap_or(due_at));
        due_at.min(self.stop_by.unwrap_or(due_at))
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
            News::Dead(DeadLetter::Undelivered(delivery, failures)) => {
                let (topic, sequence) = (&delivery.topic, delivery.position.sequence);
                let (attempts, error) = (failures.attempts, &failures.error);
                tracing::warn!(%webhook, %topic, %sequence, attempts, %error, "not delivered: a dead letter");
            }
            News::Dead(DeadLetter::Missed(missed)) => {
                let from = missed.from.map_or("?".into(), |from| from.to_string());
                let (topic, to) = (&missed.topic, missed.position.sequence);
                let reason = missed.reason.name();
                tracing::warn!(%webhook, %topic, from, %to, reason, "missed: cannot be had any more");
            }
        }
    }
}

/// The threads that post have ended. They do so before the driver only by a panic, and that ends the process.
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
    jobs: &Mutex<Receiver<Arc<Delivery>>>,
    inputs: &Sender<Input>,
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(delivery) = job else { return };
        let outcome = poster.post(&delivery);
        if inputs.send(Input::Attempted(delivery.topic.clone(), outcome)).is_err() {
            return;
        }
    }
}

fn missed_of(gap: Gap) -> Missed {
    let Gap { topic, epoch, from, to, reason, .. } = gap;
    let position = Position { epoch, sequence: to };
    Missed { topic, position, from, reason, read_ms: unix_ms() }
}

/// The part of a topic's history after `after`. If that was refused it has nothing, as far as one can tell.
fn page_of(topic: TopicName, after: Position, page: Result<HistoryPage, Refusal>) -> Page {
    let read_ms = unix_ms();
    let Ok(HistoryPage { position, after, publications }) = page else {
        return Page { topic, after, publications: Vec::new(), read_ms };
    };
    let at = |sequence| Position { epoch: position.epoch.clone(), sequence };
    let delivery = |publication: Publication| Delivery {
        topic: topic.clone(),
        position: at(publication.sequence()),
        read_ms: publication.unix_ms(),
        publication,
    };
    let publications = publications.into_iter().map(delivery).collect();
    Page { after: at(after), publications, read_ms, topic }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use engine::{Waker, mailbox};
    use model::{Epoch, Limits, Moment, Payload, Principal, Selector, Sequence};
    use server::Port;

    use super::*;
    use crate::positions::PositionStore;
    use crate::webhooks::deliveries::Rules;
    use crate::webhooks::schedule::Schedule;

    fn told() -> Told {
        let sequence = Sequence::START.next();
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        let payload = Payload::new(PayloadKind::Text, b"four");
        Told::Publication {
            topic: TopicName::parse("a", &Limits::default()).expect("valid"),
            position: Position { epoch: Epoch::new("e1"), sequence },
            publication: Publication::new(payload, sequence, now),
        }
    }

    #[test]
    fn it_stops_when_nobody_posts_any_more() {
        let limits = Limits::default();
        let dead_letters = TopicName::parse("webhooks/own/dead", &limits).expect("valid");
        let topics = vec![Selector::parse("#", &limits).expect("valid")];
        let rules = Rules {
            dead_letters: dead_letters.clone(),
            topics: topics.clone(),
            schedule: Schedule { pause_min: IDLE, pause_max: IDLE },
            attempts_max: 3,
            concurrency: 1,
            ahead_max: 3,
            topics_max: 3,
        };
        let gate = Gate::new(gate::Rules {
            topics,
            positions: PositionStore::default(),
            limits: limits.clone(),
            pending_max: 1,
            pending_bytes_max: 1,
        });
        let ((heard, inputs), (jobs, _)) = (channel(), channel());
        let (shard, _mailbox) = mailbox(100, Waker::none());
        let sessions = Sessions {
            port: Port::new(vec![shard], &limits),
            name: "own".into(),
            principal: Arc::new(Principal::unlimited("$webhooks")),
            hear: Arc::new(|_, _| {}),
            open: Vec::new(),
        };
        let driver = Driver {
            name: "own".into(),
            dead_letters,
            deliveries: Deliveries::new(rules),
            counters: Arc::default(),
            gate,
            sessions,
            inputs,
            jobs,
            random: Random(1),
            page_len_max: 1,
            recording: VecDeque::new(),
            acknowledging: false,
            acknowledge_at: Instant::now(),
            stop_by: None,
        };
        // The first session asks, the second reads.
        heard.send(Input::Told(SessionNumber(2), told())).expect("the driver listens");
        driver.run();
        assert!(heard.send(Input::Stop).is_err(), "it has ended, and its sessions with it");
    }
}
