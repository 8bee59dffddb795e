//! Once a second: who takes too long to ask; and in turn, which sessions were silent too long.

use std::time::Duration;

use engine::Io;
use hub::ConnectionId;
use model::{Code, Refusal};
use protocol::websocket::Due;

use crate::dialects::Conversation;
use crate::edge::{Connection, Transport};
use crate::shard::Shard;

/// What to do about a connection.
enum Verdict {
    Slow,
    Idle,
    Ping,
    Silent,
    Trickles,
    KeepAlive,
    Roll,
}

/// Seconds in which every session is looked at once: often enough for limits of this many times that.
const LOOKS_PER_LIMIT: u64 = 8;

impl<I: Io> Shard<I> {
    /// Looks at every connection that is about HTTP, and at a share of the sessions: of millions,
    /// most have nothing to be told, and only reading of each costs.
    pub(crate) fn sweep(&mut self, now: u32) {
        self.hub.handle_tick();
        if self.index.0 == 0 {
            self.log_untold_refusals();
        }
        for link in self.edge.requests() {
            self.look_at(link, now);
        }
        self.sweep_polled(now);
        self.close_unauthenticated();
        let limits = &self.config.limits;
        let shortest =
            limits.ping_after_ms.min(limits.silence_ms).min(limits.stream_keep_alive_ms).as_secs();
        let period = (shortest / LOOKS_PER_LIMIT).clamp(1, 60) as u32;
        let (end, _) = self.edge.connections.ends();
        let share = end.div_ceil(period);
        let first = (now % period) * share;
        for place in first..(first + share).min(end) {
            let Some(link) = self.edge.connections.current(place) else { continue };
            if self.connection(link).is_some_and(|open| open.conversation.is_long_lived()) {
                // Whoever says nothing more keeps no place among those that waited.
                self.release_subscriptions(link);
                self.look_at(link, now);
            }
        }
    }

    fn look_at(&mut self, link: ConnectionId, now: u32) {
        match self.judge(link, now) {
            None => {}
            Some(Verdict::Idle) => self.drop_connection(link),
            Some(Verdict::Slow) => {
                let text = "cannot wait any longer for the request: it took longer than \
                            request_ms; send it faster";
                self.refuse_http(link, &Refusal::new(Code::SlowRequest, text));
            }
            Some(Verdict::Ping) => self.ping(link),
            Some(Verdict::KeepAlive) => self.keep_alive(link),
            Some(Verdict::Roll) => self.roll(link),
            Some(Verdict::Trickles) => {
                let text = "closing: a message took longer than message_ms to arrive; send it faster, or raise the \
                            limit in the configuration";
                self.close_websocket(link, &Refusal::new(Code::SlowRequest, text));
            }
            Some(Verdict::Silent) => {
                let text = "closing: nothing was heard for silence_ms, not even a pong, or of a device for \
                            2.5 times its heartbeat; connect again";
                let refusal = Refusal::new(Code::Silent, text);
                self.close_device(link, &refusal);
                self.close_websocket(link, &refusal);
            }
        }
    }

    fn close_websocket(&mut self, link: ConnectionId, refusal: &Refusal) {
        self.close_native(link, refusal, refusal.code.number());
        let is_plain = |open: &mut Connection| {
            matches!(open.conversation, Conversation::Echo(_) | Conversation::Queries(_))
        };
        if self.connection(link).is_some_and(is_plain) {
            self.drop_connection(link);
        }
    }

    fn judge(&mut self, link: ConnectionId, now: u32) -> Option<Verdict> {
        let limits = &self.config.limits;
        let (request, keep_alive) = (limits.request_ms, limits.keep_alive_ms);
        let (message, answer) = (limits.message_ms, limits.answer_ms);
        let (ping_after, silence) = (limits.ping_after_ms, limits.silence_ms);
        let (keep_stream_alive, stream) = (limits.stream_keep_alive_ms, limits.stream_ms_max);
        let begun_at = self
            .edge
            .transports
            .inbounds
            .get_mut(link)
            .and_then(|inbound| inbound.partial_since(now));
        let connection = self.edge.connections.get(link)?;
        let since = |at: u32| Duration::from_secs(u64::from(now.saturating_sub(at)));
        let quiet = since(connection.heard_at);
        let trickles = begun_at.is_some_and(|at| since(at) > message);
        match &connection.conversation {
            Conversation::Head(early) if early.is_empty() => {
                return (quiet > keep_alive).then_some(Verdict::Idle);
            }
            Conversation::Head(_) | Conversation::Body(_) => {
                return (quiet > request).then_some(Verdict::Slow);
            }
            Conversation::Answering(answering) => {
                let is_over = answering.begun_at.is_some_and(|at| since(at) > answer);
                return is_over.then_some(Verdict::Idle);
            }
            Conversation::Device(attached) => {
                let is_silent = !attached.speech.is_closing() && quiet > attached.speech.silence();
                return is_silent.then_some(Verdict::Silent);
            }
            // It is asked nothing: whoever measures with it is not to be told anything unasked.
            Conversation::Echo(_) if !trickles => {
                return (quiet > silence).then_some(Verdict::Silent);
            }
            Conversation::Native(_) | Conversation::Echo(_) | Conversation::Queries(_) => {}
        }
        match &connection.transport {
            Transport::WebSocket(_) if trickles => Some(Verdict::Trickles),
            Transport::WebSocket(channel) => {
                channel.due(quiet, ping_after, silence).map(|due| match due {
                    Due::Ping => Verdict::Ping,
                    Due::Silence => Verdict::Silent,
                })
            }
            Transport::Response { is_closing: false } => {
                let opened_at = self.edge.transports.responses.get(&link).copied().unwrap_or(now);
                let is_over = since(opened_at) > stream;
                match is_over {
                    true => Some(Verdict::Roll),
                    false => (quiet >= keep_stream_alive).then_some(Verdict::KeepAlive),
                }
            }
            Transport::Response { .. }
            | Transport::Polls { .. }
            | Transport::Local { .. }
            | Transport::Http => None,
        }
    }

    fn ping(&mut self, link: ConnectionId) {
        let Some(connection) = self.connection(link) else { return };
        if let Transport::WebSocket(channel) = &mut connection.transport {
            let mut ping = Vec::new();
            channel.ping(&mut ping);
            self.say(link, &ping);
            self.send_unsent(link);
        }
    }
}
