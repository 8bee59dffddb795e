//! The frames of WebSockets, whatever is spoken over them, and what is said at once.

use engine::Io;
use hub::ConnectionId;
use model::Refusal;
use protocol::websocket::{Heard, Inbound, Opcode, Unread};

use crate::dialects::Conversation;
use crate::edge::{Connection, Transport};
use crate::encoder::Manner;
use crate::shard::Shard;
use crate::turn::steps_of_bytes;

impl<I: Io> Shard<I> {
    /// Takes bytes of a WebSocket, as far as its answers leave room and the turn goes; answers how many.
    pub(crate) fn handle_frames(&mut self, link: ConnectionId, bytes: &mut [u8]) -> usize {
        // Apart from the shard meanwhile, so that no message has to be copied to be carried out.
        let mut inbound = self.edge.transports.inbounds.take(link);
        let len = bytes.len();
        let mut input = Unread::new(bytes);
        self.release_subscriptions(link);
        let mut is_heard = false;
        while !is_heard
            && self.has_room(link)
            && !self.edge.inputs.has_received(link)
            && !self.has_worked_enough()
        {
            let is_last = !self.hear_next(link, &mut input, &mut inbound);
            is_heard = is_last || input.is_empty() && inbound.is_empty();
        }
        if let Some(open) = self.open_connection(link) {
            let is_sent_here = open.conversation.unsent().is_some();
            self.edge.transports.inbounds.keep(link, inbound);
            if is_sent_here {
                self.send_unsent(link);
            }
        }
        if is_heard { len } else { input.taken() }
    }

    /// Hears the next thing; answers whether there was one.
    fn hear_next(
        &mut self,
        link: ConnectionId,
        input: &mut Unread<'_>,
        inbound: &mut Inbound,
    ) -> bool {
        let Some(Connection { transport: Transport::WebSocket(channel), conversation, .. }) =
            self.edge.connections.get_mut(link)
        else {
            return false;
        };
        let is_deflated = match conversation {
            Conversation::Native(native) => {
                Manner::of(self.hub.encoding(native.session)).is_deflated
            }
            Conversation::Echo(echo) => echo.speech.is_deflated(),
            _ => false,
        };
        let mut inflater = is_deflated.then(|| std::mem::take(&mut self.edge.inflater));
        let (limits, mut said) = (&self.config.limits, Vec::new());
        let heard = channel.poll_heard(inbound, input, limits, inflater.as_mut(), &mut said);
        let is_there = heard.is_some();
        if let Some(heard) = heard {
            self.hear(link, heard);
        }
        if let Some(inflater) = inflater {
            self.edge.inflater = inflater;
        }
        self.say(link, &said);
        is_there
    }

    fn hear(&mut self, link: ConnectionId, heard: Heard<'_>) {
        // What was compressed is many times what was received.
        self.note_bytes(heard.bytes());
        let Some(connection) = self.edge.connections.get_mut(link) else { return };
        match (heard, &mut connection.conversation) {
            (Heard::Control(_), _) => {}
            (Heard::Closed, conversation) => {
                if let Some(session) = conversation.native().map(|native| native.session) {
                    self.hub.end_reading(session);
                }
                self.end_soon(link);
            }
            (Heard::Broken(error), _) => {
                self.close_broken(link, &error.refusal(), error.close_code());
            }
            (heard, Conversation::Native(_)) => self.hear_native(link, heard),
            (heard, Conversation::Queries(_)) => self.hear_query(link, &heard),
            (heard, Conversation::Echo(_)) => self.hear_echo(link, &heard),
            // These have no WebSocket.
            (
                _,
                Conversation::Head(_)
                | Conversation::Body(_)
                | Conversation::Answering(_)
                | Conversation::Device(_),
            ) => {}
        }
    }

    fn hear_echo(&mut self, link: ConnectionId, heard: &Heard<'_>) {
        /// Compressing is slower than copying.
        const TIMES_DEFLATED: u64 = 8;
        let Some(Conversation::Echo(echo)) =
            self.edge.connections.get_mut(link).map(|open| &mut open.conversation)
        else {
            return;
        };
        let (opcode, payload) = match heard {
            Heard::Text(text) => (Opcode::Text, text.as_bytes()),
            Heard::Binary(bytes) => (Opcode::Binary, *bytes),
            Heard::Control(_) | Heard::Closed | Heard::Broken(_) => return,
        };
        echo.speech.handle_message(opcode, payload, echo.unsent.end_mut());
        let peak = &mut self.counters.answers_bytes_peak;
        *peak = (*peak).max(echo.unsent.len() as u64);
        if echo.speech.is_deflated() {
            self.note_work(steps_of_bytes(payload.len()) * (TIMES_DEFLATED - 1));
        }
    }

    /// Ends a WebSocket whose frames cannot be read.
    fn close_broken(&mut self, link: ConnectionId, refusal: &Refusal, close_code: u16) {
        self.close_native(link, refusal, close_code);
        let Some(connection) = self.edge.connections.get_mut(link) else { return };
        if let (Transport::WebSocket(channel), Some(unsent)) =
            (&mut connection.transport, connection.conversation.unsent_mut())
        {
            channel.close(close_code, &refusal.text, unsent.end_mut());
            self.end_soon(link);
        }
    }

    /// Says something behind what was said before.
    pub(crate) fn say(&mut self, link: ConnectionId, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(connection) = self.edge.connections.get_mut(link) else { return };
        match &mut connection.conversation {
            Conversation::Native(native) => self.hub.tell_bytes(native.session, bytes),
            other => {
                if let Some(unsent) = other.unsent_mut() {
                    unsent.append(bytes);
                }
            }
        }
    }

    /// Sends what a connection's socket did not take yet.
    pub(crate) fn send_unsent(&mut self, link: ConnectionId) {
        if !self.edge.send_unsent(link) {
            self.drop_connection(link);
        }
    }
}
