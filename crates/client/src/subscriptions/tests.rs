use model::{Epoch, Gap, GapReason, Limits, PayloadKind, Sequence, SubscribeOptions};
use protocol::native::{Extras, SequenceRef, TopicRef};

use super::*;

fn selector(text: &str) -> Selector {
    Selector::parse(text, &Limits::default()).expect("valid")
}

fn topic(text: &str) -> TopicName {
    TopicName::parse(text, &Limits::default()).expect("valid")
}

fn sequence(number: u64) -> Sequence {
    Sequence::new(number).expect("small")
}

fn place(number: u64) -> Position {
    Position { epoch: Epoch::new("e"), sequence: sequence(number) }
}

fn subscribe(text: &str, start: Start) -> Subscribe {
    Subscribe {
        subscription: None,
        selectors: vec![selector(text)],
        start,
        positions: Vec::new(),
        name: None,
        options: SubscribeOptions::default(),
    }
}

fn wire_id(number: u32) -> WireId {
    WireId(NonZeroU32::new(number).expect("not zero"))
}

/// A topic with the number 7 that serves `subscriptions`, with `head` publications and read from `start`.
fn described(name: &str, subscriptions: &[u32], start: u64, head: u64) -> SubscribedTopic {
    SubscribedTopic {
        subscriptions: subscriptions.iter().copied().map(wire_id).collect(),
        topic: topic(name),
        number: 7,
        epoch: Epoch::new("e"),
        head: sequence(head),
        start: sequence(start),
        recovered: None,
    }
}

fn recovered(topic: SubscribedTopic) -> SubscribedTopic {
    SubscribedTopic { recovered: Some(true), ..topic }
}

fn answer(all: &mut Subscriptions, id: u64, topics: Vec<SubscribedTopic>) {
    let id = Some(CommandId(id));
    let answer = Subscribed { id, subscription: None, selectors: vec![], topics };
    all.handle_record(ServerRecord::Event(Event::Subscribed(answer)));
}

fn announce(all: &mut Subscriptions, topic: SubscribedTopic) {
    all.handle_record(ServerRecord::Event(Event::Topic(topic)));
}

fn complete(all: &mut Subscriptions, id: u32) {
    all.handle_record(ServerRecord::Event(Event::Complete { subscription: wire_id(id) }));
}

fn publish(all: &mut Subscriptions, number: u32, at: u64) {
    all.handle_record(ServerRecord::Publication {
        topic: TopicRef::Number(number),
        sequence: SequenceRef::Full(sequence(at)),
        kind: PayloadKind::Text,
        payload: b"x"[..].into(),
        extras: Extras::default(),
    });
}

fn piece(all: &mut Subscriptions, at: u64, offset: u64) {
    all.handle_record(ServerRecord::Fragment {
        topic: TopicRef::Number(7),
        sequence: sequence(at),
        kind: PayloadKind::Text,
        total: 2,
        offset,
        bytes: b"x"[..].into(),
        extras: Extras::default(),
    });
}

fn gap(all: &mut Subscriptions, to: u64) {
    let (topic, epoch, to) = (topic("a"), Epoch::new("e"), sequence(to));
    let gap = Gap { topic, number: 7, epoch, from: None, to, reason: GapReason::History };
    all.handle_record(ServerRecord::Event(Event::Gap(gap)));
}

fn connected() -> Subscriptions {
    let mut all = Subscriptions::default();
    all.handle_connected(usize::MAX, true);
    all
}

/// Subscribes and has it answered as command `id`.
fn live(
    all: &mut Subscriptions,
    id: u64,
    wanted: Subscribe,
    topics: Vec<SubscribedTopic>,
) -> SubscriptionId {
    let of = all.add(wanted);
    asked(all, id);
    answer(all, id, topics);
    of
}

/// The command with this `id`.
fn asked(all: &mut Subscriptions, id: u64) -> Subscribe {
    match all.poll_command(CommandId(id)) {
        Some(Command::Subscribe(subscribe)) => subscribe,
        other => panic!("expected a subscribe, got {other:?}"),
    }
}

/// The updates since the last time, one line each.
fn told(all: &mut Subscriptions) -> Vec<String> {
    let line = |(of, told): (SubscriptionId, Notification)| {
        let of = of.0;
        Some(match told {
            Notification::Message(it) if it.is_snapshot => {
                format!("{of} snapshot {}", it.sequence.get())
            }
            Notification::Message(it) => format!("{of} update {}", it.sequence.get()),
            Notification::Gap(gap) => {
                let from = gap.from.map_or_else(String::new, |from| from.get().to_string());
                format!("{of} gap {from}..{}", gap.to.get())
            }
            Notification::Resumed { recovered, missed, .. } => {
                format!("{of} resumed {recovered} {missed}")
            }
            Notification::Complete => format!("{of} complete"),
            Notification::Ended(error) => format!("{of} ended {}", error.code.number()),
            Notification::Placed { .. } => return None,
        })
    };
    std::iter::from_fn(|| all.poll_notice()).filter_map(line).collect()
}

#[test]
fn a_subscription_goes_through_its_states() {
    let mut all = Subscriptions::default();
    let id = all.add(subscribe("a", Start::Snapshot));
    assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
    assert!(all.poll_command(CommandId(1)).is_none(), "there is no connection");
    all.handle_connected(usize::MAX, true);
    assert_eq!(asked(&mut all, 1).subscription, Some(wire_id(1)));
    assert_eq!(all.state(id), Some(SubscriptionState::Asked));
    answer(&mut all, 1, vec![described("a", &[1], 0, 0)]);
    assert_eq!(all.state(id), Some(SubscriptionState::Live));
    all.handle_disconnect();
    assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
    all.handle_connected(usize::MAX, true);
    assert_eq!(asked(&mut all, 2).start, Start::All, "it joins on to what was read");
    let refusal = Refusal::new(Code::NotAllowed, "no");
    assert!(all.handle_refused(CommandId(2), &refusal, Instant::now()));
    assert_eq!(all.state(id), None);
    assert_eq!(told(&mut all), ["0 ended 4301"]);
}

#[test]
fn what_the_server_puts_off_is_asked_for_again() {
    let (mut all, now) = (connected(), Instant::now());
    let id = all.add(subscribe("a", Start::Snapshot));
    asked(&mut all, 1);
    all.handle_refused(CommandId(1), &Refusal::new(Code::Busy, "later"), now);
    assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
    let wake_at = all.wake_at().expect("it waits");
    all.handle_wake(now);
    assert!(wake_at > now && all.poll_command(CommandId(2)).is_none());
    all.handle_wake(wake_at);
    asked(&mut all, 2);
    assert_eq!(all.wake_at(), None);
}

#[test]
fn each_is_asked_for_under_its_id_from_its_own_place_and_ended_by_it() {
    let mut all = connected();
    live(&mut all, 1, subscribe("a", Start::All), vec![described("a", &[1], 0, 9)]);
    publish(&mut all, 7, 1);
    let second = all.add(subscribe("+", Start::Now));
    let command = asked(&mut all, 2);
    assert_eq!((command.subscription, command.positions), (Some(wire_id(2)), vec![]));
    assert!(all.remove(second));
    let gone = Unsubscribe::Subscription(wire_id(2));
    assert_eq!(all.poll_command(CommandId(3)), Some(Command::Unsubscribe(gone)));
    all.handle_disconnect();
    all.handle_connected(usize::MAX, true);
    assert_eq!(asked(&mut all, 4).positions, [(topic("a"), place(1))]);
}

#[test]
fn what_comes_under_a_number_is_told_those_that_it_serves() {
    let mut all = connected();
    live(&mut all, 1, subscribe("a", Start::Now), vec![described("a", &[1], 5, 5)]);
    live(&mut all, 2, subscribe("+", Start::Snapshot), vec![]);
    announce(&mut all, SubscribedTopic { number: 9, ..described("a", &[2], 4, 5) });
    publish(&mut all, 9, 5);
    publish(&mut all, 7, 6);
    publish(&mut all, 9, 10);
    assert_eq!(told(&mut all), ["1 snapshot 5", "0 update 6", "1 update 10"]);
}

#[test]
fn who_joins_a_reading_is_told_what_it_lacks_and_the_other_nothing_twice() {
    let mut all = connected();
    live(&mut all, 1, subscribe("a", Start::Now), vec![described("a", &[1], 5, 5)]);
    live(&mut all, 2, subscribe("+", Start::Last(2)), vec![]);
    announce(&mut all, described("a", &[1, 2], 3, 5));
    (4..7).for_each(|at| publish(&mut all, 7, at));
    assert_eq!(told(&mut all), ["1 update 4", "1 update 5", "0 update 6", "1 update 6"]);
}

#[test]
fn where_another_begins_moves_nobody_and_is_no_gap() {
    let mut all = connected();
    live(&mut all, 1, subscribe("#", Start::All), vec![]);
    announce(&mut all, described("a", &[1], 0, 3));
    live(&mut all, 2, subscribe("a", Start::Now), vec![described("a", &[1, 2], 3, 3)]);
    (1..5).for_each(|at| publish(&mut all, 7, at));
    let expected = ["0 update 1", "0 update 2", "0 update 3", "0 update 4", "1 update 4"];
    assert_eq!(told(&mut all), expected);
}

#[test]
fn a_description_of_the_new_one_alone_takes_nobody_out_of_a_reading_and_moves_nobody() {
    let mut all = connected();
    live(&mut all, 1, subscribe("a", Start::Now), vec![described("a", &[1], 5, 5)]);
    live(&mut all, 2, subscribe("+", Start::Now), vec![]);
    announce(&mut all, described("a", &[2], 5, 5));
    publish(&mut all, 7, 6);
    let both = SubscribedTopic { recovered: Some(true), ..described("a", &[1, 2], 9, 9) };
    announce(&mut all, both);
    publish(&mut all, 7, 7);
    assert_eq!(told(&mut all), ["0 update 6", "1 update 6", "0 update 7", "1 update 7"]);
}

#[test]
fn a_number_that_is_given_to_another_topic_has_nothing_of_the_old_one_under_way() {
    let mut all = connected();
    let first = live(&mut all, 1, subscribe("a", Start::Now), vec![described("a", &[1], 5, 5)]);
    piece(&mut all, 6, 0);
    all.remove(first);
    all.poll_command(CommandId(2));
    live(&mut all, 3, subscribe("b", Start::Now), vec![described("b", &[2], 0, 0)]);
    publish(&mut all, 7, 7);
    assert_eq!(told(&mut all), ["1 update 7"]);
}

#[test]
fn who_joins_a_reading_has_what_is_under_way_begin_anew() {
    let mut all = connected();
    live(&mut all, 1, subscribe("a", Start::Now), vec![described("a", &[1], 0, 0)]);
    piece(&mut all, 1, 0);
    live(&mut all, 2, subscribe("+", Start::Now), vec![]);
    announce(&mut all, described("a", &[1, 2], 0, 1));
    [1, 0, 1].into_iter().for_each(|offset| piece(&mut all, 1, offset));
    assert_eq!(told(&mut all), ["0 update 1", "1 update 1"]);
}

#[test]
fn a_gap_is_told_each_from_where_it_is() {
    let mut all = connected();
    live(&mut all, 1, subscribe("a", Start::Now), vec![described("a", &[1], 5, 5)]);
    live(&mut all, 2, subscribe("+", Start::All), vec![]);
    announce(&mut all, described("a", &[1, 2], 2, 5));
    gap(&mut all, 7);
    assert_eq!(told(&mut all), ["0 gap 6..7", "1 gap 3..7"]);
}

#[test]
fn complete_is_told_once_for_each_answer_and_not_of_those_that_ended_or_are_asked_for_again() {
    let mut all = connected();
    let wanted = subscribe("a", Start::Snapshot);
    let id = live(&mut all, 1, wanted, vec![described("a", &[1], 0, 1)]);
    publish(&mut all, 7, 1);
    complete(&mut all, 1);
    complete(&mut all, 7);
    assert_eq!(told(&mut all), ["0 snapshot 1", "0 complete"]);
    all.handle_disconnect();
    all.handle_connected(usize::MAX, true);
    asked(&mut all, 2);
    complete(&mut all, 1);
    answer(&mut all, 2, vec![recovered(described("a", &[1], 1, 1))]);
    complete(&mut all, 1);
    all.remove(id);
    complete(&mut all, 1);
    assert_eq!(told(&mut all), ["0 resumed true 0", "0 complete"]);
}

#[test]
fn a_server_without_ids_is_told_of_what_does_not_overlap_and_the_rest_is_refused_here() {
    let mut all = Subscriptions::default();
    all.handle_connected(1_000, false);
    let unnumbered = |name, number| SubscribedTopic { number, ..described(name, &[], 1, 1) };
    let first = live(&mut all, 1, subscribe("a", Start::Now), vec![unnumbered("a", 7)]);
    live(&mut all, 2, subscribe("b/+", Start::Now), vec![]);
    announce(&mut all, unnumbered("b/x", 8));
    publish(&mut all, 7, 2);
    publish(&mut all, 8, 2);
    all.add(subscribe("#", Start::Now));
    assert_eq!(all.poll_command(CommandId(3)), None);
    assert_eq!(told(&mut all), ["0 update 2", "1 update 2", "2 ended 4236"]);
    all.remove(first);
    let gone = Unsubscribe::Selectors(vec![selector("a")]);
    assert_eq!(all.poll_command(CommandId(4)), Some(Command::Unsubscribe(gone)));
}

#[test]
fn one_that_was_too_slow_ends_or_goes_on_with_what_is_left() {
    let mut all = connected();
    let selectors = vec![selector("a"), selector("b")];
    let wanted = Subscribe { selectors, ..subscribe("a", Start::Now) };
    let topics = vec![
        described("a", &[1], 0, 0),
        SubscribedTopic { number: 8, ..described("b", &[1], 0, 0) },
    ];
    live(&mut all, 1, wanted, topics);
    let slow = |text| Event::Unsubscribed {
        id: None,
        subscription: Some(wire_id(1)),
        selectors: vec![selector(text)],
        has_lagged: true,
    };
    all.handle_record(ServerRecord::Event(slow("a")));
    publish(&mut all, 7, 1);
    publish(&mut all, 8, 1);
    all.handle_record(ServerRecord::Event(slow("b")));
    assert_eq!(told(&mut all), ["0 update 1", "0 ended 4102"]);
}

#[test]
fn places_that_do_not_go_into_one_command_are_given_in_several() {
    const BYTES_MAX: usize = 20_000;
    let mut all = connected();
    live(&mut all, 1, subscribe("a/+", Start::Now), vec![]);
    let names: Vec<String> = (0..1_000).map(|number| format!("a/{number}")).collect();
    let named = |index: usize, ids: &[u32], start| SubscribedTopic {
        number: index as u32,
        ..described(&names[index], ids, start, 6)
    };
    (0..names.len()).for_each(|index| announce(&mut all, named(index, &[1], 5)));
    all.handle_disconnect();
    all.handle_connected(BYTES_MAX, true);
    let (mut given, mut open) = (Vec::new(), BTreeSet::new());
    for id in 2.. {
        let Some(command) = all.poll_command(CommandId(id)) else { break };
        let asked = match command {
            Command::Subscribe(asked) => asked,
            Command::Unsubscribe(Unsubscribe::Subscription(id)) => {
                assert!(open.remove(&id.0.get()));
                continue;
            }
            other => panic!("{other:?}"),
        };
        let wire_id = asked.subscription.expect("it has one").0.get();
        open.insert(wire_id);
        answer(&mut all, id, vec![]);
        let given_now: BTreeSet<_> =
            asked.positions.iter().map(|(topic, _)| topic.as_str()).collect();
        for (index, name) in names.iter().enumerate() {
            let is_given = given_now.contains(&**name);
            match (is_given, wire_id) {
                (true, _) => announce(&mut all, recovered(named(index, &[1, wire_id], 5))),
                // It is read on, from the oldest that there is: its place is not known yet.
                (false, 1) => announce(&mut all, named(index, &[1], 6)),
                (false, _) => {}
            }
        }
        complete(&mut all, wire_id);
        given.extend(asked.positions);
    }
    assert_eq!(given.len(), names.len());
    let expected: BTreeMap<_, _> = names.iter().map(|name| (topic(name), place(5))).collect();
    assert_eq!(given.into_iter().collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(open, BTreeSet::from([1]));
    (0..names.len()).for_each(|index| publish(&mut all, index as u32, 6));
    let told = told(&mut all);
    let count = |what: &str| told.iter().filter(|line| line.contains(what)).count();
    let (all_of_them, none) = (names.len(), 0);
    assert_eq!((count("resumed true"), count("gap")), (all_of_them, none));
    assert_eq!((count("update 6"), count("complete")), (all_of_them, 1));
}
