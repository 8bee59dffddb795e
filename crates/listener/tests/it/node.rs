//! A shard that keeps what it receives, and clients over TLS.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use engine::{Io, IoEvent, Received, Socket};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tidegate_listener::{FilterOptions, FilteredIo, Listener};

use crate::sockets::TestIo;

pub const PATIENT: FilterOptions =
    FilterOptions { opening: Duration::from_secs(60), handshakes_per_turn_max: 8 };

/// What becomes of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub bytes: Vec<u8>,
    pub is_writable: bool,
    pub end: Option<Received>,
    pub peer: String,
}

pub struct Node {
    pub io: FilteredIo<TestIo>,
    pub heard: HashMap<Socket, Heard>,
}

impl Node {
    pub fn new(listeners: Vec<Listener>, options: FilterOptions) -> Self {
        Self { io: FilteredIo::new(TestIo::default(), listeners, options), heard: HashMap::new() }
    }

    /// One turn, as a shard does it.
    pub fn turn(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        self.io.wait(Some(Duration::ZERO));
        while let Some(event) = self.io.poll_event() {
            match event {
                IoEvent::Accepted { socket, peer } => {
                    let heard = Heard { peer: peer.to_string(), ..Heard::default() };
                    self.heard.insert(socket, heard);
                }
                IoEvent::Writable(socket) => {
                    if let Some(heard) = self.heard.get_mut(&socket) {
                        heard.is_writable = true;
                    }
                }
                IoEvent::Readable { socket, .. } => self.receive(socket, &mut buffer),
            }
        }
    }

    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) {
        // An event of a socket that was closed meanwhile says nothing.
        let Some(heard) = self.heard.get_mut(&socket) else { return };
        loop {
            match self.io.receive(socket, buffer) {
                Received::Bytes(count) => heard.bytes.extend(&buffer[..count]),
                Received::Nothing => return,
                end => {
                    heard.end = Some(end);
                    return;
                }
            }
        }
    }

    pub fn codes(&mut self) -> Vec<u16> {
        std::iter::from_fn(|| self.io.poll_refused()).map(|refused| refused.code).collect()
    }
}

/// A client over TLS.
pub struct Client {
    pub socket: Socket,
    pub tls: ClientConnection,
    pub got: Vec<u8>,
    pub error: Option<rustls::Error>,
    pub has_ended: bool,
}

impl Client {
    pub fn connect(node: &mut Node, config: &Arc<ClientConfig>, host: &str, piece: usize) -> Self {
        let socket = node.io.io_mut().connect(0, piece);
        let host = ServerName::try_from(host.to_owned()).expect("a name");
        let mut tls = ClientConnection::new(Arc::clone(config), host).expect("a client");
        tls.set_buffer_limit(None);
        Self { socket, tls, got: Vec::new(), error: None, has_ended: false }
    }

    /// Sends what there is to send, and takes what came.
    pub fn pump(&mut self, node: &mut Node) {
        let io = node.io.io_mut();
        let came = std::mem::take(&mut io.wires[self.socket.0 as usize].to_client);
        let mut rest = &came[..];
        while !rest.is_empty() && self.error.is_none() {
            self.tls.read_tls(&mut rest).expect("memory");
            match self.tls.process_new_packets() {
                Ok(state) => self.has_ended |= state.peer_has_closed(),
                Err(error) => self.error = Some(error),
            }
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = self.tls.reader().read(&mut buffer) {
                self.got.extend(&buffer[..count]);
            }
        }
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("memory");
        }
        if !out.is_empty() {
            io.say(self.socket, &out);
        }
    }

    /// Goes on until the handshake is over on both sides, or failed.
    pub fn shake_hands(&mut self, node: &mut Node) {
        for _ in 0..100 {
            self.pump(node);
            node.turn();
        }
    }

    pub fn say(&mut self, node: &mut Node, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).expect("memory");
        self.pump(node);
    }
}
