//! TLS, whatever the pieces in which bytes come and go.

use std::sync::Arc;
use std::time::Duration;

use engine::{Io, Received, Sent};
use model::Code;
use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error, HandshakeKind, SupportedProtocolVersion};
use tidegate_listener::{
    ClientCertificates, FilterOptions, Listener, TlsFiles, TlsSource, Versions,
};

use crate::certificates::{Authority, called, expired, with_uri};
use crate::node::{Client, Node, PATIENT};

const BOTH: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

fn files(authority: &Authority, names: &[&str], clients: ClientCertificates) -> TlsFiles {
    let certificates = names.iter().map(|name| authority.pair(name)).collect();
    let client_ca = Some(authority.path("ca.pem"));
    TlsFiles { certificates, clients, client_ca, versions: Versions::Both }
}

fn node_of(files: TlsFiles, options: FilterOptions) -> (Node, Arc<TlsSource>) {
    let source = Arc::new(TlsSource::load(files).expect("files that hold"));
    let listener = Listener { tls: Some(Arc::clone(&source)), ..Listener::default() };
    (Node::new(vec![listener], options), source)
}

fn usual(authority: &Authority) -> (Node, Arc<TlsSource>) {
    authority.issue("a", &["localhost"], |_| {});
    node_of(files(authority, &["a"], ClientCertificates::Off), PATIENT)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Sends all of it, as far as the socket takes it at a time.
fn send_all(node: &mut Node, client: &mut Client, bytes: &[u8], room: usize) {
    let mut at = 0;
    while at < bytes.len() {
        match node.io.send(client.socket, &bytes[at..]) {
            Sent::Bytes(taken) => at += taken,
            Sent::Closed => panic!("it is open"),
        }
        node.io.io_mut().make_room(client.socket, room);
        node.turn();
        client.pump(node);
    }
    for _ in 0..100 {
        node.io.io_mut().make_room(client.socket, room);
        node.turn();
        client.pump(node);
    }
}

#[test]
fn bytes_go_both_ways_in_whatever_pieces() {
    let authority = Authority::new();
    for version in BOTH {
        for (piece, len) in
            [(1, 300), (3, 5_000), (7, 20_000), (1_000, 200_000), (1 << 20, 400_000)]
        {
            let (mut node, _) = usual(&authority);
            let mut client =
                Client::connect(&mut node, &authority.client(&[version], None), "localhost", piece);
            client.shake_hands(&mut node);
            while !node.heard[&client.socket].is_writable {
                node.turn();
                client.pump(&mut node);
            }
            assert_eq!(client.tls.alpn_protocol(), None, "the client offered none");
            let bytes = pattern(len);
            client.say(&mut node, &bytes);
            while node.heard[&client.socket].bytes.len() < len {
                node.turn();
                client.pump(&mut node);
            }
            assert_eq!(node.heard[&client.socket].bytes, bytes, "{version:?} in pieces of {piece}");
            send_all(&mut node, &mut client, &bytes, piece.max(500));
            assert_eq!(client.got, bytes, "{version:?} in pieces of {piece}");
            assert_eq!(client.error, None);
        }
    }
}

#[test]
fn what_comes_with_the_last_message_of_the_handshake_is_received() {
    let authority = Authority::new();
    let (mut node, _) = usual(&authority);
    let config = authority.client(&[&TLS13], None);
    let mut client = Client::connect(&mut node, &config, "localhost", 1 << 20);
    client.pump(&mut node);
    node.turn();
    // The client's last message, and what it says, in one go.
    let came = std::mem::take(&mut node.io.io_mut().wires[0].to_client);
    client.tls.read_tls(&mut &came[..]).expect("memory");
    client.tls.process_new_packets().expect("a good server");
    client.say(&mut node, b"early");
    node.turn();
    assert_eq!(node.heard[&client.socket].bytes, b"early");
}

#[test]
fn a_socket_that_is_full_holds_a_record_and_no_more() {
    let authority = Authority::new();
    let (mut node, _) = usual(&authority);
    let config = authority.client(&[&TLS13], None);
    let mut client = Client::connect(&mut node, &config, "localhost", 1 << 20);
    client.shake_hands(&mut node);
    node.io.io_mut().make_room(client.socket, 100);
    let bytes = pattern(1 << 20);
    let Sent::Bytes(taken) = node.io.send(client.socket, &bytes) else { panic!("it is open") };
    assert_eq!(taken, 16 << 10, "what one record takes");
    assert_eq!(node.io.send(client.socket, &bytes[taken..]), Sent::Bytes(0));
    node.heard.get_mut(&client.socket).expect("accepted").is_writable = false;
    node.io.io_mut().make_room(client.socket, 1_000);
    node.turn();
    assert!(!node.heard[&client.socket].is_writable, "the record is not gone yet");
    node.io.io_mut().make_room(client.socket, 1 << 20);
    node.turn();
    assert!(node.heard[&client.socket].is_writable);
    send_all(&mut node, &mut client, &bytes[taken..], 50_000);
    assert_eq!(client.got, bytes);
}

#[test]
fn a_turn_does_so_many_steps_of_handshakes_and_all_come_to_their_end() {
    let authority = Authority::new();
    let (mut node, _) = usual(&authority);
    let config = authority.client(&[&TLS13], None);
    let mut first = Client::connect(&mut node, &config, "localhost", 1 << 20);
    first.shake_hands(&mut node);
    let before = node.io.handshakes();
    let mut crowd: Vec<Client> =
        (0..100).map(|_| Client::connect(&mut node, &config, "localhost", 1 << 20)).collect();
    let mut turns = 0;
    while node.io.handshakes().done < 101 {
        crowd.iter_mut().for_each(|client| client.pump(&mut node));
        // Whoever is connected is heard in each turn.
        first.say(&mut node, b"x");
        node.turn();
        turns += 1;
        assert_eq!(node.heard[&first.socket].bytes.len(), turns);
        assert!(turns < 200, "{:?}", node.io.handshakes());
    }
    let after = node.io.handshakes();
    assert_eq!((after.steps_peak, after.failed), (PATIENT.handshakes_per_turn_max, 0));
    assert!(after.put_off - before.put_off > 100 && turns >= 200 / 8, "{after:?} in {turns} turns");
    crowd.iter_mut().for_each(|client| client.shake_hands(&mut node));
    for client in &mut crowd {
        client.say(&mut node, b"hello");
        node.turn();
        assert_eq!(node.heard[&client.socket].bytes, b"hello");
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_not_waited_for() {
    let authority = Authority::new();
    authority.issue("a", &["localhost"], |_| {});
    let options = FilterOptions { opening: Duration::ZERO, ..PATIENT };
    let (mut node, _) = node_of(files(&authority, &["a"], ClientCertificates::Off), options);
    let socket = node.io.io_mut().connect(0, 1 << 20);
    node.io.io_mut().say(socket, &[22, 3, 1]);
    node.turn();
    node.turn();
    assert_eq!(node.heard[&socket].end, Some(Received::Closed));
    assert_eq!(node.codes(), [Code::SlowOpening.number()]);
}

#[test]
fn the_end_is_said_and_heard() {
    let authority = Authority::new();
    for version in BOTH {
        let (mut node, _) = usual(&authority);
        let config = authority.client(&[version], None);
        let mut clients = [0; 2].map(|_| Client::connect(&mut node, &config, "localhost", 1 << 20));
        let [ours, theirs] = &mut clients;
        ours.shake_hands(&mut node);
        theirs.shake_hands(&mut node);
        // With a record that the socket has no room for yet.
        node.io.io_mut().make_room(ours.socket, 10);
        assert_eq!(node.io.send(ours.socket, b"last words"), Sent::Bytes(10));
        node.io.close(ours.socket);
        assert!(!node.io.io_mut().wires[0].is_closed, "they are still going out");
        node.io.io_mut().make_room(ours.socket, 1_000);
        node.turn();
        assert!(node.io.io_mut().wires[0].is_closed);
        ours.pump(&mut node);
        assert_eq!((&ours.got[..], ours.has_ended), (&b"last words"[..], true));
        theirs.say(&mut node, b"bye");
        theirs.tls.send_close_notify();
        theirs.pump(&mut node);
        node.turn();
        node.turn();
        let heard = &node.heard[&theirs.socket];
        assert_eq!((&heard.bytes[..], heard.end), (&b"bye"[..], Some(Received::Ended)));
    }
}

#[test]
fn names_choose_certificates_and_a_reload_changes_them_for_new_connections() {
    let authority = Authority::new();
    authority.issue("a", &["localhost"], |_| {});
    authority.issue("b", &["push.example", "*.push.example"], |_| {});
    let (mut node, source) =
        node_of(files(&authority, &["a", "b"], ClientCertificates::Off), PATIENT);
    let config = authority.client(&BOTH, None);
    let shown = |node: &mut Node, host: &str| {
        let mut client = Client::connect(node, &config, host, 1 << 20);
        client.shake_hands(node);
        let shown = client.tls.peer_certificates().map(|chain| chain[0].to_vec());
        (client.error.clone(), shown, client)
    };
    let (error, of_a, mut open) = shown(&mut node, "localhost");
    assert_eq!(error, None);
    let (error, of_b, _) = shown(&mut node, "push.example");
    assert!(error.is_none() && of_a != of_b);
    let (error, wildcard, _) = shown(&mut node, "eu.Push.example");
    assert!(error.is_none() && wildcard == of_b, "{error:?}");
    let (error, ..) = shown(&mut node, "other.example");
    assert!(matches!(error, Some(Error::InvalidCertificate(_))), "the first is shown: {error:?}");
    node.codes();

    authority.issue("a", &["localhost"], |_| {});
    source.reload().expect("files that hold");
    let (error, renewed, _) = shown(&mut node, "localhost");
    assert!(error.is_none() && renewed != of_a);
    open.say(&mut node, b"still here");
    node.turn();
    assert_eq!(node.heard[&open.socket].bytes, b"still here");

    std::fs::copy(authority.path("b.key"), authority.path("a.key")).expect("room on the disk");
    let told = source.reload().expect_err("another key");
    assert!(told.contains("is not that of the certificate"), "{told}");
    let (error, still, _) = shown(&mut node, "localhost");
    assert!(error.is_none() && still == renewed, "what went before goes on");
}

#[test]
fn a_client_that_comes_back_resumes() {
    let authority = Authority::new();
    let (mut node, _) = usual(&authority);
    let config = authority.client(&[&TLS13], None);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut client = Client::connect(&mut node, &config, "localhost", 1 << 20);
        client.shake_hands(&mut node);
        assert_eq!(client.tls.handshake_kind(), Some(kind));
    }
}

#[test]
fn the_name_of_a_client_is_that_of_its_certificate() {
    let authority = Authority::new();
    authority.issue("a", &["localhost"], |_| {});
    authority.issue("person", &[], called("alice"));
    authority.issue("host", &["feeder.example"], called("other"));
    authority.issue("service", &["x.example"], with_uri("spiffe://example/feeder"));
    authority.issue("old", &[], expired);
    let stranger = Authority::new();
    stranger.issue("stranger", &[], called("alice"));
    let of = |clients| node_of(files(&authority, &["a"], clients), PATIENT).0;
    for version in BOTH {
        for clients in [ClientCertificates::Optional, ClientCertificates::Required] {
            for (file, name) in [
                ("person", "alice"),
                ("host", "feeder.example"),
                ("service", "spiffe://example/feeder"),
            ] {
                let mut node = of(clients);
                let config = authority.client(&[version], Some(file));
                let mut client = Client::connect(&mut node, &config, "localhost", 1 << 20);
                client.shake_hands(&mut node);
                assert_eq!((client.error.clone(), node.codes()), (None, vec![]));
                assert_eq!(node.io.peer_name(client.socket), Some(name));
            }
            let mut node = of(clients);
            let config = authority.client(&[version], Some("old"));
            let mut client = Client::connect(&mut node, &config, "localhost", 1 << 20);
            client.shake_hands(&mut node);
            assert_eq!(
                client.error,
                Some(Error::AlertReceived(AlertDescription::CertificateExpired))
            );
            assert_eq!(node.codes(), [Code::BadClientCertificate.number()]);
            assert_eq!(node.heard[&client.socket].end, Some(Received::Closed));
        }
        let mut node = of(ClientCertificates::Required);
        let mut client =
            Client::connect(&mut node, &authority.client(&[version], None), "localhost", 1 << 20);
        client.shake_hands(&mut node);
        assert!(matches!(client.error, Some(Error::AlertReceived(_))), "{:?}", client.error);
        assert_eq!(node.codes(), [Code::BadClientCertificate.number()]);
        let mut node = of(ClientCertificates::Optional);
        let mut client =
            Client::connect(&mut node, &authority.client(&[version], None), "localhost", 1 << 20);
        client.shake_hands(&mut node);
        assert_eq!((client.error.clone(), node.io.peer_name(client.socket)), (None, None));
    }
}

#[test]
fn who_speaks_no_tls_is_told_so_and_the_log_too() {
    let authority = Authority::new();
    let (mut node, _) = usual(&authority);
    let socket = node.io.io_mut().connect(0, 1 << 20);
    node.io.io_mut().say(socket, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    node.turn();
    assert_eq!(node.heard[&socket].end, Some(Received::Closed));
    let refused = node.io.poll_refused().expect("it is told");
    assert_eq!(refused.code, Code::TlsFailed.number());
    assert!(refused.text.contains("may speak no TLS"), "{}", refused.text);
    let alert = &node.io.io_mut().wires[0].to_client;
    assert_eq!(alert.first(), Some(&21), "an alert");
}

#[test]
fn files_that_do_not_hold_are_refused_with_their_cure() {
    let authority = Authority::new();
    for file in ["a", "b"] {
        authority.issue(file, &["localhost"], |_| {});
    }
    authority.issue("old", &["localhost"], expired);
    std::fs::write(authority.path("empty.pem"), "").expect("room on the disk");
    let (a, b) = (authority.pair("a"), authority.pair("b"));
    let check = |pairs: Vec<_>, change: fn(&mut TlsFiles), told: &str| {
        let mut files = files(&authority, &[], ClientCertificates::Off);
        files.certificates = pairs;
        change(&mut files);
        let error = TlsSource::load(files).expect_err("files that do not hold");
        assert!(error.contains(told), "{error}");
    };
    let same: fn(&mut TlsFiles) = |_| {};
    check(vec![(a.0.clone(), b.1.clone())], same, "is not that of the certificate");
    check(vec![authority.pair("old")], same, "expired");
    check(vec![authority.pair("missing")], same, "cannot read certificates from");
    check(vec![(authority.path("empty.pem"), a.1.clone())], same, "there is no certificate in");
    check(vec![(a.0.clone(), a.0.clone())], same, "cannot read a key from");
    check(vec![], same, "there is no certificate; name one");
    let no_ca: fn(&mut TlsFiles) = |files| {
        (files.clients, files.client_ca) = (ClientCertificates::Required, None);
    };
    check(vec![a], no_ca, "clients' certificates need an authority");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever a peer changes of what a client would say, it costs that peer's connection and nothing else.
    #[test]
    fn no_bytes_of_a_peer_panic(
        piece in 1usize..2_000,
        changes in proptest::collection::vec((0usize..4_000, any::<u8>()), 1..4),
        is_13 in any::<bool>(),
        shows_certificate in any::<bool>(),
    ) {
        thread_local! {
            static AUTHORITY: Authority = {
                let authority = Authority::new();
                authority.issue("a", &["localhost"], |_| {});
                authority.issue("person", &[], called("alice"));
                authority
            };
        }
        AUTHORITY.with(|authority| {
            let files = files(authority, &["a"], ClientCertificates::Optional);
            let (mut node, _) = node_of(files, PATIENT);
            let version = if is_13 { &TLS13 } else { &TLS12 };
            let own = shows_certificate.then_some("person");
            let mut client =
                Client::connect(&mut node, &authority.client(&[version], own), "localhost", piece);
            let mut at = 0;
            for round in 0..6 {
                client.pump(&mut node);
                if round == 3 && client.error.is_none() {
                    client.say(&mut node, b"hello");
                }
                let said = &mut node.io.io_mut().wires[0].to_server;
                let len = said.len();
                for (place, byte) in &changes {
                    if (at..at + len).contains(place) {
                        said[place - at] ^= byte;
                    }
                }
                at += len;
                (0..3).for_each(|_| node.turn());
                let _ = node.io.send(client.socket, b"some words");
            }
            node.io.close(client.socket);
        });
    }
}
