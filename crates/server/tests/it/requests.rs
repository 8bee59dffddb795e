//! Requests between sessions, and over HTTP.

use serde_json::{Value, json};

use crate::node::{Node, Peer, on_all_layouts};

/// A session that handles `selector`.
fn handler(node: &Node, selector: &str, concurrency: u32) -> Peer {
    let mut peer = node.socket();
    let command = json!({"id":1,"type":"handle","topic":selector,"concurrency":concurrency});
    let answer = peer.ask(&command);
    assert_eq!(answer["type"], "handling", "{answer}");
    peer
}

fn request(id: u32, topic: &str, data: u32) -> Value {
    json!({"id":id,"type":"request","topic":topic,"data":data,"timeout_ms":5000})
}

/// Hears a request and answers it with `data`.
fn answer(peer: &mut Peer, data: &Value) -> Value {
    let asked = peer.hear();
    assert_eq!(asked["type"], "request", "{asked}");
    peer.say(&json!({"type":"respond","request":asked["request"],"data":data}));
    asked
}

#[test]
fn a_request_goes_to_the_most_specific_handler_and_its_answer_comes_back() {
    on_all_layouts(|node| {
        let mut wide = handler(node, "orders/#", 8);
        let mut narrow = handler(node, "orders/new", 8);
        let mut caller = node.socket();
        caller.say(&request(7, "orders/new", 1));
        let asked = answer(&mut narrow, &json!({"ok":true}));
        assert_eq!((&asked["topic"], &asked["data"]), (&json!("orders/new"), &json!(1)));
        assert_eq!(asked["principal"], "anonymous");
        let response = caller.hear();
        assert_eq!((&response["type"], &response["id"]), (&json!("response"), &json!(7)));
        assert_eq!(response["data"], json!({"ok":true}));
        caller.say(&request(8, "orders/old", 2));
        answer(&mut wide, &json!("wide"));
        assert_eq!(caller.hear()["data"], "wide");
    });
}

#[test]
fn what_can_go_wrong_has_codes_of_its_own() {
    on_all_layouts(|node| {
        let mut caller = node.socket();
        assert_eq!(caller.ask(&request(1, "nobody", 1))["code"], 4107);
        let mut peer = handler(node, "slow", 2);
        let quick = json!({"id":2,"type":"request","topic":"slow","data":1,"timeout_ms":50});
        assert_eq!(caller.ask(&quick)["code"], 4108, "the deadline");
        let late = peer.hear()["request"].clone();
        let refused = peer.ask(&json!({"id":9,"type":"respond","request":late,"data":1}));
        assert_eq!(refused["code"], 4222, "a late answer");
        for id in [3, 4] {
            caller.say(&request(id, "slow", 1));
        }
        assert_eq!(caller.ask(&request(5, "slow", 1))["code"], 4110, "two are open already");
        let asked = peer.hear();
        peer.say(&json!({"type":"respond","request":asked["request"],"error":"not today"}));
        let declined = caller.hear();
        assert_eq!((&declined["code"], &declined["error"]), (&json!(4221), &json!("not today")));
        drop(peer);
        assert_eq!(caller.hear()["code"], 4109, "the handler is gone");
        assert_eq!(caller.ask(&json!({"type":"request","topic":"a","data":1}))["code"], 4200);
    });
}

#[test]
fn a_handler_says_how_large_a_request_may_be() {
    on_all_layouts(|node| {
        let mut peer = node.socket();
        let handle =
            |bytes: u64| json!({"id":1,"type":"handle","topic":"small","payload_bytes_max":bytes});
        assert_eq!(peer.ask(&handle(0))["code"], 4200);
        assert_eq!(peer.ask(&handle(1 << 40))["code"], 4200);
        assert_eq!(peer.ask(&handle(4))["type"], "handling");
        let mut caller = node.socket();
        assert_eq!(caller.ask(&request(1, "small", 12_345))["code"], 4205);
        caller.say(&request(2, "small", 1_234));
        answer(&mut peer, &json!(true));
        assert_eq!(caller.hear()["id"], 2);
    });
}

#[test]
fn a_session_waits_for_so_many_answers_at_a_time() {
    let node = Node::start("[engine]\nshards = 2\n[limits]\nrequests_per_session_max = 2\n");
    let mut peer = handler(&node, "slow", 8);
    let (mut caller, mut other) = (node.socket(), node.socket());
    for id in [1, 2] {
        caller.say(&request(id, "slow", id));
    }
    assert_eq!(caller.ask(&request(3, "slow", 3))["code"], 4110);
    other.say(&request(1, "slow", 9));
    for _ in 0..3 {
        answer(&mut peer, &json!(true));
    }
    for answered in [caller.hear(), caller.hear(), other.hear()] {
        assert_eq!(answered["type"], "response", "{answered}");
    }
    caller.say(&request(4, "slow", 4));
    answer(&mut peer, &json!(true));
    assert_eq!(caller.hear()["id"], 4, "there is room again");
}

#[test]
fn everybody_answers_a_request_to_all() {
    on_all_layouts(|node| {
        let mut peers: Vec<Peer> = (0..3).map(|_| handler(node, "rooms/+", 8)).collect();
        let mut caller = node.socket();
        caller.say(&json!({"id":1,"type":"request","topic":"rooms/1","data":0,"all":true}));
        for (at, peer) in peers.iter_mut().enumerate() {
            answer(peer, &json!(at));
        }
        let mut answers: Vec<u64> = (0..3)
            .map(|_| {
                let response = caller.hear();
                assert_eq!(response["more"], true);
                response["data"].as_u64().expect("a number")
            })
            .collect();
        answers.sort_unstable();
        assert_eq!(answers, [0, 1, 2]);
        let end = caller.hear();
        assert_eq!(
            (&end["type"], &end["count"], &end["missing"]),
            (&json!("responded"), &json!(3), &json!(0))
        );
        let nobody = json!({"id":2,"type":"request","topic":"x","data":0,"all":true});
        assert_eq!(caller.ask(&nobody)["count"], 0);
    });
}

#[test]
fn a_filter_or_a_name_chooses_who_answers() {
    on_all_layouts(|node| {
        let mut peers = Vec::new();
        for name in ["red", "blue"] {
            let mut peer = node.socket();
            let welcome = peer.ask(&json!({"id":1,"type":"hello","client":name}));
            assert_eq!(peer.ask(&json!({"id":2,"type":"handle","topic":"c"}))["type"], "handling");
            peers.push((peer, welcome["session"].clone()));
        }
        let mut caller = node.socket();
        caller.say(
            &json!({"id":1,"type":"request","topic":"c","data":0,"filter":"client == 'blue'"}),
        );
        answer(&mut peers[1].0, &json!("blue"));
        assert_eq!(caller.hear()["data"], "blue");
        caller.say(&json!({"id":2,"type":"request","topic":"c","data":0,"session":peers[0].1}));
        answer(&mut peers[0].0, &json!("red"));
        assert_eq!(caller.hear()["from"], peers[0].1);
        let bad = json!({"id":3,"type":"request","topic":"c","data":0,"filter":"client =="});
        assert_eq!(caller.ask(&bad)["code"], 4220);
    });
}

#[test]
fn a_repeated_key_is_carried_out_once() {
    on_all_layouts(|node| {
        let mut peer = handler(node, "pay", 8);
        let keyed = |id: u32| json!({"id":id,"type":"request","topic":"pay","data":5,"key":"k1"});
        let (mut one, mut other) = (node.socket(), node.socket());
        one.say(&keyed(1));
        let asked = peer.hear();
        other.say(&keyed(2));
        assert_eq!(other.ask(&json!({"id":3,"type":"ping"}))["type"], "pong");
        peer.say(&json!({"type":"respond","request":asked["request"],"data":"paid"}));
        assert_eq!(one.hear()["data"], "paid");
        assert_eq!(other.hear()["data"], "paid");
        assert_eq!(node.socket().ask(&keyed(4))["data"], "paid");
        assert_eq!(peer.ask(&json!({"id":9,"type":"ping"}))["type"], "pong", "asked only once");
    });
}

#[test]
fn an_http_request_is_answered_by_a_session() {
    on_all_layouts(|node| {
        let mut peer = handler(node, "echo/#", 8);
        let address = node.address();
        let asking = std::thread::spawn(move || {
            crate::node::request(address, "POST /v1/request?topic=echo/x HTTP/1.1", "{\"n\":1}")
        });
        let asked = answer(&mut peer, &json!({"n":2}));
        assert_eq!(asked["data"], json!({"n":1}));
        assert_eq!(asking.join().expect("no panic"), (200, "{\"n\":2}".to_owned()));
        let (status, body) = node.request("POST /v1/request?topic=none HTTP/1.1", "1");
        assert!(status == 404 && body.contains("4107"), "{status} {body}");
        let (status, body) = node.request("POST /v1/request?topic=$server/ping HTTP/1.1", "hi");
        assert_eq!((status, body.as_str()), (200, "hi"));
    });
}

#[test]
fn who_handles_no_more_is_not_asked() {
    on_all_layouts(|node| {
        let mut peer = handler(node, "a/#", 8);
        let unhandle = json!({"id":2,"type":"unhandle","topic":"a/#"});
        assert_eq!(peer.ask(&unhandle)["type"], "unhandled");
        assert_eq!(peer.ask(&unhandle)["code"], 4216);
        let mut caller = node.socket();
        // Every shard has heard it by the time that a request comes back from it.
        let refused = (1..100).any(|id| caller.ask(&request(id, "a/b", 1))["code"] == 4107);
        assert!(refused);
    });
}

#[test]
fn who_may_not_handle_is_refused() {
    let node = Node::start(
        "[access]\nanonymous = \"read\"\n[[access.tokens]]\ntoken = \"t\"\nname = \"worker\"\nhandle = [\"jobs/#\"]\n",
    );
    let mut peer = node.socket();
    assert_eq!(peer.ask(&json!({"id":1,"type":"handle","topic":"jobs/1"}))["code"], 4301);
    assert_eq!(peer.ask(&request(2, "jobs/1", 1))["code"], 4301);
    let mut worker = node.socket();
    worker.ask(&json!({"id":1,"type":"hello","token":"t"}));
    assert_eq!(worker.ask(&json!({"id":2,"type":"handle","topic":"jobs/#"}))["type"], "handling");
    assert_eq!(worker.ask(&json!({"id":3,"type":"handle","topic":"#"}))["code"], 4301);
}

#[test]
fn null_is_a_value_and_a_session_may_end_itself() {
    on_all_layouts(|node| {
        assert_eq!(node.publish(&json!({"topic":"n","data":null}))["sequence"], 1);
        let mut peer = handler(node, "null", 8);
        let mut caller = node.socket();
        caller.say(&json!({"id":1,"type":"request","topic":"null","data":null}));
        assert_eq!(answer(&mut peer, &Value::Null)["data"], Value::Null);
        let response = caller.hear();
        assert!(response["type"] == "response" && response["data"].is_null(), "{response}");
        peer.say(&json!({"type":"close"}));
        let gone = (2..100).any(|id| caller.ask(&request(id, "null", 1))["code"] == 4107);
        assert!(gone, "what ended handles nothing");
    });
}
