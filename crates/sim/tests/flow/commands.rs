//! Commands: what each may cost and leave waiting, over each carriage.

use model::{Command, Limits};
use protocol::native::json;

use crate::node::{CARRIAGES, Carriage, Node, Session, commands_of, ids_of, node_with_content};

/// Every command at its most expensive; `N` is replaced by the number of the command.
const ROWS: &[&str] = &[
    r#"{"id":N,"type":"hello","client":"x"}"#,
    r#"{"id":N,"type":"subscribe","topic":"s/N"}"#,
    r#"{"id":N,"type":"subscribe","topic":"many/#","from":"now"}"#,
    r#"{"id":N,"type":"subscribe","topic":"+/N"}"#,
    r#"{"id":N,"type":"unsubscribe","topic":"never/subscribed/N"}"#,
    r#"{"id":N,"type":"publish","topic":"p/N","data":1}"#,
    r#"{"id":N,"type":"publish","topic":"p","data":1,"expect":77}"#,
    r#"{"id":N,"type":"history","topic":"a"}"#,
    r#"{"id":N,"type":"history","topic":"b","last":1}"#,
    r#"{"id":N,"type":"history","topic":"c"}"#,
    r#"{"id":N,"type":"acknowledge","name":"n","positions":{"a":{"epoch":"e","sequence":1}}}"#,
    r#"{"id":N,"type":"handle","topic":"h/N"}"#,
    r#"{"id":N,"type":"unhandle","topic":"never/handled/N"}"#,
    r#"{"id":N,"type":"request","topic":"r","data":1,"key":"k"}"#,
    r#"{"id":N,"type":"request","topic":"r","data":1,"key":"k","timeout_ms":100000}"#,
    r#"{"id":N,"type":"request","topic":"nobody","data":1}"#,
    r#"{"id":N,"type":"respond","request":N,"data":1}"#,
    r#"{"id":N,"type":"attach","device":"app/dN","authorization":"Bearer wrong"}"#,
    r#"{"id":N,"type":"detach","device":"app/dN"}"#,
    r#"{"id":N,"type":"close"}"#,
    r#"{"id":N,"type":"ping"}"#,
];

#[test]
fn work_and_answers_are_bounded_for_every_command() {
    let limits = Limits::default();
    let mut kinds: Vec<&str> = Vec::new();
    for row in ROWS {
        let text = &commands_of(row, 1)[0];
        let (_, command) = json::decode_command(text, &limits).expect("a valid row");
        kinds.push(command.kind());
    }
    kinds.dedup();
    assert_eq!(kinds, Command::KINDS, "each command has rows");
    let mut broken = Vec::new();
    for shards in [1, 3] {
        for carriage in CARRIAGES {
            for count in [2_000, 4_000] {
                for row in ROWS {
                    let mut node = node_with_content(shards);
                    let wrong = check_unread(&mut node, carriage, row, count);
                    broken.extend(wrong.map(|wrong| format!("{shards} shards, {wrong}")));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The bytes of answers that may wait for one connection after so many commands of a row.
fn bytes_max_of(row: &str, count: usize) -> usize {
    let limits = Limits::default();
    // A publication that alone is larger than the bound is told all the same.
    let one = if row.contains("\"b\"") { 900_000 } else { 0 };
    // A page has no more once it is full: the last publication may go beyond, here one of 10,000 escapes.
    let last = if row.contains("\"c\"") { 60_000 } else { 0 };
    // Requests are bounded by their number: the refusals of all that are under way may come at once.
    let is_request = row.contains("\"type\":\"request\"");
    let refused = if is_request { count.min(limits.requests_per_session_max) } else { 0 };
    limits.answers_bytes_max.max(one) + last + (16 << 10) + refused * 320
}

/// What is wrong with what waits for a connection that reads nothing of what its commands are answered.
fn check_unread(node: &mut Node, carriage: Carriage, row: &str, count: usize) -> Option<String> {
    let before = node.counters();
    let session = Session::open(node, carriage);
    session.say(node, &commands_of(row, count));
    node.turns(30);
    let counters = node.counters();
    // Each command was carried out once at most: there is nothing else that could have been done.
    let commands = counters.commands - before.commands;
    let peak = counters.answers_bytes_peak;
    let is_right = peak <= bytes_max_of(row, count) as u64 && commands <= count as u64 + 2;
    (!is_right).then(|| {
        format!("{carriage:?}, {count} of {row}: {commands} commands, {peak} bytes waited")
    })
}

#[test]
fn commands_that_waited_are_all_carried_out_in_order_once_their_answers_are_read() {
    let rows = [
        r#"{"id":N,"type":"history","topic":"a","last":3}"#,
        r#"{"id":N,"type":"request","topic":"$server/ping","text":"0123456789"}"#,
        r#"{"id":N,"type":"subscribe","topic":"many/#","from":"now"}"#,
    ];
    for shards in [1, 3] {
        for carriage in CARRIAGES {
            for row in rows {
                let mut node = node_with_content(shards);
                let session = Session::open(&mut node, carriage);
                const COUNT: usize = 60;
                session.say(&mut node, &commands_of(row, COUNT));
                node.turns(10);
                let (mut told, mut batch) = (String::new(), 1);
                let last = (COUNT - 1 + 100) as u64;
                for _ in 0..100_000 {
                    if ids_of(&told).last() == Some(&last) {
                        break;
                    }
                    node.turn();
                    told += &session.read(&mut node, batch);
                    batch += 1;
                }
                let expected: Vec<u64> = (100..=last).collect();
                assert_eq!(ids_of(&told), expected, "{shards} shards, {carriage:?}, {row}");
            }
        }
    }
}

/// Steps of a turn in which commands of one write are carried out: what a turn may take, and what goes on beside that.
const STEPS_OF_A_TURN: u64 = 50_000 + 25_000;

#[test]
fn commands_that_come_together_share_the_steps_of_a_turn_with_others() {
    const COUNT: usize = 1_000;
    for carriage in CARRIAGES {
        let mut node = Node::start(1, "");
        let session = Session::open(&mut node, carriage);
        // Each of the others is compared with all of these.
        let names: Vec<String> = (0..1_500).map(|number| format!("\"n/{number}\"")).collect();
        let subscribe = |names: &[String]| {
            format!(r#"{{"id":1,"type":"subscribe","topics":[{}]}}"#, names.join(","))
        };
        let first: Vec<String> = names.chunks(500).map(subscribe).collect();
        session.say(&mut node, &first);
        node.turns(20);
        let before = node.counters();
        let row = r#"{"id":N,"type":"subscribe","topic":"other/N"}"#;
        session.say(&mut node, &commands_of(row, COUNT));
        // Mail has its turn all the same: this is answered in one.
        let early = node.counters();
        let carried_out = early.commands - before.commands;
        assert!((1..COUNT as u64).contains(&carried_out), "{carriage:?}: {carried_out} at once");
        let (mut told, mut batch) = (String::new(), 1);
        for _ in 0..5_000 {
            if ids_of(&told).last() == Some(&(COUNT as u64 + 99)) {
                break;
            }
            node.counters();
            told += &session.read(&mut node, batch);
            batch += 1;
        }
        let after = node.counters();
        assert_eq!(after.commands - before.commands, COUNT as u64, "{carriage:?}");
        let (steps, peak) = (after.work - before.work, after.work_per_turn_peak);
        assert!(steps > 1_000_000, "{carriage:?}: {steps} steps are no test");
        assert!(peak <= STEPS_OF_A_TURN, "{carriage:?}: {peak} steps in a turn");
    }
}
