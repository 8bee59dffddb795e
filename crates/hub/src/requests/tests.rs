//! Requests by table, and at random ([`checks`]).

use std::cell::Cell;
use std::panic::catch_unwind;

#[cfg(debug_assertions)]
use model::planted;
use model::{
    Limits, Payload, PayloadKind, Recipients, Request, Respond, Selector, TopicName, Unanswered,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::checks::{Node, SHARDS, check_requests, id};
use super::*;

impl Node {
    fn ask(&mut self, shard: usize, asker: u32, key: Option<u32>) {
        self.ask_for(shard, asker, key, Duration::from_millis(100));
    }
}

/// Runs the same 500 histories each time; answers the first that fails, and how.
fn first_failure() -> Option<(u32, String)> {
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let (mut cases, mut failed_at) = (0, None);
    let (cases, failed_at) = (Cell::from_mut(&mut cases), Cell::from_mut(&mut failed_at));
    let run = runner.run(&prop::collection::vec(any::<[u8; 4]>(), 1..120), |steps| {
        cases.set(cases.get() + 1);
        let result = catch_unwind(|| check_requests(&steps));
        if result.is_err() && failed_at.get().is_none() {
            failed_at.set(Some(cases.get()));
        }
        result.map_err(|_| TestCaseError::fail("see above"))
    });
    failed_at.get().map(|at| (at, run.expect_err("it failed").to_string()))
}

#[test]
fn every_request_has_exactly_one_outcome_of_its_own() {
    assert_eq!(first_failure(), None);
}

#[cfg(debug_assertions)]
#[test]
fn an_answer_to_another_request_is_found() {
    let found = planted::with(Fault::TicketGivenTwice, first_failure);
    let (cases, _) = found.expect("planted, and not found");
    println!("TicketGivenTwice: {cases}");
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

#[test]
fn an_ended_handler_is_passed_over_by_who_does_not_know_yet() {
    let mut node = Node::new();
    node.register(0, 1, 9);
    node.deliver_all();
    node.shards[0].unregister(id(1), None, node.now);
    node.ask(2, 1, None);
    node.deliver(usize::from(SHARDS) * 2);
    node.deliver_all();
    assert_eq!((node.asked.len(), &node.outcomes[..]), (0, &[(1, Err(Code::NoHandler))][..]));

    node.register(0, 1, 9);
    node.register(1, 2, 9);
    node.deliver_all();
    node.shards[0].unregister(id(1), None, node.now);
    for asker in 2..4 {
        node.ask(2, asker, None);
        node.deliver(usize::from(SHARDS) * 2);
    }
    node.deliver_all();
    let links: Vec<u32> = node.asked.iter().map(|(_, link, _)| *link).collect();
    assert_eq!((links, node.outcomes.len()), (vec![2, 2], 1));
}

#[test]
fn a_request_that_is_not_handled_any_more_goes_to_another() {
    let mut node = Node::new();
    node.register(0, 1, 9);
    node.register(1, 2, 9);
    node.deliver_all();
    node.ask(2, 7, None);
    node.deliver_all();
    for _ in 0..2 {
        assert_eq!(node.outcomes, [], "it is passed on");
        let (shard, link, request) = node.asked.pop().expect("somebody has it");
        let respond = Respond { request, result: Err(Unanswered::NotHandled) };
        let answered = node.shards[shard].respond(id(link), respond, "s".into(), node.now);
        assert!(answered.is_ok());
        node.run();
        node.deliver_all();
    }
    assert_eq!(node.outcomes, [(7, Err(Code::NoHandler))]);
}

const EVIL: u32 = 1;
const VICTIM: u32 = 3;

/// A node where a request with a key is under way, and was repeated so often by somebody who waited for a
/// millisecond each time.
fn node_with_repetitions(count: usize) -> Node {
    let mut node = Node::new();
    node.register(0, 1, 10);
    node.deliver_all();
    node.ask_for(0, EVIL, Some(1), Duration::from_secs(300));
    node.deliver_all();
    for _ in 0..count {
        node.ask_for(0, 2, Some(1), Duration::from_millis(1));
        node.deliver_all();
        node.now += Duration::from_millis(2);
        node.run();
    }
    node.outcomes.clear();
    node
}

#[test]
fn a_repetition_is_forgotten_when_its_time_is_up() {
    let mut node = node_with_repetitions(100);
    let now = node.now;
    let count = |shard: &mut Requests<u32>| {
        shard.run_timers(now);
        shard.keys.waiting_count()
    };
    assert_eq!(node.shards.iter_mut().map(count).sum::<usize>(), 1, "the first one waits still");
}

#[test]
fn repetitions_are_bounded_like_requests() {
    let mut node = Node::with_limits(Limits { requests_open_max: 5, ..Limits::default() });
    node.register(0, 1, 10);
    node.deliver_all();
    for asker in 0..4 * 3 {
        node.ask_for(asker as usize % 3, asker, Some(1), Duration::from_secs(10));
        node.deliver_all();
    }
    assert!(node.shards.iter().all(|shard| shard.keys.waiting_count() <= 5));
    let refused = node.outcomes.iter().filter(|it| it.1 == Err(Code::TooManyRequests)).count();
    node.answer(0);
    node.deliver_all();
    let answered = node.outcomes.iter().filter(|it| it.1 == Ok(())).count();
    assert_eq!((refused, answered), (7, 5));
}

#[test]
fn each_handle_is_confirmed_once_every_shard_knows_of_it() {
    let mut node = Node::new();
    node.register(0, 1, 10);
    node.register(0, 1, 10);
    let pairs: Vec<usize> = (0..node.mail.len()).filter(|it| !node.mail[*it].is_empty()).collect();
    // Every shard but the last knows of both, and answers.
    for _ in 0..2 {
        node.deliver(pairs[0]);
    }
    node.deliver(usize::from(SHARDS));
    node.deliver(usize::from(SHARDS));
    assert_eq!(node.registered, 0, "the last shard knows of none");
    node.deliver_all();
    assert_eq!(node.registered, 2);
}

#[test]
fn an_answer_never_goes_to_another_request() {
    let mut node = node_with_repetitions(70_000);
    node.ask_for(0, VICTIM, None, Duration::from_secs(100));
    node.deliver_all();
    node.answer(0);
    node.deliver_all();
    assert_eq!(node.outcomes, [(EVIL, Ok(()))]);
    node.answer(0);
    node.deliver_all();
    assert_eq!(node.outcomes, [(EVIL, Ok(())), (VICTIM, Ok(()))]);
}

/// A shard with `count` sessions that handle everything and as many patterns that match `t/1`.
fn shard_with_handlers(count: usize) -> Requests<u32> {
    let limits = Limits::default();
    let mut shard = Requests::new(ShardIndex(0), 1, limits.clone());
    let capacity = Capacity { concurrency: 1, payload_bytes_max: None };
    for link in 0..count as u32 {
        let registration = |selector: &str| Registration {
            connection: ShardConnection { shard: ShardIndex(0), id: id(link) },
            selector: Selector::parse(selector, &limits).expect("valid"),
            session: format!("s{link}").as_str().into(),
            principal: "p".into(),
            client: None,
        };
        let registrations = ["#", "t/#", "t/+", "t/1"].map(registration).to_vec();
        shard.register(registrations, capacity, Duration::ZERO).expect("within limits");
    }
    while shard.poll().is_some() {}
    shard
}

fn request_to(to: Recipients) -> Request {
    Request {
        topic: TopicName::parse("t/1", &Limits::default()).expect("valid"),
        payload: Arc::new(Payload::new(PayloadKind::Json, b"1")),
        timeout: Duration::from_millis(100),
        to,
        key: None,
    }
}

/// Steps that a request takes at once, and how many connections were asked in the end.
fn steps_of_request(shard: &mut Requests<u32>, to: Recipients) -> (u64, usize) {
    let before = shard.work();
    shard.ask(7, request_to(to), ("s".into(), "p".into()), None, Duration::ZERO);
    let steps = shard.work() - before;
    let mut asked = 0;
    loop {
        let before = shard.work();
        shard.run_timers(Duration::ZERO);
        assert!(shard.work() - before <= 512, "in one turn");
        while let Some(output) = shard.poll() {
            asked += usize::from(matches!(output, RequestOutput::Tell { .. }));
        }
        if shard.due_at() != Some(Duration::ZERO) {
            return (steps, asked);
        }
    }
}

#[test]
fn what_a_request_costs_does_not_grow_with_those_who_handle_it() {
    for count in [1_000, 2_000] {
        let mut shard = shard_with_handlers(count);
        let (steps, asked) = steps_of_request(&mut shard, Recipients::default());
        assert!(steps <= 16 && asked == 1, "{steps} steps, {asked} asked");
        let last = Recipients { session: Some("s999".into()), ..Recipients::default() };
        let (steps, asked) = steps_of_request(&mut shard, last);
        assert!(steps <= 512 && asked == 1, "{steps} steps, {asked} asked");
        let nobody = Recipients { session: Some("x".into()), ..Recipients::default() };
        let (steps, asked) = steps_of_request(&mut shard, nobody);
        assert!(steps <= 512 && asked == 0, "{steps} steps, {asked} asked");
    }
    let mut shard = shard_with_handlers(1_000);
    let all = Recipients { all: true, ..Recipients::default() };
    let (steps, asked) = steps_of_request(&mut shard, all);
    assert!(steps <= 512 && asked == 1_000, "{steps} steps, {asked} asked");
}

#[test]
fn requests_that_search_are_bounded_and_the_others_are_not_kept_waiting() {
    let mut shard = shard_with_handlers(1_000);
    let searches_max = Limits::default().request_searches_max;
    let nobody = || request_to(Recipients { session: Some("x".into()), ..Recipients::default() });
    for asker in 0..searches_max as u32 + 5 {
        shard.ask(asker, nobody(), ("s".into(), "p".into()), None, Duration::ZERO);
    }
    let mut refused = 0;
    while let Some(output) = shard.poll() {
        refused += usize::from(matches!(output, RequestOutput::Answer { .. }));
    }
    assert_eq!(refused, 5);
    shard.ask(
        999,
        request_to(Recipients::default()),
        ("s".into(), "p".into()),
        None,
        Duration::ZERO,
    );
    assert!(matches!(shard.poll(), Some(RequestOutput::Tell { .. })));
}
