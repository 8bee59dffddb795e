//! What goes for clients by their addresses, told by a proxy that is trusted, and for those without a token.

use serde_json::json;

use crate::node::{Node, Peer, wait_until};

fn node(access: &str, limits: &str, shards: u32) -> Node {
    Node::start(&format!(
        "[engine]\nshards = {shards}\n[access]\ntrusted_proxies = [\"127.0.0.0/8\"]\n{access}\n\
         [[access.tokens]]\ntoken = \"right\"\nname = \"n\"\nsubscribe = [\"#\"]\n[limits]\n{limits}\n"
    ))
}

fn get(node: &Node, path: &str, token: &str, from: &str) -> (u16, String) {
    let from = if from.is_empty() { String::new() } else { format!("\r\nX-Forwarded-For: {from}") };
    node.request(&format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}{from}"), "")
}

fn socket(node: &Node, from: &str) -> Option<Peer> {
    node.socket_at("/v1/ws", &[("x-forwarded-for", from)]).ok()
}

#[test]
fn who_guesses_tokens_is_refused_over_every_way_and_nobody_else_is() {
    let node = node("", "failed_keys_per_minute_max = 3\n", 4);
    // A minute may end in between: then the count begins anew.
    let guess_until_refused = |guess: &dyn Fn() -> bool| {
        let refused = (0..20).find(|_| guess());
        assert!(refused.is_some_and(|count| count >= 3), "{refused:?}");
    };
    guess_until_refused(&|| get(&node, "/v1/topics", "guess", "10.0.0.1").0 == 429);
    guess_until_refused(&|| get(&node, "/v1/poll?topic=a", "guess", "10.0.0.2").0 == 429);
    guess_until_refused(&|| {
        let head = "POST /v1/request?topic=a HTTP/1.1\r\nX-Forwarded-For: 10.0.0.3\r\nAuthorization: Bearer guess";
        node.request(head, "1").0 == 429
    });
    guess_until_refused(&|| {
        let mut peer = socket(&node, "10.0.0.4").expect("nobody may come in");
        peer.ask(&json!({"type": "hello", "token": "guess"}))["code"] == 4112
    });
    let mut peer = socket(&node, "10.0.0.5").expect("nobody may come in");
    guess_until_refused(&|| get(&node, "/v1/topics", "guess", "10.0.0.5").0 == 429);
    assert_eq!(
        peer.ask(&json!({"type": "hello", "token": "right"}))["code"],
        4112,
        "right ones neither"
    );
    let (status, body) = get(&node, "/v1/topics", "right", "10.0.0.1, 10.0.0.1");
    assert!(status == 429 && body.contains("4112"), "{status} {body}");
    assert_eq!(get(&node, "/health", "guess", "10.0.0.1").0, 200);
    assert_eq!(get(&node, "/v1/topics", "right", "10.0.0.1, 10.9.9.9").0, 200, "another client");
    (0..10).for_each(|_| assert_eq!(get(&node, "/v1/topics", "guess", "").0, 401, "this machine"));
}

#[test]
fn connections_of_an_address_are_counted_while_they_last() {
    for shards in [1, 4] {
        let node = node("", "connections_per_address_max = 2\n", shards);
        let mut peers: Vec<Peer> =
            (0..2).map(|_| socket(&node, "10.0.0.1").expect("room")).collect();
        let Err(tungstenite::Error::Http(answer)) =
            node.socket_at("/v1/ws", &[("x-forwarded-for", "10.0.0.1")])
        else {
            panic!("a third connection")
        };
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (429, &"1".parse().expect("valid"))
        );
        for path in ["/v1/poll?topic=a", "/v1/sse?topic=a"] {
            let (status, body) = get(&node, path, "right", "10.0.0.1");
            assert!(status == 429 && body.contains("4113"), "{path}: {status} {body}");
        }
        assert!(socket(&node, "10.0.0.2").is_some(), "another address");
        assert_eq!(get(&node, "/v1/topics", "right", "10.0.0.1").0, 200, "that is no session");
        assert_eq!(peers[0].ask(&json!({"type": "ping"}))["type"], "pong");
        drop(peers.pop());
        wait_until("a connection went", || socket(&node, "10.0.0.1").is_some());
    }
}

#[test]
fn polled_sessions_count_as_connections() {
    let node = node("", "connections_per_address_max = 1\n", 1);
    let open = || {
        let head = "POST /v1/poll HTTP/1.1\r\nX-Forwarded-For: 10.0.0.1";
        node.request(head, "{\"type\":\"ping\"}")
    };
    assert_eq!(open().0, 200);
    let (status, body) = open();
    assert!(status == 429 && body.contains("4113"), "{status} {body}");
}

#[test]
fn an_address_is_served_so_many_requests_in_a_second() {
    let node = node("", "requests_per_second_per_address_max = 1\n", 1);
    // At most one of them is served in a second.
    let answers =
        || (0..20).map(|_| get(&node, "/health", "right", "10.0.0.1")).collect::<Vec<_>>();
    let refused = answers().into_iter().find(|(status, _)| *status != 200);
    let (status, body) = refused.expect("they came within twenty seconds");
    assert!(status == 429 && body.contains("4113"), "{status} {body}");
    (0..20).for_each(|_| assert_eq!(get(&node, "/health", "right", "").0, 200, "this machine"));
}

#[test]
fn who_presents_no_token_in_time_is_closed_and_others_stay() {
    let node = node("anonymous = \"none\"", "authenticate_ms = 10\n", 2);
    let mut known =
        node.socket_at("/v1/ws", &[("authorization", "Bearer right")]).expect("it is right");
    let mut greeted = node.socket();
    greeted.ask(&json!({"type": "hello", "token": "right"}));
    let mut silent: Vec<Peer> = (0..4).map(|_| node.socket()).collect();
    for peer in &mut silent {
        assert_eq!(peer.hear_end(), (4305, 4305));
    }
    for peer in [&mut known, &mut greeted] {
        assert_eq!(peer.ask(&json!({"type": "ping"}))["type"], "pong");
    }
}
