//! Several addresses, each with surfaces of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_server::Server;
use tidegate_server::config::parse;

use crate::node::request;

const CONFIG: &str = r#"
    [engine]
    shards = 2
    [[listeners]]
    address = "127.0.0.1:0"
    surfaces = ["clients"]
    [[listeners]]
    address = "127.0.0.1:0"
    surfaces = ["publish"]
    [[listeners]]
    address = "127.0.0.1:0"
    surfaces = ["devices", "operators"]
"#;

fn status(address: SocketAddr, line: &str, body: &str) -> u16 {
    request(address, &format!("{line} HTTP/1.1"), body).0
}

#[test]
fn each_listener_serves_its_surfaces_and_answers_404_for_the_others() {
    let config = parse(CONFIG, "t.toml").expect("valid");
    let server = Server::start(config).expect("free ports");
    let &[clients, publish, operators] = server.addresses() else { panic!("three") };
    let body = r#"{"topic":"a","data":1}"#;
    // Often enough that both shards of every listener are asked.
    for _ in 0..16 {
        for (line, body, expected) in [
            ("GET /health", "", [200, 200, 200]),
            ("GET /metrics", "", [404, 404, 200]),
            ("GET /v1/sessions", "", [404, 404, 200]),
            ("POST /v1/publish", body, [404, 200, 404]),
            ("GET /v1/topics/a", "", [200, 200, 404]),
            ("GET /v1/ws", "", [400, 404, 404]),
            ("GET /v1/devices/d", "", [404, 404, 400]),
        ] {
            let found = [clients, publish, operators].map(|it| status(it, line, body));
            assert_eq!(found, expected, "{line}");
        }
    }
    let (_, told) = request(clients, "GET /metrics HTTP/1.1", "");
    assert!(told.contains("4303") || told.contains("cannot find `/metrics`"), "{told}");
    server.stop();
    server.wait().expect("it ends");
}

fn proxied(more: &str) -> (Server, SocketAddr) {
    let text = format!(
        "[access]\n{more}\n[limits]\nconnections_per_address_max = 1\nopening_ms = 200\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n"
    );
    let server = Server::start(parse(&text, "t.toml").expect("valid")).expect("a free port");
    let address = server.address();
    (server, address)
}

/// Sends bytes and then nothing; answers the connection and what comes back until it pauses or ends.
fn say(address: SocketAddr, pieces: &[&[u8]]) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("open");
    for piece in pieces {
        // Whom the server does not listen to may find that out here already.
        let _ = stream.write_all(piece);
    }
    let mut answer = vec![0; 4096];
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid time");
    let count = stream.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    (stream, answer)
}

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_trusted_proxy_says_whose_connection_it_is() {
    let (server, address) = proxied("trusted_proxies = [\"127.0.0.0/8\"]");
    let of = |client: &str| format!("PROXY TCP4 {client} 127.0.0.1 4000 443\r\n").into_bytes();
    let (_first, answer) = say(address, &[&of("192.0.2.1"), HEALTH]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_second, answer) = say(address, &[&of("192.0.2.2"), HEALTH]);
    assert!(answer.starts_with("HTTP/1.1 200"), "another client has a count of its own: {answer}");
    let (_third, answer) = say(address, &[&of("192.0.2.1"), HEALTH]);
    assert!(answer.starts_with("HTTP/1.1 429"), "the first has as many as it may: {answer}");
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    binary.extend([192, 0, 2, 1, 127, 0, 0, 1, 0, 7, 1, 187]);
    let (_fourth, answer) = say(address, &[&binary[..5], &binary[5..], HEALTH]);
    assert!(answer.starts_with("HTTP/1.1 429"), "version 2 names the same client: {answer}");
    let (_fifth, answer) = say(address, &[HEALTH]);
    assert_eq!(answer, "", "no header");
    let (_sixth, answer) = say(address, &[b"PROXY TCP4 "]);
    assert_eq!(answer, "", "a header that does not end");
    server.stop();
    server.wait().expect("it ends");
}

#[test]
fn headers_of_strangers_are_not_read() {
    let (server, address) = proxied("trusted_proxies = [\"192.0.2.0/24\"]");
    let (_stranger, answer) =
        say(address, &[b"PROXY TCP4 192.0.2.1 127.0.0.1 4000 443\r\n", HEALTH]);
    assert_eq!(answer, "");
    server.stop();
    server.wait().expect("it ends");
}
