//! HTTP/1.1 heads and bodies, as far as the engine needs them. RFC 9112.
//!
//! Ordinary requests go on as values to the ordinary HTTP stack; this reads them off the wire
//! strictly, so that nobody behind or before us reads them differently (request smuggling).

use model::{Code, Limits, Refusal, bearer_token};

use super::chunks::ChunkLine;
pub use super::chunks::{BodyEvent, MessageFraming, MessageReader};
pub use super::date::HttpDate;
pub use super::host::Host;
pub use super::item::{HEADER_FIELD, item_of, push_item};

/// The head of a request: method, target and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub version_minor: u8,
    /// Names in lower case, values trimmed, in order.
    pub fields: Vec<(String, String)>,
}

impl RequestHead {
    /// The first field called `name` (in lower case).
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The names and values of the target's query, decoded.
    pub fn query(&self) -> Vec<(String, String)> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        form_urlencoded::parse(query.as_bytes()).into_owned().collect()
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or("")
    }

    /// Whether the list in field `name` has `token`, in any case.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        let mut values = self.fields.iter().filter(|(known, _)| known == name);
        values.any(|(_, value)| value.split(',').any(|t| t.trim().eq_ignore_ascii_case(token)))
    }

    /// Whether the connection may serve another request after this one. RFC 9112, section 9.3. One of HTTP/1.0 never
    /// does: its peer would have to be told.
    pub fn keep_alive(&self) -> bool {
        self.version_minor > 0 && !self.has_token("connection", "close")
    }

    /// Whether the answer has no body, only what goes before it.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether the client wants to go on with WebSocket.
    pub fn wants_websocket(&self) -> bool {
        self.has_token("connection", "upgrade") && self.has_token("upgrade", "websocket")
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.has_token("expect", "100-continue")
    }

    /// The token of the `Authorization` field, if there is one.
    ///
    /// # Errors
    /// The field is there and has no token, or is there twice.
    pub fn bearer_token(&self) -> Result<Option<&str>, Refusal> {
        let mut fields = self.values("authorization");
        let token = bearer_token(fields.next())?;
        if fields.next().is_none() {
            return Ok(token);
        }
        let text =
            "cannot accept two `Authorization` fields: which of them counts is not known; send one";
        Err(Refusal::new(Code::BadToken, text))
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a request head from the front of `bytes`; answers it with the bytes that it took, or
/// `None` while it is not all there.
///
/// # Errors
/// A head that breaks RFC 9112 or a limit; the connection is of no more use.
pub fn parse_head(bytes: &[u8], limits: &Limits) -> Result<Option<(RequestHead, usize)>, Refusal> {
    let mut fields = vec![httparse::EMPTY_HEADER; limits.head_fields_max];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= limits.head_bytes_max => {
            let fields = request.headers.iter().map(field).collect::<Result<_, _>>()?;
            let head = RequestHead {
                method: request.method.unwrap_or("").to_owned(),
                target: request.path.unwrap_or("").to_owned(),
                version_minor: request.version.unwrap_or(1),
                fields,
            };
            Ok(Some((head, len)))
        }
        Ok(httparse::Status::Partial) if bytes.len() < limits.head_bytes_max => Ok(None),
        Ok(_) => Err(bad_request(format!(
            "it is longer than head_bytes_max, {}; send fewer or shorter header fields",
            limits.head_bytes_max
        ))),
        Err(httparse::Error::TooManyHeaders) => Err(bad_request(format!(
            "it has more header fields than head_fields_max, {}; send fewer",
            limits.head_fields_max
        ))),
        Err(error) => Err(bad_request(format!("{error}; send HTTP/1.1 as in RFC 9112"))),
    }
}

fn field(header: &httparse::Header<'_>) -> Result<(String, String), Refusal> {
    let value = std::str::from_utf8(header.value).map_err(|_| {
        bad_request(format!("the value of `{}` is not UTF-8; send plain text", header.name))
    })?;
    Ok((header.name.to_ascii_lowercase(), value.trim().to_owned()))
}

fn bad_request(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the HTTP request: {why}"))
}

/// Reads the body that follows a request head.
#[derive(Debug)]
pub struct BodyReader {
    state: BodyState,
    body: Vec<u8>,
    /// A line between chunks, as far as it is here.
    size: ChunkLine,
    line: Vec<u8>,
    body_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    /// So many bytes are to come.
    Sized(usize),
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    Trailer,
    Done,
}

impl BodyReader {
    /// A reader of the body that `head` announces.
    ///
    /// # Errors
    /// A length that is not a number, is given twice with different values or beside chunking, or is too large.
    pub fn new(head: &RequestHead, limits: &Limits) -> Result<Self, Refusal> {
        let body_bytes_max = limits.body_bytes_max;
        let mut lengths = head.values("content-length");
        let encodings: Vec<&str> = head.values("transfer-encoding").collect();
        let state = match (lengths.next(), encodings.as_slice()) {
            (None, []) => BodyState::Done,
            (None, [only]) if only.eq_ignore_ascii_case("chunked") && head.version_minor == 1 => {
                BodyState::ChunkSize
            }
            (None, _) => {
                let why = "its Transfer-Encoding is not understood; send chunked or a length";
                return Err(bad_request(why.into()));
            }
            (Some(_), [_, ..]) => {
                let why = "it has both Content-Length and Transfer-Encoding; send one of them";
                return Err(bad_request(why.into()));
            }
            (Some(length), []) => {
                if lengths.any(|other| other != length) {
                    let why = "it has two different Content-Lengths; send one";
                    return Err(bad_request(why.into()));
                }
                let is_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
                let count = length.parse().ok().filter(|_| is_number).ok_or_else(|| {
                    bad_request(format!("Content-Length `{length}` is not a number; send one"))
                })?;
                match count {
                    0 => BodyState::Done,
                    count if count > body_bytes_max => return Err(too_large(body_bytes_max)),
                    count => BodyState::Sized(count),
                }
            }
        };
        let (body, size, line) = (Vec::new(), ChunkLine::default(), Vec::new());
        Ok(Self { state, body, size, line, body_bytes_max })
    }

    /// Takes what belongs to the body from the front of `input`; answers how many bytes.
    ///
    /// # Errors
    /// A chunk that breaks RFC 9112, section 7.1, or a body that grows too large.
    pub fn handle_bytes(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        let mut taken = 0;
        while taken < input.len() && self.state != BodyState::Done {
            taken += self.step(&input[taken..])?;
        }
        Ok(taken)
    }

    /// Bytes that are to come, where the head said how many.
    pub fn announced(&self) -> usize {
        match self.state {
            BodyState::Sized(left) => left,
            _ => 0,
        }
    }

    /// Bytes that the body's buffer would grow by to take `count` more, as it grows where there is room.
    pub fn room_needed(&self, count: usize) -> usize {
        self.capacity_for(self.body.len() + count) - self.body.capacity()
    }

    /// The capacity for a body of `len` bytes so far: twice as much each time, but no more than there may be.
    fn capacity_for(&self, len: usize) -> usize {
        let now = self.body.capacity();
        if len <= now {
            return now;
        }
        let whole = match self.state {
            BodyState::Sized(left) => self.body.len() + left,
            _ => self.body_bytes_max,
        };
        len.max((2 * now).min(whole))
    }

    /// Whether the whole body has arrived.
    pub fn is_done(&self) -> bool {
        self.state == BodyState::Done
    }

    /// The body, once it is done.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    fn step(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        match self.state {
            BodyState::Sized(left) | BodyState::Chunk(left) => {
                let count = left.min(input.len());
                let capacity = self.capacity_for(self.body.len() + count);
                self.body.reserve_exact(capacity - self.body.len());
                self.body.extend_from_slice(&input[..count]);
                self.state = match (self.state, left - count) {
                    (BodyState::Sized(_), 0) => BodyState::Done,
                    (BodyState::Sized(_), left) => BodyState::Sized(left),
                    (_, 0) => BodyState::ChunkEnd,
                    (_, left) => BodyState::Chunk(left),
                };
                Ok(count)
            }
            BodyState::ChunkSize => self.take_chunk_size(input),
            BodyState::ChunkEnd => self.line_step(input, Self::handle_chunk_end),
            BodyState::Trailer => self.line_step(input, Self::handle_trailer),
            BodyState::Done => Ok(0),
        }
    }

    fn line_step(
        &mut self,
        input: &[u8],
        handle: fn(&mut Self, Vec<u8>) -> Result<(), Refusal>,
    ) -> Result<usize, Refusal> {
        const LINE_BYTES_MAX: usize = 4096;
        let end = input.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(input.len(), |at| at + 1);
        self.line.extend_from_slice(&input[..count]);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(bad_request("a line between chunks is too long; shorten it".into()));
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            handle(self, line)?;
        }
        Ok(count)
    }

    fn take_chunk_size(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        for (at, byte) in input.iter().enumerate() {
            let taken = self.size.take(*byte);
            let size = taken.map_err(|why| bad_request(why.into()))?;
            let Some(size) = size else { continue };
            let size = size as usize;
            if size > self.body_bytes_max - self.body.len() {
                return Err(too_large(self.body_bytes_max));
            }
            self.state = if size == 0 { BodyState::Trailer } else { BodyState::Chunk(size) };
            return Ok(at + 1);
        }
        Ok(input.len())
    }

    fn handle_chunk_end(&mut self, line: Vec<u8>) -> Result<(), Refusal> {
        if line != b"\r\n" {
            return Err(bad_request(
                "a chunk is longer than its size said; mend the sender".into(),
            ));
        }
        self.state = BodyState::ChunkSize;
        Ok(())
    }

    fn handle_trailer(&mut self, line: Vec<u8>) -> Result<(), Refusal> {
        if !line.ends_with(b"\r\n") {
            return Err(bad_request(
                "a line after the chunks ends without CRLF; mend the sender".into(),
            ));
        }
        if line == b"\r\n" {
            self.state = BodyState::Done;
        }
        Ok(())
    }
}

fn too_large(body_bytes_max: usize) -> Refusal {
    let text = format!(
        "cannot take the request's body: it has more bytes than body_bytes_max, {body_bytes_max}; \
         send less at a time, or raise the limit in the configuration"
    );
    Refusal::new(Code::PayloadTooLarge, text)
}

/// How a response's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLen {
    /// It has so many bytes.
    Bytes(u64),
    /// It comes in chunks.
    Chunked,
    /// It goes on until the connection is closed, for peers of HTTP/1.0.
    UntilClosed,
}

/// Appends a response head. `fields` come before those that delimit the body, of which 204 and 304 have none.
pub fn encode_response_head(
    status: u16,
    date: &HttpDate,
    fields: &[(&str, &str)],
    body: BodyLen,
    keep_alive: bool,
    out: &mut Vec<u8>,
) {
    let mut line = |text: &str| out.extend_from_slice(text.as_bytes());
    line(&format!("HTTP/1.1 {status} {}\r\ndate: {}\r\n", reason(status), date.as_str()));
    for (name, value) in fields {
        line(&format!("{name}: {value}\r\n"));
    }
    match body {
        // RFC 9110, section 8.6.
        _ if status == 204 || status == 304 => {}
        BodyLen::Bytes(count) => line(&format!("content-length: {count}\r\n")),
        BodyLen::Chunked => line("transfer-encoding: chunked\r\n"),
        BodyLen::UntilClosed => {}
    }
    line(if keep_alive { "\r\n" } else { "connection: close\r\n\r\n" });
}

/// Appends one chunk of a chunked body; an empty one would end it, so it is left out.
pub fn encode_chunk(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A chunk being written at the end of a buffer, its size left open until it is known. RFC 9112, section 7.1.
#[derive(Debug)]
pub struct ChunkWriter {
    start: usize,
}

/// Room for a chunk's size, with leading zeros, and the end of its line.
const SIZE_LINE: usize = 8 + 2;

impl ChunkWriter {
    /// Opens a chunk; what is appended to `out` from now on is in it.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(b"00000000\r\n");
        Self { start }
    }

    /// Closes the chunk. An empty one, which would end the body, is taken back.
    pub fn finish(self, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut size = out.len() - self.start - SIZE_LINE;
        if size == 0 {
            return out.truncate(self.start);
        }
        for digit in out[self.start..self.start + SIZE_LINE - 2].iter_mut().rev() {
            *digit = DIGITS[size & 15];
            size >>= 4;
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the end of a chunked body.
pub fn encode_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// The JSON body of an error, as in docs/protocol.md#http-api.
pub fn refusal_body(refusal: &Refusal) -> String {
    serde_json::json!({
        "code": refusal.code.number(),
        "word": refusal.code.word(),
        "error": refusal.text,
    })
    .to_string()
}

/// The fields that go with an error's code.
pub fn refusal_fields(refusal: &Refusal) -> Vec<(&'static str, &'static str)> {
    let mut fields = vec![("content-type", "application/json")];
    if refusal.code.http_status() == 401 {
        fields.push(("www-authenticate", "Bearer"));
    }
    fields.extend(refusal.code.retry_after().map(|seconds| ("retry-after", seconds)));
    fields
}

/// An error response. Its connection serves no other request.
#[derive(Clone, Copy, Debug)]
pub struct RefusalAnswer<'a> {
    /// The error.
    pub refusal: &'a Refusal,
    /// When it is answered.
    pub date: &'a HttpDate,
    /// Fields besides those of its code.
    pub fields: &'a [(&'a str, &'a str)],
    /// Whether the request was a HEAD: then no body follows.
    pub is_head: bool,
}

impl RefusalAnswer<'_> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let body = refusal_body(self.refusal);
        let mut fields = refusal_fields(self.refusal);
        fields.extend(self.fields);
        let (status, len) = (self.refusal.code.http_status(), BodyLen::Bytes(body.len() as u64));
        encode_response_head(status, self.date, &fields, len, false, out);
        if !self.is_head {
            out.extend_from_slice(body.as_bytes());
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        507 => "Insufficient Storage",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> RequestHead {
        let parsed = parse_head(text.as_bytes(), &Limits::default()).expect("a valid head");
        parsed.expect("a whole head").0
    }

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let text = "GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n\r\nrest";
        let whole = text.len() - 4;
        for end in 0..whole {
            let part = parse_head(&text.as_bytes()[..end], &Limits::default());
            assert_eq!(part, Ok(None), "{end} bytes");
        }
        let (head, taken) =
            parse_head(text.as_bytes(), &Limits::default()).expect("valid").expect("whole");
        assert_eq!((taken, head.path(), head.field("host")), (whole, "/a", Some("x")));
        assert!(head.has_token("connection", "upgrade") && head.keep_alive());
    }

    #[test]
    fn a_connection_of_http_1_0_is_closed_whatever_its_peer_wishes() {
        assert!(!head("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive());
        assert!(head("GET / HTTP/1.1\r\n\r\n").keep_alive());
    }

    #[test]
    fn answers_say_when_they_were_made_and_how_long_they_are_if_they_have_a_body() {
        let text = |status, body| {
            let mut out = Vec::new();
            encode_response_head(status, &HttpDate::at(0), &[], body, true, &mut out);
            String::from_utf8(out).expect("text")
        };
        let date = "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        assert_eq!(text(204, BodyLen::Bytes(0)), format!("HTTP/1.1 204 No Content\r\n{date}\r\n"));
        assert_eq!(
            text(304, BodyLen::Bytes(0)),
            format!("HTTP/1.1 304 Not Modified\r\n{date}\r\n")
        );
        assert_eq!(
            text(200, BodyLen::Bytes(3)),
            format!("HTTP/1.1 200 OK\r\n{date}content-length: 3\r\n\r\n")
        );
    }

    #[test]
    fn an_error_that_answers_head_has_no_body_but_its_length() {
        let refusal = Refusal::new(Code::BadToken, "why");
        let encoded = |is_head| {
            let (mut out, date) = (Vec::new(), HttpDate::at(0));
            RefusalAnswer { refusal: &refusal, date: &date, fields: &[("allow", "GET")], is_head }
                .encode(&mut out);
            String::from_utf8(out).expect("text")
        };
        let (whole, head) = (encoded(false), encoded(true));
        assert!(head.ends_with("\r\n\r\n") && whole.starts_with(&head), "{head}");
        assert!(
            head.contains("www-authenticate: Bearer\r\n") && head.contains("allow: GET\r\n"),
            "{head}"
        );
    }

    #[test]
    fn bad_heads_are_refused_with_a_reason() {
        let limits = Limits { head_bytes_max: 100, head_fields_max: 2, ..Limits::default() };
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(200));
        let cases = [
            ("GET\0/ HTTP/1.1\r\n\r\n", "RFC 9112"),
            (long.as_str(), "head_bytes_max"),
            ("GET / HTTP/1.1\r\na: 1\r\nb: 2\r\nc: 3\r\n\r\n", "head_fields_max"),
        ];
        for (text, part) in cases {
            let refusal = parse_head(text.as_bytes(), &limits).expect_err(text);
            assert!(refusal.text.contains(part), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_chunk_says_how_long_it_is() {
        let mut out = b"before".to_vec();
        let writer = ChunkWriter::begin(&mut out);
        out.extend_from_slice(&[b'x'; 300]);
        writer.finish(&mut out);
        ChunkWriter::begin(&mut out).finish(&mut out);
        assert!(out.starts_with(b"before0000012c\r\nxxx") && out.ends_with(b"xxx\r\n"));
        let head = head("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut body = BodyReader::new(&head, &Limits::default()).expect("chunked");
        encode_last_chunk(&mut out);
        body.handle_bytes(&out["before".len()..]).expect("well formed");
        assert!(body.is_done() && body.into_body() == [b'x'; 300]);
    }

    #[test]
    fn a_query_is_decoded() {
        let head = head("GET /a?topic=a%2Fb+c&topic=%23&x HTTP/1.1\r\n\r\n");
        let pairs = [("topic", "a/b c"), ("topic", "#"), ("x", "")];
        assert_eq!(head.query(), pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    fn check_body(fields: &str, body: &str, expected: Result<&str, &str>) {
        let head = head(&format!("POST / HTTP/1.1\r\n{fields}\r\n"));
        for piece in [1, 3, 1000] {
            let result = BodyReader::new(&head, &Limits::default()).and_then(|mut reader| {
                for bytes in body.as_bytes().chunks(piece) {
                    reader.handle_bytes(bytes)?;
                }
                assert!(reader.is_done(), "{fields} {body}");
                Ok(reader.into_body())
            });
            match (&result, expected) {
                (Ok(body), Ok(expected)) => assert_eq!(body, expected.as_bytes()),
                (Err(refusal), Err(part)) => assert!(refusal.text.contains(part), "{refusal}"),
                _ => panic!("{fields} {body}: {result:?}"),
            }
        }
    }

    #[test]
    fn bodies_are_read_in_any_pieces() {
        check_body("", "", Ok(""));
        check_body("Content-Length: 5\r\n", "hello", Ok("hello"));
        check_body("Content-Length: 5\r\nContent-Length: 5\r\n", "hello", Ok("hello"));
        let chunked = "Transfer-Encoding: chunked\r\n";
        check_body(chunked, "5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: 1\r\n\r\n", Ok("hello!"));
        for line in ["05", "5;a", "5;a=b", "5 ; a = b", "5;a=\"b \\\" c\";d", "5\t;a"] {
            check_body(chunked, &format!("{line}\r\nhello\r\n0\r\n\r\n"), Ok("hello"));
        }
    }

    #[test]
    fn ambiguous_bodies_are_refused() {
        check_body("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "", Err("both"));
        check_body("Content-Length: 5\r\nContent-Length: 6\r\n", "", Err("two different"));
        check_body("Content-Length: +5\r\n", "", Err("not a number"));
        check_body("Content-Length: 99999999\r\n", "", Err("body_bytes_max"));
        check_body("Transfer-Encoding: gzip, chunked\r\n", "", Err("not understood"));
        check_body("Transfer-Encoding: chunked\r\n", "zz\r\n", Err("not a number"));
        for line in [
            "5;",
            "5 ",
            "5 x",
            "5\n",
            "5;=x",
            "5;a=",
            "5;a b",
            "5;a=\"b",
            "5;a=\"b\"c",
            "5;\u{1}",
            "5\rx",
        ] {
            check_body(
                "Transfer-Encoding: chunked\r\n",
                &format!("{line}\r\nhello\r\n0\r\n\r\n"),
                Err("chunk"),
            );
        }
        check_body("Transfer-Encoding: chunked\r\n", "0\r\nx\n\r\n", Err("CRLF"));
        check_body("Transfer-Encoding: chunked\r\n", "1\r\nab\r\n", Err("longer than"));
        check_body("Transfer-Encoding: chunked\r\n", "fffffff\r\n", Err("body_bytes_max"));
    }
}
