//! Bridges: sessions in the server's own process, with a mailbox to their shard and credit for what they are told.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use engine::MailSender;
use model::{
    Command, CommandId, Draft, Event, Expected, HistoryQuery, HistoryStart, Limits, Payload,
    PayloadKind, Position, Principal, Publication, Publish, Selector, Sequence, Start, Subscribe,
    SubscribeOptions, TopicName,
};
use server::{Credit, Local, Opening, Port, ShardMail, Told, Unsent};
use tidegate_sim::Random;

use crate::node::{Carriage, Node, Session};

const ALL: Credit = Credit { count: u64::MAX, bytes: u64::MAX };

struct Bridge {
    local: Local,
    told: Receiver<Told>,
}

impl Bridge {
    fn open(port: &Port) -> Self {
        let (tell, told) = channel();
        let listener = Box::new(move |it| drop(tell.send(it)));
        let principal = Arc::new(Principal::unlimited("$test"));
        let opening = Opening { name: "bridge".into(), principal, listener };
        Self { local: port.open(opening).expect("a mailbox with room"), told }
    }

    fn ask(&self, id: u64, command: Command) {
        assert_eq!(self.local.send(CommandId(id), command), Ok(()));
    }

    fn subscribe(&self, selectors: &[&str]) {
        let selector = |text: &&str| Selector::parse(text, &Limits::default()).expect("valid");
        self.ask(
            1,
            Command::Subscribe(Subscribe {
                subscription: None,
                selectors: selectors.iter().map(selector).collect(),
                start: Start::All,
                positions: Vec::new(),
                name: None,
                options: SubscribeOptions::default(),
            }),
        );
    }

    fn publications(&self) -> Vec<(TopicName, Position, Publication)> {
        let told = self.told.try_iter();
        told.filter_map(|it| match it {
            Told::Publication { topic, position, publication } => {
                Some((topic, position, publication))
            }
            _ => None,
        })
        .collect()
    }

    fn events(&self) -> Vec<Event> {
        let told = self.told.try_iter();
        told.filter_map(|it| match it {
            Told::Event(event) => Some(event),
            _ => None,
        })
        .collect()
    }
}

fn port(node: &Node, limits: &Limits) -> Port {
    let mailboxes: &Vec<MailSender<ShardMail>> = &node.mailboxes;
    Port::new(mailboxes.clone(), limits)
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("valid")
}

fn publish(name: &str, text: &str) -> Draft {
    let payload = Payload::new(PayloadKind::Text, text.as_bytes());
    Draft { topic: topic(name), payload, idempotency_key: None, expected: None }
}

fn sequences(told: &[(TopicName, Position, Publication)]) -> Vec<u64> {
    told.iter().map(|(_, position, _)| position.sequence.get()).collect()
}

#[test]
fn a_bridge_is_told_no_more_than_it_gave_credit_for_and_shares_what_it_is_told() {
    let mut node = Node::start(2, "");
    let port = port(&node, &Limits::default());
    let (slow, fast) = (Bridge::open(&port), Bridge::open(&port));
    for bridge in [&slow, &fast] {
        bridge.subscribe(&["t/#"]);
    }
    fast.local.grant(ALL);
    slow.local.grant(Credit { count: 3, bytes: 1_000 });
    node.turns(4);
    assert!(matches!(slow.events()[..], [Event::Subscribed(_)]), "answers need no credit");
    fast.events();
    let publisher = Session::open(&mut node, Carriage::Frames);
    let text = "x".repeat(300);
    let command = format!(r#"{{"type":"publish","topic":"t/a","text":"{text}"}}"#);
    publisher.say(&mut node, &vec![command; 10]);
    node.turns(20);
    let (first, all) = (slow.publications(), fast.publications());
    assert_eq!((sequences(&first), all.len()), (vec![1, 2, 3], 10));
    assert!(ptr::eq(first[0].2.payload(), all[0].2.payload()), "one allocation");
    slow.local.grant(Credit { count: 100, bytes: 1_300 });
    node.turns(4);
    // 900 bytes were told: the one that goes beyond 1300 is still told.
    assert_eq!(sequences(&slow.publications()), [4, 5]);
    slow.local.grant(ALL);
    node.turns(4);
    assert_eq!(sequences(&slow.publications()), [6, 7, 8, 9, 10]);
    let sessions = node.counters().sessions;
    drop(slow);
    node.turns(2);
    assert_eq!(node.counters().sessions, sessions - 1, "it ends with its owner");
}

#[test]
fn a_bridge_that_is_slower_than_history_is_long_hears_of_the_gap() {
    let mut node = Node::start(
        1,
        "[[topics]]\nselector = \"#\"\nhistory_count = 4\n[limits]\nrecent_deliveries_max = 4\n",
    );
    let bridge = Bridge::open(&port(&node, &Limits::default()));
    bridge.subscribe(&["t"]);
    bridge.local.grant(Credit { count: 2, bytes: 1_000 });
    node.turns(2);
    let publisher = Bridge::open(&port(&node, &Limits::default()));
    for number in 1..=20 {
        publisher.ask(number, Command::Publish(Publish { draft: publish("t", "x") }));
        node.turn();
    }
    assert_eq!(sequences(&bridge.publications()), [1, 2]);
    bridge.local.grant(ALL);
    node.turns(2);
    let told: Vec<Told> = bridge.told.try_iter().collect();
    let Told::Event(Event::Gap(gap)) = &told[0] else { panic!("{told:?}") };
    assert_eq!((gap.from.map(Sequence::get), gap.to.get(), told.len()), (Some(3), 16, 5));
}

#[test]
fn a_bridge_publishes_with_key_and_expectation_reads_histories_and_is_refused_what_it_may_not() {
    let mut node = Node::start(2, "");
    let bridge = Bridge::open(&port(&node, &Limits::default()));
    let keyed = || Draft { idempotency_key: Some("k".into()), ..publish("t", "once") };
    let expecting = Expected::sequence(Sequence::START);
    let expecting = Draft { expected: Some(expecting), ..publish("t", "first") };
    for (id, draft) in [keyed(), keyed(), expecting].into_iter().enumerate() {
        bridge.ask(id as u64, Command::Publish(Publish { draft }));
        node.turns(4);
    }
    let large = publish("t", &"x".repeat(Limits::default().payload_bytes_max + 1));
    bridge.ask(4, Command::Publish(Publish { draft: large }));
    let query = HistoryQuery { topic: topic("t"), start: HistoryStart::Last(9), limit: 9 };
    bridge.ask(3, Command::History(query));
    node.turns(4);
    let events = bridge.events();
    let [
        Event::Published { position: one, .. },
        Event::Published { position: same, .. },
        Event::Refused { refusal, .. },
        Event::Refused { refusal: too_large, .. },
        Event::History { page, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((one, page.publications.len()), (same, 1));
    assert_eq!(refusal.code, model::Code::SequenceMismatch, "{refusal:?}");
    assert_eq!(too_large.code, model::Code::PayloadTooLarge, "{too_large:?}");
}

#[test]
fn commands_that_wait_are_bounded_and_a_bridge_is_told_of_the_end() {
    let limits = Limits { bridge_commands_max: 5, ..Limits::default() };
    let mut node = Node::start(1, "");
    let bridge = Bridge::open(&port(&node, &limits));
    let ping = |id| bridge.local.send(CommandId(id), Command::Ping);
    for id in 0..5 {
        assert_eq!(ping(id), Ok(()));
    }
    assert_eq!(ping(5), Err(Unsent::Full(Box::new(Command::Ping))));
    node.turns(2);
    assert_eq!(bridge.events().len(), 5);
    assert_eq!(ping(5), Ok(()), "an answer says that there is room");
    assert!(node.mailboxes[0].send(ShardMail::Stop).is_ok());
    let now = node.clocks.now();
    node.shards[0].turn(now);
    let told: Vec<Told> = bridge.told.try_iter().collect();
    assert_eq!(told.last(), Some(&Told::Closed), "{told:?}");
    assert_eq!(ping(6), Err(Unsent::Closed));
}

/// What a random bridge has of each topic.
#[derive(Default)]
struct Heard {
    newest: BTreeMap<TopicName, u64>,
    count: u64,
    granted: u64,
    log: Vec<String>,
}

impl Heard {
    fn hear(&mut self, told: Told) {
        self.log.push(format!("{told:?}"));
        let (topic, from, to) = match told {
            Told::Publication { topic, position, .. } => {
                let sequence = position.sequence.get();
                (topic, sequence, sequence)
            }
            Told::Event(Event::Gap(gap)) => {
                (gap.topic, gap.from.expect("one epoch").get(), gap.to.get())
            }
            _ => return,
        };
        self.count += 1;
        assert!(self.count <= self.granted, "no more than there was credit for");
        // A topic that a pattern finds later than its first publications starts later.
        let newest = self.newest.entry(topic.clone()).or_insert(from - 1);
        assert_eq!(
            *newest + 1,
            from,
            "of {topic} in order, each once, and no hole untold: {:#?}",
            self.log
        );
        *newest = to;
    }
}

fn random_bridges(seed: u64) {
    const TOPICS: [&str; 4] = ["t/a", "t/b", "u/a", "u/b"];
    const SELECTORS: [&[&str]; 4] = [&["#"], &["t/+"], &["t/a", "u/#"], &["#"]];
    let mut random = Random::new(seed);
    let shards = 1 + random.below(3);
    // A topic of which only the newest is kept conflates.
    let history = 2 + random.below(40);
    let config = format!(
        "[[topics]]\nselector = \"#\"\nhistory_count = {history}\n[limits]\nrecent_deliveries_max = 16\n"
    );
    let mut node = Node::start(shards, &config);
    let port = port(&node, &Limits::default());
    let mut bridges: Vec<(Bridge, Heard)> =
        SELECTORS.iter().map(|_| (Bridge::open(&port), Heard::default())).collect();
    for ((bridge, _), selectors) in bridges.iter().zip(SELECTORS) {
        bridge.subscribe(selectors);
    }
    node.turns(10);
    let publisher = Bridge::open(&port);
    let mut published: BTreeMap<TopicName, u64> = BTreeMap::new();
    for step in 0..400 {
        match random.below(8) {
            0..=3 => {
                let name = TOPICS[random.below(TOPICS.len())];
                for _ in 0..=random.below(3) {
                    let text = "x".repeat(random.below(3_000));
                    let draft = publish(name, &text);
                    if publisher
                        .local
                        .send(CommandId(step), Command::Publish(Publish { draft }))
                        .is_ok()
                    {
                        *published.entry(topic(name)).or_default() += 1;
                    }
                }
            }
            4 | 5 => {
                let (bridge, heard) = &mut bridges[random.below(SELECTORS.len())];
                heard.granted += 1 + random.below(9) as u64;
                bridge.local.grant(Credit { count: heard.granted, bytes: u64::MAX });
            }
            _ => node.turn(),
        }
        for (bridge, heard) in &mut bridges {
            bridge.told.try_iter().for_each(|told| heard.hear(told));
        }
    }
    for (bridge, heard) in &mut bridges {
        heard.granted = u64::MAX;
        bridge.local.grant(ALL);
    }
    node.turns(60);
    for ((bridge, heard), selectors) in bridges.iter_mut().zip(SELECTORS) {
        bridge.told.try_iter().for_each(|told| heard.hear(told));
        for (topic, count) in &published {
            let selector = |text: &&str| Selector::parse(text, &Limits::default()).expect("valid");
            let is_read = selectors.iter().map(selector).any(|it| it.matches(topic.as_str()));
            let heard = heard.newest.get(topic).copied().unwrap_or(0);
            assert_eq!(heard, if is_read { *count } else { 0 }, "{topic}");
        }
    }
}

#[test]
fn random_bridges_hear_everything_in_order_whatever_their_credit() {
    for seed in 0..60 {
        random_bridges(seed);
    }
}
