//! The state of one connection of a listener that expects more than plain bytes.

use std::net::SocketAddr;

use crate::tls::Session;

/// One connection.
#[derive(Debug)]
pub(crate) struct State {
    /// Which of all that ever had this socket: deadlines are about one of them.
    pub id: u64,
    pub stage: Stage,
    /// The client that a proxy named.
    pub client: Option<SocketAddr>,
    /// Decrypted bytes that the shard could not take yet.
    pub early: Vec<u8>,
    /// Received bytes that do not make a whole header or record yet.
    pub incoming: Vec<u8>,
    /// It came with the header of a proxy, and nobody looked at it.
    pub is_incoming_new: bool,
    /// The socket holds the last bytes: no further event will tell.
    pub ends: bool,
    /// Its handshake goes on in a later turn.
    pub is_put_off: bool,
    pub tls: Option<Session>,
    /// Ciphertext that the socket did not take: at most a record, or what a handshake says.
    pub unsent: Vec<u8>,
    /// Whose certificate the client showed.
    pub name: Option<Box<str>>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The header of its proxy is arriving: the shard does not know of it yet.
    Header,
    /// The shard knows of it, and can neither receive nor send.
    Handshake,
    /// Bytes go through.
    Open,
    /// The peer sends nothing more.
    Ended,
    /// It failed: the shard is told that it is closed.
    Broken,
    /// The shard closed it; what it had said is still going out.
    Lingering,
}

impl State {
    /// One from which nothing was received.
    pub fn new(id: u64, stage: Stage) -> Self {
        Self {
            id,
            stage,
            client: None,
            early: Vec::new(),
            incoming: Vec::new(),
            is_incoming_new: false,
            ends: false,
            is_put_off: false,
            tls: None,
            unsent: Vec::new(),
            name: None,
        }
    }

    /// Takes what came early, as far as there is room; answers how much.
    pub fn take_early(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.early.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.early[..count]);
        match count == self.early.len() {
            true => self.early = Vec::new(),
            false => drop(self.early.drain(..count)),
        }
        count
    }

    /// Keeps what is no whole record yet; mostly there is nothing.
    pub fn keep_incoming(&mut self, rest: &[u8]) {
        match rest.is_empty() {
            true => self.incoming = Vec::new(),
            false => {
                self.incoming.clear();
                self.incoming.extend_from_slice(rest);
            }
        }
    }
}
