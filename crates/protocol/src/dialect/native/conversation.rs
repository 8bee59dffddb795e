//! The rules of when a peer may say what: greeting once, features, and how much may wait to be told. Commands and answers are values; who carries
//! them out and sends them is not known here.

use model::{Code, Command, Features, Refusal};

/// One peer's conversation. 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Bytes that the answers under way may have.
    under_way: u32,
    /// A command was heard: `hello` comes too late.
    has_spoken: bool,
    /// Features that the peer named, so that they may be used.
    features: Features,
}

impl Default for Conversation {
    fn default() -> Self {
        Self { under_way: 0, has_spoken: false, features: Features::UNNAMED }
    }
}

impl Conversation {
    /// Hears that a command came, also one that cannot be read; answers whether it is the first.
    pub fn handle_command(&mut self) -> bool {
        !std::mem::replace(&mut self.has_spoken, true)
    }

    /// Whether both sides named what a command takes.
    ///
    /// # Errors
    /// One of them did not.
    pub fn check(&self, command: &Command, offered: Features) -> Result<(), Refusal> {
        let needed = Features::needed_by(command);
        if self.features.and(offered).has(needed) {
            return Ok(());
        }
        if let Some(feature) = needed.without(offered).names().next() {
            let text = format!(
                "cannot carry out the command: this server has no `{feature}`; go by `features` in its `welcome`"
            );
            return Err(Refusal::new(Code::UnknownCommand, text));
        }
        if let Some(feature) = needed.without(self.features).names().next() {
            let text = format!(
                "cannot carry out the command: its answers belong to `{feature}`, which this client did not name; add \
                 it to `features` in `hello`"
            );
            return Err(Refusal::new(Code::MissingFeature, text));
        }
        Ok(())
    }

    /// Whether a `hello` may be heard.
    ///
    /// # Errors
    /// It is not the first command.
    pub fn check_greeting(is_first: bool) -> Result<(), Refusal> {
        if is_first {
            return Ok(());
        }
        let text = "cannot greet again: `hello` is the first command or none; send it first";
        Err(Refusal::new(Code::BadCommand, text))
    }

    /// Hears what features the peer has. A peer that names none has all of those that there were before they had names.
    pub fn handle_greeting(&mut self, named: Option<Features>) {
        self.features = named.unwrap_or(Features::UNNAMED);
    }

    /// Hears that the greeting was refused: the peer may greet once more, with another token.
    pub fn handle_greeting_refused(&mut self) {
        self.has_spoken = false;
    }

    /// Features that both sides have.
    pub fn agreed(&self, offered: Features) -> Features {
        self.features.and(offered)
    }

    /// Counts an answer that is under way.
    pub fn reserve(&mut self, bytes: usize) {
        self.under_way =
            self.under_way.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX / 2));
    }

    /// Counts it no more: it is here.
    pub fn release(&mut self, bytes: usize) {
        self.under_way =
            self.under_way.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX / 2));
    }

    /// Bytes that the answers under way may have.
    pub fn under_way(&self) -> usize {
        self.under_way as usize
    }
}

#[cfg(test)]
mod tests {
    use model::{Acknowledge, SubscriberName};

    use super::*;

    #[test]
    fn a_peer_greets_first_or_never_and_again_only_if_it_was_refused() {
        let mut conversation = Conversation::default();
        let is_first = conversation.handle_command();
        assert_eq!((is_first, Conversation::check_greeting(is_first)), (true, Ok(())));
        conversation.handle_greeting_refused();
        assert!(conversation.handle_command(), "with another token");
        let refusal = Conversation::check_greeting(conversation.handle_command());
        assert_eq!(refusal.expect_err("too late").code, Code::BadCommand);
    }

    #[test]
    fn a_command_takes_what_both_sides_named() {
        let name = SubscriberName::parse("n").expect("valid");
        let command = Command::Acknowledge(Acknowledge { name, positions: Vec::new() });
        let mut conversation = Conversation::default();
        assert_eq!(conversation.check(&command, Features::ALL), Ok(()));
        let code = |refused: Result<(), Refusal>| refused.expect_err("refused").code;
        assert_eq!(code(conversation.check(&command, Features::BATCH)), Code::UnknownCommand);
        conversation.handle_greeting(Some(Features::BATCH));
        assert_eq!(code(conversation.check(&command, Features::ALL)), Code::MissingFeature);
        assert_eq!(conversation.check(&Command::Ping, Features::default()), Ok(()));
        assert_eq!(conversation.agreed(Features::ALL), Features::BATCH);
        conversation.handle_greeting(None);
        assert_eq!(conversation.agreed(Features::DELTAS), Features::DELTAS);
    }

    #[test]
    fn what_is_under_way_is_counted_and_never_below_nothing() {
        let mut conversation = Conversation::default();
        conversation.reserve(100);
        conversation.reserve(usize::MAX);
        conversation.release(usize::MAX);
        assert_eq!(conversation.under_way(), 100);
        conversation.release(101);
        assert_eq!(conversation.under_way(), 0);
        assert!(size_of::<Conversation>() <= 8);
    }
}
