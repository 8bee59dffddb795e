//! Requests between sessions: who handles them, where they are, and what became of each.
//!
//! A request lives in two places. The shard of whoever asks has it *pending*: it alone tells the outcome, once,
//! at the deadline at the latest. The shard of whoever was asked has it *open*: it knows how many each handler
//! has, and what comes too late. Registrations are known to every shard, so that a request takes one hop.

mod handlers;
mod keyed;
mod mail;
mod open;
mod output;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::{Asked, Capacity, Code, Limits, Refusal, Request, Respond, Selector};
use slab::Slab;

use self::handlers::Handlers;
pub use self::handlers::Registration;
use self::keyed::{KeyName, Keys};
pub use self::mail::{Ask, AskByKey, Outcome, RequestMail};
use self::open::OpenRequests;
pub use self::output::{RequestCounters, RequestOutput};
use crate::index::{ShardIndex, home_shard_of};

/// Handlers that are tried for one request, one after the other, while they are full.
const CANDIDATES_MAX: usize = 16;

/// A pending request: the asking shard in the upper 16 bits, then a generation, then a slot.
pub(crate) type Ticket = u64;

/// Decides whether a handler may be asked.
pub type Accepts<'a> = &'a dyn Fn(&Registration) -> bool;

#[derive(Debug)]
struct Pending<A> {
    generation: u16,
    due: Duration,
    asker: PendingAsker<A>,
    rest: Rest,
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
    /// One has it; if that one is full these are asked, the last first.
    Others(Box<(Vec<Registration>, Ask)>),
    /// So many have it; so many of those answered, and so many did not.
    All { waiting: u64, answered: u64, missing: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Pending(Ticket),
    Open(u64),
}

/// The requests of one shard. `A` is the caller's name for whoever asks.
#[derive(Debug)]
pub struct Requests<A> {
    shard: ShardIndex,
    shard_count: u16,
    limits: Limits,
    handlers: Handlers,
    /// How many shards are yet to know of a registration, by its connection.
    registering: Vec<(u32, u32, usize)>,
    /// What each session takes that handles something.
    capacities: HashMap<u32, Capacity>,
    /// How many devices each session has that has some.
    devices: HashMap<u32, usize>,
    pending: Slab<Pending<A>>,
    generations: u16,
    open: OpenRequests,
    keys: Keys,
    dues: BTreeSet<(Duration, Due)>,
    outputs: VecDeque<RequestOutput<A>>,
    counters: RequestCounters,
}

impl<A: Clone> Requests<A> {
    /// A shard's requests: none.
    pub fn new(shard: ShardIndex, shard_count: u16, limits: Limits) -> Self {
        Self {
            shard,
            shard_count,
            limits,
            handlers: Handlers::default(),
            registering: Vec::new(),
            capacities: HashMap::new(),
            devices: HashMap::new(),
            pending: Slab::new(),
            generations: 0,
            open: OpenRequests::default(),
            keys: Keys::default(),
            dues: BTreeSet::new(),
            outputs: VecDeque::new(),
            counters: RequestCounters::default(),
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

    /// When the next deadline is.
    pub fn due_at(&self) -> Option<Duration> {
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
        let Some(Registration { link, serial, .. }) = registrations.first() else { return Ok(()) };
        let (link, serial) = (*link, *serial);
        self.capacities.insert(link, capacity);
        let waits = registrations.len() * usize::from(self.shard_count);
        self.registering.push((link, serial, waits));
        for registration in registrations {
            for shard in 0..self.shard_count {
                let mail = RequestMail::Register(Box::new(registration.clone()));
                self.mail(ShardIndex(shard), mail, now);
            }
        }
        Ok(())
    }

    /// Ends what a session of this shard handles: one selector, or all. Requests that it has stay open, unless it
    /// is gone.
    pub fn unregister(&mut self, link: u32, serial: u32, only: Option<&Selector>, now: Duration) {
        for shard in 0..self.shard_count {
            let mail = RequestMail::Unregister(link, serial, only.cloned());
            self.mail(ShardIndex(shard), mail, now);
        }
    }

    /// Notes how many devices a session has.
    pub fn set_devices(&mut self, link: u32, count: usize) {
        match count {
            0 => self.devices.remove(&link),
            count => self.devices.insert(link, count),
        };
    }

    /// Hears that a connection of this shard ended that may have had requests.
    pub fn handle_gone(&mut self, link: u32, now: Duration) {
        self.capacities.remove(&link);
        self.registering.retain(|(known, ..)| *known != link);
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
        accepts: Accepts<'_>,
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
        Some(Box::new(Ask { ticket, link: 0, serial: 0, topic, payload, due, session, principal }))
    }

    /// Sends a prepared request to a connection, whatever that handles.
    pub fn forward(
        &mut self,
        mut ask: Box<Ask>,
        (shard, link, serial): (ShardIndex, u32, u32),
        now: Duration,
    ) {
        (ask.link, ask.serial) = (link, serial);
        self.mail(shard, RequestMail::Ask(ask), now);
    }

    /// Says why a prepared request has no answer.
    pub fn refuse(&mut self, ask: &Ask, refusal: Refusal, now: Duration) {
        self.settle(ask.ticket, Outcome { result: Err(refusal) }, now);
    }

    fn refuse_full(&mut self, asker: A) {
        let text = "cannot ask now: the shard waits for requests_open_max answers; try again later";
        let outcome = Outcome::refused(Code::TooManyRequests, text);
        self.counters.refused += 1;
        self.outputs.push_back(RequestOutput::Answer { asker, outcome, has_more: false });
    }

    fn begin(&mut self, asker: PendingAsker<A>, due: Duration) -> Option<Ticket> {
        self.counters.requests += u64::from(matches!(asker, PendingAsker::Outside(_)));
        if self.pending.len() >= self.limits.requests_open_max {
            return None;
        }
        self.generations = self.generations.wrapping_add(1);
        let generation = self.generations;
        let slot = self.pending.insert(Pending { generation, due, asker, rest: Rest::One });
        let ticket = u64::from(self.shard.0) << 48 | u64::from(generation) << 32 | slot as u64;
        self.dues.insert((due, Due::Pending(ticket)));
        Some(ticket)
    }

    fn slot_of(&self, ticket: Ticket) -> Option<usize> {
        let slot = (ticket & u64::from(u32::MAX)) as usize;
        let pending = self.pending.get(slot)?;
        (u64::from(pending.generation) == ticket >> 32 & 0xFFFF).then_some(slot)
    }

    /// Finds who is to answer a pending request.
    fn route(
        &mut self,
        ticket: Ticket,
        request: Request,
        (session, principal): (Arc<str>, Arc<str>),
        accepts: Accepts<'_>,
        now: Duration,
    ) {
        let Request { topic, payload, to, .. } = request;
        let may = |known: &Registration| {
            to.session.as_deref().is_none_or(|session| *session == *known.session)
                && to.principal.as_deref().is_none_or(|it| *it == *known.principal)
                && accepts(known)
        };
        let mut candidates = self.handlers.candidates(&topic, may);
        let Some(slot) = self.slot_of(ticket) else { return };
        let due = self.pending[slot].due;
        let (link, serial) = (0, 0);
        let ask = Ask { ticket, link, serial, topic, payload, due, session, principal };
        if to.all {
            let mut asked: Vec<(ShardIndex, u32)> = Vec::new();
            candidates.retain(|it| {
                let is_new = !asked.contains(&(it.shard, it.link));
                asked.push((it.shard, it.link));
                is_new
            });
            let waiting = candidates.len() as u64;
            self.pending[slot].rest = Rest::All { waiting, answered: 0, missing: 0 };
            if waiting == 0 {
                self.end_all(slot);
            }
            for candidate in candidates {
                self.send_ask(&candidate, &ask, now);
            }
            return;
        }
        // A few more than the first, should that one be full.
        candidates.truncate(CANDIDATES_MAX);
        candidates.reverse();
        match candidates.pop() {
            None => {
                let text = format!(
                    "cannot have `{}` answered: no session handles it, or none of those that may answer \
                     this; start one that does, and ask again",
                    ask.topic
                );
                self.settle(ticket, Outcome::refused(Code::NoHandler, text), now);
            }
            Some(first) => {
                if !candidates.is_empty() {
                    self.pending[slot].rest = Rest::Others(Box::new((candidates, ask.clone())));
                }
                self.send_ask(&first, &ask, now);
            }
        }
    }

    fn send_ask(&mut self, to: &Registration, ask: &Ask, now: Duration) {
        let ask = Ask { link: to.link, serial: to.serial, ..ask.clone() };
        self.mail(to.shard, RequestMail::Ask(Box::new(ask)), now);
    }

    /// Hears another shard, or this one.
    pub fn handle_mail(&mut self, from: ShardIndex, mail: RequestMail, now: Duration) {
        match mail {
            RequestMail::Register(registration) => {
                let (link, serial) = (registration.link, registration.serial);
                self.handlers.add(*registration);
                self.mail(from, RequestMail::Registered(link, serial), now);
            }
            RequestMail::Registered(link, serial) => self.handle_registered(link, serial),
            RequestMail::Unregister(link, serial, only) => {
                self.handlers.remove(from, link, serial, only.as_ref());
            }
            RequestMail::Ask(ask) => self.handle_ask(*ask, now),
            RequestMail::AskByKey(by_key) => self.handle_ask_by_key(*by_key, now),
            RequestMail::Settle(ticket, outcome) => self.handle_outcome(ticket, *outcome, now),
        }
    }

    fn handle_registered(&mut self, link: u32, serial: u32) {
        let mut waits = self.registering.iter_mut();
        let Some(wait) = waits.find(|(known, number, _)| (*known, *number) == (link, serial))
        else {
            return;
        };
        wait.2 -= 1;
        if wait.2 == 0 {
            self.registering
                .retain(|(known, number, left)| (*known, *number) != (link, serial) || *left > 0);
            self.outputs.push_back(RequestOutput::Registered { link, serial });
        }
    }

    /// How many requests may be open with a connection: a session, for what it handles and for its devices, or a
    /// device.
    fn capacity_of(&self, link: u32) -> usize {
        let of_device = self.limits.device_requests_max;
        let handled = self.capacities.get(&link).map(|capacity| capacity.concurrency);
        match (handled, self.devices.get(&link)) {
            (None, None) => of_device,
            (handled, devices) => handled.unwrap_or(0) + devices.copied().unwrap_or(0) * of_device,
        }
    }

    fn handle_ask(&mut self, ask: Ask, now: Duration) {
        let Ask { ticket, link, serial, topic, payload, due, session, principal } = ask;
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
        let request = self.open.insert(ticket, link, serial, due);
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

    /// Whether the connection of an open request is still the one that it was for.
    pub fn is_for(&self, request: u64, serial: u32) -> bool {
        self.open.get(request).is_some_and(|open| open.serial == serial)
    }

    fn handle_ask_by_key(&mut self, by_key: AskByKey, now: Duration) {
        let AskByKey { ticket, request, due, session, principal } = by_key;
        let Some(key) = request.key.clone() else { return };
        let window = self.limits.idempotency_window_ms;
        let Limits { idempotency_keys_max, request_outcomes_bytes_max, .. } = self.limits;
        let before = now.saturating_sub(window);
        self.keys.forget(before, idempotency_keys_max, request_outcomes_bytes_max);
        let name: KeyName = (Arc::clone(&principal), request.topic.clone(), key);
        match self.keys.ask(name.clone(), ticket) {
            (Some(outcome), _) => self.settle(ticket, outcome, now),
            (None, false) => {}
            (None, true) => match self.begin(PendingAsker::Key(name.clone()), due) {
                // A request has a key or a filter, not both.
                Some(own) => self.route(own, request, (session, principal), &|_| true, now),
                None => {
                    let text = "cannot ask now: the shard waits for requests_open_max answers; try \
                                again later";
                    let outcome = Outcome::refused(Code::TooManyRequests, text);
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
        (link, serial): (u32, u32),
        respond: Respond,
        name: Arc<str>,
        now: Duration,
    ) -> Result<(), Refusal> {
        let Respond { request, result } = respond;
        let is_its_own = |open: &open::Open| (open.link, open.serial) == (link, serial);
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
            Err(text) => Outcome::refused(Code::Declined, text),
        };
        self.settle(open.ticket, outcome, now);
        Ok(())
    }

    /// Takes an outcome to the shard that waits for it.
    fn settle(&mut self, ticket: Ticket, outcome: Outcome, now: Duration) {
        let shard = ShardIndex((ticket >> 48) as u16);
        self.mail(shard, RequestMail::Settle(ticket, Box::new(outcome)), now);
    }

    fn handle_outcome(&mut self, ticket: Ticket, outcome: Outcome, now: Duration) {
        let Some(slot) = self.slot_of(ticket) else { return };
        let is_full = matches!(&outcome.result, Err(it) if it.code == Code::TooManyRequests);
        match &mut self.pending[slot].rest {
            Rest::Others(rest) if is_full && !rest.0.is_empty() => {
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
                    && let PendingAsker::Outside(asker) = self.pending[slot].asker.clone()
                {
                    self.outputs.push_back(RequestOutput::Answer {
                        asker,
                        outcome,
                        has_more: true,
                    });
                }
                if is_last {
                    self.end_all(slot);
                }
                return;
            }
            Rest::One | Rest::Others(_) => {}
        }
        self.end(slot, ticket, outcome, now);
    }

    fn end(&mut self, slot: usize, ticket: Ticket, outcome: Outcome, now: Duration) {
        let pending = self.pending.remove(slot);
        self.dues.remove(&(pending.due, Due::Pending(ticket)));
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

    fn end_all(&mut self, slot: usize) {
        let pending = self.pending.remove(slot);
        let generation = u64::from(pending.generation);
        let ticket = u64::from(self.shard.0) << 48 | generation << 32 | slot as u64;
        self.dues.remove(&(pending.due, Due::Pending(ticket)));
        if let (Rest::All { waiting, answered, missing }, PendingAsker::Outside(asker)) =
            (pending.rest, pending.asker)
        {
            self.counters.answered += 1;
            let missing = missing + waiting;
            self.outputs.push_back(RequestOutput::AnswersEnd { asker, count: answered, missing });
        }
    }

    /// Ends what is due.
    pub fn run_timers(&mut self, now: Duration) {
        while let Some((at, due)) = self.dues.first().copied()
            && at <= now
        {
            self.dues.pop_first();
            match due {
                // Whoever asked hears it from its own shard's clock.
                Due::Open(number) => drop(self.open.remove(number)),
                Due::Pending(ticket) => self.time_out(ticket, now),
            }
        }
    }

    fn time_out(&mut self, ticket: Ticket, now: Duration) {
        let Some(slot) = self.slot_of(ticket) else { return };
        if matches!(self.pending[slot].rest, Rest::All { .. }) {
            return self.end_all(slot);
        }
        let text = "the answer did not come within timeout_ms: the request may have been carried out; allow \
                    more time, or look at whoever handles it";
        self.end(slot, ticket, Outcome::refused(Code::TimedOut, text), now);
    }
}

/// Where requests with a key come together.
fn home_of_key(principal: &str, key: &str, shard_count: u16) -> ShardIndex {
    home_shard_of(&format!("{principal} {key}"), shard_count)
}

#[cfg(test)]
mod tests;
