//! How much may wait for one connection: answers that are built, and those under way to it. It is asked before each
//! command; what comes when it is spent stays as it was received. Requests to others are not counted while they are
//! under way, or two sessions that ask each other could wait for each other: their number has a limit of its own, and
//! an answer for which there is no room is refused. docs/protocol.md#flow-control.

use engine::Io;
use hub::{ConnectionId, SessionIndex};
use model::{Selector, Subscribe};

use crate::dialects::{Native, Speech};
use crate::edge::{CommandSource, Commands, Connection};
use crate::shard::Shard;

/// Bytes that an answer without a payload has, beside the names in it.
pub(crate) const ANSWER_BYTES: usize = 192;
/// Commands of one message that are carried out before others have their turn.
const COMMANDS_IN_A_ROW: usize = 1_024;

impl<I: Io> Shard<I> {
    /// How many bytes of answers a connection has room for.
    pub(crate) fn room_of(&self, link: ConnectionId) -> usize {
        let open = self.open_connection(link);
        open.map_or(self.config.limits.answers_bytes_max, |open| self.room_on(link, open))
    }

    fn room_on(&self, link: ConnectionId, connection: &Connection) -> usize {
        let bytes_max = self.config.limits.answers_bytes_max;
        let room = bytes_max.saturating_sub(connection.conversation.answers_waiting(&self.hub));
        let Some(native) = connection.conversation.native() else { return room };
        match room.checked_sub(self.edge.subscribing.of(link)) {
            Some(rest) if rest > 0 => rest,
            _ if self.hub.awaits_topics(native.session) => 0,
            _ => room,
        }
    }

    /// Whether a connection's answers leave room for another command.
    pub(crate) fn has_room(&self, link: ConnectionId) -> bool {
        let Some(connection) = self.open_connection(link) else { return true };
        connection.conversation.may_hear(&self.config.limits) && self.room_on(link, connection) > 0
    }

    fn native_of(&mut self, link: ConnectionId) -> Option<&mut Native> {
        let connection = self.connection(link);
        connection.and_then(|open| open.conversation.native_mut())
    }

    /// Counts an answer that is under way to a connection.
    pub(crate) fn reserve(&mut self, link: ConnectionId, bytes: usize) {
        if let Some(native) = self.native_of(link) {
            native.speech.reserve(bytes);
        }
    }

    /// Counts it no more: it is here.
    pub(crate) fn release(&mut self, link: ConnectionId, bytes: usize) {
        if let Some(native) = self.native_of(link) {
            native.speech.release(bytes);
            self.touch(link);
        }
    }

    /// What the answer to a subscription may have. How many topics a pattern selects is not known: nothing comes after
    /// it until it is answered.
    pub(crate) fn answer_bytes_of(&self, wanted: &Subscribe) -> usize {
        let bytes_max = self.config.limits.answers_bytes_max;
        let bytes_of = |selector: &Selector| match selector.has_wildcard() {
            true => bytes_max,
            false => selector.as_str().len() + ANSWER_BYTES,
        };
        wanted.selectors.iter().map(bytes_of).fold(0, usize::saturating_add)
    }

    /// Counts the answer to a subscription if it has to wait for its topics' homes.
    pub(crate) fn reserve_subscription(
        &mut self,
        link: ConnectionId,
        session: SessionIndex,
        bytes: usize,
    ) {
        if self.hub.awaits_topics(session) {
            self.edge.subscribing.add(link, bytes);
        }
    }

    /// Counts the answers to subscriptions no more once they are here.
    pub(crate) fn release_subscriptions(&mut self, link: ConnectionId) {
        if self.edge.subscribing.of(link) == 0 {
            return;
        }
        let native = self.open_connection(link).and_then(|open| open.conversation.native());
        if native.is_some_and(|native| !self.hub.awaits_topics(native.session)) {
            self.edge.subscribing.forget(link);
        }
    }

    /// Whether a session's connection has room for an answer of so many bytes, if need be after it took others.
    /// One answer always has, however large.
    #[must_use]
    pub(crate) fn makes_room(&mut self, session: SessionIndex, bytes: usize) -> bool {
        let bytes_max = self.config.limits.answers_bytes_max;
        let has_room = |waiting: usize| waiting == 0 || waiting.saturating_add(bytes) <= bytes_max;
        if has_room(self.hub.answers_bytes(session)) {
            return true;
        }
        self.send_answers(session);
        has_room(self.hub.answers_bytes(session))
    }

    /// Carries out commands of a session as far as its answers leave room; the rest waits.
    pub(crate) fn carry_out_or_keep(&mut self, link: ConnectionId, mut commands: Commands) {
        if self.edge.inputs.has_received(link) || !self.carry_out(link, &mut commands) {
            self.edge.keep_commands(link, commands);
        }
    }

    /// Carries out commands; answers whether none is left.
    #[must_use = "what is left is to be kept"]
    pub(crate) fn carry_out(
        &mut self,
        link: ConnectionId,
        commands: &mut impl CommandSource,
    ) -> bool {
        self.release_subscriptions(link);
        for _ in 0..COMMANDS_IN_A_ROW {
            if commands.is_empty() {
                return true;
            }
            let open = self.open_connection(link);
            if open.is_none_or(|open| open.open_native().is_none()) {
                return true;
            }
            if !self.has_room(link) || self.has_worked_enough() {
                return false;
            }
            let Some((command, bytes)) = commands.next(&self.config.limits) else { return true };
            self.note_bytes(bytes);
            self.handle_command(link, command);
        }
        commands.is_empty()
    }
}
