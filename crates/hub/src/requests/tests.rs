//! Several shards of requests, with mail that is delivered in any order between pairs of shards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use model::{Limits, Payload, PayloadKind, Recipients, Request, Respond, Selector, TopicName};
use proptest::prelude::*;

use super::*;

const SHARDS: u16 = 3;

/// A node of shards and the mail between them.
struct Node {
    shards: Vec<Requests<u32>>,
    mail: Vec<VecDeque<RequestMail>>,
    now: Duration,
    /// Requests that handlers have: shard, connection, number.
    asked: Vec<(usize, u32, u64)>,
    /// Outcomes by request.
    outcomes: Vec<(u32, Result<(), Code>)>,
}

impl Node {
    fn new() -> Self {
        let limits = Limits { device_requests_max: 2, ..Limits::default() };
        let shard = |index| Requests::new(ShardIndex(index), SHARDS, limits.clone());
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            mail: (0..SHARDS * SHARDS).map(|_| VecDeque::new()).collect(),
            now: Duration::ZERO,
            asked: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    fn run(&mut self) {
        for from in 0..usize::from(SHARDS) {
            self.shards[from].run_timers(self.now);
            while let Some(output) = self.shards[from].poll() {
                match output {
                    RequestOutput::Mail(to, mail) => {
                        self.mail[from * usize::from(SHARDS) + usize::from(to.0)].push_back(mail);
                    }
                    RequestOutput::Tell { link, asked } => {
                        self.asked.push((from, link, asked.request));
                    }
                    RequestOutput::Answer { asker, outcome, .. } => {
                        let result = outcome.result.map(drop).map_err(|refusal| refusal.code);
                        self.outcomes.push((asker, result));
                    }
                    RequestOutput::Registered { .. } | RequestOutput::AnswersEnd { .. } => {}
                }
            }
        }
    }

    fn deliver(&mut self, pair: usize) {
        if let Some(mail) = self.mail[pair].pop_front() {
            let (from, to) = (pair / usize::from(SHARDS), pair % usize::from(SHARDS));
            self.shards[to].handle_mail(ShardIndex(from as u16), mail, self.now);
            self.run();
        }
    }

    fn deliver_all(&mut self) {
        while let Some(pair) = self.mail.iter().position(|mail| !mail.is_empty()) {
            self.deliver(pair);
        }
    }

    fn register(&mut self, shard: usize, link: u32, concurrency: usize) {
        let capacity = Capacity { concurrency, payload_bytes_max: None };
        let registration = Registration {
            shard: ShardIndex(shard as u16),
            link,
            serial: link,
            selector: Selector::parse("t/#", &Limits::default()).expect("valid"),
            session: format!("s{link}").as_str().into(),
            principal: "p".into(),
            client: None,
        };
        self.shards[shard].register(vec![registration], capacity, self.now).expect("within limits");
        self.run();
    }

    fn ask(&mut self, shard: usize, asker: u32, key: Option<u32>) {
        let request = Request {
            topic: TopicName::parse("t/1", &Limits::default()).expect("valid"),
            payload: Arc::new(Payload::new(PayloadKind::Json, b"1")),
            timeout: Duration::from_millis(100),
            to: Recipients::default(),
            key: key.map(|key| format!("k{key}").into()),
        };
        let from = ("s".into(), "p".into());
        self.shards[shard].ask(asker, request, from, &|_| true, self.now);
        self.run();
    }

    fn answer(&mut self, at: usize) {
        let (shard, link, request) = self.asked.remove(at);
        let result = Ok(Arc::new(Payload::new(PayloadKind::Json, b"2")));
        let respond = Respond { request, result };
        // It may be too late.
        let _ = self.shards[shard].respond((link, link), respond, "s".into(), self.now);
        self.run();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register(usize, u32),
    Gone(usize, u32),
    Ask(usize, Option<u32>),
    Answer(usize),
    Deliver(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let shard = 0..usize::from(SHARDS);
    prop_oneof![
        2 => (shard.clone(), 1..6u32).prop_map(|(shard, link)| Step::Register(shard, link)),
        1 => (shard.clone(), 1..6u32).prop_map(|(shard, link)| Step::Gone(shard, link)),
        5 => (shard, prop::option::of(0..3u32)).prop_map(|(shard, key)| Step::Ask(shard, key)),
        4 => (0..8usize).prop_map(Step::Answer),
        10 => (0..usize::from(SHARDS * SHARDS)).prop_map(Step::Deliver),
        1 => (1..80u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever happens to handlers, mail and time: each request has exactly one outcome, at its deadline at
    /// the latest, and nothing stays behind.
    #[test]
    fn every_request_has_exactly_one_outcome(steps in prop::collection::vec(step(), 1..120)) {
        let mut node = Node::new();
        let mut askers = 0;
        for step in steps {
            match step {
                Step::Register(shard, link) => node.register(shard, link, 2),
                Step::Gone(shard, link) => {
                    let now = node.now;
                    node.shards[shard].unregister(link, link, None, now);
                    node.shards[shard].handle_gone(link, now);
                    node.run();
                }
                Step::Ask(shard, key) => {
                    node.ask(shard, askers, key);
                    askers += 1;
                }
                Step::Answer(at) => {
                    if !node.asked.is_empty() {
                        node.answer(at % node.asked.len());
                    }
                }
                Step::Deliver(pair) => node.deliver(pair),
                Step::Wait(ms) => {
                    node.now += Duration::from_millis(ms);
                    node.run();
                }
            }
        }
        node.deliver_all();
        node.now += Duration::from_secs(1);
        node.run();
        node.deliver_all();
        let mut answered: Vec<u32> = node.outcomes.iter().map(|(asker, _)| *asker).collect();
        answered.sort_unstable();
        prop_assert_eq!(answered, (0..askers).collect::<Vec<_>>());
        for shard in &node.shards {
            prop_assert_eq!((shard.open.len(), shard.pending.len(), shard.dues.len()), (0, 0, 0));
        }
    }
}

#[test]
fn a_full_handler_is_passed_over() {
    let mut node = Node::new();
    node.register(0, 1, 1);
    node.register(1, 2, 1);
    node.deliver_all();
    for asker in 0..3 {
        node.ask(2, asker, None);
        node.deliver_all();
    }
    let links: Vec<u32> = node.asked.iter().map(|(_, link, _)| *link).collect();
    assert!(links.contains(&1) && links.contains(&2), "{links:?}");
    assert_eq!(node.outcomes, [(2, Err(Code::TooManyRequests))]);
}
