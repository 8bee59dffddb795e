//! WebSockets that echo: measuring tools use them.

use engine::Io;
use hub::ConnectionId;
use model::Wish;
use protocol::echo;
use protocol::http::RequestHead;
use protocol::websocket::{
    Channel, Deflate, Deflater, Heard, Opcode, accept_plain_handshake, encode_handshake_response,
};

use crate::byte_queue::ByteQueue;
use crate::dialect::Dialect;
use crate::dialects::{Conversation, Echo};
use crate::edge::Transport;
use crate::shard::Shard;
use crate::turn::steps_of_bytes;

impl<I: Io> Dialect<I> for Echo {
    fn hear(shard: &mut Shard<I>, link: ConnectionId, heard: Heard<'_>) {
        shard.hear_echo(link, &heard);
    }
}

impl<I: Io> Shard<I> {
    /// Opens a WebSocket that echoes.
    pub(crate) fn open_echo(&mut self, link: ConnectionId, head: &RequestHead, rest: &[u8]) {
        let checked = self.check_origin(head).and_then(|()| {
            let network = self.network_of(link, head);
            self.principal_on(link, network, head.bearer_token()?)?.check(Wish::Echo)?;
            let handshake = accept_plain_handshake(head)?;
            self.count_connection(link, network)?;
            Ok(handshake)
        });
        let handshake = match checked {
            Ok(handshake) => handshake,
            Err(refusal) => return self.refuse_request(link, head, &refusal),
        };
        let deflater = |deflate: Deflate| Deflater::new(1, deflate.window_bits);
        let deflater = handshake.deflate.map(deflater);
        let mut unsent = ByteQueue::default();
        encode_handshake_response(&handshake, unsent.end_mut());
        let echo = Echo { speech: echo::Conversation::new(deflater), unsent };
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::WebSocket(Channel::default());
            connection.conversation = Conversation::Echo(Box::new(echo));
        }
        self.send_unsent(link);
        self.handle_rest(link, rest);
    }

    fn hear_echo(&mut self, link: ConnectionId, heard: &Heard<'_>) {
        /// Compressing is slower than copying.
        const TIMES_DEFLATED: u64 = 8;
        let connection = self.edge.get_mut(link);
        let Some(Conversation::Echo(echo)) = connection.map(|open| &mut open.conversation) else {
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
}
