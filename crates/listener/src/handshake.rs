//! Handshakes: how much of them a turn does, and what becomes of those that fail.

use engine::{Io, IoEvent, Received, Socket};
use model::Code;
use rustls::{AlertDescription, Error};

use crate::filter::FilteredIo;
use crate::state::Stage;
use crate::tls::Session;

/// The bytes that a client may send until its handshake is over: mostly its certificates.
const HANDSHAKE_BYTES_MAX: usize = 48 << 10;

/// The result of a step of a handshake.
enum Step {
    /// There is more to receive, and may be more to do.
    More,
    /// The client has its turn.
    Waits,
    /// It is over.
    Open,
}

impl<I: Io> FilteredIo<I> {
    /// Goes on with a handshake, now or in a later turn: each step may be a signature and a key exchange.
    pub(crate) fn handshake(&mut self, socket: Socket, ends: bool) {
        let Some(state) = self.state(socket) else { return };
        state.ends |= ends;
        if self.steps_left == 0 {
            return self.put_off(socket);
        }
        let mut scratch = self.take_scratch();
        let ends = loop {
            match self.take_step(socket, &mut scratch) {
                Ok(Step::More) if self.steps_left == 0 => {
                    self.put_off(socket);
                    break None;
                }
                Ok(Step::More) => {}
                Ok(Step::Waits) => break None,
                Ok(Step::Open) => break self.state(socket).map(|state| state.ends),
                Err(None) => {
                    self.break_off(socket);
                    break None;
                }
                Err(Some(error)) => {
                    self.fail(socket, &error);
                    break None;
                }
            }
        };
        self.scratch = scratch;
        if let Some(ends) = ends {
            // What came with the last message was not told of, nor that there is room.
            self.events.push_back(IoEvent::Readable { socket, ends });
            self.events.push_back(IoEvent::Writable(socket));
        }
    }

    /// Goes on with handshakes that were put off, the oldest first.
    pub(crate) fn go_on_with_handshakes(&mut self) {
        while self.steps_left > 0
            && let Some((socket, id)) = self.put_off.pop_front()
        {
            let Some(state) = self.state(socket).filter(|state| state.id == id) else { continue };
            state.is_put_off = false;
            if state.stage == Stage::Handshake {
                self.handshake(socket, false);
            }
        }
    }

    fn put_off(&mut self, socket: Socket) {
        let Some(state) = self.state(socket) else { return };
        let id = state.id;
        if !std::mem::replace(&mut state.is_put_off, true) {
            self.put_off.push_back((socket, id));
            self.handshakes.put_off += 1;
        }
    }

    /// Receives once, and does what follows from it.
    ///
    /// # Errors
    /// The client broke the protocol, or, without an error, left.
    fn take_step(&mut self, socket: Socket, scratch: &mut [u8]) -> Result<Step, Option<Error>> {
        let config = self.tls_of(socket).map(|tls| tls.current());
        let Some(state) = self.state(socket) else { return Ok(Step::Waits) };
        if state.tls.is_none() {
            let config = config.ok_or(None)?;
            state.tls = Some(Session::new(config)?);
        }
        let kept = std::mem::take(&mut state.incoming);
        if kept.len() > HANDSHAKE_BYTES_MAX {
            return Err(Some(Error::General("the handshake is too large".into())));
        }
        scratch[..kept.len()].copy_from_slice(&kept);
        // What came with the header of a proxy is looked at first.
        let received = match state.is_incoming_new {
            true => Received::Bytes(0),
            false => self.io.receive(socket, &mut scratch[kept.len()..]),
        };
        let room = scratch.len() - kept.len();
        let Some(state) = self.state(socket) else { return Ok(Step::Waits) };
        let was_new = std::mem::take(&mut state.is_incoming_new);
        let count = match received {
            Received::Bytes(count) => count,
            Received::Nothing => {
                state.incoming = kept;
                return Ok(Step::Waits);
            }
            Received::Ended | Received::Closed => return Err(None),
        };
        self.hear_step(socket, &mut scratch[..kept.len() + count])?;
        let Some(state) = self.state(socket) else { return Ok(Step::Waits) };
        if state.stage == Stage::Open {
            return Ok(Step::Open);
        }
        let may_have_more = was_new || state.ends || count == room;
        Ok(if may_have_more { Step::More } else { Step::Waits })
    }

    fn hear_step(&mut self, socket: Socket, bytes: &mut [u8]) -> Result<(), Option<Error>> {
        let Some(state) = self.state(socket) else { return Ok(()) };
        let Some(tls) = &mut state.tls else { return Ok(()) };
        let said = state.unsent.len();
        let heard = tls.hear(bytes, &mut state.early, &mut state.unsent);
        let is_open = tls.is_open();
        let has_worked = heard.is_err() || is_open || state.unsent.len() > said;
        if let Ok(heard) = &heard {
            state.keep_incoming(&bytes[heard.used..]);
            state.ends |= heard.is_ended;
        }
        if is_open {
            state.stage = Stage::Open;
            state.name = state.tls.as_ref().and_then(Session::peer_name).map(Into::into);
            self.handshakes.done += 1;
        }
        self.flush(socket);
        if has_worked {
            self.note_step();
        }
        heard.map(|_| ()).map_err(Some)
    }

    fn note_step(&mut self) {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.steps_in_turn += 1;
        let peak = &mut self.handshakes.steps_peak;
        *peak = (*peak).max(self.steps_in_turn);
    }

    /// Ends a connection whose handshake, or a record of which, cannot be accepted.
    pub(crate) fn fail(&mut self, socket: Socket, error: &Error) {
        self.handshakes.failed += 1;
        let code = match error {
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
                Code::BadClientCertificate
            }
            _ => Code::TlsFailed,
        };
        let text = format!("cannot go on with TLS: {error}{}", cure_of(error));
        let peer = self.peer_address(socket);
        self.refuse(peer, code, text);
        self.break_off(socket);
    }
}

/// The remedy for an error, where it is clear.
fn cure_of(error: &Error) -> &'static str {
    match error {
        Error::InvalidMessage(_) => {
            "; the client may speak no TLS: connect with wss:// or https://"
        }
        Error::NoCertificatesPresented => {
            "; the listener requires a client certificate: give the client one"
        }
        Error::InvalidCertificate(_) => {
            "; have it issued by an authority in client_ca, and renewed in time"
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown,
        ) => "; the client does not trust the server's certificate: give it the authority",
        Error::PeerIncompatible(_) => {
            "; the client offers no version or cipher that is spoken here"
        }
        _ => "",
    }
}
