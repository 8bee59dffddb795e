//! The gate against a server that answers what each test says.

use model::{Code, Epoch, GapReason, Moment, Sequence, Subscribed, SubscriberName};

use super::*;

fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("valid")
}

fn at(sequence: u64) -> Position {
    let sequence = Sequence::new(sequence).expect("small");
    Position { epoch: Epoch::new("e"), sequence }
}

fn gate(names: usize) -> Gate {
    let name = |part| SubscriberName::parse(&format!("w.{part}")).expect("valid");
    Gate::new(Rules {
        topics: vec![Selector::parse("t/#", &Limits::default()).expect("valid")],
        positions: PositionStore::new("$own", (0..names).map(name).collect()),
        limits: Limits::default(),
        pending_max: 10,
        pending_bytes_max: 100,
    })
}

fn actions(gate: &mut Gate, now: Instant) -> Vec<Action> {
    std::iter::from_fn(|| gate.poll_action(now)).collect()
}

fn heard(gate: &mut Gate) -> Vec<Heard> {
    std::iter::from_fn(|| gate.poll_heard()).collect()
}

/// The command that the gate gives next, with its id and its session.
fn command(gate: &mut Gate, now: Instant) -> (SessionNumber, CommandId, Command) {
    let sent = actions(gate, now).into_iter().find_map(|action| match action {
        Action::Send(number, id, command) => Some((number, id, command)),
        _ => None,
    });
    sent.expect("a command is given")
}

fn publication(name: &str, sequence: u64, bytes: usize) -> Told {
    let payload = Payload::new(PayloadKind::Text, &vec![b'x'; bytes]);
    let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
    let position = at(sequence);
    let publication = Publication::new(payload, position.sequence, now);
    Told::Publication { topic: topic(name), position, publication }
}

fn refused(id: CommandId, code: Code) -> Told {
    Told::Event(Event::Refused { id: Some(id), refusal: Refusal::new(code, "no") })
}

const ASKING: SessionNumber = SessionNumber(1);
const READING: SessionNumber = SessionNumber(2);

/// A gate whose session reads.
fn reading(now: Instant) -> Gate {
    let mut gate = gate(0);
    let (number, id, command) = command(&mut gate, now);
    assert!(number == READING && matches!(command, Command::Subscribe(_)));
    let (selectors, topics) = (Vec::new(), Vec::new());
    let answer = Subscribed { id: Some(id), selectors, topics, subscription: None };
    gate.handle_told(READING, Told::Event(Event::Subscribed(answer)), now);
    gate
}

#[test]
fn it_reads_on_from_the_stored_positions_and_says_where_a_gap_begins() {
    let now = Instant::now();
    let mut gate = gate(2);
    for value in [r#"{"t/a":{"epoch":"e","sequence":5}}"#, r#"{"u":{"epoch":"e","sequence":7}}"#] {
        let (number, id, wanted) = command(&mut gate, now);
        assert!(number == ASKING && matches!(wanted, Command::History(_)), "{wanted:?}");
        let moment = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        let payload = Payload::new(PayloadKind::Json, value.as_bytes());
        let publications = vec![Publication::new(payload, at(1).sequence, moment)];
        let page = HistoryPage { position: at(1), after: Sequence::START, publications };
        let answer = Event::History { id: Some(id), topic: topic("p"), page };
        gate.handle_told(ASKING, Told::Event(answer), now);
    }
    let (number, _, wanted) = command(&mut gate, now);
    let Command::Subscribe(Subscribe { positions, .. }) = wanted else { panic!("{wanted:?}") };
    assert_eq!((number, positions), (READING, vec![(topic("t/a"), at(5))]), "what it reads");
    let gap = |name, from| Gap {
        topic: topic(name),
        number: 0,
        epoch: Epoch::new("e"),
        from,
        to: at(9).sequence,
        reason: GapReason::History,
    };
    for name in ["t/a", "t/b"] {
        gate.handle_told(READING, Told::Event(Event::Gap(gap(name, None))), now);
    }
    let known = Heard::Gap(gap("t/a", Some(at(6).sequence)));
    assert_eq!(heard(&mut gate), [known, Heard::Gap(gap("t/b", None))]);
}

#[test]
fn credit_is_what_there_is_room_for_on_top_of_what_was_told() {
    let now = Instant::now();
    let mut gate = gate(0);
    let granted = |count, bytes| Action::Grant(READING, Credit { count, bytes });
    assert_eq!(actions(&mut gate, now).last(), Some(&granted(10, 100)));
    for sequence in 1..=3 {
        gate.handle_told(READING, publication("t/a", sequence, 20), now);
    }
    gate.handle_pending(3, 60);
    assert_eq!(actions(&mut gate, now), [], "as much as before in all");
    gate.handle_pending(1, 20);
    assert_eq!(actions(&mut gate, now), [granted(12, 140)], "two are settled");
    gate.handle_pending(10, 500);
    assert_eq!(actions(&mut gate, now), [], "a grant stays");
    gate.handle_pending(0, 0);
    assert_eq!(actions(&mut gate, now), [granted(13, 160)]);
}

#[test]
fn what_is_asked_is_asked_in_order_until_it_is_answered() {
    let now = Instant::now();
    let mut gate = reading(now);
    let form = |text: &str| Outgoing {
        topic: topic("dead"),
        kind: PayloadKind::Text,
        payload: text.into(),
        key: "k".into(),
    };
    gate.ask(Request::Publish([form("whole"), form("size")].into()));
    gate.ask(Request::Fetch(topic("t/a"), at(3), 7));
    let text_of = |command| match command {
        Command::Publish(Publish { draft }) => draft.payload.bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    let (_, id, first) = command(&mut gate, now);
    assert_eq!(text_of(first), b"whole");
    // Now is not the time for it.
    gate.handle_told(ASKING, refused(id, Code::Busy), now);
    assert_eq!((actions(&mut gate, now), gate.wake_at()), (vec![], Some(now + PAUSE)));
    let now = now + PAUSE;
    let (_, again, first) = command(&mut gate, now);
    assert_eq!(text_of(first), b"whole");
    gate.handle_told(ASKING, refused(id, Code::PayloadTooLarge), now);
    assert_eq!(actions(&mut gate, now), [], "that was about another command");
    gate.handle_told(ASKING, refused(again, Code::PayloadTooLarge), now);
    let (_, id, second) = command(&mut gate, now);
    assert_eq!(text_of(second), b"size");
    gate.handle_told(ASKING, refused(id, Code::PayloadTooLarge), now);
    let (_, id, third) = command(&mut gate, now);
    let Command::History(query) = third else { panic!("{third:?}") };
    assert_eq!((query.start, query.limit), (HistoryStart::After(at(3).sequence), 7));
    gate.handle_told(ASKING, refused(id, Code::PayloadTooLarge), now);
    let heard = heard(&mut gate);
    assert!(
        matches!(&heard[..], [Heard::Published(Err(_)), Heard::Page { page: Err(_), .. }]),
        "{heard:?}"
    );
}

#[test]
fn sessions_that_end_are_opened_again_and_what_was_not_answered_is_asked_again() {
    let now = Instant::now();
    let mut gate = reading(now);
    gate.ask(Request::Fetch(topic("t/a"), at(3), 7));
    let (number, ..) = command(&mut gate, now);
    assert_eq!(number, ASKING);
    gate.handle_told(ASKING, Told::Closed, now);
    gate.handle_told(READING, Told::Closed, now);
    assert_eq!(actions(&mut gate, now), [Action::Close(READING)], "there is a pause");
    let now = now + PAUSE;
    let all = actions(&mut gate, now);
    let asking = SessionNumber(3);
    assert!(matches!(&all[..], [Action::Open(it), ..] if *it == asking), "{all:?}");
    let is_subscribed = |it: &Action| matches!(it, Action::Send(_, _, Command::Subscribe(_)));
    let is_asked =
        |it: &Action| matches!(it, Action::Send(to, _, Command::History(_)) if *to == asking);
    assert!(all.iter().any(is_subscribed) && all.iter().any(is_asked), "{all:?}");
    // What the old ones said still is not heard twice.
    gate.handle_told(READING, publication("t/a", 1, 1), now);
    assert!(!heard(&mut gate).iter().any(|it| matches!(it, Heard::Publication { .. })));
}

#[test]
fn a_gate_that_is_shut_reads_nothing_more_and_asks_on() {
    let now = Instant::now();
    let mut gate = reading(now);
    gate.shut();
    gate.ask(Request::Fetch(topic("t/a"), at(3), 7));
    let all = actions(&mut gate, now);
    assert!(
        matches!(&all[..], [Action::Close(READING), Action::Send(ASKING, _, Command::History(_))]),
        "{all:?}"
    );
    gate.handle_told(READING, publication("t/a", 1, 1), now);
    assert_eq!(heard(&mut gate), []);
}
