//! The opening handshake. RFC 6455, section 4.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{Code, Refusal};
use sha1::{Digest, Sha1};

use super::deflate::Deflate;
use crate::http::RequestHead;

/// Which form of the native dialect a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subprotocol {
    /// `tidegate.v1.json`
    Json,
    /// `tidegate.v1`
    Binary,
}

impl Subprotocol {
    /// The name in `Sec-WebSocket-Protocol`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "tidegate.v1.json",
            Self::Binary => "tidegate.v1",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Json, Self::Binary].into_iter().find(|known| known.name() == name)
    }
}

/// A handshake that may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    accept: String,
    /// The subprotocol to be named in the answer; `None` when the client offered none.
    pub subprotocol: Option<Subprotocol>,
    /// How messages may be compressed, if the client offered that. To be set to `None` where the server
    /// does not want it.
    pub deflate: Option<Deflate>,
}

/// Checks the handshake of a client that will speak the native dialect.
///
/// # Errors
/// The request breaks RFC 6455, or offers only unknown subprotocols.
pub fn accept_handshake(head: &RequestHead) -> Result<Handshake, Refusal> {
    let handshake = accept_plain_handshake(head)?;
    let offered = head.fields.iter().filter(|(name, _)| name == "sec-websocket-protocol");
    let mut offered = offered.flat_map(|(_, value)| value.split(',')).map(str::trim).peekable();
    let offered_any = offered.peek().is_some();
    let subprotocol = offered.find_map(Subprotocol::from_name);
    if offered_any && subprotocol.is_none() {
        return Err(bad(
            "no offered subprotocol is known; offer tidegate.v1.json, tidegate.v1 or none",
        ));
    }
    Ok(Handshake { subprotocol, ..handshake })
}

/// Checks a handshake and leaves subprotocols aside.
///
/// # Errors
/// The request breaks RFC 6455, section 4.2.1.
pub fn accept_plain_handshake(head: &RequestHead) -> Result<Handshake, Refusal> {
    if head.method != "GET" || head.version_minor != 1 {
        return Err(bad("it is not a GET of HTTP/1.1; send one"));
    }
    // What follows the head is read as frames.
    let has_body = head.field("content-length").is_some_and(|length| length != "0");
    if has_body || head.field("transfer-encoding").is_some() {
        return Err(bad(
            "it announces a body, and there is none; leave Content-Length and Transfer-Encoding out",
        ));
    }
    if head.field("sec-websocket-version") != Some("13") {
        return Err(bad("Sec-WebSocket-Version is not 13; send 13"));
    }
    let key = head.field("sec-websocket-key").unwrap_or("");
    if STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != 16 {
        return Err(bad("Sec-WebSocket-Key is not 16 bytes in base64; send a fresh random one"));
    }
    let deflate = head.fields.iter().filter(|(name, _)| name == "sec-websocket-extensions");
    let deflate = deflate.into_iter().find_map(|(_, offers)| Deflate::accept(offers));
    Ok(Handshake { accept: accept_of(key), subprotocol: None, deflate })
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot open a WebSocket: {why}"))
}

fn accept_of(key: &str) -> String {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(GUID);
    STANDARD.encode(hash.finalize())
}

/// Appends the answer that opens the connection.
pub fn encode_handshake_response(handshake: &Handshake, out: &mut Vec<u8>) {
    out.reserve(RESPONSE_BYTES);
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
          sec-websocket-accept: ",
    );
    out.extend_from_slice(handshake.accept.as_bytes());
    if let Some(subprotocol) = handshake.subprotocol {
        out.extend_from_slice(b"\r\nsec-websocket-protocol: ");
        out.extend_from_slice(subprotocol.name().as_bytes());
    }
    if let Some(deflate) = handshake.deflate {
        out.extend_from_slice(b"\r\nsec-websocket-extensions: ");
        out.extend_from_slice(deflate.answer().as_bytes());
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// As many bytes as a response has without extensions, rounded up.
const RESPONSE_BYTES: usize = 192;

/// Appends a client's handshake; `key` is fresh random bytes.
pub fn encode_handshake_request(
    path: &str,
    host: &str,
    key: [u8; 16],
    subprotocol: Subprotocol,
    token: Option<&str>,
    out: &mut Vec<u8>,
) {
    let key = STANDARD.encode(key);
    let name = subprotocol.name();
    let authorization =
        token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Protocol: {name}\r\n{authorization}\r\n"
    );
    out.extend_from_slice(request.as_bytes());
}

/// An answer that does not open the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotOpened {
    /// Why, with the status.
    pub why: String,
    /// The bytes of its body, which follows the head, if it says how many.
    pub body_bytes: Option<usize>,
    /// How long to stay away, if it says that in seconds (`Retry-After`, RFC 9110, section 10.2.3).
    pub retry_after: Option<Duration>,
}

/// Checks a server's answer at the front of `bytes`: how many bytes its head takes, or `None`
/// while it is not all there.
///
/// # Errors
/// An answer that does not open the connection.
pub fn check_handshake_response(bytes: &[u8], key: [u8; 16]) -> Result<Option<usize>, NotOpened> {
    let because = |why: &str| NotOpened { why: why.into(), ..NotOpened::default() };
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes) {
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(because(&format!("the server's answer is no HTTP: {error}"))),
        Ok(httparse::Status::Complete(len)) => {
            let accept = accept_of(&STANDARD.encode(key));
            match (response.code.unwrap_or(0), field(&response, "sec-websocket-accept")) {
                (101, Some(said)) if said == accept => Ok(Some(len)),
                (101, _) => Err(because("the server's answer has the wrong Sec-WebSocket-Accept")),
                (status, _) => Err(NotOpened {
                    why: format!("the server answered with status {status}"),
                    body_bytes: field(&response, "content-length").and_then(|it| it.parse().ok()),
                    retry_after: field(&response, "retry-after")
                        .and_then(|it| it.parse().ok())
                        .map(Duration::from_secs),
                }),
            }
        }
    }
}

/// The value of the first field of this name.
fn field<'b>(response: &httparse::Response<'_, 'b>, name: &str) -> Option<&'b str> {
    let found = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    found.and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;
    use crate::http::parse_head;

    /// The handshake of RFC 6455, section 1.3, with `changed` instead of one line.
    fn answer(fields: &str) -> Result<String, Refusal> {
        let text = format!(
            "GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{fields}\r\n"
        );
        let parsed = parse_head(text.as_bytes(), &Limits::default()).expect("valid");
        let mut out = Vec::new();
        encode_handshake_response(&accept_handshake(&parsed.expect("whole").0)?, &mut out);
        Ok(String::from_utf8(out).expect("ascii"))
    }

    const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";

    #[test]
    fn it_answers_as_in_the_rfc() {
        let text = answer(&format!("{KEY}{VERSION}")).expect("accepted");
        assert!(text.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        assert!(!text.contains("protocol"));
    }

    #[test]
    fn the_first_known_subprotocol_is_taken() {
        let offer = "Sec-WebSocket-Protocol: chat, tidegate.v1, tidegate.v1.json\r\n";
        let text = answer(&format!("{KEY}{VERSION}{offer}")).expect("accepted");
        assert!(text.contains("sec-websocket-protocol: tidegate.v1\r\n"));
    }

    #[test]
    fn bad_handshakes_say_why() {
        let unknown = "Sec-WebSocket-Protocol: chat\r\n";
        for (fields, part) in [
            (VERSION.to_owned(), "Sec-WebSocket-Key"),
            (KEY.to_owned(), "Sec-WebSocket-Version"),
            (format!("{KEY}{VERSION}Content-Length: 5\r\n"), "announces a body"),
            (format!("{KEY}{VERSION}Transfer-Encoding: chunked\r\n"), "announces a body"),
            (format!("{KEY}{VERSION}{unknown}"), "subprotocol"),
        ] {
            let refusal = answer(&fields).expect_err(part);
            assert!(refusal.text.contains(part), "{refusal}");
        }
    }

    #[test]
    fn an_answer_that_opens_nothing_says_how_long_to_stay_away() {
        for (fields, body_bytes, seconds) in [
            ("Content-Length: 5\r\nRetry-After: 60\r\n", Some(5), Some(60)),
            ("retry-after:  7 \r\n", None, Some(7)),
            ("Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n", None, None),
            ("Retry-After: -1\r\nContent-Length: many\r\n", None, None),
            ("", None, None),
        ] {
            let text = format!("HTTP/1.1 429 Too Many Requests\r\n{fields}\r\n");
            let said = check_handshake_response(text.as_bytes(), [7; 16]).expect_err(fields);
            let expected = (body_bytes, seconds.map(Duration::from_secs));
            assert_eq!((said.body_bytes, said.retry_after), expected, "{fields}");
            assert!(said.why.contains("429"), "{}", said.why);
            let half = &text.as_bytes()[..text.len() - 1];
            assert_eq!(check_handshake_response(half, [7; 16]), Ok(None));
        }
    }
}
