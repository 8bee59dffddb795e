//! Sessions of bridges among the connections of a shard.

use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use engine::Io;
use hub::ConnectionId;
use model::{Command, HashSet, Publish, Refusal};
use protocol::native::binary::IsBinary;
use protocol::native::{self, Undecoded};

use crate::dialects::{Conversation, Native};
use crate::edge::{Connection, Transport, Waiting};
use crate::encoder::LOCAL;
use crate::port::records::Name;
use crate::port::session::{LocalSession, PortMail};
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    pub(crate) fn handle_port(&mut self, mail: PortMail) {
        match mail {
            PortMail::Open(session) if !self.turn.is_stopping() => self.open_local(*session),
            PortMail::Open(session) => session.end(),
            // They are all looked at.
            PortMail::Look => {}
        }
    }

    fn open_local(&mut self, local: LocalSession) {
        let heard_at = self.now.coarse_seconds();
        let link = self.edge.connections.open_unattached(Connection::new(heard_at));
        let principal = Arc::clone(&local.principal);
        let session = self.hub.open_session(link, LOCAL);
        self.hub.set_rates(session, principal.rates, self.now);
        self.log_opening(link, &principal.name);
        self.asking.name(link, &local.name, self.config.limits.client_bytes_max);
        let native = Native { session, principal, speech: native::Conversation::default() };
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::Local { is_closing: false };
            connection.conversation = Conversation::Native(native);
        }
        self.edge.transports.locals.insert(link, local);
    }

    /// Hears the sessions of bridges, after this turn's mail.
    pub(crate) fn hear_locals(&mut self) {
        if self.edge.transports.locals.is_empty() {
            return;
        }
        let links: Vec<ConnectionId> = self.edge.transports.locals.keys().copied().collect();
        for link in links {
            self.hear_credit(link);
            self.hear_commands(link);
        }
    }

    /// Goes on telling a session that has credit again.
    fn hear_credit(&mut self, link: ConnectionId) {
        let local = self.edge.transports.locals.get_mut(&link);
        if !local.is_some_and(LocalSession::stop_waiting) {
            return;
        }
        let open = self.open_connection(link);
        if let Some(native) = open.and_then(|open| open.conversation.native()) {
            self.hub.handle_writable(native.session);
        }
    }

    /// Carries out a session's commands, as far as its answers leave room.
    fn hear_commands(&mut self, link: ConnectionId) {
        loop {
            if self.has_worked_enough() {
                self.edge.go_on_later(link);
                return;
            }
            if !self.has_room(link) {
                if !self.edge.inputs.is_waiting(link) {
                    self.edge.inputs.park(link, Waiting::default());
                }
                return;
            }
            let Some(local) = self.edge.transports.locals.get_mut(&link) else { return };
            match local.next_command() {
                Ok((id, command)) => {
                    let (id, checked) = (Some(id), self.check_payload(&command));
                    let command = match checked {
                        Ok(()) => Ok((id, command, IsBinary::No)),
                        Err(refusal) => Err(Undecoded { id, refusal }),
                    };
                    self.handle_command(link, command);
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.drop_connection(link),
            }
        }
    }

    /// What is decoded is checked then; this never was bytes.
    fn check_payload(&self, command: &Command) -> Result<(), Refusal> {
        let Command::Publish(Publish { draft }) = command else { return Ok(()) };
        let (len, bytes_max) = (draft.payload.bytes().len(), self.config.limits.payload_bytes_max);
        match len <= bytes_max {
            true => Ok(()),
            false => Err(Refusal::payload_too_large(len, bytes_max)),
        }
    }

    /// Tells a bridge what its session took.
    pub(crate) fn tell_local(&mut self, link: ConnectionId) {
        if let Some(local) = self.edge.transports.locals.get_mut(&link) {
            local.tell_sent(self.hub.encoder_mut().records_mut());
        }
    }

    /// Forgets the records that no session is to be told any more.
    pub(crate) fn forget_told(&mut self) {
        let is_anything_under_way = self.hub.has_batches_under_way();
        if !self.hub.encoder_mut().records_mut().are_many(is_anything_under_way) {
            return;
        }
        let mut named: HashSet<u64> = HashSet::default();
        let mut name = |bytes| named.extend(Name::all(bytes).map(|name| name.number));
        self.hub.batches_under_way(LOCAL).for_each(&mut name);
        for link in self.edge.transports.locals.keys() {
            let open = self.open_connection(*link);
            if let Some(native) = open.and_then(|open| open.conversation.native()) {
                name(self.hub.answers(native.session));
            }
        }
        self.hub.forget_made();
        self.hub.encoder_mut().records_mut().keep(&named);
    }

    /// Ends the sessions of all bridges: they have no last words to wait for.
    pub(crate) fn drop_locals(&mut self) {
        let links: Vec<ConnectionId> = self.edge.transports.locals.keys().copied().collect();
        links.into_iter().for_each(|link| self.drop_connection(link));
    }
}
