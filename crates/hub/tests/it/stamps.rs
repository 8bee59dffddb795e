//! Stamps: readers of one topic that ask for different ones are told theirs, whichever way a publication comes to them.

use model::{Limits, Stamps, Start, SubscribeOptions};

use crate::node::{BATCHED, FRAGMENTED, Node, SINGLE};

const ROOM: usize = 1 << 30;
const WANTED: [Stamps; 3] = [
    Stamps { time: false, principal: false },
    Stamps { time: true, principal: false },
    Stamps { time: true, principal: true },
];

fn stamps_are(lines: &[String], expected: Stamps, count: usize) {
    let told: Vec<&String> = lines
        .iter()
        .filter(|line| line.starts_with("publication") || line.starts_with("fragment t 6 0"))
        .collect();
    assert_eq!(told.len(), count, "{lines:?}");
    for line in told {
        let has = |word: &str| line.split(' ').any(|it| it == word);
        assert_eq!(
            (has("+time"), has("+principal")),
            (expected.time, expected.principal),
            "{line}"
        );
    }
}

#[test]
fn each_reader_is_told_the_stamps_it_asked_for_in_step_behind_and_from_history() {
    for encoding in [SINGLE, BATCHED, FRAGMENTED] {
        let limits = Limits { fragment_bytes: 8, recent_deliveries_max: 4, ..Limits::default() };
        let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
        let open = |node: &mut Node, stamps: Stamps| {
            let reader = node.open(0, encoding, ROOM);
            let options = SubscribeOptions { stamps, ..SubscribeOptions::default() };
            node.subscribe_with(reader, &["t"], Start::All, options);
            node.settle();
            reader
        };
        let early = WANTED.map(|stamps| open(&mut node, stamps));
        // In step.
        node.publish("t", "1");
        node.settle();
        // Behind: the socket is full, and some of it is in the ring, some only in the history.
        for reader in early {
            node.take_room(reader, 0);
        }
        for number in 2..=5 {
            node.publish("t", &number.to_string());
            node.turn(0, 100);
        }
        node.publish("t", "6 is long enough for pieces");
        node.turn(0, 100);
        for reader in early {
            node.give_room(reader, ROOM);
        }
        node.settle();
        let late = WANTED.map(|stamps| open(&mut node, stamps));
        for readers in [early, late] {
            for (reader, stamps) in readers.into_iter().zip(WANTED) {
                stamps_are(&node.lines(reader), stamps, 6);
            }
        }
    }
}
