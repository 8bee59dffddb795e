//! One end of an open WebSocket: the frame loop of whatever is spoken over it.
//!
//! It answers pings and does the closing handshake; messages go on to the conversation. A half-received message lies in an [`Inbound`]
//! beside it, because most connections have none, and what it has to say goes to the caller's buffer, so that it needs none.

use model::Limits;

use super::{
    FrameError, Inbound, Inflater, Message, Role, Unread, encode_close, encode_ping, encode_pong,
};

/// One end of an open WebSocket. 2 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// A ping is out since the peer was last heard.
    is_pinged: bool,
    /// Our close frame was said: nothing is heard any more.
    is_closing: bool,
}

/// A thing that was heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A message of text, for the conversation.
    Text(&'a str),
    /// A message of bytes, for the conversation.
    Binary(&'a [u8]),
    /// A control frame, which is dealt with; so many bytes of payload.
    Control(usize),
    /// The peer said its last frame, and is answered.
    Closed,
    /// Nothing can be read any more; the conversation may tell why before it has the channel closed.
    Broken(FrameError),
}

impl Heard<'_> {
    /// Bytes that had to be looked at for it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
            Self::Control(bytes) => *bytes,
            Self::Closed | Self::Broken(_) => 0,
        }
    }
}

/// An action that a channel is due for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The peer is to be asked whether it is there.
    Ping,
    /// It was silent for too long.
    Silence,
}

impl Channel {
    /// The next thing heard in `input`; nothing once the channel is closing. Answers to control frames are appended to `out`.
    pub fn poll_heard<'a>(
        &mut self,
        inbound: &'a mut Inbound,
        input: &'a mut Unread<'_>,
        limits: &Limits,
        inflater: Option<&'a mut Inflater>,
        out: &mut Vec<u8>,
    ) -> Option<Heard<'a>> {
        if self.is_closing {
            return None;
        }
        self.is_pinged = false;
        Some(match inbound.poll_deflated(input, Role::Server, limits, inflater) {
            Ok(None) => return None,
            Ok(Some(Message::Text(text))) => Heard::Text(text),
            Ok(Some(Message::Binary(bytes))) => Heard::Binary(bytes),
            Ok(Some(Message::Ping(payload))) => {
                encode_pong(payload, out);
                Heard::Control(payload.len())
            }
            Ok(Some(Message::Pong(payload))) => Heard::Control(payload.len()),
            Ok(Some(Message::Close(reason))) => {
                // After a close frame nothing may follow. RFC 6455, section 5.5.1.
                self.close(reason.map_or(1000, |(code, _)| code), "", out);
                Heard::Closed
            }
            Err(error) => Heard::Broken(error),
        })
    }

    /// Says the last frame, if it was not said.
    pub fn close(&mut self, code: u16, text: &str, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_closing, true) {
            encode_close(code, text, out);
        }
    }

    /// Whether the last frame was said.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Asks the peer whether it is there.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        self.is_pinged = true;
        encode_ping(out);
    }

    /// The action that is due after so much silence, in any unit.
    pub fn due<T: PartialOrd>(&self, quiet: T, ping_after: T, silence: T) -> Option<Due> {
        match () {
            () if self.is_closing => None,
            () if quiet > silence => Some(Due::Silence),
            () if quiet > ping_after && !self.is_pinged => Some(Due::Ping),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Opcode, encode_masked};
    use super::*;

    /// The things heard in `bytes`, in words, and the bytes said.
    fn heard(channel: &mut Channel, inbound: &mut Inbound, bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
        let (mut bytes, mut heard, mut out) = (bytes.to_vec(), Vec::new(), Vec::new());
        let mut input = Unread::new(&mut bytes);
        let limits = Limits::default();
        while let Some(next) = channel.poll_heard(inbound, &mut input, &limits, None, &mut out) {
            heard.push(format!("{next:?}"));
            if matches!(next, Heard::Broken(_)) {
                break;
            }
        }
        (heard, out)
    }

    fn frames(frames: &[(Opcode, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (opcode, payload) in frames {
            encode_masked(*opcode, payload, [1, 2, 3, 4], &mut bytes);
        }
        bytes
    }

    #[test]
    fn pings_are_answered_and_messages_handed_on() {
        let (mut channel, mut inbound) = (Channel::default(), Inbound::default());
        let bytes =
            frames(&[(Opcode::Ping, b"are you"), (Opcode::Text, b"there"), (Opcode::Pong, b"")]);
        let (told, out) = heard(&mut channel, &mut inbound, &bytes);
        assert_eq!(told, ["Control(7)", "Text(\"there\")", "Control(0)"]);
        assert_eq!(out, [&[0x8A, 7][..], b"are you"].concat());
    }

    #[test]
    fn nothing_is_heard_after_the_last_frame() {
        let (mut channel, mut inbound) = (Channel::default(), Inbound::default());
        let bytes = frames(&[(Opcode::Close, &[0x0F, 0xA0]), (Opcode::Text, b"late")]);
        let (told, mut out) = heard(&mut channel, &mut inbound, &bytes);
        assert_eq!((told, channel.is_closing()), (vec!["Closed".to_owned()], true));
        assert_eq!(out, [0x88, 2, 0x0F, 0xA0], "the peer's own code");
        channel.close(1000, "", &mut out);
        assert_eq!(out.len(), 4, "one last frame");
    }

    #[test]
    fn a_broken_frame_leaves_the_last_word_to_the_conversation() {
        let (mut channel, mut inbound) = (Channel::default(), Inbound::default());
        let (told, out) = heard(&mut channel, &mut inbound, &[0x81, 1, b'x']);
        assert_eq!((told, out), (vec!["Broken(WrongMask)".to_owned()], Vec::new()));
        assert!(!channel.is_closing());
    }

    #[test]
    fn silence_is_asked_about_once_and_then_ends_it() {
        let (mut channel, mut out) = (Channel::default(), Vec::new());
        assert_eq!(channel.due(5, 5, 9), None);
        assert_eq!(channel.due(6, 5, 9), Some(Due::Ping));
        channel.ping(&mut out);
        assert_eq!((channel.due(6, 5, 9), channel.due(10, 5, 9)), (None, Some(Due::Silence)));
        heard(&mut channel, &mut Inbound::default(), &frames(&[(Opcode::Pong, b"")]));
        assert_eq!(channel.due(6, 5, 9), Some(Due::Ping), "it was heard since");
        channel.close(1000, "", &mut out);
        assert_eq!(channel.due(10, 5, 9), None);
    }
}
