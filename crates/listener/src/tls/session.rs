//! One connection's TLS: ciphertext in, plaintext out, and the other way round. It holds no buffers but what is left of a
//! record in either direction.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::certificate::name_of;

/// The most plaintext that is put in one record.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 10;
/// Room for what a record adds to its contents, and for a message that has to go before it.
const OVERHEAD_BYTES: usize = 256;

/// One connection.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
}

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// The result of received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Bytes that are done with, from the front.
    pub used: usize,
    /// The peer sends nothing more.
    pub is_ended: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Session {
    /// One that waits for the first bytes of a client.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { connection: UnbufferedServerConnection::new(config)? })
    }

    /// Whether the handshake is over.
    pub fn is_open(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Whose certificate the client showed.
    pub fn peer_name(&self) -> Option<String> {
        self.connection.peer_certificates()?.first().and_then(name_of)
    }

    /// Takes received bytes; what is to be sent goes to `out`, what was decrypted to `plain`.
    ///
    /// # Errors
    /// The peer broke the protocol, or showed what does not hold; `out` has the alert that says so.
    pub fn hear(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Heard, rustls::Error> {
        let mut heard = Heard::default();
        loop {
            let UnbufferedStatus { mut discard, state, .. } =
                self.connection.process_tls_records(&mut input[heard.used..]);
            let mut is_done = false;
            match state {
                Err(error) => {
                    self.say_alert(&mut input[heard.used + discard..], out);
                    return Err(error);
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => heard.is_ended = true,
                Ok(ConnectionState::Closed) => (heard.is_ended, is_done) = (true, true),
                Ok(_) => is_done = true,
            }
            heard.used += discard;
            if is_done {
                return Ok(heard);
            }
        }
    }

    /// Puts what a peer is told of its fault behind `out`. Only what is there already is asked for: rustls would go on with
    /// what it cannot read. Bytes after the peer's fault are passed, for rustls may stand in the middle of it.
    fn say_alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        while self.connection.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(data)) =
                self.connection.process_tls_records(rest).state
        {
            encode(data, out);
        }
    }

    /// Encrypts at most [`RECORD_BYTES_MAX`] and puts the record behind `out`; answers false if that cannot be done.
    ///
    /// `incoming` is what was received and is not done with: rustls may stand in the middle of it.
    pub fn seal(&mut self, plain: &[u8], incoming: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        self.write(incoming, out, plain.len(), |traffic, room| traffic.encrypt(plain, room))
    }

    /// Puts behind `out` that nothing more comes.
    pub fn say_end(&mut self, incoming: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.write(incoming, out, 0, |traffic, room| traffic.queue_close_notify(room));
    }

    /// Writes once that is possible; answers false if it never is.
    fn write(
        &mut self,
        incoming: &mut Vec<u8>,
        out: &mut Vec<u8>,
        len: usize,
        mut write: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> bool {
        loop {
            let UnbufferedStatus { discard, state, .. } =
                self.connection.process_tls_records(incoming);
            let mut written = None;
            match state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {}
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    written = Some(append(out, len, |room| write(&mut traffic, room)));
                }
                Ok(_) | Err(_) => written = Some(false),
            }
            incoming.drain(..discard);
            if let Some(written) = written {
                return written;
            }
        }
    }
}

/// Puts what `write` writes behind `out`; answers false if it cannot.
fn append(
    out: &mut Vec<u8>,
    len: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> bool {
    let at = out.len();
    let mut room = len + OVERHEAD_BYTES;
    loop {
        out.resize(at + room, 0);
        match write(&mut out[at..]) {
            Ok(count) => {
                out.truncate(at + count);
                return true;
            }
            Err(EncryptError::InsufficientSize(needed)) if needed.required_size > room => {
                room = needed.required_size;
            }
            Err(_) => {
                out.truncate(at);
                return false;
            }
        }
    }
}

/// Puts a message of the handshake behind `out`.
fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let at = out.len();
    if let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
        out.resize(at + needed.required_size, 0);
        let count = data.encode(&mut out[at..]).unwrap_or(0);
        out.truncate(at + count);
    }
}
