//! The Rust client against a node whose connections break, and against one that is restarted.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, SubscriptionId, SubscriptionState, Update};
use model::{Limits, Selector, Start, Subscribe, SubscribeOptions};
use serde_json::json;

use crate::node::Node;

const PATIENCE: Duration = Duration::from_secs(20);

/// A cable to a server that can be pulled.
struct Cable {
    address: SocketAddr,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ends = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&ends);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("open"), to.try_clone().expect("open"));
                    std::thread::spawn(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        // Either end may be gone already.
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().expect("nobody panics with it").extend([near, far]);
            }
        });
        Self { address, ends }
    }

    fn pull(&self) {
        for end in self.ends.lock().expect("nobody panics with it").drain(..) {
            // It may have ended by itself.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn connect(address: SocketAddr) -> Client {
    let options = ClientOptions { seed: Some(11), ..ClientOptions::default() };
    Client::connect(&format!("ws://{address}"), options).expect("it listens")
}

fn selector(text: &str) -> Selector {
    Selector::parse(text, &Limits::default()).expect("valid")
}

fn subscribe(client: &mut Client, text: &str) -> SubscriptionId {
    client.subscribe(Subscribe {
        subscription: None,
        selectors: vec![selector(text)],
        start: Start::Snapshot,
        positions: Vec::new(),
        name: None,
        options: SubscribeOptions::default(),
    })
}

/// The next update; that a subscription is complete says nothing here.
fn next(client: &mut Client) -> Update {
    loop {
        let update = client.next(Instant::now() + PATIENCE).expect("an update in time");
        if !matches!(update, Update::Complete { .. }) {
            return update;
        }
    }
}

#[test]
fn a_client_whose_cable_is_pulled_misses_nothing() {
    let node =
        Node::start("[engine]\nshards = 2\n[[topics]]\nselector = \"#\"\nhistory_count = 1000");
    let cable = Cable::to(node.address());
    let mut client = connect(cable.address);
    let subscription = subscribe(&mut client, "r/+");
    let (mut expected, mut breaks, mut resumes) = (1, 0, 0);
    for number in 1..=200 {
        node.publish(&json!({"topic": "r/a", "data": number}));
        if number % 40 == 0 {
            cable.pull();
        }
        while expected <= number {
            match next(&mut client) {
                Update::Message { message, .. } => {
                    assert_eq!(message.sequence.get(), expected);
                    assert_eq!(message.payload, expected.to_string().as_bytes());
                    expected += 1;
                }
                Update::Disconnected { .. } => breaks += 1,
                Update::Resumed { recovered, .. } => {
                    assert!(recovered);
                    resumes += 1;
                }
                other => panic!("unexpected {other:?}"),
            }
            // Publications go on while the client is away.
            if number % 40 == 0 {
                break;
            }
        }
    }
    while expected <= 200 || resumes < 5 {
        match next(&mut client) {
            Update::Message { message, .. } => {
                assert_eq!(message.sequence.get(), expected);
                expected += 1;
            }
            Update::Disconnected { .. } => breaks += 1,
            Update::Resumed { recovered, .. } => {
                assert!(recovered);
                resumes += 1;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(breaks >= 5, "{breaks} breaks");
    assert_eq!(client.subscription(subscription), Some(SubscriptionState::Live));
}

#[test]
fn a_topic_that_came_while_the_client_was_away_is_told_from_its_beginning() {
    let node = Node::start("[engine]\nshards = 2");
    let cable = Cable::to(node.address());
    let mut client = connect(cable.address);
    subscribe(&mut client, "n/+");
    node.publish(&json!({"topic": "n/known", "data": 0}));
    assert!(matches!(next(&mut client), Update::Message { .. }));
    cable.pull();
    for number in 1..=5 {
        node.publish(&json!({"topic": "n/new", "data": number}));
    }
    let mut expected = 1;
    while expected <= 5 {
        match next(&mut client) {
            Update::Message { message, .. } => {
                assert_eq!((message.topic.as_str(), message.sequence.get()), ("n/new", expected));
                expected += 1;
            }
            Update::Disconnected { .. } | Update::Resumed { recovered: true, .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[test]
fn a_client_of_a_restarted_server_is_told_that_memory_is_gone() {
    let node = Node::start("");
    let address = node.address();
    let mut client = connect(address);
    subscribe(&mut client, "m");
    node.publish(&json!({"topic": "m", "data": 1}));
    assert!(matches!(next(&mut client), Update::Message { .. }));
    drop(node);
    assert!(matches!(next(&mut client), Update::Disconnected { .. }));
    let node = Node::start_at(address, "");
    node.publish(&json!({"topic": "m", "data": 2}));
    loop {
        match next(&mut client) {
            Update::Disconnected { .. } => {}
            Update::Resumed { recovered, .. } => {
                assert!(!recovered, "the old numbering is gone");
                break;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(matches!(next(&mut client), Update::Gap { .. }));
    let Update::Message { message, .. } = next(&mut client) else { panic!("the new value") };
    assert_eq!((message.sequence.get(), &message.payload[..]), (1, &b"2"[..]));
}

#[test]
fn a_refused_subscription_is_not_asked_for_again() {
    let node = Node::start("[limits]\nsubscriptions_per_session_max = 1");
    let mut client = connect(node.address());
    let a = subscribe(&mut client, "a");
    let b = subscribe(&mut client, "b");
    assert!(matches!(next(&mut client), Update::Ended { of, .. } if of == b));
    assert_eq!(client.subscription(b), None);
    assert!(client.unsubscribe(a));
    assert_eq!(client.subscription(a), None);
}
