//! The requests that a client answers: to topics that it handles, and to devices that it attaches. docs/protocol.md#requests;
//! docs/devices.md#devices-on-sessions. Pure.
//!
//! A handling outlives connections: it is asked for again on each. Requests over an old connection are not
//! answered any more.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use model::{
    Advice, Attach, Command, CommandId, Detach, Handle, Refusal, Respond, TopicName, Unanswered,
    Unhandle,
};

use crate::backoff::Backoff;

/// The name of a handling within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlingId(u64);

/// The address of an answer: the request's number, and the connection that it arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    connection: u64,
    pub(crate) request: u64,
}

/// The topics or the device of a handling.
#[derive(Debug)]
pub(crate) enum HandlingTarget {
    Topics(Handle),
    Device(Attach),
}

impl HandlingTarget {
    fn command(&self) -> Command {
        match self {
            Self::Topics(handle) => Command::Handle(handle.clone()),
            Self::Device(attach) => Command::Attach(attach.clone()),
        }
    }

    fn end(self) -> Command {
        match self {
            Self::Topics(handle) => Command::Unhandle(Unhandle { selectors: handle.selectors }),
            Self::Device(attach) => Command::Detach(Detach { device: attach.device }),
        }
    }
}

#[derive(Debug)]
struct Handling {
    wanted: HandlingTarget,
    asked_as: Option<CommandId>,
    is_live: bool,
    due_at: Option<Instant>,
    backoff: Backoff,
}

#[derive(Debug)]
enum PendingCommand {
    Ask(HandlingId),
    Say(Command),
}

/// All handlings of one client.
#[derive(Debug, Default)]
pub(crate) struct Handlings {
    all: BTreeMap<HandlingId, Handling>,
    next_id: u64,
    /// Counts connections.
    connection: u64,
    is_connected: bool,
    /// Makes the pauses.
    seed: u64,
    pending: VecDeque<PendingCommand>,
    /// Requests of this connection that are to be answered.
    open: HashSet<u64>,
}

/// The outcome of the refusal of a handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The server put it off.
    PutOff,
    /// It is over.
    Ended(HandlingId),
}

impl Handlings {
    /// None yet; `seed` makes their pauses.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds one. It is asked for when there is a connection.
    pub(crate) fn add(&mut self, wanted: HandlingTarget) -> HandlingId {
        let id = HandlingId(self.next_id);
        self.next_id += 1;
        let backoff = Backoff::one_of(self.seed, id.0);
        let handling = Handling { wanted, asked_as: None, is_live: false, due_at: None, backoff };
        self.all.insert(id, handling);
        if self.is_connected {
            self.pending.push_back(PendingCommand::Ask(id));
        }
        id
    }

    /// Ends one; answers whether there was such a one. Requests that arrived before may still be answered.
    pub(crate) fn remove(&mut self, id: HandlingId) -> bool {
        let Some(ended) = self.all.remove(&id) else { return false };
        self.pending
            .retain(|command| !matches!(command, PendingCommand::Ask(known) if *known == id));
        if ended.is_live || ended.asked_as.is_some() {
            self.pending.push_back(PendingCommand::Say(ended.wanted.end()));
        }
        true
    }

    /// Whether the server knows it.
    pub(crate) fn is_live(&self, id: HandlingId) -> bool {
        self.all.get(&id).is_some_and(|known| known.is_live)
    }

    /// When [`Handlings::handle_wake`] has something to do.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.all.values().filter_map(|known| known.due_at).min()
    }

    pub(crate) fn handle_connected(&mut self) {
        self.is_connected = true;
        self.pending = self.all.keys().map(|id| PendingCommand::Ask(*id)).collect();
    }

    pub(crate) fn handle_disconnect(&mut self) {
        self.is_connected = false;
        self.connection += 1;
        self.pending.clear();
        self.open.clear();
        for known in self.all.values_mut() {
            (known.asked_as, known.is_live, known.due_at) = (None, false, None);
        }
    }

    /// Asks again for what was put off.
    pub(crate) fn handle_wake(&mut self, now: Instant) {
        for (id, known) in &mut self.all {
            if known.due_at.is_some_and(|due_at| due_at <= now) {
                known.due_at = None;
                self.pending.push_back(PendingCommand::Ask(*id));
            }
        }
    }

    /// Notes that the server answered.
    pub(crate) fn handle_handling(&mut self, id: Option<CommandId>) {
        for known in self.all.values_mut().filter(|known| id.is_some() && known.asked_as == id) {
            (known.asked_as, known.is_live) = (None, true);
            known.backoff.reset();
        }
    }

    /// Takes a refusal; `None` if it is not of a handling.
    pub(crate) fn handle_refused(
        &mut self,
        id: CommandId,
        refusal: &Refusal,
        now: Instant,
    ) -> Option<Refused> {
        let mut all = self.all.iter_mut();
        let (&id, known) = all.find(|(_, known)| known.asked_as == Some(id))?;
        match refusal.code.advice() {
            Advice::RetryNow | Advice::RetryLater => {
                known.due_at = Some(now + known.backoff.next_pause(Duration::ZERO));
                known.asked_as = None;
                Some(Refused::PutOff)
            }
            Advice::ChangeFirst | Advice::AuthenticateFirst => {
                self.all.remove(&id);
                Some(Refused::Ended(id))
            }
        }
    }

    /// Notes that another connection has a device's name now; answers which handling that ends.
    pub(crate) fn handle_detached(&mut self, device: &str) -> Option<HandlingId> {
        let is_it = |known: &Handling| match &known.wanted {
            HandlingTarget::Device(attach) => known.is_live && *attach.device == *device,
            HandlingTarget::Topics(_) => false,
        };
        let id = self.all.iter().find(|(_, known)| is_it(known)).map(|(id, _)| *id)?;
        self.all.remove(&id);
        Some(id)
    }

    /// Whether requests to a topic are answered here.
    fn handles(&self, topic: &TopicName) -> bool {
        self.all.values().any(|known| match &known.wanted {
            HandlingTarget::Topics(handle) => {
                handle.selectors.iter().any(|selector| selector.matches(topic.as_str()))
            }
            HandlingTarget::Device(attach) => {
                topic.as_str().strip_prefix("devices/") == Some(&*attach.device)
            }
        })
    }

    /// Notes that a request came; answers what it is to be answered by. One for a handling that was ended meanwhile
    /// is passed on: somebody else may have another.
    pub(crate) fn handle_request(&mut self, request: u64, topic: &TopicName) -> Option<Ticket> {
        if !self.handles(topic) {
            let result = Err(Unanswered::NotHandled);
            self.pending
                .push_back(PendingCommand::Say(Command::Respond(Respond { request, result })));
            return None;
        }
        self.open.insert(request);
        Some(Ticket { connection: self.connection, request })
    }

    /// Takes an answer; says whether anybody waits for it.
    pub(crate) fn respond(&mut self, ticket: Ticket) -> bool {
        ticket.connection == self.connection && self.open.remove(&ticket.request)
    }

    /// The next command, with the id `as_id`.
    pub(crate) fn poll_command(&mut self, as_id: CommandId) -> Option<Command> {
        match self.pending.pop_front()? {
            PendingCommand::Say(command) => Some(command),
            PendingCommand::Ask(id) => {
                let known = self.all.get_mut(&id)?;
                known.asked_as = Some(as_id);
                Some(known.wanted.command())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Capacity, Handle, Limits, Selector};

    use super::*;

    fn selector(text: &str) -> Selector {
        Selector::parse(text, &Limits::default()).expect("valid")
    }

    #[test]
    fn a_request_for_a_handling_that_was_just_ended_is_passed_on_not_declined() {
        let mut handlings = Handlings::new(7);
        let handle = |text: &str| {
            let capacity = Capacity { concurrency: 1, payload_bytes_max: None };
            Handle { selectors: vec![selector(text)], capacity }
        };
        let ended = handlings.add(HandlingTarget::Topics(handle("orders/#")));
        handlings.add(HandlingTarget::Topics(handle("bills/#")));
        handlings.handle_connected();
        assert!(handlings.remove(ended));
        while handlings.poll_command(CommandId(1)).is_some() {}
        let topic = |text: &str| selector(text).to_topic().expect("a name");
        assert_eq!(handlings.handle_request(7, &topic("orders/new")), None);
        let said = handlings.poll_command(CommandId(2));
        let passed_on = Respond { request: 7, result: Err(Unanswered::NotHandled) };
        assert_eq!(said, Some(Command::Respond(passed_on)));
        assert!(handlings.handle_request(8, &topic("bills/new")).is_some());
    }
}
