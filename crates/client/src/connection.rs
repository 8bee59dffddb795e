//! One WebSocket connection over a blocking socket.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use model::{Code, Command, CommandId, Event, Features, Hello, Limits, Refusal};
use protocol::native::{ServerRecord, binary, json};
use protocol::websocket::{
    Inbound, Message, NotOpened, Opcode, Role, Subprotocol, Unread, check_handshake_response,
    encode_handshake_request, encode_masked,
};

use crate::errors::{ClientError, ErrorCode};
use crate::transport::{Target, Transport};

fn broken(why: impl std::fmt::Display) -> ClientError {
    let text = format!("the connection broke: {why}; it can be opened again");
    ClientError::new(ErrorCode::Unreachable, text)
}

/// A connection that speaks the binary dialect.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Transport,
    inbound: Inbound,
    limits: Limits,
    random: u64,
    buffer: Vec<u8>,
    /// Bytes that one message to the server may have.
    pub(crate) message_bytes_max: usize,
    /// Bytes that one payload may have.
    pub(crate) payload_bytes_max: usize,
    /// The server's features.
    pub(crate) features: Features,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: ClientError,
    /// How long the server, or something on the way, wants nobody to come back.
    pub(crate) stay_away: Duration,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self { error, stay_away: Duration::ZERO }
    }
}

/// How long connecting, shaking hands and greeting may take, each.
const STEP_MAX: Duration = Duration::from_secs(10);
/// The longest that anything on the way may ask to stay away.
const STAY_AWAY_MAX: Duration = Duration::from_secs(3_600);
/// How much of an answer that opens nothing is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// The id of `hello`.
const HELLO_ID: CommandId = CommandId(0);

impl Connection {
    /// Connects to `url` (`ws://host:port`, `wss://host`), shakes hands and says `hello`. `ca` is a file of authorities to trust
    /// instead of the system's.
    pub(crate) fn open(
        url: &str,
        ca: Option<&Path>,
        hello: Hello,
        seed: u64,
    ) -> Result<Self, Failure> {
        let cannot = |code: ErrorCode, why: String, how: &str| {
            ClientError::new(code, format!("cannot connect to {url}: {why}; {how}"))
        };
        let unreachable = |why: String, how: &str| cannot(ErrorCode::Unreachable, why, how);
        let target = Target::of(url).ok_or_else(|| {
            let why = "it is not a ws:// or wss:// address".into();
            cannot(ErrorCode::Misused, why, "write such as ws://127.0.0.1:8470")
        })?;
        let stream = Transport::open(&target, ca, STEP_MAX)
            .map_err(|no_way| unreachable(no_way.why, &no_way.how))?;
        let mut connection = Self {
            stream,
            inbound: Inbound::default(),
            limits: Limits { message_bytes_max: 1 << 30, ..Limits::default() },
            random: seed | 1,
            buffer: vec![0; 64 << 10],
            message_bytes_max: usize::MAX,
            payload_bytes_max: Limits::default().payload_bytes_max,
            features: Features::UNNAMED,
        };
        connection.shake_hands(&target.authority).map_err(|refused| {
            let error = match refused.refusal {
                Some(Refusal { code, text }) => {
                    let text = format!("cannot connect to {url}: {text}");
                    ClientError::new(ErrorCode::Server(code), text)
                }
                None => unreachable(refused.why, "see what the server says"),
            };
            Failure { error, stay_away: refused.stay_away }
        })?;
        connection.greet(hello)?;
        Ok(connection)
    }

    /// Says who it is, and waits for the welcome.
    fn greet(&mut self, hello: Hello) -> Result<(), ClientError> {
        let mut frame = Vec::new();
        self.encode(Some(HELLO_ID), &Command::Hello(hello), &mut frame);
        self.send(&frame)?;
        let (until, mut answer) = (Instant::now() + STEP_MAX, None);
        while answer.is_none() && Instant::now() < until {
            let received = self.receive(until, &mut |record| match record {
                ServerRecord::Event(Event::Welcome {
                    message_bytes_max,
                    payload_bytes_max,
                    features,
                    ..
                }) => {
                    // Who lists none has those of before there was a list.
                    let features = features.unwrap_or(Features::UNNAMED);
                    answer = Some(Ok((message_bytes_max, payload_bytes_max, features)));
                }
                ServerRecord::Event(
                    Event::Refused { refusal, .. } | Event::Closing { refusal, .. },
                ) => answer = Some(Err(ClientError::from(refusal))),
                _ => {}
            });
            if answer.is_none() {
                received?;
            }
        }
        let late = || Err(broken("the server did not greet in time"));
        (self.message_bytes_max, self.payload_bytes_max, self.features) =
            answer.unwrap_or_else(late)?;
        Ok(())
    }

    /// Whether the server would break the connection because of a record of so many bytes.
    pub(crate) fn is_too_large(&self, record_bytes: usize) -> bool {
        record_bytes > self.message_bytes_max
    }

    /// Whether the server would take a record of so many bytes that needs these features.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, record_bytes: usize, needs: Features) -> Result<(), Refusal> {
        if self.is_too_large(record_bytes) {
            let text = "cannot send the command: it is larger than the server's message_bytes_max; \
                        send less at a time, or raise the limit";
            return Err(Refusal::new(Code::MessageTooLarge, text));
        }
        self.check_features(needs)
    }

    /// Whether the server has what a command needs.
    ///
    /// # Errors
    /// 4236: it named no such feature.
    pub(crate) fn check_features(&self, needs: Features) -> Result<(), Refusal> {
        let Some(lacking) = needs.without(self.features).names().next() else { return Ok(()) };
        let text =
            format!("cannot send the command: this server has no `{lacking}`; use one that has");
        Err(Refusal::new(Code::MissingFeature, text))
    }

    fn shake_hands(&mut self, host: &str) -> Result<(), HandshakeRefused> {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.next_random().to_ne_bytes());
        key[8..].copy_from_slice(&self.next_random().to_ne_bytes());
        let mut request = Vec::new();
        encode_handshake_request("/v1/ws", host, key, Subprotocol::Binary, None, &mut request);
        self.stream.send(&request)?;
        let mut answer = Vec::new();
        let mut byte = [0; 1];
        // Byte by byte: what follows the head belongs to the frames. It is once a connection.
        loop {
            if answer.starts_with(&TLS_ALERT) {
                return Err(speaks_tls());
            }
            match check_handshake_response(&answer, key) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(said) => return Err(self.refused(said)),
            }
            let count = match self.stream.read(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            match count {
                0 => return Err(std::io::Error::other("it closed the connection").into()),
                _ => answer.push(byte[0]),
            }
        }
    }

    /// The answer of a server that does not open the connection.
    fn refused(&mut self, said: NotOpened) -> HandshakeRefused {
        let bytes_max = said.body_bytes.unwrap_or(REFUSAL_BYTES_MAX).min(REFUSAL_BYTES_MAX);
        let mut body = Vec::new();
        // What came until then is good enough to tell.
        let _ = (&mut self.stream).take(bytes_max as u64).read_to_end(&mut body);
        // As nginx says it.
        if String::from_utf8_lossy(&body).contains("HTTP request was sent to HTTPS port") {
            return speaks_tls();
        }
        HandshakeRefused {
            refusal: json::decode_refusal(&body),
            why: format!("{}: {}", said.why, String::from_utf8_lossy(&body)),
            stay_away: said.retry_after.unwrap_or_default().min(STAY_AWAY_MAX),
        }
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Appends a command to `out`, framed and masked.
    pub(crate) fn encode(&mut self, id: Option<CommandId>, command: &Command, out: &mut Vec<u8>) {
        let mut record = Vec::new();
        binary::append_command(id, command, &mut record);
        self.frame(&record, out);
    }

    /// Appends a record to `out`, framed and masked.
    pub(crate) fn frame(&mut self, record: &[u8], out: &mut Vec<u8>) {
        let mask = (self.next_random() as u32).to_ne_bytes();
        encode_masked(Opcode::Binary, record, mask, out);
    }

    pub(crate) fn send(&mut self, frames: &[u8]) -> Result<(), ClientError> {
        self.stream.send(frames).map_err(broken)
    }

    /// Hands the records that arrive until `until` to `take`; answers after the first bytes, and
    /// whether there were any.
    pub(crate) fn receive(
        &mut self,
        until: Instant,
        take: &mut impl FnMut(ServerRecord<'_>),
    ) -> Result<bool, ClientError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(left).map_err(broken)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = match self.stream.read(&mut buffer) {
            Ok(0) => Err(broken("the server closed it")),
            Ok(count) => self.take_bytes(&mut buffer[..count], take).map(|()| true),
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(broken(error)),
        };
        self.buffer = buffer;
        result
    }

    fn take_bytes(
        &mut self,
        bytes: &mut [u8],
        take: &mut impl FnMut(ServerRecord<'_>),
    ) -> Result<(), ClientError> {
        let mut input = Unread::new(bytes);
        let mut pongs = Vec::new();
        let mut end = None;
        while end.is_none() {
            let polled = self.inbound.poll_message(&mut input, Role::Client, &self.limits);
            let records = match polled.map_err(|error| broken(error.refusal()))? {
                None => break,
                Some(Message::Binary(message)) => {
                    binary::decode_server_message(message, &self.limits).map_err(broken)?
                }
                Some(Message::Text(text)) => {
                    json::decode_server_message(text, &self.limits).map_err(broken)?
                }
                Some(Message::Ping(payload)) => {
                    encode_masked(Opcode::Pong, payload, [0; 4], &mut pongs);
                    continue;
                }
                Some(Message::Pong(_)) => continue,
                Some(Message::Close(reason)) => {
                    end = Some(closed(reason));
                    continue;
                }
            };
            records.into_iter().for_each(&mut *take);
        }
        if !pongs.is_empty() {
            self.send(&pongs)?;
        }
        end.map_or(Ok(()), Err)
    }
}

/// Why the server did not open the connection.
struct HandshakeRefused {
    /// The server's refusal, if there is one.
    refusal: Option<Refusal>,
    why: String,
    stay_away: Duration,
}

impl From<std::io::Error> for HandshakeRefused {
    fn from(error: std::io::Error) -> Self {
        Self { refusal: None, why: error.to_string(), stay_away: Duration::ZERO }
    }
}

/// How a server of TLS begins to answer who speaks none: an alert of version 3.
const TLS_ALERT: [u8; 2] = [21, 3];

fn speaks_tls() -> HandshakeRefused {
    let why = "it speaks TLS there: use wss:// or https://".to_owned();
    HandshakeRefused { refusal: None, why, stay_away: Duration::ZERO }
}

/// The meaning of a close frame.
fn closed(reason: Option<(u16, &str)>) -> ClientError {
    let Some((number, text)) = reason else { return broken("the server closed it") };
    let error = broken(format!("the server closed it with {number} {text}"));
    match number {
        // Those of later versions are among them.
        4000..=4399 => ClientError { code: ErrorCode::Server(Code::from_number(number)), ..error },
        _ => error,
    }
}

/// Whether a read ended early, by its time or by a signal, and the connection is as good as before.
fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// The error after this answer to a handshake.
    fn refused_with(answer: &'static str) -> Failure {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let url = format!("ws://{}", listener.local_addr().expect("an address"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 4096];
            let count = stream.read(&mut request).expect("a request");
            assert!(request[..count].starts_with(b"GET /v1/ws "));
            stream.write_all(answer.as_bytes()).expect("it is read");
            // The client closes it.
            let _ = stream.read(&mut request);
        });
        let hello = Hello {
            token: None,
            client: None,
            batch: true,
            fragments: true,
            rates: model::Rates::default(),
            features: None,
        };
        let failure = Connection::open(&url, None, hello, 7).expect_err("it is refused");
        server.join().expect("it was asked");
        failure
    }

    #[test]
    fn a_refused_handshake_is_obeyed_as_what_it_says() {
        let said = refused_with(
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 35\r\n\r\n\
             {\"code\":4112,\"error\":\"too many\"}   more",
        );
        assert_eq!(said.error.code, ErrorCode::Server(Code::TooManyFailures));
        assert!(said.error.text.contains("too many"), "{}", said.error.text);
        assert_eq!(said.stay_away, Duration::from_secs(60));
        let said = refused_with(
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999\r\nContent-Length: 4\r\n\r\nbusy",
        );
        assert_eq!((said.error.code, said.stay_away), (ErrorCode::Unreachable, STAY_AWAY_MAX));
        assert!(said.error.text.contains("503: busy"), "{}", said.error.text);
    }
}
