//! Connections that we are closing. [`Shard::close`] is the one way in which a peer is told why, whatever is spoken and however it
//! travels; each goes once it took what waits for it, or when its time is up.

use engine::Io;
use hub::ConnectionId;
use model::Refusal;

use crate::dialects::Speech;
use crate::edge::Transport;
use crate::encoder::Manner;
use crate::shard::Shard;

/// The close code of a WebSocket whose client wants no more.
const NORMAL: u16 = 1000;

impl<I: Io> Shard<I> {
    /// Tells a peer why its connection ends, then ends it. One whose last words were said is told nothing more, and requests
    /// over HTTP go once they are answered.
    pub(crate) fn close(&mut self, link: ConnectionId, refusal: &Refusal) {
        self.close_with_code(link, refusal, refusal.code.number());
    }

    /// The same with a close code of WebSocket's own.
    pub(crate) fn close_with_code(
        &mut self,
        link: ConnectionId,
        refusal: &Refusal,
        close_code: u16,
    ) {
        if self.say_last(link, Some(refusal), close_code) {
            self.note_refusal(link, refusal);
            self.send_unsent(link);
        }
        self.end_soon(link);
    }

    /// Ends a conversation whose peer wants no more.
    pub(crate) fn end(&mut self, link: ConnectionId) {
        if !self.say_last(link, None, NORMAL) {
            return;
        }
        self.send_unsent(link);
        self.end_soon(link);
        // Nobody polls for the last words of a session that was given up.
        if link.socket().is_none() {
            self.drop_connection(link);
        }
    }

    /// Says the last words of a conversation and of what it travels on, unless they were said; answers whether somebody is told.
    fn say_last(&mut self, link: ConnectionId, refusal: Option<&Refusal>, close_code: u16) -> bool {
        let Some(connection) = self.edge.get_mut(link) else { return false };
        if connection.transport.is_closing() || connection.conversation.is_closing() {
            return false;
        }
        let mut words = Vec::new();
        match &mut connection.transport {
            Transport::WebSocket(channel) => {
                let text = refusal.map_or("", |refusal| &refusal.text);
                channel.close(close_code, text, &mut words);
            }
            Transport::Response { is_closing } | Transport::Polls { is_closing } => {
                *is_closing = true;
                let session = connection.conversation.native().map(|native| native.session);
                let framing = session.map(|it| Manner::of(self.hub.encoding(it)).framing);
                if let Some(framing) = framing {
                    Self::encode_stream_end(framing, &mut words);
                }
            }
            Transport::Local { is_closing } => *is_closing = true,
            Transport::Http => {}
        }
        connection.conversation.say_last(refusal, &words, &mut self.hub)
    }

    /// Lets a connection go whose last words were said, once they are taken.
    pub(crate) fn end_soon(&mut self, link: ConnectionId) {
        self.edge.end_soon(link, self.now.elapsed);
    }

    /// Drops the connections that took what waited for them, and those whose time is up.
    pub(crate) fn finish_closing(&mut self) {
        for link in self.edge.closing.take_touched() {
            self.note_work(1);
            if self.has_taken_all(link) {
                self.drop_connection(link);
            }
        }
        while let Some(link) = self.edge.closing.pop_due(self.now.elapsed) {
            self.note_work(1);
            self.drop_connection(link);
        }
    }

    /// Whether a connection that is being closed took what waited for it.
    fn has_taken_all(&self, link: ConnectionId) -> bool {
        let is_closing = self.edge.closing.contains(link);
        let open = self.open_connection(link).filter(|_| is_closing);
        open.is_some_and(|open| open.conversation.is_all_taken(&self.hub))
    }
}
