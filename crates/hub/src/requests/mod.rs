//! Requests between sessions: who handles them, where they are, and what became of each.
//!
//! A request lives in two places. The shard of whoever asks has it *pending*: it alone tells the outcome, once,
//! at the deadline at the latest. The shard of whoever was asked has it *open*: it knows how many each handler
//! has, and what comes too late. Registrations are known to every shard, so that a request takes one hop.

#[cfg(any(test, feature = "checks"))]
pub(crate) mod checks;
mod handlers;
mod keyed;
mod mail;
mod open;
mod output;
mod search;
mod searching;
mod ticket;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::planted::{Fault, is_planted};
use model::{
    Asked, Capacity, Code, HashMap, Limits, Refusal, Request, Respond, Selector, Unanswered,
};

use self::handlers::Handlers;
pub use self::handlers::Registration;
use self::keyed::{KeyName, Keys};
pub use self::mail::{Ask, AskByKey, Outcome, RequestMail};
use self::open::OpenRequests;
pub use self::output::{RequestCounters, RequestOutput};
pub use self::search::Accepts;
use self::search::{Search, Wanted};
pub(crate) use self::ticket::Ticket;
use crate::tables::connections::{ConnectionId, ShardConnection};
use crate::tables::index::{ShardIndex, home_shard_of};

const FULL: &str = "cannot ask now: the shard waits for requests_open_max answers; try again later";

#[derive(Debug)]
struct Pending<A> {
    due: Duration,
    asker: PendingAsker<A>,
    rest: Rest,
}

/// A `handle` of which some shards are yet to know.
#[derive(Debug)]
struct Registering {
    link: ConnectionId,
    unanswered: usize,
}

#[derive(Clone, Debug)]
enum PendingAsker<A> {
    Outside(A),
    Key(KeyName),
}

#[derive(Debug)]
enum Rest {
    /// One handler has it, or the home of its key.
    One,
    /// One has it; if that one is full, or handles it no more, these are asked, the last first.
    Others(Box<(Vec<Registration>, Ask)>),
    /// So many have it; so many of those answered, and so many did not.
    All { waiting: u64, answered: u64, missing: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Pending(u64),
    Open(u64),
}

/// The requests of one shard. `A` is the caller's name for whoever asks.
#[derive(Debug)]
pub struct Requests<A> {
    shard: ShardIndex,
    shard_count: u16,
    limits: Limits,
    handlers: Handlers,
    /// The `handle`s of which some shards are yet to know, by number.
    registering: HashMap<u64, Registering>,
    /// How many `handle`s there were.
    registered: u64,
    /// What each session takes that handles something.
    capacities: HashMap<ConnectionId, Capacity>,
    /// How many devices each session has that has some.
    devices: HashMap<ConnectionId, usize>,
    pending: HashMap<u64, Pending<A>>,
    /// How many requests there were.
    begun: u64,
    open: OpenRequests,
    keys: Keys,
    dues: BTreeSet<(Duration, Due)>,
    outputs: VecDeque<RequestOutput<A>>,
    /// Requests for which many handlers must be looked at.
    searches: VecDeque<Search>,
    counters: RequestCounters,
    work: u64,
}

/// What becomes of a request whose handler is none any more, and did nothing about it.
fn just_ended() -> Outcome {
    let text = "cannot have it answered: the session that handled it just ended that; ask again";
    Outcome::refused(Code::NoHandler, text)
}

impl<A: Clone> Requests<A> {
    /// A shard's requests: none.
    pub fn new(shard: ShardIndex, shard_count: u16, limits: Limits) -> Self {
        Self {
            shard,
            shard_count,
            limits,
            handlers: Handlers::default(),
            registering: HashMap::default(),
            registered: 0,
            capacities: HashMap::default(),
            devices: HashMap::default(),
            pending: HashMap::default(),
            begun: 0,
            open: OpenRequests::default(),
            keys: Keys::default(),
            dues: BTreeSet::new(),
            outputs: VecDeque::new(),
            searches: VecDeque::new(),
            counters: RequestCounters::default(),
            work: 0,
        }
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<RequestOutput<A>> {
        self.outputs.pop_front()
    }

    /// Whether something is to be done now.
    pub fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Handlers looked at so far.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// When the next deadline is, or anything else is to be done.
    pub fn due_at(&self) -> Option<Duration> {
        if !self.searches.is_empty() {
            return Some(Duration::ZERO);
        }
        self.dues.first().map(|(due, _)| *due)
    }

    /// What was counted.
    pub fn counters(&self) -> RequestCounters {
        let (open, handlers) = (self.open.len() as u64, self.handlers.len() as u64);
        RequestCounters { open, handlers, ..self.counters }
    }

    fn mail(&mut self, to: ShardIndex, mail: RequestMail, now: Duration) {
        if to == self.shard {
            self.handle_mail(to, mail, now);
        } else {
            self.outputs.push_back(RequestOutput::Mail(to, mail));
        }
    }

    /// Lets a session of this shard handle selectors. Once every shard knows, `Registered` says so.
    pub fn register(
        &mut self,
        registrations: Vec<Registration>,
        capacity: Capacity,
        now: Duration,
    ) -> Result<(), Refusal> {
        if self.handlers.len() + registrations.len() > self.limits.handlers_max {
            let text = format!(
                "cannot handle more: handlers_max is {}; use a pattern, or raise the limit in the \
                 configuration",
                self.limits.handlers_max
            );
            return Err(Refusal::new(Code::TooManySubscriptions, text));
        }
        let Some(first) = registrations.first() else { return Ok(()) };
        let link = first.connection.id;
        self.capacities.insert(link, capacity);
        let unanswered = registrations.len() * usize::from(self.shard_count);
        self.registered += 1;
        let number = self.registered;
        self.registering.insert(number, Registering { link, unanswered });
        for registration in registrations {
            for shard in 0..self.shard_count {
                let mail = RequestMail::Register(Box::new(registration.clone()), number);
                self.mail(ShardIndex(shard), mail, now);
            }
        }
        Ok(())
    }

    /// Ends what a session of this shard handles: one selector, or all. Requests that it has stay open, unless it
    /// is gone.
    pub fn unregister(&mut self, link: ConnectionId, only: Option<&Selector>, now: Duration) {
        for shard in 0..self.shard_count {
            let mail = RequestMail::Unregister(link, only.cloned());
            self.mail(ShardIndex(shard), mail, now);
        }
    }

    /// Notes how many devices a session has.
    pub fn set_devices(&mut self, link: ConnectionId, count: usize) {
        match count {
            0 => self.devices.remove(&link),
            count => self.devices.insert(link, count),
        };
    }

    /// Hears that a connection of this shard ended that may have had requests.
    pub fn handle_gone(&mut self, link: ConnectionId, now: Duration) {
        self.capacities.remove(&link);
        self.registering.retain(|_, known| known.link != link);
        for number in self.open.numbers_of(link) {
            let Some(open) = self.open.remove(number) else { continue };
            self.dues.remove(&(open.due, Due::Open(number)));
            let text = "whoever had the request ended before it answered: it may have been carried \
                        out; ask again if that does no harm";
            self.settle(open.ticket, Outcome::refused(Code::HandlerGone, text), now);
        }
    }

    /// Has a request answered by whoever handles it; `asker` hears the outcome.
    pub fn ask(
        &mut self,
        asker: A,
        request: Request,
        (session, principal): (Arc<str>, Arc<str>),
        accepts: Option<Accepts>,
        now: Duration,
    ) {
        let due = now + request.timeout;
        let Some(ticket) = self.begin(PendingAsker::Outside(asker.clone()), due) else {
            return self.refuse_full(asker);
        };
        match &request.key {
            Some(key) if !request.to.all => {
                let home = home_of_key(&principal, key, self.shard_count);
                let by_key = AskByKey { ticket, request, due, session, principal };
                self.mail(home, RequestMail::AskByKey(Box::new(by_key)), now);
            }
            _ => self.route(ticket, request, (session, principal), accepts, now),
        }
    }

    /// Notes a request whose handler is found elsewhere: what comes of it goes to [`Requests::forward`] or
    /// [`Requests::refuse`], on whichever shard knows.
    pub fn prepare(
        &mut self,
        asker: A,
        request: Request,
        (session, principal): (Arc<str>, Arc<str>),
        now: Duration,
    ) -> Option<Box<Ask>> {
        let due = now + request.timeout;
        let Some(ticket) = self.begin(PendingAsker::Outside(asker.clone()), due) else {
            self.refuse_full(asker);
            return None;
        };
        let Request { topic, payload, .. } = request;
        let handled_as = None;
        Some(Box::new(Ask { ticket, handled_as, topic, payload, due, session, principal }))
    }

    /// Sends a prepared request to a connection, whatever that handles.
    pub fn forward(&mut self, ask: Box<Ask>, to: ShardConnection, now: Duration) {
        self.mail(to.shard, RequestMail::Ask(to.id, ask), now);
    }

    /// Says why a prepared request has no answer.
    pub fn refuse(&mut self, ask: &Ask, refusal: Refusal, now: Duration) {
        self.settle(ask.ticket, Outcome { result: Err(refusal) }, now);
    }

    fn refuse_full(&mut self, asker: A) {
        let outcome = Outcome::refused(Code::TooManyRequests, FULL);
        self.counters.refused += 1;
        self.outputs.push_back(RequestOutput::Answer { asker, outcome, has_more: false });
    }

    fn begin(&mut self, asker: PendingAsker<A>, due: Duration) -> Option<Ticket> {
        self.counters.requests += u64::from(matches!(asker, PendingAsker::Outside(_)));
        if self.pending.len() >= self.limits.requests_open_max {
            return None;
        }
        self.begun += 1;
        let number = match is_planted(Fault::TicketGivenTwice) {
            true => (1..).find(|number| !self.pending.contains_key(number))?,
            false => self.begun,
        };
        self.pending.insert(number, Pending { due, asker, rest: Rest::One });
        self.dues.insert((due, Due::Pending(number)));
        Some(Ticket { shard: self.shard, number })
    }

    /// Finds who is to answer a pending request.
    fn route(
        &mut self,
        ticket: Ticket,
        request: Request,
        (session, principal): (Arc<str>, Arc<str>),
        accepts: Option<Accepts>,
        now: Duration,
    ) {
        let Request { topic, payload, to, .. } = request;
        let Some(pending) = self.pending.get(&ticket.number) else { return };
        let (handled_as, due) = (None, pending.due);
        let ask = Ask { ticket, handled_as, topic, payload, due, session, principal };
        self.find(ask, Wanted::new(to, accepts), now);
    }

    fn send_ask(&mut self, to: &Registration, ask: &Ask, now: Duration) {
        let handled_as = Some(to.selector.clone());
        let ask = Box::new(Ask { handled_as, ..ask.clone() });
        self.forward(ask, to.connection, now);
    }

    /// Hears another shard, or this one.
    pub fn handle_mail(&mut self, from: ShardIndex, mail: RequestMail, now: Duration) {
        match mail {
            RequestMail::Register(registration, number) => {
                self.handlers.add(*registration);
                self.mail(from, RequestMail::Registered(number), now);
            }
            RequestMail::Registered(number) => self.handle_registered(number),
            RequestMail::Unregister(id, only) => {
                self.handlers.remove(ShardConnection { shard: from, id }, only.as_ref());
            }
            RequestMail::Ask(link, ask) => self.handle_ask(link, *ask, now),
            RequestMail::AskByKey(by_key) => self.handle_ask_by_key(*by_key, now),
            RequestMail::Settle(ticket, outcome) => self.handle_outcome(ticket, *outcome, now),
        }
    }

    fn handle_registered(&mut self, number: u64) {
        let Some(registering) = self.registering.get_mut(&number) else { return };
        registering.unanswered -= 1;
        if registering.unanswered == 0
            && let Some(Registering { link, .. }) = self.registering.remove(&number)
        {
            self.outputs.push_back(RequestOutput::Registered { link });
        }
    }

    /// How many requests may be open with a connection: a session, for what it handles and for its devices, or a
    /// device.
    fn capacity_of(&self, link: ConnectionId) -> usize {
        let of_device = self.limits.device_requests_max;
        let handled = self.capacities.get(&link).map(|capacity| capacity.concurrency);
        match (handled, self.devices.get(&link)) {
            (None, None) => of_device,
            (handled, devices) => handled.unwrap_or(0) + devices.copied().unwrap_or(0) * of_device,
        }
    }

    fn handle_ask(&mut self, link: ConnectionId, ask: Ask, now: Duration) {
        let Ask { ticket, handled_as, topic, payload, due, session, principal } = ask;
        let name = ShardConnection { shard: self.shard, id: link };
        if handled_as.is_some_and(|selector| !self.handlers.has(name, &selector)) {
            return self.settle(ticket, just_ended(), now);
        }
        let bytes_max = self.capacities.get(&link).and_then(|capacity| capacity.payload_bytes_max);
        if let Some(bytes_max) = bytes_max.filter(|bytes_max| payload.bytes().len() > *bytes_max) {
            let text = format!(
                "cannot have it answered: the payload has {} bytes, and whoever handles this takes {bytes_max}; \
                 send less at a time",
                payload.bytes().len()
            );
            return self.settle(ticket, Outcome::refused(Code::PayloadTooLarge, text), now);
        }
        let is_full = self.open.count_of(link) >= self.capacity_of(link)
            || self.open.len() >= self.limits.requests_open_max;
        if is_full {
            let text = "cannot ask now: whoever handles this has as many requests open as it may; ask again \
                        later, or have more sessions handle it";
            return self.settle(ticket, Outcome::refused(Code::TooManyRequests, text), now);
        }
        let request = self.open.insert(ticket, link, due);
        self.dues.insert((due, Due::Open(request)));
        let timeout = due.saturating_sub(now);
        let asked = Asked { request, topic, payload, timeout, session, principal };
        self.outputs.push_back(RequestOutput::Tell { link, asked });
    }

    /// Takes a request back whose handler is not there any more, before anything was told.
    pub fn take_back(&mut self, request: u64, refusal: Refusal, now: Duration) {
        if let Some(open) = self.open.remove(request) {
            self.dues.remove(&(open.due, Due::Open(request)));
            self.settle(open.ticket, Outcome { result: Err(refusal) }, now);
        }
    }

    /// Whether a request is open still.
    pub fn is_open(&self, request: u64) -> bool {
        self.open.get(request).is_some()
    }

    /// Whether a request is open with a connection.
    pub fn is_for(&self, request: u64, link: ConnectionId) -> bool {
        self.open.get(request).is_some_and(|open| open.link == link)
    }

    fn handle_ask_by_key(&mut self, by_key: AskByKey, now: Duration) {
        let AskByKey { ticket, request, due, session, principal } = by_key;
        let Some(key) = request.key.as_deref() else { return };
        let window = self.limits.idempotency_window_ms;
        let Limits { idempotency_keys_max, request_outcomes_bytes_max, .. } = self.limits;
        let before = now.saturating_sub(window);
        self.keys.forget(before, idempotency_keys_max, request_outcomes_bytes_max);
        let name: KeyName = (Arc::clone(&principal), request.topic.clone(), key.into());
        self.keys.forget_waiting(now);
        let is_full = self.keys.waiting_count() >= self.limits.requests_open_max;
        if is_full && !self.keys.has_outcome(&name) {
            return self.settle(ticket, Outcome::refused(Code::TooManyRequests, FULL), now);
        }
        match self.keys.ask(name.clone(), ticket, due) {
            (Some(outcome), _) => self.settle(ticket, outcome, now),
            (None, false) => {}
            (None, true) => match self.begin(PendingAsker::Key(name.clone()), due) {
                // A request has a key or a filter, not both.
                Some(own) => self.route(own, request, (session, principal), None, now),
                None => {
                    let outcome = Outcome::refused(Code::TooManyRequests, FULL);
                    for ticket in self.keys.settle(name, &outcome, now) {
                        self.settle(ticket, outcome.clone(), now);
                    }
                }
            },
        }
    }

    /// Takes an answer from a connection of this shard.
    ///
    /// # Errors
    /// That request is not open with it.
    pub fn respond(
        &mut self,
        link: ConnectionId,
        respond: Respond,
        name: Arc<str>,
        now: Duration,
    ) -> Result<(), Refusal> {
        let Respond { request, result } = respond;
        let is_its_own = |open: &open::Open| open.link == link;
        // The deadline may have come and its timer not yet.
        let is_due = |open: &open::Open| open.due <= now;
        let open = self.open.get(request).filter(|open| is_its_own(open));
        if open.is_none_or(is_due) {
            self.counters.late_answers += 1;
            let text = format!(
                "cannot take the answer to request {request}: it is not open with this session: it was \
                 answered already, or its time was up; answer sooner"
            );
            return Err(Refusal::new(Code::NoRequest, text));
        }
        let Some(open) = self.open.remove(request) else { return Ok(()) };
        self.dues.remove(&(open.due, Due::Open(request)));
        let outcome = match result {
            Ok(payload) => Outcome { result: Ok((name, payload)) },
            Err(Unanswered::Declined(text)) => Outcome::refused(Code::Declined, text),
            Err(Unanswered::NotHandled) => just_ended(),
        };
        self.settle(open.ticket, outcome, now);
        Ok(())
    }

    /// Takes an outcome to the shard that waits for it.
    fn settle(&mut self, ticket: Ticket, outcome: Outcome, now: Duration) {
        self.mail(ticket.shard, RequestMail::Settle(ticket, Box::new(outcome)), now);
    }

    fn handle_outcome(&mut self, ticket: Ticket, outcome: Outcome, now: Duration) {
        let Some(pending) = self.pending.get_mut(&ticket.number) else { return };
        match &mut pending.rest {
            Rest::Others(rest) if outcome.is_left_to_others() && !rest.0.is_empty() => {
                let Some(next) = rest.0.pop() else { return };
                let ask = rest.1.clone();
                return self.send_ask(&next, &ask, now);
            }
            Rest::All { waiting, answered, missing } => {
                *waiting -= 1;
                match &outcome.result {
                    Ok(_) => *answered += 1,
                    Err(_) => *missing += 1,
                }
                let is_last = *waiting == 0;
                if outcome.result.is_ok()
                    && let PendingAsker::Outside(asker) = pending.asker.clone()
                {
                    self.outputs.push_back(RequestOutput::Answer {
                        asker,
                        outcome,
                        has_more: true,
                    });
                }
                if is_last {
                    self.end_all(ticket.number);
                }
                return;
            }
            Rest::One | Rest::Others(_) => {}
        }
        self.end(ticket.number, outcome, now);
    }

    fn end(&mut self, number: u64, outcome: Outcome, now: Duration) {
        let Some(pending) = self.pending.remove(&number) else { return };
        self.dues.remove(&(pending.due, Due::Pending(number)));
        match pending.asker {
            PendingAsker::Outside(asker) => {
                match &outcome.result {
                    Ok(_) => self.counters.answered += 1,
                    Err(refusal) => {
                        self.counters.refused += 1;
                        self.counters.timed_out += u64::from(refusal.code == Code::TimedOut);
                    }
                }
                self.outputs.push_back(RequestOutput::Answer { asker, outcome, has_more: false });
            }
            PendingAsker::Key(key) => {
                for waiting in self.keys.settle(key, &outcome, now) {
                    self.settle(waiting, outcome.clone(), now);
                }
            }
        }
    }

    fn end_all(&mut self, number: u64) {
        let Some(pending) = self.pending.remove(&number) else { return };
        self.dues.remove(&(pending.due, Due::Pending(number)));
        if let (Rest::All { waiting, answered, missing }, PendingAsker::Outside(asker)) =
            (pending.rest, pending.asker)
        {
            self.counters.answered += 1;
            let missing = missing + waiting;
            self.outputs.push_back(RequestOutput::AnswersEnd { asker, count: answered, missing });
        }
    }

    /// Ends what is due, and goes on with what takes several turns.
    pub fn run_timers(&mut self, now: Duration) {
        self.run_searches(now);
        self.keys.forget_waiting(now);
        while let Some((at, due)) = self.dues.first().copied()
            && at <= now
        {
            self.dues.pop_first();
            match due {
                // Whoever asked hears it from its own shard's clock.
                Due::Open(number) => drop(self.open.remove(number)),
                Due::Pending(number) => self.time_out(number, now),
            }
        }
    }

    fn time_out(&mut self, number: u64, now: Duration) {
        let Some(pending) = self.pending.get(&number) else { return };
        if matches!(pending.rest, Rest::All { .. }) {
            return self.end_all(number);
        }
        let text = "the answer did not come within timeout_ms: the request may have been carried out; allow \
                    more time, or look at whoever handles it";
        self.end(number, Outcome::refused(Code::TimedOut, text), now);
    }
}

/// Where requests with a key come together.
fn home_of_key(principal: &str, key: &str, shard_count: u16) -> ShardIndex {
    home_shard_of(&format!("{principal} {key}"), shard_count)
}

#[cfg(test)]
mod tests;
