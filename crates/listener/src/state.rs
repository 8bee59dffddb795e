//! What is remembered of one connection of a listener that expects more than plain bytes.

use std::net::SocketAddr;

/// One connection.
#[derive(Debug)]
pub(crate) struct State {
    /// Which of all that ever had this socket: deadlines are about one of them.
    pub id: u64,
    pub stage: Stage,
    /// The client that a proxy named.
    pub client: Option<SocketAddr>,
    /// What was received with the header and comes after it.
    pub early: Vec<u8>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The header of its proxy is arriving: the shard does not know of it yet.
    Header,
    /// Bytes go through.
    Open,
}

impl State {
    /// One from which nothing was received.
    pub fn new(id: u64, stage: Stage) -> Self {
        Self { id, stage, client: None, early: Vec::new() }
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
}
