//! Responses of HTTP as they come in, of a known length or in chunks.

/// A part of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its status.
    Head(u16),
    /// Bytes of its body.
    Body(Vec<u8>),
    /// It is over.
    End,
}

/// The responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct HttpInbound {
    bytes: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    Length(usize),
    /// Before the size of a chunk.
    Size,
    Chunk(usize),
    /// Before the line break at the end.
    Last,
}

impl HttpInbound {
    /// Takes bytes; answers what they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Part> {
        self.bytes.extend_from_slice(bytes);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Head => self.take_head(parts),
            State::Length(0) => {
                parts.push(Part::End);
                self.state = State::Head;
                true
            }
            State::Length(left) => {
                self.state = State::Length(self.take_body(left, parts));
                !self.bytes.is_empty() || matches!(self.state, State::Length(0))
            }
            State::Size => self.take_size(),
            State::Chunk(left) => {
                // The line break behind a chunk goes with it.
                if left > 2 {
                    self.state = State::Chunk(self.take_body(left - 2, parts) + 2);
                    return !self.bytes.is_empty();
                }
                if self.bytes.len() < left {
                    return false;
                }
                self.bytes.drain(..left);
                self.state = State::Size;
                true
            }
            State::Last if self.bytes.len() < 2 => false,
            State::Last => {
                self.bytes.drain(..2);
                parts.push(Part::End);
                self.state = State::Head;
                true
            }
        }
    }

    fn take_head(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(end) = self.bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
            return false;
        };
        let head: Vec<u8> = self.bytes.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        parts.push(Part::Head(status.unwrap_or_else(|| panic!("no status: {head}"))));
        let length = head.split("content-length:").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.trim().parse().ok());
        self.state = match head.contains("transfer-encoding: chunked") {
            true => State::Size,
            false => State::Length(length.unwrap_or(0)),
        };
        true
    }

    fn take_size(&mut self) -> bool {
        let Some(end) = self.bytes.windows(2).position(|it| it == b"\r\n") else { return false };
        let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
        let text = String::from_utf8_lossy(&line[..end]).into_owned();
        let size = usize::from_str_radix(text.trim(), 16).expect("a size");
        self.state = if size == 0 { State::Last } else { State::Chunk(size + 2) };
        true
    }

    /// Answers how much is left of `left` bytes.
    fn take_body(&mut self, left: usize, parts: &mut Vec<Part>) -> usize {
        let count = left.min(self.bytes.len());
        if count > 0 {
            parts.push(Part::Body(self.bytes.drain(..count).collect()));
        }
        left - count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_wherever_they_are_torn() {
        let all = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\
            Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n";
        for size in 1..all.len() {
            let (mut inbound, mut heads, mut body, mut ends) =
                (HttpInbound::default(), Vec::new(), Vec::new(), 0);
            for bytes in all.chunks(size) {
                for part in inbound.take(bytes) {
                    match part {
                        Part::Head(status) => heads.push(status),
                        Part::Body(bytes) => body.extend(bytes),
                        Part::End => ends += 1,
                    }
                }
            }
            assert_eq!((heads, &body[..], ends), (vec![202, 200], &b"abcde"[..], 2));
        }
    }
}
