//! Which right each command takes. What a right is, and what is said where it is missing, is `model::Principal::check`'s.

use model::{Command, Draft, Principal, Refusal, Selector, Wish, topic_of_device};

/// Whether all that is selected may be read.
///
/// # Errors
/// Something of it may not.
pub fn check_read(principal: &Principal, selectors: &[Selector]) -> Result<(), Refusal> {
    selectors.iter().try_for_each(|selector| principal.check(Wish::Read(selector)))
}

/// Whether a principal may give a command. Every command stands here. `is_own_event` tells whether a draft is an event
/// of a device that the session attached: what it may say came with that.
///
/// # Errors
/// What its principal may not do.
pub fn check_command(
    principal: &Principal,
    command: &Command,
    is_own_event: impl FnOnce(&Draft) -> bool,
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
            acknowledged
                .positions
                .iter()
                .try_for_each(|(topic, _)| principal.check(Wish::Read(&Selector::of_topic(topic))))
        }
        Command::History(query) => principal.check(Wish::Read(&Selector::of_topic(&query.topic))),
        // An event of a device that the session attached is the device's.
        Command::Publish(publish) if is_own_event(&publish.draft) => Ok(()),
        Command::Publish(publish) => principal.check(Wish::Publish(&publish.draft.topic)),
        Command::Handle(handle) => {
            handle.selectors.iter().try_for_each(|selector| principal.check(Wish::Handle(selector)))
        }
        Command::Request(request) => principal.check(Wish::Ask(&request.topic)),
        // Without a key of the application, whose roles are its rights.
        Command::Attach(attach) => match attach.authorization {
            Some(_) => Ok(()),
            None => principal.check(Wish::Attach(&topic_of_device(&attach.device)?)),
        },
    }
}

#[cfg(test)]
mod tests {
    use model::{Attach, Code, Limits, Payload, PayloadKind, Publish, TopicName};

    use super::*;

    fn check(command: &Command, is_own_event: bool) -> Result<(), Code> {
        let nobody = Principal { everything: false, ..Principal::unlimited("reader") };
        check_command(&nobody, command, |_| is_own_event).map_err(|refusal| refusal.code)
    }

    #[test]
    fn events_of_own_devices_and_keys_of_applications_are_rights_of_their_own() {
        let topic = TopicName::parse("devices/a/d/events", &Limits::default()).expect("valid");
        let payload = Payload::new(PayloadKind::Text, b"x");
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        let publish = Command::Publish(Publish { draft });
        assert_eq!(check(&publish, false), Err(Code::NotAllowed));
        assert_eq!(check(&publish, true), Ok(()));
        let attach = |device: &str, key: Option<&str>| {
            let authorization = key.map(Into::into);
            Command::Attach(Attach { device: device.into(), authorization, info: None })
        };
        assert_eq!(check(&attach("a/d", None), false), Err(Code::NotAllowed));
        assert_eq!(check(&attach("a/d", Some("Bearer k")), false), Ok(()), "the key decides");
        assert_eq!(check(&attach("d", None), false), Err(Code::BadRequest));
    }
}
