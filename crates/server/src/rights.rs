//! Which right each command takes. What a right is, and what is said where it is missing, is `model::Principal::check`'s.

use engine::{Io, Socket};
use model::{Command, Principal, Refusal, Selector, Wish};

use crate::devices::topic_of_device;
use crate::shard::Shard;

/// Whether all that is selected may be read.
pub(crate) fn check_read(principal: &Principal, selectors: &[Selector]) -> Result<(), Refusal> {
    selectors.iter().try_for_each(|selector| principal.check(Wish::Read(selector)))
}

impl<I: Io> Shard<I> {
    /// Whether the session on a connection may give a command. Every command stands here.
    ///
    /// # Errors
    /// What its principal may not do.
    pub(crate) fn check_command(
        &mut self,
        socket: Socket,
        principal: &Principal,
        command: &Command,
    ) -> Result<(), Refusal> {
        match command {
            // About what the session has, which took a right, or about itself.
            Command::Unsubscribe(_)
            | Command::Unhandle(_)
            | Command::Respond(_)
            | Command::Detach(_)
            | Command::Close
            | Command::Ping => Ok(()),
            // It presents what rights come from.
            Command::Hello(_) => Ok(()),
            Command::Subscribe(wanted) => {
                if wanted.name.is_some() {
                    principal.check(Wish::Acknowledge)?;
                }
                check_read(principal, &wanted.selectors)
            }
            Command::Acknowledge(acknowledged) => {
                principal.check(Wish::Acknowledge)?;
                acknowledged.positions.iter().try_for_each(|(topic, _)| {
                    principal.check(Wish::Read(&Selector::of_topic(topic)))
                })
            }
            Command::History(query) => {
                principal.check(Wish::Read(&Selector::of_topic(&query.topic)))
            }
            // An event of a device that the session attached is the device's.
            Command::Publish(publish) if self.count_event(socket, &publish.draft) => Ok(()),
            Command::Publish(publish) => principal.check(Wish::Publish(&publish.draft.topic)),
            Command::Handle(handle) => handle
                .selectors
                .iter()
                .try_for_each(|selector| principal.check(Wish::Handle(selector))),
            Command::Request(request) => principal.check(Wish::Ask(&request.topic)),
            // Without a key of the application, whose roles are its rights.
            Command::Attach(attach) => match attach.authorization {
                Some(_) => Ok(()),
                None => principal.check(Wish::Attach(&topic_of_device(&attach.device)?)),
            },
        }
    }
}
