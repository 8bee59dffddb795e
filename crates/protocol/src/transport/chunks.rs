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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A chunk's size is arriving: so much of it is here, and so many digits.
    #[default]
    Size0,
    Size(u32, u8),
    /// The rest of the size's line does not matter.
    SizeEnd(u32),
    Data(u32),
    /// The end of a chunk's line: so many bytes are missing.
    DataEnd(u8),
    Done,
}

/// What a body says next.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
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
    pub fn poll(&mut self, input: &mut &[u8], bytes_max: usize) -> Result<Option<Said>, Refusal> {
        if let Some(line) = self.take_line(bytes_max)? {
            return Ok(Some(Said::Message(line)));
        }
        while let Some((&byte, rest)) = input.split_first() {
            match self.state {
                State::Size0 | State::Size(..) | State::SizeEnd(_) => {
                    *input = rest;
                    self.take_size(byte)?;
                    if self.state == State::Done {
                        return Ok(Some(Said::End));
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
                            return Ok(Some(Said::Message(std::mem::take(&mut self.part))));
                        }
                    } else if let Some(line) = self.take_line(bytes_max)? {
                        return Ok(Some(Said::Message(line)));
                    }
                }
                State::DataEnd(missing) => {
                    *input = rest;
                    if byte != if missing == 2 { b'\r' } else { b'\n' } {
                        return Err(bad("a chunk is longer than its size said; mend the sender"));
                    }
                    self.state = if missing == 2 { State::DataEnd(1) } else { State::Size0 };
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
            let end = self.part.iter().position(|byte| *byte == b'\n');
            if end.unwrap_or(self.part.len()) > bytes_max {
                return Err(too_large(bytes_max));
            }
            let Some(end) = end else { return Ok(None) };
            let mut line: Vec<u8> = self.part.drain(..=end).collect();
            if self.part.is_empty() {
                self.part = Vec::new();
            }
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn take_size(&mut self, byte: u8) -> Result<(), Refusal> {
        const DIGITS_MAX: u8 = 7;
        let (size, digits) = match self.state {
            State::Size(size, digits) => (size, digits),
            State::SizeEnd(size) => {
                if byte == b'\n' {
                    self.begin_data(size);
                }
                return Ok(());
            }
            _ => (0, 0),
        };
        self.state = match (byte, (byte as char).to_digit(16)) {
            (_, Some(digit)) if digits < DIGITS_MAX => State::Size(size << 4 | digit, digits + 1),
            (b'\r' | b';' | b' ' | b'\t', _) if digits > 0 => State::SizeEnd(size),
            (b'\n', _) if digits > 0 => {
                self.begin_data(size);
                return Ok(());
            }
            _ => return Err(bad("a chunk size is no number; send hexadecimal")),
        };
        Ok(())
    }

    fn begin_data(&mut self, size: u32) {
        self.state = if size == 0 { State::Done } else { State::Data(size) };
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
                    Some(Said::Message(message)) => {
                        found.push(String::from_utf8_lossy(&message).into_owned());
                    }
                    Some(Said::End) => found.push("END".into()),
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

    #[test]
    fn what_is_no_chunk_is_refused() {
        for body in ["x\r\n", "\r\n", "1\r\nab\r\n", "fffffffff\r\n", "0\r\nmore"] {
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
