//! The wall clock is set back and forth: nothing is used twice.

use std::time::Duration;

use crate::node::Node;

#[test]
fn a_key_for_one_websocket_is_used_up_also_where_the_clock_is_set_back() {
    let config = "[[applications]]\nid = \"meters\"\n\
                  [[applications.keys]]\nid = \"k1\"\nkey = \"application-key-0123\"\nroles = [\"application\"]\n";
    let mut node = Node::start(1, config);
    node.clocks.skew = Duration::from_secs(1_000_000);
    let ask = |node: &mut Node, request: &str| {
        let link = node.connect();
        node.send(link, request.as_bytes());
        node.turns(5);
        node.receive(link)
    };
    let answer = ask(
        &mut node,
        "POST /v1/devices/d1/key?application=meters HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer application-key-0123\r\nContent-Length: 0\r\n\r\n",
    );
    let key = answer.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let key = key.unwrap_or_else(|| panic!("no key in {answer}"));
    let open = format!(
        "GET /v1/devices/d1/ws?application=meters&key={key} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let first = ask(&mut node, &open);
    assert!(!first.contains(" 401 "), "the key is good once: {first}");
    node.clocks.skew -= Duration::from_secs(300);
    let again = ask(&mut node, &open);
    assert!(again.starts_with("HTTP/1.1 401 "), "{again}");
}

#[test]
fn a_proof_is_used_up_also_where_the_clock_is_set_back_and_forth() {
    const KEY: &str = "application-key-0123";
    let config = format!(
        "[[applications]]\nid = \"meters\"\n\
         [[applications.keys]]\nid = \"k1\"\nkey = \"{KEY}\"\nroles = [\"application\"]\n"
    );
    let mut node = Node::start(1, &config);
    node.clocks.skew = Duration::from_secs(1_000_000);
    let ask = |node: &mut Node, line: &str| {
        let link = node.connect();
        let request = format!("{line}\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        node.send(link, request.as_bytes());
        node.turns(5);
        node.receive(link)
    };
    let answer = ask(&mut node, "GET /v1/devices/challenge HTTP/1.1");
    let challenge = answer.split("\"challenge\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let challenge = challenge.unwrap_or_else(|| panic!("no challenge in {answer}"));
    let mut mac = <hmac::Hmac<sha2::Sha256> as hmac::Mac>::new_from_slice(KEY.as_bytes())
        .expect("any length");
    hmac::Mac::update(&mut mac, format!("{challenge}\nmeters/d1").as_bytes());
    let mac = hmac::Mac::finalize(mac).into_bytes();
    let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let proof = format!(
        "POST /v1/devices/d1/key?application=meters HTTP/1.1\r\n\
         Authorization: Tidegate-HMAC key=\"k1\", challenge=\"{challenge}\", mac=\"{mac}\""
    );
    let first = ask(&mut node, &proof);
    assert!(first.starts_with("HTTP/1.1 200 "), "it is good once: {first}");
    for skew in [1_000_000 - 300, 1_000_000, 1_000_000 - 3_000, 1_000_000 + 30] {
        node.clocks.skew = Duration::from_secs(skew);
        let again = ask(&mut node, &proof);
        assert!(again.starts_with("HTTP/1.1 401 "), "at {skew}: {again}");
    }
}
