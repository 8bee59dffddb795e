//! The frames of WebSockets, whatever is spoken over them, and what is said at once.

use engine::Io;
use hub::ConnectionId;
use protocol::websocket::{Heard, Inbound, Unread};

use crate::dialect::Dialect;
use crate::dialects::{Speech, on_dialect};
use crate::edge::{Connection, Transport};
use crate::shard::Shard;

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
        let is_deflated = conversation.is_deflated(&self.hub);
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
        let Some(connection) = self.edge.get_mut(link) else { return };
        match heard {
            Heard::Control(_) => {}
            Heard::Closed => {
                connection.conversation.end(&mut self.hub);
                self.end_soon(link);
            }
            Heard::Broken(error) => {
                self.close_with_code(link, &error.refusal(), error.close_code());
            }
            Heard::Text(_) | Heard::Binary(_) => {
                let acts = on_dialect!(&connection.conversation, it => it.acts());
                (acts.hear)(self, link, heard);
            }
        }
    }

    /// Says something behind what was said before.
    pub(crate) fn say(&mut self, link: ConnectionId, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(connection) = self.edge.get_mut(link) {
            connection.conversation.say(bytes, &mut self.hub);
        }
    }

    /// Sends what a connection's socket did not take yet.
    pub(crate) fn send_unsent(&mut self, link: ConnectionId) {
        if !self.edge.send_unsent(link) {
            self.drop_connection(link);
        }
    }
}
