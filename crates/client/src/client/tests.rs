//! The client against servers that do one thing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use model::Limits;
use protocol::http::parse_head;
use protocol::websocket::{Opcode, accept_handshake, encode_handshake_response, encode_header};

use super::*;

#[test]
fn clients_that_are_given_no_seed_have_pauses_of_their_own() {
    let pauses = || {
        let mut backoff = Backoff::new(seed_of_the_system());
        [(); 4].map(|()| backoff.next_pause(Duration::ZERO))
    };
    assert_ne!(pauses(), pauses());
    let of = |index| Backoff::one_of(7, index).next_pause(Duration::ZERO);
    assert_ne!(of(0), of(1), "nor do two subscriptions of one client come back in the same moment");
}

/// Takes a client in as a server does that takes messages of so many bytes.
fn welcome(stream: &mut TcpStream, message_bytes_max: usize) {
    let mut request = [0; 4096];
    let count = stream.read(&mut request).expect("a handshake");
    let head = parse_head(&request[..count], &Limits::default()).expect("valid");
    let handshake = accept_handshake(&head.expect("whole").0).expect("one of ours");
    let (mut out, mut record) = (Vec::new(), Vec::new());
    encode_handshake_response(&handshake, &mut out);
    let welcome = Event::Welcome {
        id: Some(CommandId(0)),
        session: "s".into(),
        node: "n".into(),
        version: "1".into(),
        key: None,
        payload_bytes_max: 1_000,
        message_bytes_max,
        features: None,
    };
    binary::append_event(&welcome, &mut record);
    encode_header(Opcode::Binary, record.len(), &mut out);
    out.extend(record);
    stream.write_all(&out).expect("it is read");
}

/// A client of a server that does this.
fn client_of(serve: impl FnOnce(TcpListener) + Send + 'static) -> Client {
    client_with(ClientOptions::default(), serve)
}

fn client_with(options: ClientOptions, serve: impl FnOnce(TcpListener) + Send + 'static) -> Client {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("ws://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || serve(listener));
    Client::connect(&url, options).expect("it is welcome")
}

fn draft() -> Draft {
    Draft {
        topic: TopicName::parse("a", &Limits::default()).expect("valid"),
        payload: Payload::new(model::PayloadKind::Text, b"any"),
        idempotency_key: Some("key".into()),
        expected: None,
    }
}

#[test]
fn a_publication_has_a_deadline_whose_code_says_whether_it_was_sent() {
    let publish_timeout = Duration::from_millis(100);
    let options = ClientOptions { publish_timeout, ..ClientOptions::default() };
    let (end, ended) = std::sync::mpsc::channel();
    let mut client = client_with(options, move |listener| {
        let (mut stream, _) = listener.accept().expect("a client");
        welcome(&mut stream, 1_000);
        let _ = ended.recv();
    });
    let refused = |client: &mut Client| {
        let id = client.publish(draft());
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match client.next(until).expect("it does not wait for ever") {
                Update::Refused { id: of, refusal } if of == Some(id) => {
                    return refusal.code.number();
                }
                Update::Disconnected { .. } => {}
                other => panic!("it is refused, and not {other:?}"),
            }
        }
    };
    assert_eq!(refused(&mut client), 4900);
    // Without a server, and without the connection, which ends with it.
    end.send(()).expect("it waits");
    while client.is_connected() {
        client.next(Instant::now() + Duration::from_millis(10));
    }
    assert_eq!(refused(&mut client), 4906);
}

#[test]
fn a_first_connection_that_fails_is_logged_once() {
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("ws://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let written = lines.clone();
    let writer = move || Lines(written.clone());
    let subscriber =
        tracing_subscriber::fmt().with_writer(writer).with_ansi(false).without_time().finish();
    let error = tracing::subscriber::with_default(subscriber, || {
        let options = ClientOptions { other_urls: vec![url.clone()], ..Default::default() };
        Client::connect(&url, options).expect_err("nobody is there")
    });
    let text = String::from_utf8(lines.lock().expect("nobody panicked").clone()).expect("text");
    let wanted = format!("no connection to {url}: {error}; it is not tried again by itself\n");
    assert!(text.contains("WARN") && text.ends_with(&wanted), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// The lines of the log.
struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_server_that_asks_to_stay_away_is_left_alone_for_so_long() {
    let mut client = client_of(|listener| {
        welcome(&mut listener.accept().expect("a client").0, 1_000);
        let (mut stream, _) = listener.accept().expect("it comes back");
        let _ = stream.read(&mut [0; 4096]);
        let answer =
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).expect("it is read");
        let _ = stream.read(&mut [0; 4096]);
    });
    let until = Instant::now() + Duration::from_secs(60);
    let mut pauses = Vec::new();
    while pauses.len() < 2 {
        match client.next(until) {
            Some(Update::Disconnected { pause, .. }) => pauses.push(pause.as_secs()),
            other => panic!("it is away, and said {other:?}"),
        }
    }
    assert!(pauses[0] < 1 && (60..=75).contains(&pauses[1]), "{pauses:?}");
}

#[test]
fn a_command_that_is_too_large_for_the_server_is_refused_here_and_costs_nothing_else() {
    let mut client = client_of(|listener| {
        let (mut stream, _) = listener.accept().expect("a client");
        welcome(&mut stream, 1_000);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let selector = |number| {
        let text = format!("many/{number}");
        model::Selector::parse(&text, &Limits::default()).expect("valid")
    };
    let large = Subscribe {
        subscription: None,
        selectors: (0..200).map(selector).collect(),
        start: model::Start::All,
        positions: Vec::new(),
        name: None,
        options: model::SubscribeOptions::default(),
    };
    let id = client.subscribe(large);
    match client.next(Instant::now() + Duration::from_secs(60)) {
        Some(Update::Ended { of, refusal }) => {
            assert_eq!((of, refusal.code.number()), (id, 4206));
        }
        other => panic!("it is refused, and not {other:?}"),
    }
    assert!(client.is_connected());
}
