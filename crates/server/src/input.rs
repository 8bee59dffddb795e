//! Input that waits for a later turn: of connections whose answers must be taken first, and of those after which
//! others have theirs.

use std::collections::{HashMap, VecDeque};

use engine::Socket;
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
pub(crate) struct Inbounds(HashMap<Socket, Inbound, RandomState>);

impl Inbounds {
    /// Takes what a connection's next bytes belong to. The table of many is given back with the last of them.
    pub(crate) fn take(&mut self, socket: Socket) -> Inbound {
        if self.0.is_empty() {
            return Inbound::default();
        }
        let Some(inbound) = self.0.remove(&socket) else { return Inbound::default() };
        if self.0.is_empty() && self.0.capacity() > KEPT_MAX {
            self.0 = HashMap::default();
        }
        inbound
    }

    /// Keeps it, if more of it is to come.
    pub(crate) fn keep(&mut self, socket: Socket, inbound: Inbound) {
        if !inbound.is_empty() {
            self.0.insert(socket, inbound);
        }
    }

    pub(crate) fn get(&self, socket: Socket) -> Option<&Inbound> {
        self.0.get(&socket)
    }

    pub(crate) fn get_mut(&mut self, socket: Socket) -> Option<&mut Inbound> {
        self.0.get_mut(&socket)
    }
}

/// Places of an empty table that are not worth giving back.
const KEPT_MAX: usize = 64;

/// What is known of the input of a connection that waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    serial: u32,
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
    /// Which connection it is of.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// Whether something was received that is not carried out yet.
    pub(crate) fn has_received(&self) -> bool {
        !self.commands.is_empty() || !self.bytes.is_empty()
    }
}

/// The connections whose input goes on later. Those that have a turn stand in order, each once; those that cannot go on
/// are parked, and looked at again only when something happened to them.
#[derive(Debug, Default)]
pub(crate) struct WaitingInputs {
    order: VecDeque<(Socket, u32)>,
    all: HashMap<Socket, Waiting, RandomState>,
    parked: usize,
}

impl WaitingInputs {
    /// What is known of the input of the connection with this serial, which has a turn later.
    pub(crate) fn add(&mut self, socket: Socket, serial: u32) -> &mut Waiting {
        let waiting = self.all.entry(socket).or_default();
        if waiting.is_parked {
            self.parked -= 1;
            waiting.is_parked = false;
            self.order.push_back((socket, waiting.serial));
        }
        if waiting.serial != serial {
            *waiting = Waiting { serial, ..Waiting::default() };
            self.order.push_back((socket, serial));
        }
        waiting
    }

    /// Takes out the connection whose turn is next.
    pub(crate) fn next(&mut self) -> Option<(Socket, Waiting)> {
        loop {
            let (socket, serial) = self.order.pop_front()?;
            if self.all.get(&socket).is_some_and(|waiting| waiting.serial == serial) {
                return self.all.remove(&socket).map(|waiting| (socket, waiting));
            }
        }
    }

    /// Puts back what was taken out and cannot go on before something happens to its connection.
    pub(crate) fn park(&mut self, socket: Socket, waiting: Waiting) {
        self.parked += 1;
        self.all.insert(socket, Waiting { is_parked: true, ..waiting });
    }

    /// Lets a connection have a turn again, if it is parked.
    pub(crate) fn wake(&mut self, socket: Socket) {
        if self.parked == 0 {
            return;
        }
        if let Some(waiting) = self.all.get(&socket).filter(|waiting| waiting.is_parked) {
            self.add(socket, waiting.serial);
        }
    }

    /// Puts back what was taken out and cannot go on yet.
    pub(crate) fn put_back(&mut self, socket: Socket, waiting: Waiting) {
        let Waiting { serial, is_readable, ends, commands, bytes, .. } = waiting;
        let known = self.add(socket, serial);
        known.is_readable |= is_readable;
        known.ends |= ends;
        // What came meanwhile is the beginning of what was taken out.
        known.commands.extend(commands);
        if !bytes.is_empty() {
            known.bytes = bytes;
        }
    }

    /// Whether something of a connection was received that is not carried out yet.
    pub(crate) fn has_received(&self, socket: Socket) -> bool {
        self.all.get(&socket).is_some_and(Waiting::has_received)
    }

    /// How many bytes of commands wait for a session.
    pub(crate) fn bytes_of_commands(&self, socket: Socket) -> usize {
        let waiting = self.all.get(&socket);
        waiting.map_or(0, |waiting| waiting.commands.iter().map(Commands::bytes).sum())
    }

    /// Forgets a connection that is gone.
    pub(crate) fn forget(&mut self, socket: Socket) {
        if self.all.remove(&socket).is_some_and(|waiting| waiting.is_parked) {
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
    pub(crate) fn parked(&self) -> impl Iterator<Item = Socket> {
        self.all.iter().filter(|(_, waiting)| waiting.is_parked).map(|(socket, _)| *socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_waits_once_however_often_it_is_told() {
        let mut inputs = WaitingInputs::default();
        for turn in 0..100 {
            inputs.add(Socket(7), 1).is_readable = true;
            inputs.add(Socket(8), 2).ends |= turn == 50;
        }
        assert_eq!(inputs.len(), 2);
        let (socket, waiting) = inputs.next().expect("the first");
        assert_eq!((socket, waiting.is_readable, waiting.ends), (Socket(7), true, false));
        inputs.put_back(socket, waiting);
        let (socket, waiting) = inputs.next().expect("the second");
        assert_eq!((socket, waiting.is_readable, waiting.ends), (Socket(8), false, true));
        inputs.forget(Socket(7));
        inputs.add(Socket(7), 3);
        let (socket, waiting) = inputs.next().expect("the new one");
        assert_eq!((socket, waiting.serial, waiting.is_readable), (Socket(7), 3, false));
        assert!(inputs.next().is_none());
    }

    #[test]
    fn what_is_parked_has_a_turn_when_it_is_woken_and_not_before() {
        let mut inputs = WaitingInputs::default();
        for (socket, serial) in [(7, 1), (8, 2), (9, 3)] {
            inputs.add(Socket(socket), serial).is_readable = true;
            let (socket, waiting) = inputs.next().expect("one has a turn");
            inputs.park(socket, waiting);
        }
        assert_eq!((inputs.len(), inputs.turns(), inputs.parked().count()), (3, 0, 3));
        assert!(inputs.next().is_none());
        inputs.wake(Socket(8));
        inputs.wake(Socket(8));
        inputs.add(Socket(9), 3).ends = true;
        inputs.forget(Socket(7));
        inputs.wake(Socket(7));
        assert_eq!((inputs.len(), inputs.turns(), inputs.parked().count()), (2, 2, 0));
        let (socket, waiting) = inputs.next().expect("the one that was woken");
        assert_eq!((socket, waiting.is_readable, waiting.ends), (Socket(8), true, false));
        let (socket, waiting) = inputs.next().expect("the one to which more happened");
        assert_eq!((socket, waiting.is_readable, waiting.ends), (Socket(9), true, true));
        inputs.park(socket, waiting);
        // Another connection in its place owes nothing to it.
        assert!(!inputs.add(Socket(9), 4).is_readable);
        assert_eq!((inputs.parked().count(), inputs.next().map(|(_, it)| it.serial)), (0, Some(4)));
        assert!(inputs.next().is_none());
    }
}
