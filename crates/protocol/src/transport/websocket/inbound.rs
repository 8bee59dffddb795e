//! Frames in. A connection with nothing half-received holds no buffer.

use model::Limits;

use super::deflate::Inflater;
use super::error::FrameError;
use super::unmask::apply_mask;

/// Which end of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We receive masked frames.
    Server,
    /// We receive unmasked frames.
    Client,
}

/// A whole message, or a control frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// UTF-8 text.
    Text(&'a str),
    /// Any bytes.
    Binary(&'a [u8]),
    /// To be answered with a pong that echoes it.
    Ping(&'a [u8]),
    /// Answers a ping, or comes unasked.
    Pong(&'a [u8]),
    /// The peer's last frame: code and reason, if it gave one.
    Close(Option<(u16, &'a str)>),
}

impl Message<'_> {
    /// Bytes of its payload.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) | Self::Ping(bytes) | Self::Pong(bytes) => bytes.len(),
            Self::Close(reason) => reason.map_or(0, |(_, text)| 2 + text.len()),
        }
    }
}

/// Received bytes, and how many of them were taken.
#[derive(Debug)]
pub struct Unread<'b> {
    bytes: &'b mut [u8],
    taken: usize,
}

impl<'b> Unread<'b> {
    /// Bytes as they were received; they are unmasked in place.
    pub fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, taken: 0 }
    }

    /// How many bytes were taken so far.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether all of them were taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}

/// The receiving side of one connection. 8 bytes while nothing is half-received.
#[derive(Debug, Default)]
pub struct Inbound {
    partial: Option<Box<Partial>>,
}

/// The received part of an incomplete message or frame.
#[derive(Debug, Default)]
struct Partial {
    /// The header of the next frame, as far as it arrived.
    header: Vec<u8>,
    /// The frame whose payload is arriving.
    frame: Option<Arriving>,
    /// The payload of a control frame that is arriving, or of the one just handed out.
    control: Vec<u8>,
    /// The payload of the message so far, unmasked, or of the one just handed out.
    message: Vec<u8>,
    /// The type of the fragmented message; `None` outside of one.
    kind: Option<MessageKind>,
    /// The message is compressed.
    is_deflated: bool,
    /// The buffer above was handed out and is to be emptied.
    is_handed_out: bool,
    /// When what is not whole yet was first seen.
    seen_at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Text,
    Binary,
}

/// A frame whose header arrived.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    header: Header,
    /// Bytes of payload taken so far.
    taken: usize,
}

/// A frame header that obeys the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    is_final: bool,
    is_deflated: bool,
    opcode: u8,
    mask: Option<[u8; 4]>,
    payload_len: usize,
    header_len: usize,
}

/// The rules for the frames of a connection.
#[derive(Clone, Copy, Debug)]
struct Rules {
    role: Role,
    bytes_max: usize,
    may_deflate: bool,
}

const CONTROL: u8 = 8;
const HEADER_BYTES_MAX: usize = 14;

impl Inbound {
    /// The next whole message or control frame in `input`, or `None` when all of it was taken.
    ///
    /// A message that lies whole in `input` is unmasked in place and not copied.
    ///
    /// # Errors
    /// Anything that breaks RFC 6455 or the limit on a message's bytes.
    pub fn poll_message<'a>(
        &'a mut self,
        input: &'a mut Unread<'_>,
        role: Role,
        limits: &Limits,
    ) -> Result<Option<Message<'a>>, FrameError> {
        self.poll_deflated(input, role, limits, None)
    }

    /// The same for a peer that may compress its messages.
    ///
    /// # Errors
    /// The same, and what does not decompress; the limit is on the decompressed message.
    pub fn poll_deflated<'a>(
        &'a mut self,
        input: &'a mut Unread<'_>,
        role: Role,
        limits: &Limits,
        inflater: Option<&'a mut Inflater>,
    ) -> Result<Option<Message<'a>>, FrameError> {
        let rules =
            Rules { role, bytes_max: limits.message_bytes_max, may_deflate: inflater.is_some() };
        self.drop_handed_out();
        if self.partial.is_none() && is_whole_message(input.rest(), rules)? {
            return whole_message(input, rules, inflater).map(Some);
        }
        if input.rest().is_empty() {
            return Ok(None);
        }
        let partial = self.partial.get_or_insert_default();
        while !input.rest().is_empty() {
            if let Some(handed) = partial.take(input, rules)? {
                partial.is_handed_out = true;
                return partial.hand_out(handed, rules, inflater).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether nothing is half-received.
    pub fn is_empty(&self) -> bool {
        self.partial.is_none()
    }

    /// Bytes that are held of a message that is not whole yet.
    pub fn partial_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.message.capacity())
    }

    /// Since when a message, or a frame outside of one, has not been whole: since the second in which this was first
    /// asked about it. `None` while nothing is under way.
    pub fn partial_since(&mut self, now_seconds: u32) -> Option<u32> {
        let partial = self.partial.as_mut().filter(|partial| partial.is_under_way())?;
        Some(*partial.seen_at.get_or_insert(now_seconds))
    }

    fn drop_handed_out(&mut self) {
        let Some(partial) = &mut self.partial else { return };
        if partial.is_handed_out {
            partial.is_handed_out = false;
            partial.control.clear();
            if partial.kind.is_none() {
                partial.message = Vec::new();
                partial.seen_at = None;
            }
            if partial.kind.is_none() && partial.frame.is_none() && partial.header.is_empty() {
                self.partial = None;
            }
        }
    }
}

/// Whether the next thing in `bytes` is an unfragmented message or control frame, all there.
fn is_whole_message(bytes: &[u8], rules: Rules) -> Result<bool, FrameError> {
    let Some(header) = read_header(bytes, rules)? else {
        return Ok(false);
    };
    let is_there = bytes.len() - header.header_len >= header.payload_len;
    Ok(is_there && header.is_final && header.opcode != 0)
}

fn whole_message<'a>(
    input: &'a mut Unread<'_>,
    rules: Rules,
    inflater: Option<&'a mut Inflater>,
) -> Result<Message<'a>, FrameError> {
    let header = read_header(input.rest(), rules)?;
    let header = header.expect("a whole message has a whole header");
    let start = input.taken + header.header_len;
    input.taken = start + header.payload_len;
    let payload = &mut input.bytes[start..start + header.payload_len];
    if let Some(mask) = header.mask {
        apply_mask(payload, mask, 0);
    }
    match inflater {
        Some(inflater) if header.is_deflated => {
            message_of(header.opcode, inflater.inflate(payload, rules.bytes_max)?)
        }
        _ => message_of(header.opcode, payload),
    }
}

/// Reads a header from the front of `bytes`, or `None` while it is not all there.
fn read_header(bytes: &[u8], rules: Rules) -> Result<Option<Header>, FrameError> {
    let [first, second, ..] = *bytes else { return Ok(None) };
    let (is_final, opcode) = (first & 0x80 != 0, first & 0x0F);
    let (is_masked, short_len) = (second & 0x80 != 0, second & 0x7F);
    let is_deflated = first & 0x40 != 0;
    // RFC 7692, section 6: the first frame of a message says it.
    let may_say_so = rules.may_deflate && matches!(opcode, 1 | 2);
    if first & 0x30 != 0 || is_deflated && !may_say_so {
        return Err(FrameError::ReservedBit);
    }
    if matches!(opcode, 3..=7 | 11..) {
        return Err(FrameError::UnknownOpcode(opcode));
    }
    if is_masked != (rules.role == Role::Server) {
        return Err(FrameError::WrongMask);
    }
    if opcode >= CONTROL && (!is_final || short_len > 125) {
        return Err(FrameError::BadControlFrame);
    }
    let (payload_len, len_bytes) = match short_len {
        126 => match bytes.get(2..4) {
            Some(&[a, b]) => (u64::from(u16::from_be_bytes([a, b])), 2),
            _ => return Ok(None),
        },
        127 => match bytes.get(2..10) {
            Some(&[a, b, c, d, e, f, g, h]) => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 8),
            _ => return Ok(None),
        },
        short => (u64::from(short), 0),
    };
    let payload_len = usize::try_from(payload_len).unwrap_or(usize::MAX);
    if payload_len > rules.bytes_max {
        return Err(FrameError::TooLarge { bytes_max: rules.bytes_max });
    }
    let mask_at = 2 + len_bytes;
    let (mask, header_len) = match (is_masked, bytes.get(mask_at..mask_at + 4)) {
        (false, _) => (None, mask_at),
        (true, Some(&[a, b, c, d])) => (Some([a, b, c, d]), mask_at + 4),
        (true, _) => return Ok(None),
    };
    Ok(Some(Header { is_final, is_deflated, opcode, mask, payload_len, header_len }))
}

/// A message in the buffers of a [`Partial`], ready to be handed out.
#[derive(Clone, Copy, Debug)]
enum Handed {
    Control(u8),
    Message(MessageKind),
}

impl Partial {
    fn is_under_way(&self) -> bool {
        !self.is_handed_out
            && (self.kind.is_some() || self.frame.is_some() || !self.header.is_empty())
    }

    /// Takes one step's worth of `input`: a header, or payload.
    fn take(&mut self, input: &mut Unread<'_>, rules: Rules) -> Result<Option<Handed>, FrameError> {
        match self.frame {
            None => {
                self.take_header(input, rules)?;
                match self.frame {
                    Some(arriving) if arriving.header.payload_len == 0 => self.end_frame(arriving),
                    _ => Ok(None),
                }
            }
            Some(mut arriving) => {
                let Header { opcode, mask, payload_len, .. } = arriving.header;
                let count = (payload_len - arriving.taken).min(input.rest().len());
                let piece = &mut input.bytes[input.taken..input.taken + count];
                if let Some(mask) = mask {
                    apply_mask(piece, mask, arriving.taken);
                }
                let buffer = if opcode >= CONTROL { &mut self.control } else { &mut self.message };
                buffer.extend_from_slice(piece);
                input.taken += count;
                arriving.taken += count;
                self.frame = Some(arriving);
                if arriving.taken == payload_len { self.end_frame(arriving) } else { Ok(None) }
            }
        }
    }

    fn take_header(&mut self, input: &mut Unread<'_>, rules: Rules) -> Result<(), FrameError> {
        let bytes_max = rules.bytes_max;
        let before = self.header.len();
        let wanted = input.rest().len().min(HEADER_BYTES_MAX - before);
        self.header.extend_from_slice(&input.rest()[..wanted]);
        let room = bytes_max - self.message.len().min(bytes_max);
        let rest = Rules { bytes_max: room.max(125), ..rules };
        let header = read_header(&self.header, rest).map_err(|error| match error {
            FrameError::TooLarge { .. } => FrameError::TooLarge { bytes_max },
            other => other,
        })?;
        let Some(header) = header else {
            input.taken += wanted;
            return Ok(());
        };
        let is_too_large = header.opcode < CONTROL && header.payload_len > room;
        if is_too_large {
            return Err(FrameError::TooLarge { bytes_max });
        }
        input.taken += header.header_len - before;
        self.header.clear();
        match (header.opcode, self.kind) {
            (0, None) | (1 | 2, Some(_)) => return Err(FrameError::BadContinuation),
            (1, None) => self.kind = Some(MessageKind::Text),
            (2, None) => self.kind = Some(MessageKind::Binary),
            _ => {}
        }
        if matches!(header.opcode, 1 | 2) {
            self.is_deflated = header.is_deflated;
        }
        self.frame = Some(Arriving { header, taken: 0 });
        Ok(())
    }

    fn end_frame(&mut self, arriving: Arriving) -> Result<Option<Handed>, FrameError> {
        self.frame = None;
        let Header { opcode, is_final, .. } = arriving.header;
        if opcode >= CONTROL {
            return Ok(Some(Handed::Control(opcode)));
        }
        if !is_final {
            return Ok(None);
        }
        Ok(self.kind.take().map(Handed::Message))
    }

    fn hand_out<'a>(
        &'a self,
        handed: Handed,
        rules: Rules,
        inflater: Option<&'a mut Inflater>,
    ) -> Result<Message<'a>, FrameError> {
        let opcode = match handed {
            Handed::Control(opcode) => return message_of(opcode, &self.control),
            Handed::Message(MessageKind::Text) => 1,
            Handed::Message(MessageKind::Binary) => 2,
        };
        match inflater {
            Some(inflater) if self.is_deflated => {
                message_of(opcode, inflater.inflate(&self.message, rules.bytes_max)?)
            }
            _ => message_of(opcode, &self.message),
        }
    }
}

fn message_of(opcode: u8, payload: &[u8]) -> Result<Message<'_>, FrameError> {
    match opcode {
        1 => text_of(payload).map(Message::Text),
        8 => close_of(payload).map(Message::Close),
        9 => Ok(Message::Ping(payload)),
        10 => Ok(Message::Pong(payload)),
        _ => Ok(Message::Binary(payload)),
    }
}

fn text_of(payload: &[u8]) -> Result<&str, FrameError> {
    simdutf8::basic::from_utf8(payload).map_err(|_| FrameError::BadUtf8)
}

/// RFC 6455, sections 5.5.1 and 7.4.
fn close_of(payload: &[u8]) -> Result<Option<(u16, &str)>, FrameError> {
    match payload {
        [] => Ok(None),
        [_] => Err(FrameError::BadClose),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            match code {
                1000..=1003 | 1007..=1014 | 3000..=4999 => Ok(Some((code, text_of(reason)?))),
                _ => Err(FrameError::BadClose),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checks::{check_websocket, receive};
    use crate::websocket::{Opcode, encode_masked};

    #[test]
    fn an_idle_receiver_is_small() {
        assert!(size_of::<Inbound>() <= 16);
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_masked(Opcode::Text, payload, [1, 2, 3, 4], &mut out);
        out[0] = first;
        out
    }

    #[test]
    fn messages_and_fragments_are_put_together() {
        let bytes = [
            frame(0x81, b"whole"),
            frame(0x01, b"one "),
            frame(0x89, b"ping in between"),
            frame(0x00, b""),
            frame(0x80, b"two"),
            frame(0x82, &[0, 255]),
            frame(0x81, b""),
            frame(0x88, &[3, 232]),
        ]
        .concat();
        let (told, error) = receive(&bytes, &[]);
        assert_eq!(error, None);
        let expected = [
            "Text(\"whole\")",
            "Ping([112, 105, 110, 103, 32, 105, 110, 32, 98, 101, 116, 119, 101, 101, 110])",
            "Text(\"one two\")",
            "Binary([0, 255])",
            "Text(\"\")",
            "Close(Some((1000, \"\")))",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn broken_frames_are_told_apart() {
        let unmasked = vec![0x81, 0];
        let long_ping = frame(0x89, &[0; 126]);
        let large = frame(0x82, &[0; 301]);
        let two_halves = [frame(0x02, &[0; 200]), frame(0x80, &[0; 101])].concat();
        let split_text = [frame(0x01, &[0xC3]), frame(0x80, &[0x28])].concat();
        let cases = [
            (frame(0xC1, b""), FrameError::ReservedBit),
            (frame(0x83, b""), FrameError::UnknownOpcode(3)),
            (unmasked, FrameError::WrongMask),
            (frame(0x09, b""), FrameError::BadControlFrame),
            (long_ping, FrameError::BadControlFrame),
            (frame(0x80, b"x"), FrameError::BadContinuation),
            ([frame(0x01, b"a"), frame(0x81, b"b")].concat(), FrameError::BadContinuation),
            (frame(0x88, &[3]), FrameError::BadClose),
            (frame(0x88, &[3, 237]), FrameError::BadClose),
            (frame(0x81, &[0xFF]), FrameError::BadUtf8),
            (split_text, FrameError::BadUtf8),
            (large, FrameError::TooLarge { bytes_max: 300 }),
            (two_halves, FrameError::TooLarge { bytes_max: 300 }),
        ];
        for (bytes, error) in cases {
            for pieces in [&[][..], &[1; 400], &[3; 200]] {
                assert_eq!(receive(&bytes, pieces).1, Some(error), "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_split_character_is_put_together() {
        let bytes = [frame(0x01, &[0xC3]), frame(0x80, &[0xA4])].concat();
        assert_eq!(receive(&bytes, &[1; 40]).0, ["Text(\"ä\")"]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            frames in prop::collection::vec(
                (prop::sample::select(vec![0x01u8, 0x81, 0x02, 0x82, 0x00, 0x80, 0x89, 0x8A, 0x88]),
                 prop::collection::vec(0x20u8..0x7F, 0..140)), 0..8),
            pieces in prop::collection::vec(1usize..60, 0..30),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(first, body)| frame(*first, body)).collect();
            check_websocket(&bytes, &pieces);
        }

        #[test]
        fn no_bytes_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            pieces in prop::collection::vec(1usize..20, 0..20),
        ) {
            check_websocket(&bytes, &pieces);
        }
    }
}
