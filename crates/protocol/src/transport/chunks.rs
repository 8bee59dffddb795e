//! A request's body that stays open, chunk by chunk: each chunk, or each line, is a message. RFC 9112, section 7.1.

use model::{Code, Refusal};

/// How messages stand in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageFraming {
    /// A message is a chunk.
    #[default]
    Chunks,
    /// A message is a line, wherever chunks end: for peers that cannot choose their chunks, such as a shell.
    Lines,
}

/// Reads messages off a chunked body as they arrive. While none is arriving it holds no memory of its own.
#[derive(Debug, Default)]
pub struct MessageReader {
    framing: MessageFraming,
    state: State,
    /// The part of a message, or of a line between chunks, that is here.
    part: Vec<u8>,
    /// Bytes at the front of it that were handed out, and those that hold no end of a line. Both only move forward
    /// until what was handed out is let go, so that each byte is looked at and moved once.
    taken: usize,
    searched: usize,
    /// Bytes that were looked at or moved for lines.
    #[cfg(test)]
    work: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A chunk's size is arriving.
    Size(ChunkLine),
    Data(u32),
    /// The end of a chunk's line: so many bytes are missing.
    DataEnd(u8),
    Done,
}

impl Default for State {
    fn default() -> Self {
        Self::Size(ChunkLine::default())
    }
}

/// The line before a chunk: its size, and extensions, which mean nothing to us but have to be well formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkLine {
    size: u32,
    digits: u8,
    at: At,
    /// Bytes of extensions.
    len: u16,
}

/// Where in such a line the next byte stands. RFC 9112, sections 7.1 and 7.1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    /// White space before a semicolon.
    Space,
    /// After a semicolon.
    Semicolon,
    Name,
    /// White space after a name.
    NameSpace,
    /// After an equals sign.
    Equals,
    Token,
    Quoted,
    /// After a backslash in quotes.
    Escaped,
    /// After the closing quote.
    Closed,
    /// After a carriage return.
    Return,
}

impl ChunkLine {
    /// Takes the next byte; answers the size after the last one, ready for the next line.
    ///
    /// # Errors
    /// Why the line is none.
    pub fn take(&mut self, byte: u8) -> Result<Option<u32>, &'static str> {
        const DIGITS_MAX: u8 = 16;
        const ROOM: u32 = u32::MAX >> 4;
        const LEN_MAX: u16 = 4_096;
        const BROKEN: &str = "a chunk's size is followed by something other than an extension; send it as in RFC 9112, section 7.1";
        let is_digit = (byte as char).is_ascii_hexdigit();
        if self.at == At::Size && is_digit && self.digits < DIGITS_MAX && self.size <= ROOM {
            self.size = self.size << 4 | (byte as char).to_digit(16).unwrap_or(0);
            self.digits += 1;
            return Ok(None);
        }
        if self.digits == 0 || self.at == At::Size && is_digit {
            return Err("a chunk size is not a number; send hexadecimal");
        }
        self.len += 1;
        if self.len > LEN_MAX {
            return Err("the line before a chunk is too long; shorten it");
        }
        let is_space = matches!(byte, b' ' | b'\t');
        let is_text = !byte.is_ascii_control() || byte == b'\t';
        self.at = match (self.at, byte) {
            (At::Return, b'\n') => {
                let size = self.size;
                *self = Self::default();
                return Ok(Some(size));
            }
            (At::Size | At::Name | At::Token | At::Closed, b'\r') => At::Return,
            (At::Quoted, b'"') => At::Closed,
            (At::Quoted, b'\\') => At::Escaped,
            (At::Quoted | At::Escaped, _) if is_text => At::Quoted,
            (At::Quoted | At::Escaped | At::Return, _) => return Err(BROKEN),
            (At::Name | At::NameSpace, b'=') => At::Equals,
            (At::Equals, b'"') => At::Quoted,
            (At::Size | At::Space | At::Name | At::NameSpace | At::Token | At::Closed, b';') => {
                At::Semicolon
            }
            (At::Size | At::Space | At::Token | At::Closed, _) if is_space => At::Space,
            (At::Name | At::NameSpace, _) if is_space => At::NameSpace,
            (At::Semicolon | At::Equals, _) if is_space => self.at,
            (At::Semicolon | At::Name, _) if is_token_byte(byte) => At::Name,
            (At::Equals | At::Token, _) if is_token_byte(byte) => At::Token,
            _ => return Err(BROKEN),
        };
        Ok(None)
    }
}

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The next message of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent {
    /// A message.
    Message(Vec<u8>),
    /// The body ended.
    End,
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the open body: {why}"))
}

impl MessageReader {
    /// A reader of messages that stand so.
    pub fn new(framing: MessageFraming) -> Self {
        Self { framing, ..Self::default() }
    }

    /// How messages stand.
    pub fn framing(&self) -> MessageFraming {
        self.framing
    }

    /// Takes bytes from the front of `input` until a message is whole or they are used up.
    ///
    /// # Errors
    /// A chunk that breaks RFC 9112, or a message of more than `bytes_max`.
    pub fn poll(
        &mut self,
        input: &mut &[u8],
        bytes_max: usize,
    ) -> Result<Option<BodyEvent>, Refusal> {
        if let Some(line) = self.take_line(bytes_max)? {
            return Ok(Some(BodyEvent::Message(line)));
        }
        while let Some((&byte, rest)) = input.split_first() {
            match self.state {
                State::Size(mut line) => {
                    *input = rest;
                    let size = line.take(byte).map_err(bad)?;
                    self.state = match size {
                        None => State::Size(line),
                        Some(0) => State::Done,
                        Some(size) => State::Data(size),
                    };
                    if self.state == State::Done {
                        return Ok(Some(BodyEvent::End));
                    }
                }
                State::Data(left) => {
                    let count = input.len().min(left as usize);
                    let (data, rest) = input.split_at(count);
                    *input = rest;
                    let left = left - count as u32;
                    self.state = if left == 0 { State::DataEnd(2) } else { State::Data(left) };
                    self.part.extend_from_slice(data);
                    if self.framing == MessageFraming::Chunks {
                        if self.part.len() > bytes_max {
                            return Err(too_large(bytes_max));
                        }
                        if left == 0 {
                            return Ok(Some(BodyEvent::Message(std::mem::take(&mut self.part))));
                        }
                    } else if let Some(line) = self.take_line(bytes_max)? {
                        return Ok(Some(BodyEvent::Message(line)));
                    }
                }
                State::DataEnd(missing) => {
                    *input = rest;
                    if byte != if missing == 2 { b'\r' } else { b'\n' } {
                        return Err(bad("a chunk is longer than its size said; mend the sender"));
                    }
                    self.state = if missing == 2 { State::DataEnd(1) } else { State::default() };
                }
                State::Done => return Err(bad("it goes on after its end; mend the sender")),
            }
        }
        Ok(None)
    }

    /// The first whole line of what is here, where messages are lines.
    fn take_line(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Refusal> {
        if self.framing == MessageFraming::Chunks {
            return Ok(None);
        }
        loop {
            let found = self.part[self.searched..].iter().position(|byte| *byte == b'\n');
            let end = found.map_or(self.part.len(), |at| self.searched + at);
            self.note_work(end - self.searched);
            self.searched = end;
            if end - self.taken > bytes_max {
                return Err(too_large(bytes_max));
            }
            if found.is_none() {
                self.let_go();
                return Ok(None);
            }
            let line = &self.part[self.taken..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
            (self.taken, self.searched) = (end + 1, end + 1);
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Lets go of the lines that were handed out.
    fn let_go(&mut self) {
        if self.taken == 0 {
            return;
        }
        self.note_work(self.part.len() - self.taken);
        self.part.drain(..self.taken);
        (self.taken, self.searched) = (0, self.searched - self.taken);
        if self.part.is_empty() {
            self.part = Vec::new();
        }
    }

    fn note_work(&mut self, _bytes: usize) {
        #[cfg(test)]
        {
            self.work += _bytes;
        }
    }
}

fn too_large(bytes_max: usize) -> Refusal {
    let text = format!(
        "cannot take the message: it has more than {bytes_max} bytes; send less at a time, or raise \
         payload_bytes_max in the configuration"
    );
    Refusal::new(Code::PayloadTooLarge, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(framing: MessageFraming, body: &[u8], piece: usize) -> Result<Vec<String>, Refusal> {
        let (mut reader, mut found) = (MessageReader::new(framing), Vec::new());
        for mut bytes in body.chunks(piece) {
            loop {
                match reader.poll(&mut bytes, 20)? {
                    Some(BodyEvent::Message(message)) => {
                        found.push(String::from_utf8_lossy(&message).into_owned());
                    }
                    Some(BodyEvent::End) => found.push("END".into()),
                    None => break,
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_are_read_in_any_pieces() {
        let body = b"1\r\nH\r\n5;x=y\r\nA0001\r\n0a\r\nEone\ntwo\r\n\r\n0\r\n";
        for piece in [1, 2, 3, 7, 1000] {
            let chunks = read(MessageFraming::Chunks, body, piece).expect("well formed");
            assert_eq!(chunks, ["H", "A0001", "Eone\ntwo\r\n", "END"], "{piece}");
            let lines = read(MessageFraming::Lines, body, piece).expect("well formed");
            assert_eq!(lines, ["HA0001Eone", "two", "END"], "{piece}");
        }
    }

    /// The cost of lines of `line_len` bytes in all `len` bytes of a body, in chunks of `chunk_len` bytes.
    fn work_of_lines(len: usize, line_len: usize, chunk_len: usize) -> usize {
        let mut text = vec![b'x'; len];
        text.iter_mut().skip(line_len - 1).step_by(line_len).for_each(|byte| *byte = b'\n');
        let (mut reader, mut lines) = (MessageReader::new(MessageFraming::Lines), 0);
        for chunk in text.chunks(chunk_len) {
            let body = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            let mut input = &body[..];
            while let Some(said) = reader.poll(&mut input, len).expect("well formed") {
                assert!(matches!(said, BodyEvent::Message(_)));
                lines += 1;
            }
        }
        assert_eq!(lines, len / line_len);
        reader.work
    }

    #[test]
    fn the_work_of_lines_is_that_of_their_bytes() {
        let cases = [(60_000, 1), (60_000, 7), (120_000, 1), (2, 60_000), (3, 1_000), (2, 1)];
        for (line_len, chunk_len) in cases {
            for len in [120_000, 240_000] {
                let work = work_of_lines(len, line_len, chunk_len);
                // Each byte is looked at once, and moved once at most.
                assert!(work <= 2 * len, "{work} of {len}: {line_len} in chunks of {chunk_len}");
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for body in [
            "x\r\n",
            "\r\n",
            "1\r\nab\r\n",
            "fffffffff\r\n",
            "0\r\nmore",
            "1;\r\n",
            "1 \r\n",
            "1\n",
        ] {
            let refusal = read(MessageFraming::Chunks, body.as_bytes(), 1).expect_err(body);
            assert_eq!(refusal.code, Code::BadRequest, "{body}");
        }
        let long = "15\r\n123456789012345678901\r\n";
        let refusal = read(MessageFraming::Chunks, long.as_bytes(), 4).expect_err("too long");
        assert_eq!(refusal.code, Code::PayloadTooLarge);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(0..255u8, 0..200), piece in 1..20usize) {
            let _ = read(MessageFraming::Chunks, &body, piece);
            let _ = read(MessageFraming::Lines, &body, piece);
        }
    }
}
