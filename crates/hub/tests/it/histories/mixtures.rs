//! Any mixture of conflation, intervals, throttling, filters, deltas, priorities and pieces: in the end a
//! client has what the server has, and nothing is left out that no option lets be left out.

use std::num::NonZeroU32;
use std::time::Duration;

use model::{
    AckLevel, Conflation, DeltaKind, HashMap, HashSet, Lagged, Limits, PolicyRule, Rates, Selector,
    Start, SubscribeOptions, TopicPolicy,
};
use tidegate_hub::EncodingIndex;

use super::choices::Choices;
use super::names_of_first_shard;
use crate::node::{BATCHED, FIRST_EPOCH, FRAGMENTED, Gaps, Node, Numbering};

/// The fourth selects the first two topics.
const TOPICS: [&str; 3] = ["a", "a/b", "b"];
const SELECTORS: [&str; 4] = ["a", "a/b", "b", "a/#"];
const ALONE: usize = 2;
const PATTERN: usize = 3;
const ENDINGS: [&str; 2] = ["0", "1"];
/// What readers speak: some share audiences, so that members come first and last.
const ENCODINGS: [EncodingIndex; 6] =
    [EncodingIndex(0), BATCHED, FRAGMENTED, EncodingIndex(3), EncodingIndex(0), EncodingIndex(0)];

#[derive(Clone, Debug)]
pub enum Step {
    Subscribe {
        reader: usize,
        selector: usize,
        options: usize,
    },
    Unsubscribe {
        reader: usize,
        selector: usize,
    },
    Throttle {
        reader: usize,
        rates: Rates,
    },
    Publish {
        topic: usize,
        entity: u8,
        bytes: usize,
        ending: usize,
    },
    Turn {
        shard: usize,
        budget: usize,
    },
    Room {
        reader: usize,
        bytes: usize,
    },
    Pass {
        ms: u64,
    },
    Pages {
        shard: usize,
    },
    /// The store begins another epoch.
    Epoch,
}

#[derive(Clone, Debug)]
pub struct Mixture {
    shards: usize,
    policy: TopicPolicy,
    options: Vec<SubscribeOptions>,
    recent_deliveries_max: usize,
    /// All readers speak the same.
    is_alike: bool,
    /// All readers are far from the topics' home, and read the third topic from the start.
    is_far: bool,
    steps: Vec<Step>,
}

fn conflation(choices: &mut Choices) -> Conflation {
    use Conflation::{Always, Lagging, Off, Unsubscribe};
    *choices.one_of(&[Off, Lagging, Always, Unsubscribe])
}

fn interval(choices: &mut Choices) -> Duration {
    let ms = u64::from(choices.byte());
    Duration::from_millis(if choices.is(85) { ms } else { 0 })
}

fn policy(word: u64) -> TopicPolicy {
    let choices = &mut Choices::of(word);
    TopicPolicy {
        conflation: choices.is(128).then(|| conflation(choices)),
        interval: interval(choices),
        conflation_key: choices.is(128).then(|| "/x".into()),
        lagged: *choices.one_of(&[Lagged::Gap, Lagged::Snapshot]),
        history_count: *choices.one_of(&[1, 3, 10_000]),
        memory_count: 2,
        ack: *choices.one_of(&[AckLevel::Memory, AckLevel::Memory, AckLevel::Disk]),
        ..TopicPolicy::default()
    }
}

fn options(word: u64) -> SubscribeOptions {
    let choices = &mut Choices::of(word);
    SubscribeOptions {
        conflation: conflation(choices),
        interval: interval(choices),
        priority: choices.below(5) as i8 - 2,
        delta: *choices.one_of(&[DeltaKind::None, DeltaKind::Vcdiff]),
        filter: choices.one_of(&[None, None, Some("1")]).map(Into::into),
        ..SubscribeOptions::default()
    }
}

fn rates(choices: &mut Choices) -> Rates {
    let kind = choices.below(4);
    let (bytes, messages) = (20 + 8 * u32::from(choices.byte()), 1 + choices.below(99) as u32);
    Rates {
        bytes: (kind & 1 == 1).then_some(bytes).and_then(NonZeroU32::new),
        messages: (kind & 2 == 2).then_some(messages).and_then(NonZeroU32::new),
    }
}

fn step(word: u64, weights: &[u8; 9]) -> Step {
    let choices = &mut Choices::of(word);
    let kind = choices.weighted(weights);
    let reader = choices.below(ENCODINGS.len());
    match kind {
        0 => {
            let (selector, options) = (choices.below(SELECTORS.len()), choices.below(3));
            Step::Subscribe { reader, selector, options }
        }
        1 => Step::Unsubscribe { reader, selector: choices.below(SELECTORS.len()) },
        2 => Step::Throttle { reader, rates: rates(choices) },
        3 => {
            let (topic, entity) = (choices.below(TOPICS.len()), choices.below(3) as u8);
            let (bytes, ending) = (choices.below(50), choices.below(2));
            Step::Publish { topic, entity, bytes, ending }
        }
        4 => Step::Turn { shard: choices.below(2), budget: 1 + choices.below(5) },
        5 => Step::Room { reader, bytes: choices.below(200) },
        6 => Step::Pass { ms: u64::from(choices.byte()) + u64::from(choices.byte()) / 2 },
        7 => Step::Pages { shard: choices.below(2) },
        _ => Step::Epoch,
    }
}

/// Every kind of mixture, by number.
#[allow(dead_code)]
pub const KINDS: [fn(&[u64]) -> Mixture; 4] = [mixture, alike, alike_and_far, alike_and_renewed];

/// What `words` stand for: the node, then three options, then a step each.
pub fn mixture(words: &[u64]) -> Mixture {
    const WEIGHTS: [u8; 9] = [4, 1, 1, 14, 10, 6, 6, 2, 0];
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let choices = &mut Choices::of(word(0));
    Mixture {
        shards: 1 + choices.below(2),
        recent_deliveries_max: *choices.one_of(&[4, 1_000]),
        policy: policy(word(1)),
        options: (2..5).map(|at| options(word(at))).collect(),
        is_alike: false,
        is_far: false,
        steps: words.iter().skip(5).map(|word| step(*word, &WEIGHTS)).collect(),
    }
}

/// Readers that ask for the same and share their audiences, with deltas, a ring of four and little time in a turn.
pub fn alike(words: &[u64]) -> Mixture {
    alike_with(words, &[5, 1, 0, 14, 14, 0, 1, 0, 0])
}

fn alike_with(words: &[u64], weights: &[u8; 9]) -> Mixture {
    let options = SubscribeOptions { delta: DeltaKind::Vcdiff, ..Default::default() };
    let history_count = policy(words.first().copied().unwrap_or(0)).history_count;
    let mut steps: Vec<Step> = words.iter().skip(1).map(|word| step(*word, weights)).collect();
    for step in &mut steps {
        match step {
            Step::Turn { budget, .. } => *budget = 1,
            Step::Publish { entity, .. } => *entity = 0,
            _ => {}
        }
    }
    Mixture {
        shards: 1,
        policy: TopicPolicy {
            history_count,
            conflation: Some(Conflation::Off),
            ..TopicPolicy::default()
        },
        options: vec![options; 3],
        recent_deliveries_max: 4,
        is_alike: true,
        is_far: false,
        steps,
    }
}

/// The same with topics on disk, whose store begins another epoch: what is told then is no difference to what was told before.
pub fn alike_and_renewed(words: &[u64]) -> Mixture {
    let mut mixture = alike_with(words, &[5, 1, 0, 14, 14, 0, 1, 2, 1]);
    (mixture.policy.ack, mixture.policy.memory_count) = (AckLevel::Disk, 2);
    mixture.policy.history_count = 10_000;
    mixture
}

/// The same far from the topics' home: topics are forgotten and others come into their slots while batches are
/// under way.
pub fn alike_and_far(words: &[u64]) -> Mixture {
    let mut mixture =
        Mixture { shards: 2, is_far: true, ..alike_with(words, &[2, 0, 0, 14, 16, 0, 0, 0, 0]) };
    mixture.recent_deliveries_max = 1_000;
    mixture.policy.history_count = 10_000;
    for step in &mut mixture.steps {
        if let Step::Subscribe { reader, selector, .. } | Step::Unsubscribe { reader, selector } =
            step
        {
            (*reader, *selector) = (0, *selector % ALONE);
        }
    }
    mixture
}

/// What a reader may expect of the selectors that it has.
#[derive(Clone, Debug, Default)]
struct Expecting {
    options: HashMap<usize, SubscribeOptions>,
    is_throttled: bool,
    /// Everything under which it ever read.
    ever: Vec<SubscribeOptions>,
}

impl Expecting {
    /// Overlapping selectors are read together, as the last one says.
    fn subscribe(&mut self, selector: usize, options: &SubscribeOptions) {
        self.ever.push(options.clone());
        self.options.insert(selector, options.clone());
        if selector != ALONE && self.options.contains_key(&PATTERN) {
            let others = self.options.iter_mut().filter(|(other, _)| **other != ALONE);
            others.for_each(|(_, known)| *known = options.clone());
        }
    }
}

/// The topics and selectors of a mixture, laid out like `TOPICS` and `SELECTORS`.
struct Names {
    topics: Vec<String>,
    selectors: Vec<String>,
}

fn names(mixture: &Mixture, node: &Node) -> Names {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    if !mixture.is_far {
        return Names { topics: owned(&TOPICS), selectors: owned(&SELECTORS) };
    }
    let topics: Vec<String> = names_of_first_shard(node, "a/", 2).take(3).collect();
    let selectors = topics.iter().cloned().chain(["a/#".to_owned()]).collect();
    Names { topics, selectors }
}

/// Runs a mixture with dense sequences, and with holes in them.
pub fn run(mixture: &Mixture) {
    Numbering::BOTH.into_iter().for_each(|it| run_numbered(mixture, it));
}

fn run_numbered(mixture: &Mixture, numbering: Numbering) {
    let limits = Limits {
        attached_per_turn: 1,
        recent_deliveries_max: mixture.recent_deliveries_max,
        batch_bytes_max: 100,
        fragment_bytes: 20,
        lag_told_ms: Duration::from_millis(500),
        lag_unsubscribe_ms: Duration::from_millis(300),
        ..Limits::default()
    };
    let everything = Selector::parse("#", &limits).expect("valid");
    let rules = vec![PolicyRule { selector: everything, policy: mixture.policy.clone() }];
    let mut node = Node::new(mixture.shards, limits, rules, 10_000).with_numbering(numbering);
    let names = names(mixture, &node);
    node.gaps = match mixture.policy.lagged {
        Lagged::Snapshot => Gaps::Snapshot,
        _ => Gaps::Exact,
    };
    node.page_len = 3;
    // Far from home a batch is to last for many turns.
    let count = if mixture.is_far { 24 } else { ENCODINGS.len() };
    let mut expecting = vec![Expecting::default(); count];
    for (reader, encoding) in ENCODINGS.into_iter().cycle().take(count).enumerate() {
        let (encoding, room) = match mixture.is_alike {
            true => (EncodingIndex(0), 100_000),
            false => (encoding, 400),
        };
        let shard = if mixture.is_far { 1 } else { reader % mixture.shards };
        node.open(shard, encoding, room);
        if mixture.is_far {
            subscribe(&mut node, mixture, &names, &mut expecting, reader, ALONE, 0);
        }
    }
    if mixture.is_far {
        node.settle();
    }
    for step in &mixture.steps {
        run_step(&mut node, mixture, &names, &mut expecting, step);
    }
    node.settle();
    for (reader, expecting) in expecting.iter().enumerate() {
        Check { node: &node, mixture, names: &names, reader, expecting }.run();
    }
}

fn subscribe(
    node: &mut Node,
    mixture: &Mixture,
    names: &Names,
    expecting: &mut [Expecting],
    reader: usize,
    selector: usize,
    options: usize,
) {
    let options = mixture.options[options].clone();
    let selectors = [names.selectors[selector].as_str()];
    node.subscribe_with(reader, &selectors, Start::Snapshot, options.clone());
    expecting[reader].subscribe(selector, &options);
}

fn run_step(
    node: &mut Node,
    mixture: &Mixture,
    names: &Names,
    expecting: &mut [Expecting],
    step: &Step,
) {
    match *step {
        Step::Subscribe { reader, selector, options } => {
            if mixture.is_far {
                // The other one, of the two that come and go.
                let other = ALONE - 1 - selector;
                node.unsubscribe(reader, &names.selectors[other]);
                expecting[reader].options.remove(&other);
            }
            subscribe(node, mixture, names, expecting, reader, selector, options);
        }
        Step::Unsubscribe { reader, selector } => {
            node.unsubscribe(reader, &names.selectors[selector]);
            expecting[reader].options.remove(&selector);
        }
        Step::Throttle { reader, rates } => {
            expecting[reader].is_throttled |= rates != Rates::default();
            node.throttle(reader, rates);
        }
        Step::Publish { topic, entity, bytes, ending } => {
            // A text that no other publication has.
            let (number, letters) = (node.published.len(), "x".repeat(bytes));
            let text = format!("k{entity}:{number}:{letters}{}", ENDINGS[ending]);
            node.publish(&names.topics[topic], &text);
        }
        Step::Turn { shard, budget } => {
            node.turn(shard % mixture.shards, budget);
        }
        Step::Room { reader, bytes } => node.give_room(reader, bytes),
        Step::Pages { shard } => node.answer_pages(shard % mixture.shards, 1),
        Step::Pass { ms } => node.pass(Duration::from_millis(ms)),
        Step::Epoch => node.begin_epoch(),
    }
}

/// The check of one reader's stream.
struct Check<'a> {
    node: &'a Node,
    mixture: &'a Mixture,
    names: &'a Names,
    reader: usize,
    expecting: &'a Expecting,
}

impl Check<'_> {
    /// Follows the stream as a client would.
    fn run(&self) {
        let &Self { node, mixture, reader, expecting, .. } = self;
        let lines = node.lines(reader);
        let (mut last, mut values) =
            (HashMap::<&str, u64>::default(), HashMap::<&str, u64>::default());
        let mut partial = HashMap::<(&str, u64), String>::default();
        let mut taken: Vec<&str> = Vec::new();
        let mut excused: HashSet<(&str, u64)> = HashSet::default();
        // The topics that it knows to be of the second epoch.
        let mut renewed: HashSet<&str> = HashSet::default();
        for (at, line) in lines.iter().enumerate() {
            let context = || format!("reader {reader}, line {at} `{line}` of {lines:#?}");
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let text_of = |topic: &str, sequence| {
                node.text(topic, sequence).unwrap_or_else(|| panic!("never told: {}", context()))
            };
            // The place of what is told, and of what it follows.
            let told = match words[..] {
                ["start", topic, _] => {
                    last.insert(topic, number(2));
                    None
                }
                ["gap", topic, _, reason] => {
                    // Nothing was ever forgotten that somebody was yet to be told. (A shard may lose what it is told
                    // of a topic that it does not know yet.)
                    let has_all = mixture.recent_deliveries_max > mixture.steps.len();
                    let has_all = has_all && mixture.shards == 1;
                    assert!(!has_all || reason != "lagged", "{}", context());
                    if reason == "epoch" {
                        values.remove(topic);
                    } else {
                        assert!(number(2) >= last[topic], "a gap backwards: {}", context());
                    }
                    last.insert(topic, number(2));
                    None
                }
                ["epoch", topic, _] => {
                    renewed.insert(topic);
                    None
                }
                ["publication", topic, _, _, text] => {
                    assert_eq!(text, text_of(topic, number(2)), "{}", context());
                    Some(topic)
                }
                ["delta", topic, _, _, rest] => {
                    let base = values.get(topic).copied();
                    assert_eq!(base, Some(number(3)), "a delta of what it has not: {}", context());
                    let base = text_of(topic, number(3));
                    let text = format!("{}{rest}", &base[..2]);
                    assert_eq!(text, text_of(topic, number(2)), "{}", context());
                    Some(topic)
                }
                ["fragment", topic, _, offset, _, piece] => {
                    let (sequence, total) = (number(2), number(4) as usize);
                    if offset == "0" {
                        partial.insert((topic, sequence), String::new());
                    }
                    let known = partial.get_mut(&(topic, sequence));
                    let known = known.unwrap_or_else(|| panic!("{}", context()));
                    assert_eq!(known.len().to_string(), offset, "{}", context());
                    known.push_str(piece);
                    if known.len() == total {
                        assert_eq!(known, text_of(topic, sequence), "{}", context());
                        partial.remove(&(topic, sequence));
                    }
                    // Its place is that of the first; the rest comes between other messages.
                    (offset == "0").then_some(topic)
                }
                ["taken", selectors] => {
                    excused.extend(partial.keys());
                    taken.extend(selectors.split(','));
                    let lags = |options: &SubscribeOptions| {
                        self.conflation(options) == Conflation::Unsubscribe
                    };
                    assert!(expecting.ever.iter().any(lags), "{}", context());
                    None
                }
                // What was under way may end with it.
                ["unsubscribed"] => {
                    excused.extend(partial.keys());
                    None
                }
                ["subscribed", _] | ["lag", _] => None,
                _ => panic!("unexpected: {}", context()),
            };
            let Some(topic) = told else { continue };
            let before = *last.get(topic).unwrap_or_else(|| panic!("unheard: {}", context()));
            let sequence = number(2);
            assert!(sequence > before, "{}", context());
            let is_renewed = node.epoch_of(topic, sequence) != FIRST_EPOCH;
            assert!(!is_renewed || renewed.contains(topic), "an untold epoch: {}", context());
            for (skipped, _) in node.published_in(topic, before + 1..sequence) {
                assert!(
                    self.may_be_left_out(topic, skipped),
                    "{skipped} is missing: {}",
                    context()
                );
            }
            last.insert(topic, sequence);
            if words[0] != "fragment" {
                values.insert(topic, sequence);
            }
        }
        partial.retain(|key, _| !excused.contains(key));
        assert!(partial.is_empty(), "reader {reader} lacks pieces: {partial:?} {lines:#?}");
        self.check_ends(&last, &taken, &lines);
    }

    fn conflation(&self, options: &SubscribeOptions) -> Conflation {
        self.mixture.policy.conflation().max(options.conflation)
    }

    /// Whether a publication need not be told: something under which it read did not accept it, or a newer one
    /// replaces it.
    fn may_be_left_out(&self, topic: &str, sequence: u64) -> bool {
        let policy = &self.mixture.policy;
        let text = self.node.text(topic, sequence).expect("published");
        let by_throttle = self.expecting.is_throttled && policy.conflation.is_none();
        let accepts = |options: &SubscribeOptions, text: &str| {
            options.filter.as_deref().is_none_or(|filter| text.ends_with(filter))
        };
        let replaces = |options: &SubscribeOptions, newer: &str| {
            let is_about_it = policy.conflation_key.is_none() || newer[..2] == text[..2];
            is_about_it && accepts(options, newer)
        };
        self.expecting.ever.iter().any(|options| {
            let skips = self.conflation(options) != Conflation::Off || by_throttle;
            let mut newer = self.node.published_in(topic, sequence + 1..);
            !accepts(options, text) || skips && newer.any(|(_, newer)| replaces(options, newer))
        })
    }

    /// It ends with the newest that it wants of each topic that it reads.
    fn check_ends(&self, last: &HashMap<&str, u64>, taken: &[&str], lines: &[String]) {
        let Self { node, expecting, reader, .. } = self;
        for topic in &self.names.topics {
            let is_reading = self.names.selectors.iter().enumerate().any(|(index, text)| {
                expecting.options.contains_key(&index)
                    && node.selector(text).matches(topic)
                    && !taken.contains(&text.as_str())
            });
            // What another filter accepted before may have replaced what this one accepts.
            let mut filters = expecting.ever.iter().map(|options| options.filter.as_deref());
            let Some(filter) = filters.next().filter(|_| is_reading) else { continue };
            if filters.any(|other| other != filter) {
                continue;
            }
            let filter = filter.unwrap_or("");
            let newest = node
                .published
                .iter()
                .rfind(|(name, _, text)| name.as_str() == topic.as_str() && text.ends_with(filter));
            if let Some((_, newest, _)) = newest {
                let last = last.get(topic.as_str()).copied().unwrap_or(0);
                assert!(
                    last >= newest.get(),
                    "reader {reader} of {topic} ends at {last}, not {newest}: {lines:#?}"
                );
            }
        }
    }
}
