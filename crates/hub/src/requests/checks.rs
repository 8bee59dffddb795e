//! Several shards of requests, with mail that is delivered in any order between pairs of shards, and what must hold of any history
//! of them. The property test draws the steps, the fuzzer finds them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use model::{
    HashMap, Limits, Payload, PayloadKind, Recipients, Request, Respond, Selector, TopicName,
};

use super::*;

pub(super) const SHARDS: u16 = 3;

/// The connection with this number.
pub(super) fn id(number: u32) -> ConnectionId {
    ConnectionId::for_test(number)
}

/// A node of shards and the mail between them.
pub(super) struct Node {
    pub shards: Vec<Requests<u32>>,
    pub mail: Vec<VecDeque<RequestMail>>,
    pub now: Duration,
    /// Requests that handlers have: shard, connection, number.
    pub asked: Vec<(usize, u32, u64)>,
    /// Who asked each request that handlers were told, by shard and number.
    pub askers: HashMap<(usize, u64), Arc<Payload>>,
    /// Who was answered, and who had asked what the answer is of.
    pub answers: Vec<(u32, u32)>,
    /// Outcomes by request.
    pub outcomes: Vec<(u32, Result<(), Code>)>,
    /// How many `handle`s were confirmed.
    pub registered: usize,
}

impl Node {
    pub fn new() -> Self {
        Self::with_limits(Limits { device_requests_max: 2, ..Limits::default() })
    }

    pub fn with_limits(limits: Limits) -> Self {
        let shard = |index| Requests::new(ShardIndex(index), SHARDS, limits.clone());
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            mail: (0..SHARDS * SHARDS).map(|_| VecDeque::new()).collect(),
            now: Duration::ZERO,
            asked: Vec::new(),
            askers: HashMap::default(),
            answers: Vec::new(),
            outcomes: Vec::new(),
            registered: 0,
        }
    }

    pub fn run(&mut self) {
        for from in 0..usize::from(SHARDS) {
            self.shards[from].run_timers(self.now);
            while let Some(output) = self.shards[from].poll() {
                match output {
                    RequestOutput::Mail(to, mail) => {
                        self.mail[from * usize::from(SHARDS) + usize::from(to.0)].push_back(mail);
                    }
                    RequestOutput::Tell { link, asked } => {
                        self.asked.push((from, link.place(), asked.request));
                        self.askers.insert((from, asked.request), asked.payload);
                    }
                    RequestOutput::Answer { asker, outcome, .. } => {
                        if let Ok((_, payload)) = &outcome.result {
                            let text = std::str::from_utf8(payload.bytes()).expect("digits");
                            self.answers.push((asker, text.parse().expect("a number")));
                        }
                        let result = outcome.result.map(drop).map_err(|refusal| refusal.code);
                        self.outcomes.push((asker, result));
                    }
                    RequestOutput::Registered { .. } => self.registered += 1,
                    RequestOutput::AnswersEnd { .. } => {}
                }
            }
        }
    }

    pub fn deliver(&mut self, pair: usize) {
        if let Some(mail) = self.mail[pair].pop_front() {
            let (from, to) = (pair / usize::from(SHARDS), pair % usize::from(SHARDS));
            self.shards[to].handle_mail(ShardIndex(from as u16), mail, self.now);
            self.run();
        }
    }

    pub fn deliver_all(&mut self) {
        while let Some(pair) = self.mail.iter().position(|mail| !mail.is_empty()) {
            self.deliver(pair);
        }
    }

    pub fn register(&mut self, shard: usize, link: u32, concurrency: usize) {
        let capacity = Capacity { concurrency, payload_bytes_max: None };
        let registration = Registration {
            connection: ShardConnection { shard: ShardIndex(shard as u16), id: id(link) },
            selector: Selector::parse("t/#", &Limits::default()).expect("valid"),
            session: format!("s{link}").as_str().into(),
            principal: "p".into(),
            client: None,
        };
        self.shards[shard].register(vec![registration], capacity, self.now).expect("within limits");
        self.run();
    }

    pub fn ask_for(&mut self, shard: usize, asker: u32, key: Option<u32>, timeout: Duration) {
        let request = Request {
            topic: TopicName::parse("t/1", &Limits::default()).expect("valid"),
            payload: Arc::new(Payload::new(PayloadKind::Json, asker.to_string().as_bytes())),
            timeout,
            to: Recipients::default(),
            key: key.map(|key| format!("k{key}").into()),
        };
        let from = ("s".into(), "p".into());
        self.shards[shard].ask(asker, request, from, None, self.now);
        self.run();
    }

    pub fn answer(&mut self, at: usize) {
        let (shard, link, request) = self.asked.remove(at);
        // The answer is the question, so that each is told from all others.
        let result = Ok(Arc::clone(&self.askers[&(shard, request)]));
        let respond = Respond { request, result };
        // It may be too late.
        let _ = self.shards[shard].respond(id(link), respond, "s".into(), self.now);
        self.run();
    }
}

/// What happens next.
enum Step {
    Register(usize, u32),
    Gone(usize, u32),
    Ask(usize, Option<u32>, u64),
    Answer(usize),
    Deliver(usize),
    Wait(u64),
}

impl Step {
    /// What four bytes stand for.
    fn of([kind, shard, which, time]: [u8; 4]) -> Self {
        const TIMEOUT_MS: u64 = 100;
        let (shard, time) = (usize::from(shard) % usize::from(SHARDS), u64::from(time));
        let link = 1 + u32::from(which) % 5;
        match kind % 23 {
            0 | 1 => Self::Register(shard, link),
            2 => Self::Gone(shard, link),
            3..=7 => {
                let key = u32::from(which) % 6;
                let timeout_ms = if time < 128 { TIMEOUT_MS } else { time % 30 + 1 };
                Self::Ask(shard, (key < 3).then_some(key), timeout_ms)
            }
            8..=11 => Self::Answer(usize::from(which)),
            12..=21 => Self::Deliver(usize::from(which) % usize::from(SHARDS * SHARDS)),
            _ => Self::Wait(1 + time % 80),
        }
    }
}

/// Whatever happens to handlers, mail and time: each request has exactly one outcome, at its deadline at
/// the latest, its own, and nothing stays behind.
///
/// # Panics
/// With what does not hold.
pub fn check_requests(steps: &[[u8; 4]]) {
    let mut node = Node::new();
    // What key each asked with.
    let mut keys: Vec<Option<u32>> = Vec::new();
    for step in steps {
        match Step::of(*step) {
            Step::Register(shard, link) => node.register(shard, link, 2),
            Step::Gone(shard, link) => {
                let now = node.now;
                node.shards[shard].unregister(id(link), None, now);
                node.shards[shard].handle_gone(id(link), now);
                node.run();
            }
            Step::Ask(shard, key, timeout_ms) => {
                let asker = keys.len() as u32;
                node.ask_for(shard, asker, key, Duration::from_millis(timeout_ms));
                keys.push(key);
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
    assert_eq!(answered, (0..keys.len() as u32).collect::<Vec<_>>());
    for (asker, whose) in node.answers {
        let (key, other) = (keys[asker as usize], keys[whose as usize]);
        let is_its = asker == whose || key.is_some() && key == other;
        assert!(is_its, "{asker} ({key:?}) is told the answer to {whose} ({other:?})");
    }
    for shard in &node.shards {
        assert_eq!((shard.open.len(), shard.pending.len(), shard.dues.len()), (0, 0, 0));
    }
}
