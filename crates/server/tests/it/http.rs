//! HTTP as others read it: hosts, lengths, methods, dates; and who may listen where.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_server::Server;
use tidegate_server::config::parse;

use crate::node::Node;

/// Sends bytes and hears everything until the server closes.
fn exchange(node: &Node, request: &str) -> String {
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time");
    stream.write_all(request.as_bytes()).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer to the end");
    answer
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn a_request_is_served_only_for_names_that_the_server_goes_by() {
    let node = Node::start("[access]\nhosts = [\"push.example\"]\n[engine]\nshards = 2\n");
    let paths = ["/health", "/v1/ws", "/v1/poll", "/v1/devices/attach", "/diagnostics/echo"];
    for (host, status) in [
        ("Host: localhost", ""),
        ("Host: a.localhost:8470", ""),
        ("Host: 127.0.0.1", ""),
        ("Host: [::1]:8470", ""),
        ("Host: push", ""),
        ("Host: Push.Example:443", ""),
        ("Host: evil.example", "421"),
        ("Host: evil.example\r\nOrigin: http://evil.example", "421"),
        ("X: y", "400"),
        ("Host: a\r\nHost: a", "400"),
        ("Host: a, b", "400"),
        ("Host:", "400"),
        ("Host: u@localhost", "400"),
        ("Host: localhost/x", "400"),
    ] {
        for path in paths {
            for upgrade in ["", UPGRADE] {
                let fields = if upgrade.is_empty() { "Connection: close\r\n" } else { upgrade };
                let is_refused = !status.is_empty();
                // Whoever is let in is heard on one path only: some of them go on.
                if !is_refused && (path != "/health" || !upgrade.is_empty()) {
                    continue;
                }
                let answer =
                    exchange(&node, &format!("GET {path} HTTP/1.1\r\n{host}\r\n{fields}\r\n"));
                let expected = if is_refused { status } else { "200" };
                assert_eq!(status_of(&answer), expected, "{host}, {path}: {answer}");
                assert!(!answer.contains("access-control-allow"), "{answer}");
                if status == "421" {
                    assert!(
                        answer.contains("4304")
                            && answer.contains("hosts = [\\\"evil.example\\\"]"),
                        "{answer}"
                    );
                }
            }
        }
    }
    assert_eq!(status_of(&exchange(&node, "GET /health HTTP/1.0\r\n\r\n")), "200");
    let any = Node::start("[access]\nhosts = [\"*\"]\n");
    let answer =
        exchange(&any, "GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(status_of(&answer), "200");
}

/// The header fields of an answer, and what follows.
fn split(answer: &str) -> (&str, &str) {
    answer.split_once("\r\n\r\n").expect("a whole head")
}

fn length_of(head: &str) -> Option<usize> {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.map(|text| text.parse().expect("a number"))
}

#[test]
fn head_is_answered_like_get_without_the_body_whoever_answers() {
    let node = Node::start("[engine]\nshards = 2\n[limits]\nbody_bytes_max = 10\n");
    for path in [
        "/",
        "/demo",
        "/favicon.ico",
        "/page/app.js",
        "/health",
        "/ready",
        "/metrics",
        "/nowhere",
        "/v1/publish",
        "/v1/topics",
        "/v1/topics/a",
        "/v1/topics/a//b",
        "/v1/history/a",
        "/v1/slow",
        "/v1/sessions",
        "/v1/sse",
        "/v1/stream",
        "/v1/poll",
        "/v1/poll?session=1",
        "/v1/commands",
        "/v1/request",
        "/v1/ws",
        "/v1/devices",
        "/v1/devices/challenge",
        "/v1/devices/attach",
        "/v1/devices/d/send",
        "/v1/devices/a/b/c",
        "/v1/applications/a/stats",
    ] {
        for fields in [
            "",
            "Origin: http://evil.example\r\n",
            "Content-Length: 100\r\n",
            "Authorization: x\r\n",
        ] {
            let next = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let request = format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{next}");
            let answer = exchange(&node, &request);
            let (head, rest) = split(&answer);
            let is_closed = head.contains("connection: close");
            let is_next =
                rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("{\"status\":\"ok\"}");
            assert!(
                if is_closed { rest.is_empty() } else { is_next },
                "{path}, {fields}: {answer}"
            );
            assert!(head.contains("\r\ndate: "), "{answer}");
        }
    }
    for path in ["/health", "/page/app.js", "/v1/topics", "/nowhere"] {
        let ask = |method: &str| {
            exchange(
                &node,
                &format!(
                    "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                ),
            )
        };
        let (got, headed) = (ask("GET"), ask("HEAD"));
        let length = length_of(split(&got).0);
        assert!(length.is_some_and(|length| length > 0), "{got}");
        assert_eq!(length_of(split(&headed).0), length, "{path}: {headed}");
    }
}

#[test]
fn answers_name_what_they_have_to() {
    let node = Node::start("[access]\norigins = [\"*\"]\n");
    let ask = |head: &str| {
        exchange(&node, &format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    };
    for (path, allowed) in [
        ("/v1/sse", "GET, POST"),
        ("/v1/stream", "GET, POST"),
        ("/v1/poll", "GET, POST"),
        ("/v1/commands", "POST"),
        ("/v1/request", "POST"),
        ("/v1/devices", "GET"),
        ("/v1/devices/attach", "POST"),
        ("/v1/devices/d", "GET"),
        ("/v1/devices/d/send", "POST"),
        ("/v1/applications/a/stats", "GET"),
        ("/health", "GET,HEAD"),
        ("/v1/publish", "POST"),
    ] {
        let answer = ask(&format!("DELETE {path} HTTP/1.1"));
        assert_eq!(status_of(&answer), "405", "{path}: {answer}");
        assert!(answer.contains(&format!("\r\nallow: {allowed}\r\n")), "{path}: {answer}");
    }
    let preflight = ask("OPTIONS /v1/publish HTTP/1.1\r\nOrigin: http://a.example");
    assert!(
        status_of(&preflight) == "204" && length_of(split(&preflight).0).is_none(),
        "{preflight}"
    );
    let other = UPGRADE.replace("Version: 13", "Version: 8");
    let answer = exchange(&node, &format!("GET /v1/ws HTTP/1.1\r\nHost: localhost\r\n{other}\r\n"));
    assert!(
        status_of(&answer) == "400" && answer.contains("\r\nsec-websocket-version: 13\r\n"),
        "{answer}"
    );
    let body = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n";
    let answer = exchange(&node, &format!("{body}{UPGRADE}\r\nhello"));
    assert_eq!(status_of(&answer), "400", "{answer}");
    let answer = ask("GET /v1/topics HTTP/1.1\r\nAuthorization: Basic dDp0");
    assert!(status_of(&answer) == "401" && answer.contains("www-authenticate: Bearer"), "{answer}");
    let answer = exchange(&node, "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[test]
fn a_taken_address_is_an_error_and_free_again_after_a_stop() {
    for shards in [1, 4] {
        let config = |address| {
            let mut config =
                parse(&format!("[engine]\nshards = {shards}\n"), "t.toml").expect("valid");
            config.listen = address;
            config
        };
        let first = Server::start(config(([127, 0, 0, 1], 0).into())).expect("a free port");
        let address = first.address();
        let everywhere = ([0, 0, 0, 0], address.port()).into();
        for taken in [address, everywhere] {
            let Err(error) = Server::start(config(taken)) else { panic!("two servers on {taken}") };
            assert!(error.to_string().contains("stop what listens there"), "{error}");
        }
        // A connection that the server closes first lingers in the kernel.
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").expect("open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let standing = TcpStream::connect(address).expect("it listens");
        first.stop();
        let _ = first.wait();
        let again = Server::start(config(address)).expect("the address is free again");
        drop(standing);
        again.stop();
        let _ = again.wait();
    }
}

#[test]
fn of_servers_that_start_at_once_on_an_address_one_listens() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("it has one");
    drop(free);
    let start = || {
        let mut config = parse("[engine]\nshards = 2\n", "t.toml").expect("valid");
        config.listen = address;
        Server::start(config)
    };
    for _ in 0..10 {
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic").ok()).collect()
        });
        assert_eq!(started.len(), 1);
        for server in started {
            server.stop();
            let _ = server.wait();
        }
    }
}
