//! Once a second: who takes too long to ask; and in turn, which sessions were silent too long.

use std::time::Duration;

use engine::Io;
use hub::ConnectionId;
use model::{Code, Refusal};
use protocol::websocket::Due;

use crate::dialects::{Overdue, Quiet, Speech};
use crate::edge::Transport;
use crate::shard::Shard;

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
        match self.overdue(link, now) {
            None => {}
            Some(Overdue::Idle) => self.drop_connection(link),
            Some(Overdue::Slow) => {
                let text = "cannot wait any longer for the request: it took longer than \
                            request_ms; send it faster";
                self.refuse_http(link, &Refusal::new(Code::SlowRequest, text));
            }
            Some(Overdue::Ping) => self.ping(link),
            Some(Overdue::KeepAlive) => self.keep_alive(link),
            Some(Overdue::Roll) => self.roll(link),
            Some(Overdue::Trickles) => {
                let text = "closing: a message took longer than message_ms to arrive; send it faster, or raise the \
                            limit in the configuration";
                self.close(link, &Refusal::new(Code::SlowRequest, text));
            }
            Some(Overdue::Silent) => {
                let text = "closing: nothing was heard for silence_ms, not even a pong, or of a device for \
                            2.5 times its heartbeat; connect again";
                self.close(link, &Refusal::new(Code::Silent, text));
            }
        }
    }

    /// What is to be done about a connection: by what it travels on, unless the conversation knows better.
    fn overdue(&mut self, link: ConnectionId, now: u32) -> Option<Overdue> {
        let heard_at = self.edge.get(link)?.heard_at;
        let lasts = Duration::from_secs(u64::from(now.saturating_sub(heard_at)));
        let quiet = Quiet { now, lasts };
        let by_transport = self.overdue_by_transport(link, quiet);
        let connection = self.edge.get(link)?;
        connection.conversation.overdue(quiet, &self.config.limits, by_transport)
    }

    fn overdue_by_transport(&mut self, link: ConnectionId, quiet: Quiet) -> Option<Overdue> {
        let limits = &self.config.limits;
        let transports = &mut self.edge.transports;
        match &self.edge.connections.get(link)?.transport {
            Transport::WebSocket(channel) => {
                let inbound = transports.inbounds.get_mut(link);
                let begun_at = inbound.and_then(|inbound| inbound.partial_since(quiet.now));
                if begun_at.is_some_and(|at| quiet.since(at) > limits.message_ms) {
                    return Some(Overdue::Trickles);
                }
                let due = channel.due(quiet.lasts, limits.ping_after_ms, limits.silence_ms);
                due.map(|due| match due {
                    Due::Ping => Overdue::Ping,
                    Due::Silence => Overdue::Silent,
                })
            }
            Transport::Response { is_closing: false } => {
                let opened_at = transports.responses.get(&link).copied().unwrap_or(quiet.now);
                match quiet.since(opened_at) > limits.stream_ms_max {
                    true => Some(Overdue::Roll),
                    false => {
                        (quiet.lasts >= limits.stream_keep_alive_ms).then_some(Overdue::KeepAlive)
                    }
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
