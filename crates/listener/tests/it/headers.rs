//! Connections that begin with the header of a proxy.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::{Io, Received};
use model::Code;
use tidegate_listener::{FilterOptions, Listener};

use crate::node::{Node, PATIENT};

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.2 56324 443\r\n";

fn node(trusted: [u8; 4], options: FilterOptions) -> Node {
    let header_from: tidegate_listener::IsTrusted =
        Arc::new(move |peer| peer == IpAddr::from(trusted));
    let proxied = Listener { header_from: Some(header_from), tls: None };
    Node::new(vec![Listener::default(), proxied], options)
}

#[test]
fn the_shard_hears_of_a_connection_once_its_header_is_there() {
    for piece in [1, 5, 1_000] {
        let mut node = node([10, 0, 0, 1], PATIENT);
        let socket = node.io.io_mut().connect(1, piece);
        node.io.io_mut().say(socket, &LINE[..20]);
        node.turn();
        assert!(node.heard.is_empty());
        node.io.io_mut().say(socket, &[&LINE[20..], b"hello"].concat());
        node.turn();
        node.turn();
        let heard = &node.heard[&socket];
        assert_eq!((&heard.bytes[..], &heard.peer[..]), (&b"hello"[..], "192.0.2.7:56324"));
        assert_eq!(node.io.peer_address(socket), Some(IpAddr::from([192, 0, 2, 7])));
        node.io.io_mut().wires[0].has_ended = true;
        node.io.io_mut().say(socket, b"");
        node.turn();
        assert_eq!(node.heard[&socket].end, Some(Received::Ended));
    }
}

#[test]
fn other_listeners_expect_none() {
    let mut node = node([10, 0, 0, 1], PATIENT);
    let socket = node.io.io_mut().connect(0, 1_000);
    node.io.io_mut().say(socket, LINE);
    node.turn();
    assert_eq!(node.heard[&socket].bytes, LINE);
    assert_eq!(node.io.peer_address(socket), Some(IpAddr::from([10, 0, 0, 1])));
}

#[test]
fn who_is_not_trusted_or_says_no_header_is_closed() {
    let cases: [(_, &[u8], _); 3] = [
        ([10, 0, 0, 2], LINE, Code::UntrustedProxy),
        ([10, 0, 0, 1], b"GET / HTTP/1.1\r\n\r\n", Code::BadProxyHeader),
        ([10, 0, 0, 1], b"PROXY TCP4 1\r\n", Code::BadProxyHeader),
    ];
    for (trusted, said, code) in cases {
        let mut node = node(trusted, PATIENT);
        let socket = node.io.io_mut().connect(1, 1_000);
        node.io.io_mut().say(socket, said);
        node.turn();
        assert!(node.heard.is_empty() && node.io.io_mut().wires[0].is_closed);
        assert_eq!(node.codes(), [code.number()]);
    }
}

#[test]
fn a_header_that_takes_too_long_is_not_waited_for() {
    let mut node = node([10, 0, 0, 1], FilterOptions { opening: Duration::ZERO, ..PATIENT });
    let socket = node.io.io_mut().connect(1, 1_000);
    node.io.io_mut().say(socket, &LINE[..10]);
    node.turn();
    node.turn();
    assert!(node.heard.is_empty() && node.io.io_mut().wires[0].is_closed);
    assert_eq!(node.codes(), [Code::SlowOpening.number()]);
}
