//! The bridge's side of the port. Nothing here knows a clock: the bridge is called when there is something to hear.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use engine::MailSender;
use model::{Command, CommandId, Limits, Principal};

use crate::mail::ShardMail;
use crate::port::session::{LocalSession, PortMail};
use crate::port::told::{Credit, Listener, Window};

/// What a session is to be.
pub struct Opening {
    /// What operators see.
    pub name: String,
    /// Whose rights it has.
    pub principal: Arc<Principal>,
    /// Who hears what it is told.
    pub listener: Listener,
}

/// Where bridges come in.
#[derive(Clone, Debug)]
pub struct Port {
    shards: Vec<MailSender<ShardMail>>,
    /// The shard that the next session goes to.
    next: Arc<AtomicUsize>,
    commands_max: usize,
}

impl Port {
    /// The port of the shards with these mailboxes.
    pub fn new(shards: Vec<MailSender<ShardMail>>, limits: &Limits) -> Self {
        Self { shards, next: Arc::default(), commands_max: limits.bridge_commands_max }
    }

    /// Opens a session, on one shard after the other. It is told nothing before there is credit, answers aside.
    ///
    /// # Errors
    /// The shard's mailbox is full: try again later.
    pub fn open(&self, opening: Opening) -> Result<Local, PortFull> {
        let Opening { name, principal, listener } = opening;
        let (commands, heard) = sync_channel(self.commands_max);
        let window = Arc::new(Window::default());
        let session = LocalSession::new(name, principal, listener, heard, Arc::clone(&window));
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let shard = self.shards[at].clone();
        let mail = ShardMail::Port(PortMail::Open(Box::new(session)));
        shard.send(mail).map_err(|_| PortFull)?;
        Ok(Local { shard, commands: Some(commands), window })
    }
}

/// The mailbox of a shard is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFull;

impl fmt::Display for PortFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot open a session: the shard's mailbox is full; try again")
    }
}

impl std::error::Error for PortFull {}

/// A command that was not given.
#[derive(Debug, PartialEq)]
pub enum Unsent {
    /// There is no room for it now. An answer to an earlier one says that there is again.
    Full(Box<Command>),
    /// The session is over.
    Closed,
}

/// A session of a bridge. Dropping it ends the session.
#[derive(Debug)]
pub struct Local {
    shard: MailSender<ShardMail>,
    /// Always there, until it is dropped.
    commands: Option<SyncSender<(CommandId, Command)>>,
    window: Arc<Window>,
}

impl Local {
    /// Gives a command. Its answer names `id`.
    ///
    /// # Errors
    /// It was not given: `bridge_commands_max` commands wait for the shard, and the command comes back; or the session is over.
    pub fn send(&self, id: CommandId, command: Command) -> Result<(), Unsent> {
        let Some(commands) = &self.commands else { return Err(Unsent::Closed) };
        match commands.try_send((id, command)) {
            Ok(()) => {
                self.ring();
                Ok(())
            }
            Err(TrySendError::Full((_, command))) => Err(Unsent::Full(Box::new(command))),
            Err(TrySendError::Disconnected(_)) => Err(Unsent::Closed),
        }
    }

    /// Lets the session be told so much in all. What was granted once stays so.
    pub fn grant(&self, credit: Credit) {
        if self.window.open(credit) {
            self.ring();
        }
    }

    /// Has the shard look. If its mailbox is full it is awake, and looks after it took its mail.
    fn ring(&self) {
        let _ = self.shard.send(ShardMail::Port(PortMail::Look));
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.commands = None;
        self.ring();
    }
}
