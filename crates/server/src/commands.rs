//! The commands of sessions. What each needs of the server and what carries it out stand together here, one below the other;
//! the right that each takes is with all rights (`access::check_command`). A new command visits these two places.

use std::sync::Arc;

use access::check_command;
use engine::Io;
use hub::{ConnectionId, SessionIndex};
use model::{
    Acknowledge, Attach, Command, CommandId, DeltaKind, Detach, Event, Features, Handle, Hello,
    HistoryQuery, Principal, Publish, Refusal, Request, Respond, Selector, Subscribe, Unhandle,
    Unsubscribe,
};
use protocol::native::binary::{Decoded, IsBinary};
use protocol::native::{self, Undecoded};

use crate::budget::ANSWER_BYTES;
use crate::conversation::check_filter;
use crate::desks::Change;
use crate::shard::Shard;
use crate::turn::STEPS_OF_A_COMMAND;

/// A command's session, and how it came.
struct Given {
    link: ConnectionId,
    session: SessionIndex,
    principal: Arc<Principal>,
    speech: native::Conversation,
    id: Option<CommandId>,
    is_binary: IsBinary,
    /// No command came before.
    is_first: bool,
}

/// What the server needs for a command: room for mail to other shards, and memory for what they and it keep.
struct Needs {
    /// What cannot be done without.
    what: &'static str,
    /// Bytes that are kept; what the command says itself is in memory already.
    kept_bytes: usize,
}

/// What is kept beside a name for each topic read, selector handled, request or device: here, and as much on another shard.
const ENTRY_BYTES: usize = 2 << 10;

fn bytes_of(selectors: &[Selector]) -> usize {
    let names: usize = selectors.iter().map(|selector| selector.as_str().len()).sum();
    selectors.len() * ENTRY_BYTES + 4 * names
}

/// A command that a shard carries out.
trait Serve<I: Io>: Sized {
    /// What it needs. What ends something needs nothing: it is carried out in any case.
    fn needs(&self) -> Option<Needs> {
        None
    }

    /// Carries it out.
    ///
    /// # Errors
    /// It is refused.
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal>;
}

impl<I: Io> Shard<I> {
    /// Takes a command of a session, or what was none.
    pub(crate) fn handle_command(&mut self, link: ConnectionId, command: Decoded) {
        let connection = self.connection(link);
        let Some(native) = connection.and_then(|open| open.conversation.native_mut()) else {
            return;
        };
        let (session, principal) = (native.session, Arc::clone(&native.principal));
        let is_first = native.speech.handle_command();
        let speech = native.speech;
        self.counters.commands += 1;
        self.note_work(STEPS_OF_A_COMMAND);
        let (id, result) = match command {
            Err(Undecoded { id, refusal }) => (id, Err(refusal)),
            Ok((id, command, is_binary)) => {
                let from = Given { link, session, principal, speech, id, is_binary, is_first };
                (id, self.serve(command, &from))
            }
        };
        if let Err(refusal) = result {
            self.note_refusal(link, &refusal);
            self.hub.tell(session, &Event::Refused { id, refusal });
        }
    }

    fn serve(&mut self, command: Command, from: &Given) -> Result<(), Refusal> {
        check_command(&from.principal, &command, |draft| {
            self.devices.count_event(from.link, draft)
        })?;
        from.speech.check(&command, self.config.features)?;
        match command {
            Command::Hello(it) => self.serve_one(it, from),
            Command::Subscribe(it) => self.serve_one(it, from),
            Command::Unsubscribe(it) => self.serve_one(it, from),
            Command::Publish(it) => self.serve_one(it, from),
            Command::History(it) => self.serve_one(it, from),
            Command::Acknowledge(it) => self.serve_one(it, from),
            Command::Handle(it) => self.serve_one(it, from),
            Command::Unhandle(it) => self.serve_one(it, from),
            Command::Request(it) => self.serve_one(it, from),
            Command::Respond(it) => self.serve_one(it, from),
            Command::Attach(it) => self.serve_one(it, from),
            Command::Detach(it) => self.serve_one(it, from),
            Command::Close => self.serve_one(Close, from),
            Command::Ping => self.serve_one(Ping, from),
        }
    }

    fn serve_one(&mut self, command: impl Serve<I>, from: &Given) -> Result<(), Refusal> {
        if let Some(Needs { what, kept_bytes }) = command.needs() {
            self.check_kept(kept_bytes, what)?;
            self.check_mail(what)?;
        }
        command.serve(self, from)
    }
}

/// [`Command::Close`].
struct Close;
/// [`Command::Ping`].
struct Ping;

impl<I: Io> Serve<I> for Hello {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        let greeted = shard.handle_hello(from.link, from.id, self, from.is_first);
        if from.is_first
            && greeted.is_err()
            && let Some(open) = shard.connection(from.link)
            && let Some(native) = open.conversation.native_mut()
        {
            // It may greet once more, with another token.
            native.speech.handle_greeting_refused();
        }
        greeted
    }
}

impl<I: Io> Serve<I> for Subscribe {
    fn needs(&self) -> Option<Needs> {
        Some(Needs { what: "subscribe", kept_bytes: bytes_of(&self.selectors) })
    }

    fn serve(mut self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        if !from.speech.agreed(shard.config.features).has(Features::DELTAS) {
            self.options.delta = DeltaKind::None;
        }
        check_filter(&self.options)?;
        let bytes = shard.answer_bytes_of(&self);
        let changed = shard.change_subscriptions(from.link, from.id, Change::Subscribe(self));
        shard.reserve_subscription(from.link, from.session, bytes);
        changed
    }
}

impl<I: Io> Serve<I> for Unsubscribe {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        let changed = shard.change_subscriptions(from.link, from.id, Change::Unsubscribe(self));
        // What is left may have to go through all topics again: nothing comes after that until it did.
        let bytes_max = shard.config.limits.answers_bytes_max;
        shard.reserve_subscription(from.link, from.session, bytes_max);
        changed
    }
}

impl<I: Io> Serve<I> for Publish {
    // A publication for which a mailbox or memory has no room is refused by itself.
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.publish_for(from.link, from.id, from.is_binary, self.draft);
        Ok(())
    }
}

impl<I: Io> Serve<I> for HistoryQuery {
    // What a page takes of memory is asked where it is read.
    fn needs(&self) -> Option<Needs> {
        Some(Needs { what: "read the history", kept_bytes: 0 })
    }

    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.ask_history(from.link, from.id, self);
        Ok(())
    }
}

impl<I: Io> Serve<I> for Acknowledge {
    fn needs(&self) -> Option<Needs> {
        Some(Needs { what: "acknowledge", kept_bytes: self.positions.len() * ENTRY_BYTES })
    }

    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.reserve(from.link, ANSWER_BYTES);
        shard
            .acknowledge(from.link, &from.principal, from.id, self)
            .inspect_err(|_| shard.release(from.link, ANSWER_BYTES))
    }
}

impl<I: Io> Serve<I> for Handle {
    fn needs(&self) -> Option<Needs> {
        Some(Needs { what: "handle requests", kept_bytes: bytes_of(&self.selectors) })
    }

    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.handle_requests(from.link, &from.principal, from.id, self)
    }
}

impl<I: Io> Serve<I> for Unhandle {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.unhandle_requests(from.link, from.id, self)
    }
}

impl<I: Io> Serve<I> for Request {
    fn needs(&self) -> Option<Needs> {
        Some(Needs { what: "ask", kept_bytes: ENTRY_BYTES })
    }

    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.ask(from.link, &from.principal, from.id, self)
    }
}

impl<I: Io> Serve<I> for Respond {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        match (shard.respond(from.link, self), from.id) {
            (Err(refusal), Some(_)) => Err(refusal),
            // Who did not ask does not hear it.
            (Err(_), None) | (Ok(()), _) => Ok(()),
        }
    }
}

impl<I: Io> Serve<I> for Attach {
    fn needs(&self) -> Option<Needs> {
        Some(Needs { what: "attach the device", kept_bytes: ENTRY_BYTES })
    }

    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.attach_to_session(from.link, from.id, self)
    }
}

impl<I: Io> Serve<I> for Detach {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.detach_from_session(from.link, from.id, self)
    }
}

impl<I: Io> Serve<I> for Close {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.end(from.link);
        Ok(())
    }
}

impl<I: Io> Serve<I> for Ping {
    fn serve(self, shard: &mut Shard<I>, from: &Given) -> Result<(), Refusal> {
        shard.hub.tell(from.session, &Event::Pong { id: from.id });
        Ok(())
    }
}
