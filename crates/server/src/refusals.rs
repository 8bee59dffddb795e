//! What clients are refused, as the log tells it.
//!
//! A refusal is one line with its code, its text and whom it met, so that the log alone says why a client got nothing. How
//! many lines there are in a minute is bounded (`access::Refusals`).

use std::net::IpAddr;

use access::{LINES_PER_MINUTE, Plain};
use engine::{Io, Refused};
use hub::ConnectionId;
use model::{Code, Refusal};
use tracing::Level;

use crate::dialects::Speech;
use crate::shard::Shard;

/// How much a refusal is worth: what is the server's own bound may need the operator, what happens in ordinary traffic
/// is for those who look closely. Names of hosts and origins are told once each elsewhere.
fn level_of(code: Code) -> Level {
    match code {
        Code::TooManyConnections
        | Code::TooSlow
        | Code::TooManyTopics
        | Code::NotKept
        | Code::OutOfMemory
        | Code::TooManyFailures
        | Code::AddressLimit => Level::WARN,
        Code::GoingAway
        | Code::NoSession
        | Code::ResponseRolled
        | Code::NoHandler
        | Code::TimedOut
        | Code::HandlerGone
        | Code::DeviceGone
        | Code::NoDevice
        | Code::Declined
        | Code::NoRequest
        | Code::NotFound
        | Code::SequenceMismatch
        | Code::UnknownHost
        | Code::ForeignOrigin => Level::DEBUG,
        _ => Level::INFO,
    }
}

impl<I: Io> Shard<I> {
    /// Counts a refusal of what came on a connection of this shard, and tells the operator.
    pub(crate) fn note_refusal(&mut self, link: ConnectionId, refusal: &Refusal) {
        self.counters.refusals += 1;
        match level_of(refusal.code) {
            Level::WARN if tracing::enabled!(Level::WARN) => {}
            Level::INFO if tracing::enabled!(Level::INFO) => {}
            Level::DEBUG if tracing::enabled!(Level::DEBUG) => {}
            _ => return,
        }
        let peer = self.peer_of(link);
        if self.access.refusals.is_told(refusal.code, peer, self.now.unix_ms) {
            self.tell_refusal(link, peer, refusal);
        }
    }

    /// Counts the refusals of connections that this shard never heard of, and tells the operator.
    pub(crate) fn note_refused(&mut self) {
        while let Some(Refused { peer, code, text }) = self.edge.io.poll_refused() {
            self.counters.refusals += 1;
            let code = Code::from_number(code);
            if self.access.refusals.is_told(code, peer, self.now.unix_ms) {
                let (number, word) = (code.number(), code.word());
                let peer = peer.map(tracing::field::display);
                tracing::info!(code = number, word, peer, "refused: {}", Plain(&text));
            }
        }
    }

    /// Tells once a minute of how many refusals no line told.
    pub(crate) fn log_untold_refusals(&self) {
        for (code, count) in self.access.refusals.poll_untold(self.now.unix_ms) {
            let (number, word) = (code.number(), code.word());
            tracing::info!(
                count,
                code = number,
                word,
                "as many more were refused: {LINES_PER_MINUTE} lines a minute tell of one code and address"
            );
        }
    }

    /// Tells those who look closely that a session begins, and for whom.
    pub(crate) fn log_opening(&self, link: ConnectionId, principal: &str) {
        if tracing::enabled!(Level::DEBUG) {
            let session = self.open_connection(link).map(|_| self.session_name(link));
            let peer = self.peer_of(link).map(tracing::field::display);
            tracing::debug!(session, principal, peer, "session opened");
        }
    }

    fn tell_refusal(&self, link: ConnectionId, peer: Option<IpAddr>, refusal: &Refusal) {
        let open = self.open_connection(link);
        let native = open.and_then(|open| open.conversation.native());
        let session = native.map(|_| self.session_name(link));
        let principal = native.map(|native| &*native.principal.name);
        let client = native.and_then(|_| self.asking.client_on(link));
        let device = open.and_then(|open| open.conversation.device()).map(Plain);
        let client = client.map(Plain);
        let (code, word, text) = (refusal.code.number(), refusal.code.word(), Plain(&refusal.text));
        let (peer, session) = (peer.map(tracing::field::display), session.as_deref());
        let (client, device) =
            (client.map(tracing::field::display), device.map(tracing::field::display));
        macro_rules! tell {
            ($level:ident) => {
                tracing::$level!(
                    code,
                    word,
                    peer,
                    session,
                    principal,
                    client,
                    device,
                    "refused: {text}"
                )
            };
        }
        match level_of(refusal.code) {
            Level::WARN => tell!(warn),
            Level::INFO => tell!(info),
            _ => tell!(debug),
        }
    }
}
