//! A network in memory: sockets that take and give as many bytes as chance allows.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use engine::{Io, IoCounters, IoEvent, Received, Sent, Socket};

use crate::random::Random;

/// One connection: bytes on their way in both directions.
#[derive(Debug, Default)]
struct Link {
    shard: usize,
    /// The server's number for it, which another has once the server closed it.
    socket: u32,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// How many bytes the server may still send before the socket is full.
    room: usize,
    was_full: bool,
    is_open: bool,
    /// The server has not closed its side.
    is_held: bool,
}

/// All connections of a simulated node.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    /// The newest connection of each of the server's numbers.
    sockets: Vec<usize>,
    /// Those that nobody has, the one that is given next last: as in a kernel, one that was just closed.
    free_sockets: Vec<u32>,
    events: Vec<VecDeque<IoEvent>>,
    random: Random,
    /// Bytes are received in pieces that chance cuts.
    tears: bool,
    /// Of all that went over it.
    digest: DefaultHasher,
}

const ROOM_BYTES: usize = 2_000;

impl Network {
    /// A network of a node with so many shards.
    pub fn new(shards: usize, seed: u64) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            links: Vec::new(),
            sockets: Vec::new(),
            free_sockets: Vec::new(),
            events: vec![VecDeque::new(); shards],
            random: Random::new(seed),
            tears: true,
            digest: DefaultHasher::new(),
        }))
    }

    /// A network that hands over at once what was sent.
    pub fn untorn(shards: usize) -> Rc<RefCell<Self>> {
        let network = Self::new(shards, 0);
        network.borrow_mut().tears = false;
        network
    }

    /// Connects to a shard; answers the connection's number, used once only.
    pub fn connect(&mut self, shard: usize) -> u32 {
        self.connect_from(shard, Ipv4Addr::LOCALHOST.into())
    }

    /// The same from an address.
    pub fn connect_from(&mut self, shard: usize, address: IpAddr) -> u32 {
        if self.events.len() <= shard {
            self.events.resize_with(shard + 1, VecDeque::new);
        }
        let number = self.links.len();
        let socket = self.free_sockets.pop().unwrap_or_else(|| {
            self.sockets.push(number);
            self.sockets.len() as u32 - 1
        });
        self.sockets[socket as usize] = number;
        self.links.push(Link {
            shard,
            socket,
            room: ROOM_BYTES,
            is_open: true,
            is_held: true,
            ..Link::default()
        });
        let peer = SocketAddr::new(address, 1);
        self.events[shard].push_back(IoEvent::Accepted { socket: Socket(socket), peer });
        number as u32
    }

    /// Sends to the server.
    pub fn send(&mut self, number: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let link = &mut self.links[number as usize];
        link.to_server.extend(bytes);
        self.digest.write_u32(number);
        self.digest.write(bytes);
        if link.is_held {
            let socket = Socket(link.socket);
            self.events[link.shard].push_back(IoEvent::Readable { socket, ends: false });
        }
    }

    /// Receives a part of what the server sent; empties the way for more.
    pub fn receive(&mut self, number: u32, bytes_max: usize) -> Vec<u8> {
        let link = &mut self.links[number as usize];
        let count = link.to_client.len().min(bytes_max);
        link.room += count;
        if link.was_full && count > 0 && link.is_held {
            link.was_full = false;
            self.events[link.shard].push_back(IoEvent::Writable(Socket(link.socket)));
        }
        take(&mut link.to_client, count)
    }

    /// Lets the server send so many bytes before the socket is full.
    pub fn set_room(&mut self, number: u32, bytes: usize) {
        self.links[number as usize].room = bytes;
    }

    /// Whether bytes of the server wait to be received.
    pub fn has_bytes_for(&self, number: u32) -> bool {
        !self.links[number as usize].to_client.is_empty()
    }

    /// Whether nothing is on its way: no event, no byte that an open connection could still take.
    pub fn is_quiet(&self) -> bool {
        let is_still =
            |link: &Link| link.to_client.is_empty() && (link.to_server.is_empty() || !link.is_open);
        self.events.iter().all(VecDeque::is_empty) && self.links.iter().all(is_still)
    }

    /// A number that shows all that went over the network, and in which order. The same seed makes the same one.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Whether either side has closed.
    pub fn is_open(&self, number: u32) -> bool {
        self.links[number as usize].is_open
    }

    /// The server dies: every connection is gone, and nobody hears of what was under way.
    pub fn cut_all(&mut self) {
        for link in &mut self.links {
            link.is_open = false;
            link.is_held = false;
            link.to_server.clear();
            link.to_client.clear();
        }
        self.sockets.clear();
        self.free_sockets.clear();
        self.events.iter_mut().for_each(VecDeque::clear);
    }

    /// The client goes away without a word. Bytes that it sent before arrive with the end, in one event.
    pub fn drop_link(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        link.is_open = false;
        link.to_client.clear();
        if !link.is_held {
            return;
        }
        let (own, events) = (Socket(link.socket), &mut self.events[link.shard]);
        let is_its_own =
            |event: &IoEvent| matches!(event, IoEvent::Readable { socket, .. } if *socket == own);
        events.retain(|event| !is_its_own(event));
        events.push_back(IoEvent::Readable { socket: own, ends: true });
    }

    /// Connections that their clients left and the server holds still.
    pub fn abandoned(&self) -> Vec<u32> {
        let is_abandoned = |(_, link): &(usize, &Link)| link.is_held && !link.is_open;
        let abandoned = self.links.iter().enumerate().filter(is_abandoned);
        abandoned.map(|(number, _)| number as u32).collect()
    }
}

/// Takes the first bytes: piece by piece, not byte by byte.
fn take(from: &mut VecDeque<u8>, count: usize) -> Vec<u8> {
    let rest = from.split_off(count);
    std::mem::replace(from, rest).into()
}

/// A shard's side of the network.
#[derive(Debug)]
pub struct SimIo {
    network: Rc<RefCell<Network>>,
    shard: usize,
}

impl SimIo {
    /// The side of one shard.
    pub fn new(network: Rc<RefCell<Network>>, shard: usize) -> Self {
        Self { network, shard }
    }
}

impl Network {
    /// The connection that has one of the server's numbers.
    fn link_of(&mut self, socket: Socket) -> &mut Link {
        &mut self.links[self.sockets[socket.0 as usize]]
    }
}

impl Io for SimIo {
    fn wait(&mut self, _timeout: Option<Duration>) {}

    fn poll_event(&mut self) -> Option<IoEvent> {
        self.network.borrow_mut().events.get_mut(self.shard)?.pop_front()
    }

    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) -> Received {
        let network = &mut *self.network.borrow_mut();
        let number = network.sockets[socket.0 as usize];
        let link = &mut network.links[number];
        if link.to_server.is_empty() {
            return if link.is_open { Received::Nothing } else { Received::Closed };
        }
        let torn = if network.tears { 1 + network.random.below(200) } else { usize::MAX };
        let count = link.to_server.len().min(buffer.len()).min(torn);
        buffer[..count].copy_from_slice(&take(&mut link.to_server, count));
        // The end was told, and is not told again.
        if !link.to_server.is_empty() && link.is_open {
            network.events[self.shard].push_back(IoEvent::Readable { socket, ends: false });
        }
        Received::Bytes(count)
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Sent {
        let network = &mut *self.network.borrow_mut();
        let number = network.sockets[socket.0 as usize];
        let link = &mut network.links[number];
        if !link.is_open {
            return Sent::Closed;
        }
        let taken = bytes.len().min(link.room);
        link.to_client.extend(&bytes[..taken]);
        network.digest.write_u32(!(number as u32));
        network.digest.write(&bytes[..taken]);
        link.room -= taken;
        link.was_full |= taken < bytes.len();
        Sent::Bytes(taken)
    }

    fn peer_address(&self, _socket: Socket) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }

    fn listener(&self, _: Socket) -> usize {
        0
    }

    fn close(&mut self, socket: Socket) {
        let network = &mut *self.network.borrow_mut();
        let link = network.link_of(socket);
        (link.is_open, link.is_held) = (false, false);
        network.free_sockets.push(socket.0);
    }

    fn retire(&mut self, socket: Socket) {
        let network = &mut *self.network.borrow_mut();
        let link = network.link_of(socket);
        (link.is_open, link.is_held) = (false, false);
    }

    fn counters(&self) -> IoCounters {
        IoCounters::default()
    }
}
