//! Input that waits for a later turn: of connections whose answers must be taken first, and of those after which
//! others have theirs.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use hub::ConnectionId;
use model::{Limits, RandomState};
use protocol::native::Batch;
use protocol::native::binary::{self, Decoded};
use protocol::websocket::Inbound;

use crate::byte_queue::ByteQueue;

/// Commands that were received together and are decoded one by one.
pub(crate) trait CommandSource {
    /// Decodes the next one, and tells how many bytes it was.
    fn next(&mut self, limits: &Limits) -> Option<(Decoded, usize)>;

    fn is_empty(&self) -> bool;
}

/// Those of a binary message where it was received.
impl CommandSource for &[u8] {
    fn next(&mut self, limits: &Limits) -> Option<(Decoded, usize)> {
        let mut reading = binary::decode_commands(self, limits);
        let decoded = reading.next()?;
        let taken = self.len() - reading.rest().len();
        *self = &self[taken..];
        Some((decoded, taken))
    }

    fn is_empty(&self) -> bool {
        <[u8]>::is_empty(self)
    }
}

/// Those that are kept for later.
#[derive(Debug)]
pub(crate) enum Commands {
    /// The rest of a binary message.
    Records(ByteQueue),
    /// The rest of a request's body.
    Batch(Batch),
}

impl Commands {
    /// Those in the rest of a binary message.
    pub(crate) fn records(rest: &[u8]) -> Self {
        let mut records = ByteQueue::default();
        records.append(rest);
        Self::Records(records)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.bytes(),
            Self::Records(records) => records.len(),
        }
    }
}

impl CommandSource for Commands {
    fn next(&mut self, limits: &Limits) -> Option<(Decoded, usize)> {
        match self {
            Self::Batch(batch) => {
                let before = batch.taken_bytes();
                let decoded = batch.take(limits)?;
                Some((decoded, batch.taken_bytes() - before))
            }
            Self::Records(records) => {
                let (decoded, taken) = records.rest().next(limits)?;
                records.take(taken);
                Some((decoded, taken))
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.is_empty(),
            Self::Records(records) => records.is_empty(),
        }
    }
}

/// Messages of sessions that are half-received, beside the connections: most sessions have none.
#[derive(Debug, Default)]
pub(crate) struct Inbounds(HashMap<ConnectionId, Inbound, RandomState>);

impl Inbounds {
    /// Takes what a connection's next bytes belong to. The table of many is given back with the last of them.
    pub(crate) fn take(&mut self, link: ConnectionId) -> Inbound {
        if self.0.is_empty() {
            return Inbound::default();
        }
        let Some(inbound) = self.0.remove(&link) else { return Inbound::default() };
        if self.0.is_empty() && self.0.capacity() > KEPT_MAX {
            self.0 = HashMap::default();
        }
        inbound
    }

    /// Keeps it, if more of it is to come.
    pub(crate) fn keep(&mut self, link: ConnectionId, inbound: Inbound) {
        if !inbound.is_empty() {
            self.0.insert(link, inbound);
        }
    }

    pub(crate) fn get(&self, link: ConnectionId) -> Option<&Inbound> {
        self.0.get(&link)
    }

    pub(crate) fn get_mut(&mut self, link: ConnectionId) -> Option<&mut Inbound> {
        self.0.get_mut(&link)
    }
}

/// Places of an empty table that are not worth giving back.
const KEPT_MAX: usize = 64;

/// What is known of the input of a connection that waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// It has no turn before something happens that may let it go on.
    is_parked: bool,
    /// The socket may hold more than was received.
    pub is_readable: bool,
    /// What the socket holds ends: no further event will tell.
    pub ends: bool,
    /// Commands that were received and not carried out yet, in order.
    pub commands: VecDeque<Commands>,
    /// What was received after them and not decoded yet.
    pub bytes: ByteQueue,
}

impl Waiting {
    /// Whether something was received that is not carried out yet.
    pub(crate) fn has_received(&self) -> bool {
        !self.commands.is_empty() || !self.bytes.is_empty()
    }
}

/// The connections whose input goes on later. Those that have a turn stand in order, each once; those that cannot go on
/// are parked, and looked at again only when something happened to them.
#[derive(Debug, Default)]
pub(crate) struct WaitingInputs {
    order: VecDeque<ConnectionId>,
    all: HashMap<ConnectionId, Waiting, RandomState>,
    parked: usize,
}

impl WaitingInputs {
    /// What is known of the input of a connection, which has a turn later.
    pub(crate) fn add(&mut self, link: ConnectionId) -> &mut Waiting {
        match self.all.entry(link) {
            Entry::Vacant(place) => {
                self.order.push_back(link);
                place.insert(Waiting::default())
            }
            Entry::Occupied(place) => {
                let waiting = place.into_mut();
                if waiting.is_parked {
                    self.parked -= 1;
                    waiting.is_parked = false;
                    self.order.push_back(link);
                }
                waiting
            }
        }
    }

    /// Takes out the connection whose turn is next.
    pub(crate) fn next(&mut self) -> Option<(ConnectionId, Waiting)> {
        loop {
            let link = self.order.pop_front()?;
            if let Some(waiting) = self.all.remove(&link) {
                return Some((link, waiting));
            }
        }
    }

    /// Puts back what was taken out and cannot go on before something happens to its connection.
    pub(crate) fn park(&mut self, link: ConnectionId, waiting: Waiting) {
        self.parked += 1;
        self.all.insert(link, Waiting { is_parked: true, ..waiting });
    }

    /// Lets a connection have a turn again, if it is parked.
    pub(crate) fn wake(&mut self, link: ConnectionId) {
        if self.parked == 0 {
            return;
        }
        if self.all.get(&link).is_some_and(|waiting| waiting.is_parked) {
            self.add(link);
        }
    }

    /// Puts back what was taken out and cannot go on yet.
    pub(crate) fn put_back(&mut self, link: ConnectionId, waiting: Waiting) {
        let Waiting { is_readable, ends, commands, bytes, .. } = waiting;
        let known = self.add(link);
        known.is_readable |= is_readable;
        known.ends |= ends;
        // What came meanwhile is the beginning of what was taken out.
        known.commands.extend(commands);
        if !bytes.is_empty() {
            known.bytes = bytes;
        }
    }

    /// Whether something of a connection was received that is not carried out yet.
    pub(crate) fn has_received(&self, link: ConnectionId) -> bool {
        self.all.get(&link).is_some_and(Waiting::has_received)
    }

    /// How many bytes of commands wait for a session.
    pub(crate) fn bytes_of_commands(&self, link: ConnectionId) -> usize {
        let waiting = self.all.get(&link);
        waiting.map_or(0, |waiting| waiting.commands.iter().map(Commands::bytes).sum())
    }

    /// Whether a connection waits.
    pub(crate) fn is_waiting(&self, link: ConnectionId) -> bool {
        self.all.contains_key(&link)
    }

    /// Forgets a connection that is gone.
    pub(crate) fn forget(&mut self, link: ConnectionId) {
        if self.all.remove(&link).is_some_and(|waiting| waiting.is_parked) {
            self.parked -= 1;
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many have a turn; some of them may be gone.
    pub(crate) fn turns(&self) -> usize {
        self.order.len()
    }

    /// The connections that are parked.
    pub(crate) fn parked(&self) -> impl Iterator<Item = ConnectionId> {
        self.all.iter().filter(|(_, waiting)| waiting.is_parked).map(|(link, _)| *link)
    }
}

#[cfg(test)]
mod tests {
    use hub::Connections;

    use super::*;

    /// The names of as many connections as socket numbers, of which some may be the same.
    fn links<const COUNT: usize>(sockets: [u32; COUNT]) -> [ConnectionId; COUNT] {
        let mut connections = Connections::default();
        sockets.map(|socket| {
            connections.current(socket).map(|gone| connections.close(gone));
            connections.open(socket, ()).expect("not used up")
        })
    }

    #[test]
    fn a_connection_waits_once_however_often_it_is_told() {
        let mut inputs = WaitingInputs::default();
        let [first, second, third] = links([7, 8, 7]);
        for turn in 0..100 {
            inputs.add(first).is_readable = true;
            inputs.add(second).ends |= turn == 50;
        }
        assert_eq!(inputs.len(), 2);
        let (link, waiting) = inputs.next().expect("the first");
        assert_eq!((link, waiting.is_readable, waiting.ends), (first, true, false));
        inputs.put_back(link, waiting);
        let (link, waiting) = inputs.next().expect("the second");
        assert_eq!((link, waiting.is_readable, waiting.ends), (second, false, true));
        inputs.forget(first);
        inputs.add(third);
        let (link, waiting) = inputs.next().expect("the new one");
        assert_eq!((link, waiting.is_readable), (third, false));
        assert!(inputs.next().is_none());
    }

    #[test]
    fn what_is_parked_has_a_turn_when_it_is_woken_and_not_before() {
        let mut inputs = WaitingInputs::default();
        let [seven, eight, nine, again] = links([7, 8, 9, 9]);
        for link in [seven, eight, nine] {
            inputs.add(link).is_readable = true;
            let (link, waiting) = inputs.next().expect("one has a turn");
            inputs.park(link, waiting);
        }
        assert_eq!((inputs.len(), inputs.turns(), inputs.parked().count()), (3, 0, 3));
        assert!(inputs.next().is_none());
        inputs.wake(eight);
        inputs.wake(eight);
        inputs.add(nine).ends = true;
        inputs.forget(seven);
        inputs.wake(seven);
        assert_eq!((inputs.len(), inputs.turns(), inputs.parked().count()), (2, 2, 0));
        let (link, waiting) = inputs.next().expect("the one that was woken");
        assert_eq!((link, waiting.is_readable, waiting.ends), (eight, true, false));
        let (link, waiting) = inputs.next().expect("the one to which more happened");
        assert_eq!((link, waiting.is_readable, waiting.ends), (nine, true, true));
        inputs.park(link, waiting);
        inputs.forget(nine);
        // Another connection in its place owes nothing to it.
        assert!(!inputs.add(again).is_readable);
        assert_eq!((inputs.parked().count(), inputs.next().map(|(it, _)| it)), (0, Some(again)));
        assert!(inputs.next().is_none());
    }
}
