//! Any mixture of conflation, intervals, throttling, filters, deltas, priorities and pieces: in the end a
//! client has what the server has, and where nothing may be skipped nothing is.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::time::Duration;

use model::{
    Conflation, DeltaKind, Lagged, Limits, PolicyRule, Rates, Selector, Start, SubscribeOptions,
    TopicPolicy,
};
use proptest::prelude::*;
use tidegate_hub::EncodingIndex;

use crate::node::{BATCHED, FRAGMENTED, Node};

const TOPICS: [&str; 3] = ["a", "a/b", "b"];
const SELECTORS: [&str; 4] = ["a", "a/b", "b", "a/#"];
const ENDINGS: [&str; 2] = ["0", "1"];

#[derive(Clone, Debug)]
enum Step {
    Subscribe { reader: usize, selector: usize, options: usize },
    Unsubscribe { reader: usize, selector: usize },
    Throttle { reader: usize, rates: Rates },
    Publish { topic: usize, entity: u8, bytes: usize, ending: usize },
    Turn { shard: usize, budget: usize },
    Room { reader: usize, bytes: usize },
    Pass { ms: u64 },
}

#[derive(Clone, Debug)]
struct Mixture {
    shards: usize,
    policy: TopicPolicy,
    options: Vec<SubscribeOptions>,
    recent_deliveries_max: usize,
    steps: Vec<Step>,
}

fn conflation() -> impl Strategy<Value = Conflation> {
    use Conflation::{Always, Lagging, Off, Unsubscribe};
    prop_oneof![Just(Off), Just(Lagging), Just(Always), Just(Unsubscribe)]
}

fn interval() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), Just(0), 1..200u64].prop_map(Duration::from_millis)
}

fn policy() -> impl Strategy<Value = TopicPolicy> {
    let lagged = prop_oneof![Just(Lagged::Gap), Just(Lagged::Snapshot)];
    let history = prop_oneof![Just(1usize), Just(3), Just(10_000)];
    (prop::option::of(conflation()), interval(), any::<bool>(), lagged, history).prop_map(
        |(conflation, interval, is_keyed, lagged, history_count)| TopicPolicy {
            conflation,
            interval,
            conflation_key: is_keyed.then(|| "/x".into()),
            lagged,
            history_count,
            ..TopicPolicy::default()
        },
    )
}

fn options() -> impl Strategy<Value = SubscribeOptions> {
    let delta = prop_oneof![Just(DeltaKind::None), Just(DeltaKind::Vcdiff)];
    let filter = prop_oneof![Just(None), Just(None), Just(Some("1"))];
    (conflation(), interval(), -2..3i8, delta, filter).prop_map(
        |(conflation, interval, priority, delta, filter)| SubscribeOptions {
            conflation,
            interval,
            priority,
            delta,
            filter: filter.map(Into::into),
        },
    )
}

fn rates() -> impl Strategy<Value = Rates> {
    let bytes = prop::option::of(20..2_000u32);
    let messages = prop::option::of(1..100u32);
    (bytes, messages).prop_map(|(bytes, messages)| Rates {
        bytes: bytes.and_then(NonZeroU32::new),
        messages: messages.and_then(NonZeroU32::new),
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4usize, 0..SELECTORS.len(), 0..3usize)
            .prop_map(|(reader, selector, options)| Step::Subscribe { reader, selector, options }),
        1 => (0..4usize, 0..SELECTORS.len())
            .prop_map(|(reader, selector)| Step::Unsubscribe { reader, selector }),
        1 => (0..4usize, rates()).prop_map(|(reader, rates)| Step::Throttle { reader, rates }),
        14 => (0..TOPICS.len(), 0..3u8, 0..50usize, 0..2usize).prop_map(
            |(topic, entity, bytes, ending)| Step::Publish { topic, entity, bytes, ending }
        ),
        10 => (0..2usize, 1..6usize).prop_map(|(shard, budget)| Step::Turn { shard, budget }),
        6 => (0..4usize, 0..200usize).prop_map(|(reader, bytes)| Step::Room { reader, bytes }),
        6 => (0..400u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

fn mixture() -> impl Strategy<Value = Mixture> {
    let options = prop::collection::vec(options(), 3);
    let steps = prop::collection::vec(step(), 1..100);
    (1..3usize, policy(), options, prop_oneof![Just(4usize), Just(1_000)], steps).prop_map(
        |(shards, policy, options, recent_deliveries_max, steps)| Mixture {
            shards,
            policy,
            options,
            recent_deliveries_max,
            steps,
        },
    )
}

/// What a reader may expect of the selectors that it has.
#[derive(Clone, Debug, Default)]
struct Expecting {
    options: HashMap<usize, SubscribeOptions>,
    is_throttled: bool,
    /// Everything under which it ever read.
    ever: Vec<SubscribeOptions>,
}

fn run(mixture: &Mixture) {
    let limits = Limits {
        recent_deliveries_max: mixture.recent_deliveries_max,
        batch_bytes_max: 100,
        fragment_bytes: 20,
        lag_told_ms: Duration::from_millis(500),
        lag_unsubscribe_ms: Duration::from_millis(300),
        ..Limits::default()
    };
    let everything = Selector::parse("#", &limits).expect("valid");
    let rules = vec![PolicyRule { selector: everything, policy: mixture.policy.clone() }];
    let mut node = Node::new(mixture.shards, limits, rules, 10_000);
    let mut expecting = vec![Expecting::default(); 4];
    for reader in 0..4 {
        let encoding = EncodingIndex([0, BATCHED.0, FRAGMENTED.0, 3][reader]);
        node.open(reader % mixture.shards, encoding, 400);
    }
    for step in &mixture.steps {
        match *step {
            Step::Subscribe { reader, selector, options } => {
                // Overlapping selectors are read together, as the last one says.
                let options = mixture.options[options].clone();
                node.subscribe_with(
                    reader,
                    &[SELECTORS[selector]],
                    Start::Snapshot,
                    options.clone(),
                );
                let known = &mut expecting[reader];
                known.ever.push(options.clone());
                known.options.insert(selector, options.clone());
                if selector != 2 {
                    let others: Vec<usize> =
                        known.options.keys().copied().filter(|other| *other != 2).collect();
                    let pattern_is_in = known.options.contains_key(&3);
                    for other in
                        others.into_iter().filter(|other| pattern_is_in || *other == selector)
                    {
                        known.options.insert(other, options.clone());
                    }
                }
            }
            Step::Unsubscribe { reader, selector } => {
                node.unsubscribe(reader, SELECTORS[selector]);
                expecting[reader].options.remove(&selector);
            }
            Step::Throttle { reader, rates } => {
                expecting[reader].is_throttled |= rates != Rates::default();
                node.throttle(reader, rates);
            }
            Step::Publish { topic, entity, bytes, ending } => {
                let text = format!("k{entity}{}{}", "x".repeat(bytes), ENDINGS[ending]);
                node.publish(TOPICS[topic], &text);
            }
            Step::Turn { shard, budget } => {
                node.turn(shard % mixture.shards, budget);
            }
            Step::Room { reader, bytes } => node.give_room(reader, bytes),
            Step::Pass { ms } => node.pass(Duration::from_millis(ms)),
        }
    }
    node.settle();
    for (reader, expecting) in expecting.iter().enumerate() {
        check_reader(&node, mixture, reader, expecting);
    }
}

/// Follows one reader's stream as a client would.
fn check_reader(node: &Node, mixture: &Mixture, reader: usize, expecting: &Expecting) {
    let lines = node.lines(reader);
    let (mut last, mut values) =
        (HashMap::<String, u64>::new(), HashMap::<String, (u64, String)>::new());
    let mut partial = HashMap::<String, (u64, String)>::new();
    let mut has_gap = HashMap::<String, bool>::new();
    let mut taken: Vec<&str> = Vec::new();
    let mut excused: HashSet<String> = HashSet::new();
    let policy = mixture.policy.conflation();
    let skips = |options: &SubscribeOptions| {
        policy.max(options.conflation) != Conflation::Off || options.filter.is_some()
    };
    let may_skip = expecting.ever.iter().any(skips)
        || expecting.is_throttled && mixture.policy.conflation.is_none();
    let text_of = |topic: &str, sequence: u64| {
        let mut published = node.published.iter();
        let found = published.find(|(name, at, _)| name.as_str() == topic && at.get() == sequence);
        found.map(|(.., text)| text.clone()).expect("only what was published is told")
    };
    for (at, line) in lines.iter().enumerate() {
        let context = || format!("reader {reader}, line {at} `{line}` of {lines:#?}");
        let words: Vec<&str> = line.split(' ').collect();
        let mut told: Option<(&str, u64, String)> = None;
        match words[..] {
            ["start", topic, start] => {
                let start: u64 = start.parse().expect("a number");
                if last.get(topic).is_some_and(|last| start > *last) {
                    has_gap.insert(topic.to_owned(), true);
                }
                last.insert(topic.to_owned(), start);
            }
            ["gap", topic, to] => {
                let to: u64 = to.parse().expect("a number");
                assert!(to >= last[topic], "a gap backwards: {}", context());
                has_gap.insert(topic.to_owned(), true);
                last.insert(topic.to_owned(), to);
            }
            ["publication", topic, sequence, _, text] => {
                told = Some((topic, sequence.parse().expect("a number"), text.to_owned()));
            }
            ["delta", topic, sequence, base, rest] => {
                let (at, value) = values.get(topic).unwrap_or_else(|| panic!("{}", context()));
                assert_eq!(base, at.to_string(), "a delta of what it has not: {}", context());
                let text = format!("{}{rest}", &value[..2]);
                told = Some((topic, sequence.parse().expect("a number"), text));
            }
            ["fragment", topic, sequence, offset, total, piece] => {
                let sequence: u64 = sequence.parse().expect("a number");
                if offset == "0" {
                    // Its place is here; the rest comes between other messages.
                    let before = last.get(topic).copied().unwrap_or(0);
                    assert!(sequence > before || partial.contains_key(topic), "{}", context());
                    last.insert(topic.to_owned(), sequence.max(before));
                    partial.insert(format!("{topic} {sequence}"), (sequence, String::new()));
                }
                let key = format!("{topic} {sequence}");
                let known = partial.get_mut(&key).unwrap_or_else(|| panic!("{}", context()));
                assert_eq!(known.1.len().to_string(), offset, "{}", context());
                known.1.push_str(piece);
                if known.1.len().to_string() == total {
                    assert_eq!(known.1, text_of(topic, sequence), "{}", context());
                    partial.remove(&key);
                }
            }
            ["taken", selectors] => {
                excused.extend(partial.keys().cloned());
                taken.extend(selectors.split(','));
                let lags = |options: &SubscribeOptions| {
                    policy.max(options.conflation) == Conflation::Unsubscribe
                };
                assert!(expecting.ever.iter().any(lags), "{}", context());
            }
            // What was under way may end with it.
            ["unsubscribed"] => excused.extend(partial.keys().cloned()),
            ["subscribed"] | ["lag", _] => {}
            _ => panic!("unexpected: {}", context()),
        }
        if let Some((topic, sequence, text)) = told {
            let before = *last.get(topic).unwrap_or_else(|| panic!("unheard: {}", context()));
            assert!(sequence > before, "{}", context());
            assert!(may_skip || sequence == before + 1, "a hole: {}", context());
            assert_eq!(text, text_of(topic, sequence), "{}", context());
            last.insert(topic.to_owned(), sequence);
            values.insert(topic.to_owned(), (sequence, text));
        }
    }
    partial.retain(|key, _| !excused.contains(key));
    assert!(partial.is_empty(), "reader {reader} lacks pieces: {partial:?} {lines:#?}");
    for topic in TOPICS {
        let reading = SELECTORS.iter().enumerate().find(|(index, text)| {
            let selector = node.selector(text);
            expecting.options.contains_key(index)
                && selector.matches(topic)
                && !taken.contains(text)
        });
        // What another filter accepted before may have replaced what this one accepts.
        let mut filters = expecting.ever.iter().map(|options| options.filter.as_deref());
        let Some((_, filter)) = reading.zip(filters.next()) else { continue };
        if filters.any(|other| other != filter) {
            continue;
        }
        let filter = filter.unwrap_or("");
        let mut published = node.published.iter();
        let newest =
            published.rfind(|(name, _, text)| name.as_str() == topic && text.ends_with(filter));
        if let Some((_, newest, _)) = newest {
            let last = last.get(topic).copied().unwrap_or(0);
            assert!(
                last >= newest.get(),
                "reader {reader} of {topic} ends at {last}, not {newest}: {lines:#?}"
            );
        }
    }
}

/// 10,000 cases, or as many as PROPTEST_CASES says.
fn many_cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(10_000), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn any_mixture_ends_with_what_the_server_has(mixture in mixture()) {
        run(&mixture);
    }
}
