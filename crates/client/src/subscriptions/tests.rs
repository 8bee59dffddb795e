use model::{Epoch, Gap, GapReason, Limits, Sequence};

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

fn subscribe(text: &str) -> Subscribe {
    Subscribe {
        subscription: None,
        selectors: vec![selector(text)],
        start: Start::Snapshot,
        positions: Vec::new(),
        name: None,
        options: SubscribeOptions::default(),
    }
}

/// The answer to command `id`, of a topic with `head` publications that is read from `start`.
fn subscribed(id: u64, name: &str, start: u64, head: u64) -> ServerRecord<'static> {
    let described = SubscribedTopic {
        subscriptions: vec![],
        topic: topic(name),
        number: 7,
        epoch: Epoch::new("e"),
        head: sequence(head),
        start: sequence(start),
        recovered: None,
    };
    let (id, selectors, topics) = (Some(CommandId(id)), vec![selector(name)], vec![described]);
    ServerRecord::Event(Event::Subscribed(Subscribed { id, subscription: None, selectors, topics }))
}

fn publication(number: u64) -> ServerRecord<'static> {
    ServerRecord::Publication {
        topic: protocol::native::TopicRef::Number(7),
        sequence: protocol::native::SequenceRef::Full(sequence(number)),
        kind: model::PayloadKind::Text,
        payload: b"x"[..].into(),
        extras: protocol::native::Extras::default(),
    }
}

/// The command with this `id`.
fn asked(all: &mut Subscriptions, id: u64) -> Subscribe {
    match all.poll_command(CommandId(id)) {
        Some(Command::Subscribe(subscribe)) => subscribe,
        other => panic!("expected a subscribe, got {other:?}"),
    }
}

/// The sequences told since the last time, each with its subscription.
fn told(all: &mut Subscriptions) -> Vec<(SubscriptionId, u64, bool)> {
    let notices = std::iter::from_fn(|| all.poll_notice());
    notices
        .filter_map(|(of, told)| match told {
            Notification::Message(message) => {
                Some((of, message.sequence.get(), message.is_snapshot))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_subscription_goes_through_its_states() {
    let mut all = Subscriptions::default();
    let id = all.add(subscribe("a/b"));
    assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
    assert!(all.poll_command(CommandId(1)).is_none(), "there is no connection");
    all.handle_connected();
    asked(&mut all, 1);
    assert_eq!(all.state(id), Some(SubscriptionState::Asked));
    all.handle_record(subscribed(1, "a/b", 0, 0));
    assert_eq!(all.state(id), Some(SubscriptionState::Live));
    all.handle_disconnect();
    assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
    all.handle_connected();
    assert_eq!(asked(&mut all, 2).start, Start::All, "it joins on to what was read");
    let refusal = Refusal::new(Code::NotAllowed, "no");
    assert!(all.handle_refused(CommandId(2), &refusal, Instant::now()));
    assert_eq!(all.state(id), None);
    let told: Vec<_> = std::iter::from_fn(|| all.poll_notice()).collect();
    assert!(
        matches!(told[..], [(_, Notification::Placed { .. }), (of, Notification::Ended(_))] if of == id)
    );
}

#[test]
fn what_the_server_puts_off_is_asked_for_again() {
    let (mut all, now) = (Subscriptions::default(), Instant::now());
    let id = all.add(subscribe("a/b"));
    all.handle_connected();
    asked(&mut all, 1);
    all.handle_refused(CommandId(1), &Refusal::new(Code::Busy, "later"), now);
    assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
    let wake_at = all.wake_at().expect("it waits");
    all.handle_wake(now);
    assert!(wake_at > now && all.poll_command(CommandId(2)).is_none());
    all.handle_wake(wake_at);
    asked(&mut all, 2);
}

#[test]
fn who_overlaps_a_pattern_waits_until_its_topics_are_told() {
    let mut all = Subscriptions::default();
    all.handle_connected();
    all.add(Subscribe { start: Start::All, ..subscribe("a/+") });
    asked(&mut all, 1);
    all.add(subscribe("a/b"));
    all.handle_record(ServerRecord::Event(Event::Subscribed(Subscribed {
        subscription: None,
        id: Some(CommandId(1)),
        selectors: vec![selector("a/+")],
        topics: vec![],
    })));
    assert_eq!(all.poll_command(CommandId(2)), Some(Command::Ping));
    assert_eq!(all.poll_command(CommandId(3)), None);
    let ServerRecord::Event(Event::Subscribed(told)) = subscribed(1, "a/b", 0, 5) else {
        return;
    };
    all.handle_record(ServerRecord::Event(Event::Topic(told.topics[0].clone())));
    all.handle_record(ServerRecord::Event(Event::Pong { id: Some(CommandId(2)) }));
    let second = asked(&mut all, 3);
    assert_eq!(second.positions[0].1.sequence, Sequence::START, "the first has read nothing yet");
}

#[test]
fn a_second_reader_joins_the_first_and_each_is_told_everything_once() {
    let mut all = Subscriptions::default();
    all.handle_connected();
    let one = all.add(subscribe("a/b"));
    asked(&mut all, 1);
    let two = all.add(subscribe("a/+"));
    assert!(all.poll_command(CommandId(2)).is_none(), "it is not known where the first one is");
    all.handle_record(subscribed(1, "a/b", 4, 5));
    all.handle_record(publication(5));
    assert_eq!(told(&mut all), [(one, 5, true)]);
    let second = asked(&mut all, 2);
    assert_eq!(second.positions[0].1.sequence, sequence(4), "its own snapshot");
    all.handle_record(subscribed(2, "a/b", 4, 5));
    all.handle_record(publication(5));
    all.handle_record(publication(6));
    assert_eq!(told(&mut all), [(two, 5, true), (one, 6, false), (two, 6, false)]);
    assert!(all.remove(one) && !all.remove(one));
    all.handle_record(publication(7));
    assert_eq!(told(&mut all), [(two, 7, false)]);
}

fn described(
    name: &str,
    epoch: &str,
    (start, head): (u64, u64),
    recovered: Option<bool>,
) -> SubscribedTopic {
    let (topic, epoch) = (topic(name), Epoch::new(epoch));
    let (start, head) = (sequence(start), sequence(head));
    SubscribedTopic { topic, number: 7, subscriptions: vec![], epoch, head, start, recovered }
}

fn answer(all: &mut Subscriptions, id: u64, topics: Vec<SubscribedTopic>) {
    let answer =
        Subscribed { id: Some(CommandId(id)), subscription: None, selectors: vec![], topics };
    all.handle_record(ServerRecord::Event(Event::Subscribed(answer)));
}

fn announce(all: &mut Subscriptions, topic: SubscribedTopic) {
    all.handle_record(ServerRecord::Event(Event::Topic(topic)));
}

/// The commands to send but pings, each under its number, once pings were answered.
fn settled(all: &mut Subscriptions, next_id: &mut u64) -> Vec<(u64, Command)> {
    let mut commands = Vec::new();
    while let Some(command) = all.poll_command(CommandId(*next_id)) {
        match command {
            Command::Ping => {
                let id = Some(CommandId(*next_id));
                all.handle_record(ServerRecord::Event(Event::Pong { id }));
            }
            command => commands.push((*next_id, command)),
        }
        *next_id += 1;
    }
    commands
}

/// The updates since the last call, in words.
fn notices(all: &mut Subscriptions) -> Vec<String> {
    let line = |(of, told): (SubscriptionId, Notification)| match told {
        Notification::Message(message) => Some(format!("{} message {}", of.0, message.sequence)),
        Notification::Gap(gap) => Some(format!("{} gap ..{}", of.0, gap.to)),
        _ => None,
    };
    std::iter::from_fn(|| all.poll_notice()).filter_map(line).collect()
}

#[test]
fn a_new_numbering_is_taken_by_all_who_read_the_topic_whoever_asked() {
    let (mut all, mut id) = (Subscriptions::default(), 1);
    all.handle_connected();
    for text in ["a/+", "a/x"] {
        all.add(subscribe(text));
        let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("one is asked for") };
        answer(&mut all, asked, vec![described("a/x", "e1", (9, 9), None)]);
    }
    notices(&mut all);
    for (epoch, head) in [("e2", 1), ("e3", 9)] {
        all.handle_disconnect();
        all.handle_connected();
        let [(pattern, _), (plain, _)] = settled(&mut all, &mut id)[..] else { panic!("both") };
        answer(&mut all, pattern, vec![]);
        answer(&mut all, plain, vec![described("a/x", epoch, (0, head), Some(false))]);
        all.handle_record(publication(1));
        let expected = ["0 gap ..0", "1 gap ..0", "0 message 1", "1 message 1"];
        assert_eq!(notices(&mut all), expected, "{epoch}");
    }
}

#[test]
fn one_that_goes_on_from_a_position_takes_nothing_before_its_topic_is_described() {
    let (mut all, mut id) = (Subscriptions::default(), 1);
    all.handle_connected();
    all.add(subscribe("#"));
    let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("one is asked for") };
    answer(&mut all, asked, vec![]);
    announce(&mut all, described("a/x", "e", (100, 100), None));
    let at = Position { epoch: Epoch::new("e"), sequence: sequence(98) };
    all.add(Subscribe { positions: vec![(topic("a/x"), at)], ..subscribe("a/+") });
    let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("one is asked for") };
    answer(&mut all, asked, vec![]);
    all.handle_record(publication(101));
    announce(&mut all, described("a/x", "e", (98, 101), Some(true)));
    let full = |number| ServerRecord::Publication {
        topic: protocol::native::TopicRef::Number(7),
        sequence: protocol::native::SequenceRef::Full(sequence(number)),
        kind: model::PayloadKind::Text,
        payload: b"x"[..].into(),
        extras: protocol::native::Extras::default(),
    };
    (99..=102).for_each(|number| all.handle_record(full(number)));
    let rest = ["1 message 99", "1 message 100", "1 message 101", "0 message 102", "1 message 102"];
    let told = notices(&mut all);
    assert_eq!(
        (&told[..1], &told[1..]),
        (&["0 message 101".to_owned()][..], &rest.map(String::from)[..])
    );
}

#[test]
fn late_pieces_of_the_reading_before_do_not_stand_before_what_comes_first() {
    let (mut all, mut id) = (Subscriptions::default(), 1);
    all.handle_connected();
    all.add(subscribe("#"));
    let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("one is asked for") };
    answer(&mut all, asked, vec![]);
    announce(&mut all, described("a/x", "e", (100, 100), None));
    let piece = |offset| ServerRecord::Fragment {
        topic: protocol::native::TopicRef::Number(7),
        sequence: sequence(101),
        kind: model::PayloadKind::Text,
        total: 2,
        offset,
        bytes: b"x"[..].into(),
        extras: protocol::native::Extras::default(),
    };
    all.handle_record(piece(0));
    let at = Position { epoch: Epoch::new("e"), sequence: sequence(99) };
    all.add(Subscribe { positions: vec![(topic("a/x"), at)], ..subscribe("a/+") });
    let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("one is asked for") };
    answer(&mut all, asked, vec![]);
    announce(&mut all, described("a/x", "e", (99, 101), Some(true)));
    all.handle_record(piece(1));
    all.handle_record(publication(100));
    all.handle_record(piece(0));
    all.handle_record(piece(1));
    assert_eq!(notices(&mut all), ["1 message 100", "0 message 101", "1 message 101"]);
}

#[test]
fn what_is_left_of_those_that_overlap_is_asked_for_again_as_it_wants_to_be_read() {
    let (mut all, mut id) = (Subscriptions::default(), 1);
    all.handle_connected();
    all.add(subscribe("a/x"));
    let options = SubscribeOptions { filter: Some("data > 7".into()), ..Default::default() };
    let filtering = all.add(Subscribe { options, ..subscribe("a/+") });
    for count in [1, 1] {
        let asked = settled(&mut all, &mut id);
        assert_eq!(asked.len(), count);
        answer(&mut all, asked[0].0, vec![described("a/x", "e", (5, 5), None)]);
    }
    settled(&mut all, &mut id);
    assert!(all.remove(filtering));
    let [(_, Command::Unsubscribe(gone)), (_, Command::Subscribe(again))] =
        &settled(&mut all, &mut id)[..]
    else {
        panic!("what nobody reads is dropped, and the rest asked for")
    };
    assert_eq!(
        (gone.selectors(), &*again.selectors),
        (&[selector("a/+")][..], &[selector("a/x")][..])
    );
    assert_eq!(again.options, SubscribeOptions::default());
    assert_eq!(again.positions[0].1.sequence, sequence(5));
}

/// The cost of asking for so many patterns and a topic of each, in visited nodes.
fn steps_for(pairs: usize) -> usize {
    let (mut all, mut id) = (Subscriptions::default(), 1);
    all.handle_connected();
    for number in 0..pairs {
        all.add(subscribe(&format!("p{number}/+")));
        all.add(subscribe(&format!("p{number}/x")));
    }
    let mut asked = VecDeque::from(settled(&mut all, &mut id));
    for answered in 0..2 * pairs {
        let Some((as_id, Command::Subscribe(subscribe))) = asked.pop_front() else {
            panic!("{answered} of {} were answered, and no other is asked for", 2 * pairs)
        };
        let plain = subscribe.selectors[0].as_topic();
        let topics = plain.map(|name| described(name, "e", (0, 0), None));
        answer(&mut all, as_id, topics.into_iter().collect());
        asked.extend(settled(&mut all, &mut id));
    }
    all.steps()
}

#[test]
fn twice_as_many_that_do_not_overlap_cost_twice_as_much() {
    let (some, twice) = (steps_for(200), steps_for(400));
    assert!(twice <= some * 5 / 2, "{some} steps became {twice}");
}

/// Topics of which a pattern knows its places, after a break, with commands of so many bytes.
fn after_a_break(count: usize, bytes_max: usize) -> (Subscriptions, SubscriptionId, Vec<String>) {
    let mut all = Subscriptions::default();
    all.handle_connected();
    let id = all.add(Subscribe { start: Start::All, ..subscribe("a/+") });
    asked(&mut all, 1);
    answer(&mut all, 1, vec![]);
    let names: Vec<_> = (0..count).map(|number| format!("a/{number}")).collect();
    for name in &names {
        announce(&mut all, described(name, "e", (5, 5), None));
    }
    notices(&mut all);
    all.handle_disconnect();
    all.handle_limit(bytes_max);
    all.handle_connected();
    (all, id, names)
}

fn bytes_of(command: &Command) -> usize {
    let mut record = Vec::new();
    protocol::native::binary::append_command(Some(CommandId(9)), command, &mut record);
    record.len()
}

#[test]
fn places_that_do_not_go_into_one_command_are_given_in_several() {
    let (mut all, of, names) = after_a_break(3_000, 100_000);
    let (mut id, mut given, mut held) = (2, BTreeSet::new(), BTreeSet::new());
    loop {
        let commands = settled(&mut all, &mut id);
        if commands.is_empty() {
            break;
        }
        for (as_id, command) in commands {
            assert!(bytes_of(&command) <= 100_000);
            let asked = match command {
                Command::Subscribe(asked) => asked,
                Command::Unsubscribe(gone) => {
                    gone.selectors().iter().for_each(|name| assert!(held.remove(name)));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            for (topic, at) in &asked.positions {
                assert_eq!(at.sequence, sequence(5));
                assert!(given.insert(topic.to_string()), "{topic} twice");
            }
            if asked.selectors == [selector("a/+")] {
                answer(&mut all, as_id, vec![]);
                // All are read on; those whose place is not known yet from the oldest that there is.
                for name in &names {
                    let (start, recovered) = match given.contains(name) {
                        true => (5, Some(true)),
                        false => (7, None),
                    };
                    announce(&mut all, described(name, "e", (start, 9), recovered));
                }
            } else if asked.selectors.len() > 500 {
                given.retain(|name| {
                    !asked.positions.iter().any(|(topic, _)| topic.as_str() == name)
                });
                let refusal = Refusal::new(Code::TooManySubscriptions, "too many");
                assert!(all.handle_refused(CommandId(as_id), &refusal, Instant::now()));
            } else {
                held.extend(asked.selectors.iter().cloned());
                let names = asked.selectors.iter().map(Selector::as_str);
                let topics = names.map(|name| described(name, "e", (7, 9), Some(false))).collect();
                answer(&mut all, as_id, topics);
            }
        }
    }
    assert_eq!((given, held), (names.iter().cloned().collect(), BTreeSet::new()));
    assert_eq!(all.state(of), Some(SubscriptionState::Live));
    assert!(all.positions(of).iter().all(|(_, at)| at.sequence == sequence(5)), "a gap is to come");
}

#[test]
fn what_was_asked_for_by_name_is_given_back_also_if_its_subscription_has_ended() {
    let (mut all, of, _) = after_a_break(100, 3_000);
    let mut id = 2;
    let [(pattern, _)] = settled(&mut all, &mut id)[..] else { panic!("the pattern") };
    answer(&mut all, pattern, vec![]);
    let [(as_id, Command::Subscribe(part))] = &settled(&mut all, &mut id)[..] else {
        panic!("some")
    };
    assert!(all.remove(of));
    let [(_, Command::Unsubscribe(gone))] = &settled(&mut all, &mut id)[..] else { panic!("it") };
    assert_eq!(gone.selectors(), [selector("a/+")]);
    answer(&mut all, *as_id, vec![]);
    let [(_, Command::Unsubscribe(gone))] = &settled(&mut all, &mut id)[..] else { panic!("them") };
    assert_eq!(gone.selectors(), part.selectors);
}

#[test]
fn a_part_that_is_refused_puts_off_or_ends_its_subscription() {
    for (code, state) in [(Code::Busy, Some(SubscriptionState::Waiting)), (Code::NotAllowed, None)]
    {
        let (mut all, of, _) = after_a_break(100, 3_000);
        let mut id = 2;
        let [(pattern, _)] = settled(&mut all, &mut id)[..] else { panic!("the pattern") };
        answer(&mut all, pattern, vec![]);
        let [(part, _)] = settled(&mut all, &mut id)[..] else { panic!("some") };
        let refusal = Refusal::new(code, "no");
        assert!(all.handle_refused(CommandId(part), &refusal, Instant::now()));
        assert_eq!((all.state(of), settled(&mut all, &mut id)), (state, vec![]));
    }
}

#[test]
fn a_place_that_is_given_later_is_the_earliest_that_anybody_needs_then() {
    let (mut all, _, _) = after_a_break(200, 3_000);
    let mut id = 2;
    let [(pattern, _)] = settled(&mut all, &mut id)[..] else { panic!("the pattern") };
    answer(&mut all, pattern, vec![]);
    let at = Position { epoch: Epoch::new("e"), sequence: sequence(3) };
    all.add(Subscribe { positions: vec![(topic("a/99"), at)], ..subscribe("a/99") });
    let mut asked = VecDeque::from(settled(&mut all, &mut id));
    loop {
        let (as_id, command) = asked.pop_front().expect("a/99 is asked for by name");
        let Command::Subscribe(command) = command else { continue };
        let is_meant = command.selectors.len() > 1 && command.selectors.contains(&selector("a/99"));
        if is_meant {
            let given = command.positions.iter().find(|(name, _)| *name == topic("a/99"));
            return assert_eq!(given.map(|(_, at)| at.sequence), Some(sequence(3)));
        }
        let topics = command.positions.iter();
        let topics = topics
            .map(|(name, at)| described(name.as_str(), "e", (at.sequence.get(), 5), Some(true)));
        answer(&mut all, as_id, topics.collect());
        asked.extend(settled(&mut all, &mut id));
    }
}

#[test]
fn who_wants_all_is_told_what_is_not_there_if_the_topic_is_resumed_for_another() {
    let (mut all, mut id) = (Subscriptions::default(), 1);
    all.handle_connected();
    let at = Position { epoch: Epoch::new("e0"), sequence: sequence(5) };
    let resumed = described("x", "e", (13, 33), Some(false));
    all.add(Subscribe { positions: vec![(topic("x"), at)], ..subscribe("x") });
    let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("it is asked for") };
    answer(&mut all, asked, vec![resumed.clone()]);
    for (text, start) in [("#", Start::Now), ("+", Start::All)] {
        all.add(Subscribe { start, ..subscribe(text) });
        let [(asked, _)] = settled(&mut all, &mut id)[..] else { panic!("it is asked for") };
        answer(&mut all, asked, vec![]);
    }
    settled(&mut all, &mut id);
    notices(&mut all);
    let (name, number, epoch) = (resumed.topic.clone(), resumed.number, resumed.epoch.clone());
    announce(&mut all, resumed);
    let (from, to, reason) = (None, sequence(13), GapReason::Epoch);
    let gap = Gap { topic: name, number, epoch, from, to, reason };
    all.handle_record(ServerRecord::Event(Event::Gap(gap)));
    let mut told = notices(&mut all);
    told.sort();
    assert_eq!(told, ["2 gap ..13"], "the others want nothing of what was before");
}
