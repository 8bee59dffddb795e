//! Bytes through connections that are open: what is inside of records, and records of what is sent.

use engine::{Io, IoEvent, Received, Sent, Socket};

use crate::filter::FilteredIo;
use crate::state::{Stage, State};
use crate::tls::RECORD_BYTES_MAX;

/// The most bytes of a record on the wire.
const WIRE_BYTES_MAX: usize = RECORD_BYTES_MAX + 2_048;

/// The bytes that are received from one connection before others have their turn, also if nothing is inside.
const RECEIVES_IN_A_ROW: usize = 8;

impl<I: Io> FilteredIo<I> {
    /// Receives what is inside. The shard hears in the next turn of what this one leaves.
    pub(crate) fn receive_inside(&mut self, socket: Socket, buffer: &mut [u8]) -> Received {
        let Some(state) = self.state(socket) else { return Received::Closed };
        if !state.early.is_empty() {
            let count = state.take_early(buffer);
            let ends = state.ends;
            self.later.push(IoEvent::Readable { socket, ends });
            return Received::Bytes(count);
        }
        match (state.stage, state.tls.is_some()) {
            (Stage::Header | Stage::Handshake, _) => return Received::Nothing,
            (Stage::Broken | Stage::Lingering, _) => return Received::Closed,
            (Stage::Ended, _) => return Received::Ended,
            (Stage::Open, false) => return self.io.receive(socket, buffer),
            (Stage::Open, true) => {}
        }
        let mut scratch = self.take_scratch();
        let mut plain = Vec::new();
        self.receive_records(socket, &mut scratch, &mut plain, buffer.len());
        self.scratch = scratch;
        let Some(state) = self.state(socket) else { return Received::Closed };
        let stage = state.stage;
        if plain.is_empty() {
            return match stage {
                Stage::Ended => Received::Ended,
                Stage::Broken => Received::Closed,
                _ => Received::Nothing,
            };
        }
        let count = plain.len().min(buffer.len());
        buffer[..count].copy_from_slice(&plain[..count]);
        let rest = &plain[count..];
        state.early.extend_from_slice(rest);
        if !rest.is_empty() || stage != Stage::Open {
            self.later.push(IoEvent::Readable { socket, ends: true });
        }
        Received::Bytes(count)
    }

    /// Receives records until the socket has no more, or until there is as much as may be taken at once.
    fn receive_records(
        &mut self,
        socket: Socket,
        scratch: &mut [u8],
        plain: &mut Vec<u8>,
        bytes_max: usize,
    ) {
        for _ in 0..RECEIVES_IN_A_ROW {
            let Some(state) = self.state(socket) else { return };
            let kept = state.incoming.len();
            let left = bytes_max.saturating_sub(plain.len() + kept).min(scratch.len() - kept);
            if left < WIRE_BYTES_MAX && !plain.is_empty() {
                return self.go_on_later(socket);
            }
            let end = if left < WIRE_BYTES_MAX { scratch.len() } else { kept + left };
            scratch[..kept].copy_from_slice(&state.incoming);
            let received = self.io.receive(socket, &mut scratch[kept..end]);
            match received {
                Received::Bytes(count) => {
                    if !self.open_records(socket, &mut scratch[..kept + count], plain) {
                        return;
                    }
                    // The end may wait still, and is told only to those who ask.
                    if count < end - kept && !plain.is_empty() {
                        return;
                    }
                }
                Received::Nothing => return,
                Received::Ended => return self.set_stage(socket, Stage::Ended),
                Received::Closed => return self.set_stage(socket, Stage::Broken),
            }
        }
        self.go_on_later(socket);
    }

    /// Has the shard receive again in the next turn.
    fn go_on_later(&mut self, socket: Socket) {
        let ends = self.state(socket).is_some_and(|state| state.ends);
        self.later.push(IoEvent::Readable { socket, ends });
    }

    /// Decrypts what was received; answers whether there may be more.
    fn open_records(&mut self, socket: Socket, bytes: &mut [u8], plain: &mut Vec<u8>) -> bool {
        let Some(state) = self.state(socket) else { return false };
        let Some(tls) = &mut state.tls else { return false };
        let said = state.unsent.len();
        let heard = tls.hear(bytes, plain, &mut state.unsent);
        let has_answer = state.unsent.len() > said;
        let is_ended = match &heard {
            Ok(heard) => {
                state.keep_incoming(&bytes[heard.used..]);
                heard.is_ended
            }
            Err(_) => false,
        };
        if is_ended {
            state.stage = Stage::Ended;
        }
        if has_answer {
            self.flush(socket);
        }
        if let Err(error) = heard {
            self.fail(socket, &error);
            return false;
        }
        !is_ended
    }

    fn set_stage(&mut self, socket: Socket, stage: Stage) {
        if let Some(state) = self.state(socket) {
            state.stage = stage;
        }
    }

    /// Sends what the shard says: record by record, so that at most one of them has to be kept for a socket that is full.
    pub(crate) fn send_inside(&mut self, socket: Socket, stage: Stage, bytes: &[u8]) -> Sent {
        match stage {
            Stage::Header | Stage::Handshake => return Sent::Bytes(0),
            Stage::Broken | Stage::Lingering => return Sent::Closed,
            Stage::Open | Stage::Ended => {}
        }
        if self.state(socket).is_some_and(|state| state.tls.is_none()) {
            return self.io.send(socket, bytes);
        }
        if !self.flush(socket) {
            let is_broken = |state: &mut State| state.stage == Stage::Broken;
            let is_gone = self.state(socket).is_none_or(is_broken);
            return if is_gone { Sent::Closed } else { Sent::Bytes(0) };
        }
        let mut taken = 0;
        for piece in bytes.chunks(RECORD_BYTES_MAX) {
            let mut sealed = std::mem::take(&mut self.sealed);
            sealed.clear();
            let sent = self.send_record(socket, piece, &mut sealed);
            self.sealed = sealed;
            let Some(is_full) = sent else { return Sent::Closed };
            // What the socket did not take of the record is kept here: it cannot be made again.
            taken += piece.len();
            if is_full {
                break;
            }
        }
        Sent::Bytes(taken)
    }

    /// Sends a record; answers whether the socket is full, or nothing if it broke.
    fn send_record(&mut self, socket: Socket, piece: &[u8], sealed: &mut Vec<u8>) -> Option<bool> {
        let state = self.state(socket)?;
        if !state.tls.as_mut()?.seal(piece, &mut state.incoming, sealed) {
            return None;
        }
        let Sent::Bytes(count) = self.io.send(socket, sealed) else { return None };
        if count < sealed.len() {
            self.state(socket)?.unsent = sealed[count..].to_vec();
        }
        Some(count < sealed.len())
    }

    /// Sends what the socket did not take before; answers whether it has everything now.
    pub(crate) fn flush(&mut self, socket: Socket) -> bool {
        let Some(state) = self.state(socket) else { return true };
        if state.unsent.is_empty() {
            return true;
        }
        let unsent = std::mem::take(&mut state.unsent);
        let sent = self.io.send(socket, &unsent);
        let Some(state) = self.state(socket) else { return false };
        match sent {
            Sent::Bytes(count) if count == unsent.len() => true,
            Sent::Bytes(count) => {
                state.unsent = unsent[count..].to_vec();
                false
            }
            Sent::Closed => {
                if state.stage != Stage::Lingering {
                    self.break_off(socket);
                } else {
                    state.stage = Stage::Broken;
                }
                false
            }
        }
    }

    /// Says that nothing more comes, where that is said; answers whether the socket has everything.
    pub(crate) fn say_end(&mut self, socket: Socket) -> bool {
        let Some(state) = self.state(socket) else { return true };
        let (Stage::Open | Stage::Ended, Some(tls)) = (state.stage, &mut state.tls) else {
            return true;
        };
        tls.say_end(&mut state.incoming, &mut state.unsent);
        self.flush(socket) || self.state(socket).is_none_or(|it| it.stage == Stage::Broken)
    }
}
