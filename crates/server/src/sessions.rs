//! The sessions of a shard, as an operator lists them.

use admin::SeenSession;
use engine::Io;
use hub::ConnectionId;
use protocol::native::Encoding;

use crate::edge::Transport;
use crate::encoder::Manner;
use crate::shard::Shard;

/// Places of connections that are looked at for one question: the rest is for the next.
const LOOKED_AT_MAX: u32 = 4_096;
/// Sessions that one answer tells of: each asks the system for its address.
const TOLD_MAX: usize = 256;

fn is_events(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::Events | Encoding::EventsOfMany)
}

impl<I: Io> Shard<I> {
    /// Sessions after a connection's number, in order of number, and after which to go on, if there may be more. Those that
    /// are polled come last.
    pub(crate) fn sessions_after(
        &mut self,
        after: Option<u32>,
        limit: usize,
    ) -> (Vec<SeenSession>, Option<u32>) {
        let limit = limit.min(TOLD_MAX);
        let polled_first = self.edge.connections.first_unattached();
        let (end, polled_end) = self.edge.connections.ends();
        let mut next = after.map_or(0, |after| after.saturating_add(1));
        let mut seen = Vec::new();
        for _ in 0..LOOKED_AT_MAX {
            if next >= end && next < polled_first {
                next = polled_first;
            }
            if next >= polled_end {
                return (seen, None);
            }
            if seen.len() == limit {
                break;
            }
            self.note_work(1);
            seen.extend(self.edge.connections.current(next).and_then(|link| self.seen(link)));
            next += 1;
        }
        (seen, next.checked_sub(1))
    }

    fn seen(&self, link: ConnectionId) -> Option<SeenSession> {
        let open = self.open_connection(link)?;
        let native = open.conversation.native()?;
        let encoding = Manner::of(self.hub.encoding(native.session)).encoding;
        let look = self.hub.look_at(native.session);
        Some(SeenSession {
            session: self.session_name(link),
            principal: native.principal.name.clone(),
            client: self.asking.client_on(link).map(str::to_owned),
            peer: self.peer_of(link),
            transport: match &open.transport {
                Transport::Polls { .. } => "poll",
                Transport::Local { .. } => "local",
                Transport::Response { .. } if is_events(encoding) => "sse",
                Transport::Response { .. } => "stream",
                Transport::WebSocket(_) | Transport::Http => "websocket",
            },
            subscriptions: look.audiences as u64,
            is_in_step: look.is_in_step,
            heard_s: self.now.coarse_seconds().saturating_sub(open.heard_at),
        })
    }
}
