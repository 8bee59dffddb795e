//! The connections of a shard, each with a name that no other connection of the shard ever has.
//!
//! A connection stands at the place that its socket's number gives it, so that what happens to the socket finds it without a
//! search. The number is used again; the name is not. Sessions that have no socket (they are polled) stand beside those.

use std::fmt;

use crate::tables::index::{ShardIndex, Slot, SlotMap, SlotTable};

/// A connection of a shard. Only [`Connections`] gives such names, and it gives each once: the name of a connection that ended
/// finds nothing, also when its socket's number was given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(Slot);

/// A connection, as other shards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardConnection {
    /// The shard that holds it.
    pub shard: ShardIndex,
    /// Its name there.
    pub id: ConnectionId,
}

/// Places from here on are of connections that have no socket.
const WITHOUT_SOCKET: u32 = 1 << 31;

impl ConnectionId {
    /// The number of its socket, if it has one.
    pub fn socket(self) -> Option<u32> {
        (self.0.place() < WITHOUT_SOCKET).then_some(self.0.place())
    }

    /// Its place, as [`Connections::current`] takes it: where whoever goes through all connections is at.
    pub fn place(self) -> u32 {
        self.0.place()
    }

    /// The number by which [`Connections::named`] finds it, for names that go out of the process and come back.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation().get()) << 32 | u64::from(self.0.place())
    }

    /// Its place in the table of those that have no socket.
    fn unattached(self) -> Slot {
        Slot::of(self.0.place() - WITHOUT_SOCKET, self.0.generation())
    }

    /// The name of some connection, where no table is.
    #[cfg(any(test, feature = "checks"))]
    pub(crate) fn for_test(place: u32) -> Self {
        Self(Slot::of(place, std::num::NonZeroU32::MIN))
    }
}

/// Two numbers, `17-3`; with a `p` before them if the connection has no socket.
impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(socket) => write!(f, "{socket}-{}", self.0.generation()),
            None => write!(f, "p{}-{}", self.unattached().place(), self.0.generation()),
        }
    }
}

/// A connection that ended.
#[derive(Debug)]
pub struct Closed<T> {
    /// The connection.
    pub connection: T,
    /// Its socket's number had its last connection: it is not to be used again.
    pub is_used_up: bool,
}

/// The connections of a shard.
#[derive(Debug)]
pub struct Connections<T> {
    of_sockets: SlotTable<T>,
    unattached: SlotMap<T>,
}

impl<T> Default for Connections<T> {
    fn default() -> Self {
        Self { of_sockets: SlotTable::default(), unattached: SlotMap::default() }
    }
}

impl<T> Connections<T> {
    /// Names the connection of a socket; gives it back if the number had all connections that it may have.
    ///
    /// # Panics
    /// If the socket's last connection was not closed.
    pub fn open(&mut self, socket: u32, connection: T) -> Result<ConnectionId, T> {
        assert!(socket < WITHOUT_SOCKET, "descriptors are not negative");
        self.of_sockets.insert_at(socket, connection).map(ConnectionId)
    }

    /// Names a connection that has no socket.
    pub fn open_unattached(&mut self, connection: T) -> ConnectionId {
        let slot = self.unattached.insert(connection);
        assert!(slot.place() < WITHOUT_SOCKET, "fewer than 2^31 connections without a socket");
        ConnectionId(Slot::of(slot.place() + WITHOUT_SOCKET, slot.generation()))
    }

    /// Forgets a connection.
    pub fn close(&mut self, id: ConnectionId) -> Option<Closed<T>> {
        match id.socket() {
            Some(_) => {
                let (connection, is_usable) = self.of_sockets.remove(id.0)?;
                Some(Closed { connection, is_used_up: !is_usable })
            }
            None => {
                let connection = self.unattached.remove(id.unattached())?;
                Some(Closed { connection, is_used_up: false })
            }
        }
    }

    /// The connection of that name, if it did not end.
    pub fn get(&self, id: ConnectionId) -> Option<&T> {
        match id.socket() {
            Some(_) => self.of_sockets.get(id.0),
            None => self.unattached.get(id.unattached()),
        }
    }

    /// Mutable access to the connection of that name.
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        match id.socket() {
            Some(_) => self.of_sockets.get_mut(id.0),
            None => self.unattached.get_mut(id.unattached()),
        }
    }

    /// Whoever is at a place now: for what happened to a socket, and for whoever goes through all places. A place is not a name.
    pub fn current(&self, place: u32) -> Option<ConnectionId> {
        if place < WITHOUT_SOCKET {
            self.of_sockets.get_at(place)?;
            return self.of_sockets.slot_at(place).map(ConnectionId);
        }
        self.unattached.get_at(place - WITHOUT_SOCKET)?;
        let slot = self.unattached.slot_at(place - WITHOUT_SOCKET)?;
        Some(ConnectionId(Slot::of(place, slot.generation())))
    }

    /// The connection whose name [`ConnectionId::to_bits`] wrote, if it did not end.
    pub fn named(&self, bits: u64) -> Option<ConnectionId> {
        self.current(bits as u32).filter(|current| current.to_bits() == bits)
    }

    /// The place after the last one of a socket, and after the last one without.
    pub fn ends(&self) -> (u32, u32) {
        (self.of_sockets.end() as u32, WITHOUT_SOCKET + self.unattached.end() as u32)
    }

    /// The place before the first connection that has no socket.
    pub fn first_unattached(&self) -> u32 {
        WITHOUT_SOCKET
    }

    /// The connections that have no socket.
    pub fn iter_unattached(&self) -> impl Iterator<Item = (ConnectionId, &T)> {
        self.unattached.iter().map(|(slot, connection)| {
            let place = slot.place() + WITHOUT_SOCKET;
            (ConnectionId(Slot::of(place, slot.generation())), connection)
        })
    }

    /// How many connections have a socket.
    pub fn socket_count(&self) -> usize {
        self.of_sockets.len()
    }

    /// How many have none.
    pub fn unattached_count(&self) -> usize {
        self.unattached.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_number_that_is_used_again_has_another_name() {
        let mut connections = Connections::default();
        let mut gone = Vec::new();
        for turn in 0..100 {
            let id = connections.open(7, turn).expect("not used up");
            assert_eq!((id.socket(), connections.current(7)), (Some(7), Some(id)));
            assert_eq!(connections.named(id.to_bits()), Some(id));
            let closed = connections.close(id).expect("open");
            assert_eq!((closed.connection, closed.is_used_up), (turn, false));
            gone.push(id);
        }
        assert_eq!(connections.current(7), None, "nobody is there");
        let last = connections.open(7, 100).expect("not used up");
        for id in gone {
            assert_ne!((id, id.to_string()), (last, last.to_string()));
            assert_eq!((connections.get(id), connections.named(id.to_bits())), (None, None));
            assert!(connections.get_mut(id).is_none() && connections.close(id).is_none());
        }
        assert_eq!((connections.get(last), connections.socket_count()), (Some(&100), 1));
    }

    #[test]
    fn a_session_without_a_socket_is_named_like_a_connection_and_never_like_one() {
        let mut connections = Connections::default();
        let first = connections.open_unattached("first");
        connections.close(first);
        let (second, of_socket) =
            (connections.open_unattached("second"), connections.open(0, "socket"));
        let of_socket = of_socket.expect("not used up");
        assert_eq!((first.place(), connections.get(first)), (second.place(), None));
        assert_eq!((second.socket(), connections.current(second.place())), (None, Some(second)));
        assert_eq!(connections.named(second.to_bits()), Some(second));
        assert_eq!(connections.named(first.to_bits()), None);
        assert_ne!(second.to_string(), of_socket.to_string());
        let unattached: Vec<_> = connections.iter_unattached().collect();
        assert_eq!(unattached, [(second, &"second")]);
        assert_eq!((connections.socket_count(), connections.unattached_count()), (1, 1));
        assert_eq!(connections.ends(), (1, second.place() + 1));
    }

    #[test]
    fn a_socket_number_that_had_all_its_names_is_given_up() {
        let mut connections = Connections::default();
        let first = connections.open(3, 1).expect("not used up");
        assert!(!connections.close(first).expect("open").is_used_up);
        connections.of_sockets.use_up(3);
        let last = connections.open(3, 2).expect("its last");
        assert!(connections.close(last).expect("open").is_used_up);
        assert_eq!(connections.open(3, 3), Err(3));
        assert_eq!((connections.get(first), connections.get(last)), (None, None));
        assert_eq!(connections.current(3), None);
    }

    #[test]
    fn a_place_without_a_socket_that_had_all_its_names_is_given_up() {
        let mut connections = Connections::default();
        let first = connections.open_unattached(1);
        connections.close(first);
        connections.unattached.use_up(0);
        let last = connections.open_unattached(2);
        connections.close(last);
        let next = connections.open_unattached(3);
        assert_eq!(next.place(), last.place() + 1);
        assert_eq!((connections.get(first), connections.get(last)), (None, None));
    }

    #[test]
    fn a_name_has_eight_bytes() {
        assert_eq!((size_of::<ConnectionId>(), align_of::<ConnectionId>()), (8, 4));
        assert_eq!(size_of::<Option<ConnectionId>>(), 8);
        assert_eq!(size_of::<ShardConnection>(), 12);
    }
}
