//! What happens to connections: they come, say something, take what is said, and go.

use std::net::IpAddr;

use engine::{Io, IoEvent, Received, Socket};
use hub::ConnectionId;
use model::planted::{Fault, is_planted};

use crate::dialect::Dialect;
use crate::dialects::{Conversation, Speech, on_dialect};
use crate::edge::{Connection, Gone, Poll, Transport, Waiting};
use crate::key::no_session;
use crate::shard::Shard;

/// Full buffers received from one connection before others have their turn.
const READS_IN_A_ROW: usize = 4;

impl<I: Io> Shard<I> {
    /// Hears what happened outside.
    pub(crate) fn handle_event(&mut self, event: IoEvent) {
        match event {
            IoEvent::Accepted { socket, peer } => self.open(socket, peer.ip()),
            IoEvent::Readable { socket, ends } => {
                if let Some(link) = self.edge.connections.current(socket.0) {
                    self.receive(link, ends);
                }
            }
            IoEvent::Writable(socket) => {
                if let Some(link) = self.edge.connections.current(socket.0) {
                    self.handle_writable(link);
                }
            }
        }
    }

    fn open(&mut self, socket: Socket, peer: IpAddr) {
        let Some(link) = self.edge.open(socket, self.now.coarse_seconds()) else { return };
        let addresses = &self.access.addresses;
        let network = addresses.of_peer(peer);
        let counted =
            network.map_or(Ok(None), |network| addresses.connect(network, &self.config.limits));
        match counted {
            Ok(Some(counted)) => self.edge.note_counted(link, counted),
            Ok(None) => {}
            Err(refusal) => self.refuse_http(link, &refusal),
        }
    }

    pub(crate) fn connection(&mut self, link: ConnectionId) -> Option<&mut Connection> {
        self.edge.get_mut(link)
    }

    pub(crate) fn open_connection(&self, link: ConnectionId) -> Option<&Connection> {
        self.edge.get(link)
    }

    /// Receives what a socket holds. What `ends` is received to its end: no event will tell of that.
    fn receive(&mut self, link: ConnectionId, ends: bool) {
        let ends = ends && !is_planted(Fault::EndsUnheard);
        for _ in 0..READS_IN_A_ROW {
            if self.connection(link).is_none() {
                return;
            }
            if !self.may_read(link) || self.has_worked_enough() {
                break;
            }
            let (received, mut buffer) = self.edge.receive(link);
            let has_more = match received {
                Received::Bytes(count) => ends || count == buffer.len(),
                Received::Nothing | Received::Ended | Received::Closed => false,
            };
            match received {
                Received::Bytes(count) => self.handle_bytes(link, &mut buffer[..count]),
                Received::Nothing => {}
                Received::Ended => self.handle_end(link),
                Received::Closed => self.drop_connection(link),
            }
            self.edge.put_buffer(buffer);
            if !has_more {
                return;
            }
        }
        if ends && self.is_left(link) {
            return self.drop_connection(link);
        }
        if let Some(waiting) = self.go_on_later(link) {
            waiting.is_readable = true;
            waiting.ends |= ends;
        }
    }

    /// Whether a connection whose peer sends nothing more waits for that peer to take answers in vain. Who ends a WebSocket without
    /// its closing handshake has left (RFC 6455, section 7.1.5); who ends the requests of a connection may still read their answers.
    fn is_left(&self, link: ConnectionId) -> bool {
        let open = self.open_connection(link);
        let is_websocket =
            open.is_some_and(|open| matches!(open.transport, Transport::WebSocket(_)));
        is_websocket && !self.has_room(link)
    }

    /// Lets a connection's input go on in the next turn.
    pub(crate) fn go_on_later(&mut self, link: ConnectionId) -> Option<&mut Waiting> {
        self.edge.go_on_later(link)
    }

    /// Goes on with input that waited.
    pub(crate) fn go_on(&mut self, link: ConnectionId, mut waiting: Waiting) {
        self.note_work(1);
        let (is_readable, ends) = (waiting.is_readable, waiting.ends);
        if self.open_connection(link).is_none() {
            return;
        }
        if !self.may_go_on(link) {
            return match ends && self.is_left(link) {
                true => self.drop_connection(link),
                false => self.edge.inputs.park(link, waiting),
            };
        }
        self.take_requests(link);
        self.go_on_with_received(link, &mut waiting);
        if waiting.has_received() || self.edge.inputs.has_received(link) {
            if self.open_connection(link).is_some() {
                self.edge.inputs.put_back(link, waiting);
            }
        } else if is_readable {
            self.receive(link, ends);
        }
    }

    /// Goes on with what was received before, as far as the answers leave room.
    fn go_on_with_received(&mut self, link: ConnectionId, waiting: &mut Waiting) {
        while let Some(commands) = waiting.commands.front_mut() {
            if !self.carry_out(link, commands) {
                return;
            }
            waiting.commands.pop_front();
        }
        if !waiting.bytes.is_empty() {
            let taken = self.handle_messages(link, waiting.bytes.rest_mut());
            waiting.bytes.take(taken);
        }
    }

    /// Takes messages of a conversation, as far as its answers leave room; answers how many bytes.
    fn handle_messages(&mut self, link: ConnectionId, bytes: &mut [u8]) -> usize {
        let Some(open) = self.open_connection(link) else { return bytes.len() };
        let taken = match (&open.transport, &open.conversation) {
            (Transport::WebSocket(_), _) => self.handle_frames(link, bytes),
            (_, conversation) => {
                let acts = on_dialect!(conversation, it => it.acts());
                (acts.hear_bytes)(self, link, bytes)
            }
        };
        self.note_bytes(taken);
        taken
    }

    /// Whether a connection that waits is not waiting in vain.
    pub(crate) fn may_go_on(&self, link: ConnectionId) -> bool {
        let has_request = matches!(
            self.edge.connections.get(link),
            Some(Connection { conversation: Conversation::Head(input), .. }) if !input.is_empty()
        );
        has_request || self.has_room(link) && self.may_receive(link)
    }

    /// Whether a connection's answers, and what was received before, leave room for more.
    fn may_read(&self, link: ConnectionId) -> bool {
        match self.edge.connections.get(link) {
            // What they receive is no command: it is received to hear of the end.
            Some(Connection { transport: Transport::Response { .. }, .. }) => true,
            _ => {
                !self.edge.inputs.has_received(link)
                    && self.has_room(link)
                    && self.may_receive(link)
            }
        }
    }

    /// Whether requests that came early leave room for more: for what a head may be, and one receive.
    fn may_receive(&self, link: ConnectionId) -> bool {
        let early = match self.edge.connections.get(link).map(|open| &open.conversation) {
            Some(Conversation::Answering(answering)) => &answering.early,
            Some(Conversation::Head(input)) => input,
            _ => return true,
        };
        early.len() < self.config.limits.head_bytes_max
    }

    /// Hears that something happened to a connection by which its input may go on, or its closing.
    pub(crate) fn touch(&mut self, link: ConnectionId) {
        self.edge.touch(link);
    }

    pub(crate) fn handle_bytes(&mut self, link: ConnectionId, bytes: &mut [u8]) {
        let now = self.now.coarse_seconds();
        let Some(connection) = self.connection(link) else { return };
        let has_open_body = connection.conversation.has_open_body();
        match &connection.transport {
            // Nothing is asked on a connection whose answer goes on.
            Transport::Response { .. } | Transport::Polls { .. } | Transport::Local { .. } => {}
            Transport::Http if !has_open_body => match self.check_arriving(link, bytes.len()) {
                Ok(()) => self.handle_http(link, bytes),
                Err(refusal) => self.refuse_http(link, &refusal),
            },
            Transport::WebSocket(_) | Transport::Http => {
                connection.heard_at = now;
                let taken = self.handle_messages(link, bytes);
                self.edge.keep_bytes(link, &bytes[taken..]);
                self.check_partial(link);
            }
        }
    }

    fn handle_writable(&mut self, link: ConnectionId) {
        let Some(connection) = self.open_connection(link) else { return };
        let acts = on_dialect!(&connection.conversation, it => it.acts());
        (acts.handle_writable)(self, link);
    }

    /// Forgets a connection and closes its socket.
    pub(crate) fn drop_connection(&mut self, link: ConnectionId) {
        let Some(gone) = self.edge.close(link) else { return };
        let Gone { connection, counted, poll, local } = gone;
        self.turn.note_leavings();
        if let Some(counted) = counted {
            self.access.addresses.disconnect(counted);
        }
        on_dialect!(&connection.conversation, it => it.handle_gone(self, link));
        if let Some(local) = local {
            local.end();
        }
        // Whoever polls is told that the session ended.
        if let Some(asker) = poll.and_then(Poll::into_asker) {
            self.answer_refusal(asker, &no_session());
        }
    }
}
