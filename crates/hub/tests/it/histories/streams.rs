//! Every session sees what a private queue per session would have given it.

use model::{
    AckLevel, Conflation, HashMap, Limits, PolicyRule, Selector, Sequence, Start, SubscribeOptions,
    TopicPolicy,
};

use super::choices::Choices;
use super::names_of_first_shard;
use crate::node::{BATCHED, FIRST_EPOCH, Node, Numbering, SINGLE};

/// What happens next. Readers are named by a number, modulo how many there are.
#[derive(Clone, Debug)]
pub enum Step {
    Open {
        shard: usize,
        is_batched: bool,
    },
    Close {
        reader: usize,
    },
    Subscribe {
        reader: usize,
        selectors: Vec<usize>,
        start: Start,
        priority: i8,
    },
    /// Ends one of its subscriptions.
    Unsubscribe {
        reader: usize,
        which: usize,
    },
    Publish {
        topic: usize,
        bytes: usize,
    },
    /// Many publications to one topic.
    Burst {
        topic: usize,
        count: usize,
    },
    Turn {
        shard: usize,
        budget: usize,
    },
    Room {
        reader: usize,
        bytes: usize,
    },
    /// Two turns of every shard.
    Turns,
    /// The connection takes nothing until it has room again.
    Stop {
        reader: usize,
    },
    /// Unsubscribes and subscribes in one go.
    Change {
        reader: usize,
        which: usize,
        to: usize,
        start: Start,
    },
    /// Opens another session that resumes from where this one stands, or beyond that.
    ComeBack {
        reader: usize,
        shard: usize,
        beyond: u64,
    },
    Pages {
        shard: usize,
        count: usize,
    },
    Tick,
    /// The store begins another epoch.
    Epoch,
    /// Nobody reads the last selector, which is a name, while another topic comes, perhaps in its place; then one reads it again.
    Replace {
        topic: usize,
        count: usize,
    },
}

/// How often each kind of step comes.
#[derive(Clone, Copy)]
pub struct Weights {
    pub open: u8,
    pub close: u8,
    pub subscribe: u8,
    pub unsubscribe: u8,
    pub publish: u8,
    pub burst: u8,
    pub turn: u8,
    pub room: u8,
    pub change: u8,
    pub come_back: u8,
    pub pages: u8,
    pub tick: u8,
    pub turns: u8,
    pub stop: u8,
    pub epoch: u8,
    pub replace: u8,
}

const USUAL: Weights = Weights {
    open: 1,
    close: 1,
    subscribe: 4,
    unsubscribe: 1,
    publish: 12,
    burst: 0,
    turn: 10,
    room: 6,
    change: 1,
    come_back: 1,
    pages: 2,
    tick: 1,
    turns: 0,
    stop: 0,
    epoch: 0,
    replace: 0,
};

/// A node, its readers at the start, and what may happen to them.
#[derive(Clone)]
pub struct Setting {
    pub shards: usize,
    pub limits: Limits,
    pub policy: TopicPolicy,
    /// How much mail a shard's mailbox holds.
    pub mail: usize,
    pub may_have_gaps: bool,
    /// How much is there of each topic before the first step.
    pub published_before: usize,
    /// Topics that end with a number are at home on the first shard.
    topics: Vec<String>,
    selectors: Vec<String>,
    /// Which selectors are subscribed together; any if there are none.
    sets: Vec<Vec<usize>>,
    /// The sets that each reader begins with.
    begin: Vec<Vec<usize>>,
    /// The shard of all readers, if it is the same.
    shard: Option<usize>,
    /// The most that a connection is given room for in a step.
    room: usize,
    budget_max: usize,
    burst_max: usize,
    weights: Weights,
}

impl Setting {
    fn shard(&self, choices: &mut Choices) -> usize {
        let any = choices.below(self.shards);
        self.shard.unwrap_or(any)
    }

    fn step(&self, word: u64) -> Step {
        const STARTS: [Start; 5] =
            [Start::Snapshot, Start::Snapshot, Start::Now, Start::All, Start::Last(3)];
        let choices = &mut Choices::of(word);
        let Weights { open, close, subscribe, unsubscribe, publish, burst, turn, room, .. } =
            self.weights;
        let Weights { change, come_back, pages, tick, turns, stop, epoch, replace, .. } =
            self.weights;
        let (topics, selectors) = (self.topics.len(), self.selectors.len());
        let weights = [
            publish,
            turn,
            room,
            subscribe,
            pages,
            change,
            come_back,
            tick,
            open,
            close,
            unsubscribe,
            burst,
            turns,
            stop,
            epoch,
            replace,
        ];
        match choices.weighted(&weights) {
            0 => Step::Publish { topic: choices.below(topics), bytes: choices.below(60) },
            1 => Step::Turn {
                shard: choices.below(self.shards),
                budget: 1 + choices.below(self.budget_max),
            },
            2 => Step::Room {
                reader: choices.below(8),
                bytes: usize::from(choices.byte()) * self.room / 256,
            },
            3 => {
                let (reader, start) = (choices.below(8), choices.one_of(&STARTS).clone());
                let priority = choices.below(2) as i8;
                let count = 1 + choices.below(3);
                let selectors = match self.sets.is_empty() {
                    true => (0..count).map(|_| choices.below(selectors)).collect(),
                    false => choices.one_of(&self.sets).clone(),
                };
                Step::Subscribe { reader, selectors, start, priority }
            }
            4 => Step::Pages { shard: choices.below(self.shards), count: 1 + choices.below(2) },
            5 => {
                let (reader, which) = (choices.below(8), choices.below(8));
                let (to, start) = (choices.below(selectors), choices.one_of(&STARTS[2..4]).clone());
                Step::Change { reader, which, to, start }
            }
            6 => {
                let (reader, shard) = (choices.below(8), self.shard(choices));
                let beyond = if choices.is(50) { 1 + choices.below(49) as u64 } else { 0 };
                Step::ComeBack { reader, shard, beyond }
            }
            7 => Step::Tick,
            8 => Step::Open { shard: self.shard(choices), is_batched: choices.is(128) },
            9 => Step::Close { reader: choices.below(8) },
            10 => Step::Unsubscribe { reader: choices.below(8), which: choices.below(8) },
            11 => Step::Burst {
                topic: choices.below(topics),
                count: 1 + choices.below(self.burst_max),
            },
            12 => Step::Turns,
            13 => Step::Stop { reader: choices.below(8) },
            14 => Step::Epoch,
            _ => Step::Replace { topic: choices.below(topics), count: 1 + choices.below(3) },
        }
    }

    /// Puts names at home on the first shard in the place of those that end with a number.
    fn with_names(&mut self, node: &Node) {
        let (mut known, shards) = (HashMap::default(), self.shards);
        for name in self.topics.iter_mut().chain(&mut self.selectors) {
            let prefix = name.trim_end_matches(|it: char| it.is_ascii_digit());
            let Ok(number) = name[prefix.len()..].parse::<usize>() else { continue };
            let names = known.entry(prefix.to_owned()).or_insert_with_key(|prefix| {
                names_of_first_shard(node, prefix, shards).collect::<Vec<_>>()
            });
            *name = names[number].clone();
        }
    }
}

/// Runs the steps that `words` stand for, with dense sequences and with holes in them, then checks every reader's stream and that it ends
/// at every topic's head.
pub fn run(setting: Setting, words: &[u64]) {
    Numbering::BOTH.into_iter().for_each(|it| run_numbered(setting.clone(), words, it));
}

fn run_numbered(mut setting: Setting, words: &[u64], numbering: Numbering) {
    let everything = Selector::parse("#", &setting.limits).expect("valid");
    let rules = vec![PolicyRule { selector: everything, policy: setting.policy.clone() }];
    let mut node = Node::new(setting.shards, setting.limits.clone(), rules, setting.mail)
        .with_numbering(numbering);
    node.page_len = 3;
    setting.with_names(&node);
    for topic in &setting.topics {
        (0..setting.published_before).for_each(|_| publish(&mut node, topic, 10));
    }
    for (reader, sets) in setting.begin.iter().enumerate() {
        let shard = setting.shard.unwrap_or(reader % setting.shards);
        node.open(shard, if reader == 1 { BATCHED } else { SINGLE }, 500);
        for set in sets {
            let selectors = setting.sets[*set].iter().map(|at| setting.selectors[*at].as_str());
            node.subscribe(reader, &selectors.collect::<Vec<_>>(), Start::Now);
        }
    }
    if setting.begin.iter().any(|sets| !sets.is_empty()) {
        node.settle();
        (0..setting.begin.len()).for_each(|reader| node.take_room(reader, setting.room));
    }
    for word in words {
        run_step(&mut node, &setting, &setting.step(*word));
    }
    node.settle();
    for reader in 0..node.readers.len() {
        check_reader(&node, &setting, reader);
    }
}

fn run_step(node: &mut Node, setting: &Setting, step: &Step) {
    let count = node.readers.len();
    let selector = |at: &usize| setting.selectors[*at].as_str();
    match step {
        Step::Open { shard, is_batched } => {
            let encoding = if *is_batched { BATCHED } else { SINGLE };
            node.open(*shard, encoding, setting.room + 100);
        }
        Step::Close { reader } => node.close(reader % count),
        Step::Subscribe { reader, selectors, start, priority } => {
            let selectors: Vec<&str> = selectors.iter().map(selector).collect();
            let options = SubscribeOptions { priority: *priority, ..Default::default() };
            node.subscribe_with(reader % count, &selectors, start.clone(), options);
        }
        Step::Change { reader, which, to, start } => {
            unsubscribe(node, reader % count, *which);
            node.subscribe(reader % count, &[selector(to)], start.clone());
        }
        Step::ComeBack { reader, shard, beyond } => {
            node.come_back(reader % count, *shard, *beyond);
        }
        Step::Pages { shard, count } => node.answer_pages(*shard, *count),
        Step::Tick => node.tick(),
        Step::Epoch => node.begin_epoch(),
        Step::Unsubscribe { reader, which } => unsubscribe(node, reader % count, *which),
        Step::Publish { topic, bytes } => publish(node, &setting.topics[*topic], *bytes),
        Step::Burst { topic, count } => {
            (0..*count).for_each(|_| publish(node, &setting.topics[*topic], 0));
        }
        Step::Turn { shard, budget } => {
            node.turn(*shard, *budget);
        }
        Step::Turns => {
            for shard in (0..setting.shards).cycle().take(2 * setting.shards) {
                node.turn(shard, setting.budget_max);
            }
        }
        Step::Replace { topic, count } => replace(node, setting, &setting.topics[*topic], *count),
        Step::Room { reader, bytes } => node.give_room(reader % count, *bytes),
        Step::Stop { reader } => node.take_room(reader % count, 0),
    }
}

/// Ends one of a reader's subscriptions, if it has any.
fn unsubscribe(node: &mut Node, reader: usize, which: usize) {
    let Some(known) = &node.readers[reader] else { return };
    let Some(count) = known.selectors.len().checked_sub(1) else { return };
    let selector = known.selectors[which % (count + 1)].as_str().to_owned();
    node.unsubscribe(reader, &selector);
}

/// Has a topic come, perhaps in the place of one that is read by name and that nobody reads any more for a while.
fn replace(node: &mut Node, setting: &Setting, topic: &str, count: usize) {
    let name = setting.selectors.last().expect("some").clone();
    let turns = |node: &mut Node| {
        for shard in (0..setting.shards).cycle().take(2 * setting.shards) {
            node.turn(shard, setting.budget_max);
        }
    };
    let reads = |node: &Node, reader: &usize| {
        let known = node.readers[*reader].as_ref();
        known.is_some_and(|known| known.selectors.iter().any(|it| it.as_str() == name))
    };
    let readers: Vec<usize> = (0..node.readers.len()).filter(|it| reads(node, it)).collect();
    readers.iter().for_each(|reader| node.unsubscribe(*reader, &name));
    turns(node);
    (0..count).for_each(|_| publish(node, topic, 0));
    turns(node);
    readers.first().into_iter().for_each(|reader| node.subscribe(*reader, &[&name], Start::Now));
}

/// Publishes a text that no other publication has.
fn publish(node: &mut Node, topic: &str, bytes: usize) {
    let number = node.published.len();
    node.publish(topic, &format!("{topic}:{number}:{}", "x".repeat(bytes)));
}

/// Follows one reader's stream: no hole without `gap`, no publication twice, all of it to the end.
fn check_reader(node: &Node, setting: &Setting, reader: usize) {
    let Some(known) = &node.readers[reader] else { return };
    let lines = node.lines(reader);
    let mut last: HashMap<&str, u64> = HashMap::default();
    let (mut answered, mut follows_answer) = (Vec::<u64>::new(), false);
    // The epoch that it knows each topic to be of, and the one that the next line is of.
    let (mut epochs, mut next_epoch) = (HashMap::<&str, &str>::default(), FIRST_EPOCH);
    let mut words: Vec<&str> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        words.clear();
        words.extend(line.split(' '));
        let context = || format!("reader {reader}, line {at} `{line}` of {lines:#?}");
        follows_answer = words[0] == "subscribed"
            || follows_answer && (words[0] == "start" || words[0] == "epoch");
        if let ["start" | "gap", topic, ..] = words[..] {
            epochs.insert(topic, std::mem::replace(&mut next_epoch, FIRST_EPOCH));
        }
        match words[..] {
            ["start", topic, start] => {
                let start: u64 = start.parse().expect("a number");
                // Those named in a subscription come right after its answer.
                let floor =
                    answered.last().and_then(|id| node.floors.get(&(*id, topic.to_owned())));
                if follows_answer && let Some(floor) = floor {
                    // Who falls off the ring right after the answer is described once more, before the gap.
                    let is_again =
                        lines[..at].iter().rev().take_while(|it| !it.starts_with("subscribed"));
                    let is_again =
                        is_again.into_iter().any(|it| it.starts_with(&format!("start {topic} ")));
                    let is_gone = lines.get(at + 1).is_some_and(|next| {
                        let gap = next.strip_prefix(&format!("gap {topic} "));
                        let to = gap.and_then(|gap| gap.split(' ').next()?.parse::<u64>().ok());
                        to.is_some_and(|to| to >= *floor)
                    });
                    let is_known = start >= *floor || is_again && is_gone;
                    assert!(is_known, "it starts before {floor}: {}", context());
                }
                last.insert(topic, start);
            }
            ["gap", topic, to, reason] => {
                let to: u64 = to.parse().expect("a number");
                // Where the numbering is another one, reading begins anew.
                if reason != "epoch" {
                    assert!(setting.may_have_gaps, "a gap: {}", context());
                    assert!(to >= last[topic], "a gap backwards: {}", context());
                }
                last.insert(topic, to);
            }
            ["publication", topic, sequence, form, text] => {
                let sequence: u64 = sequence.parse().expect("a number");
                assert_eq!(Some(text), node.text(topic, sequence), "{}", context());
                let is_known = epochs[topic] >= node.epoch_of(topic, sequence);
                assert!(is_known, "of an epoch that it was not told: {}", context());
                let before = *last.get(topic).unwrap_or_else(|| panic!("unheard: {}", context()));
                assert!(sequence > before, "{}", context());
                let skipped = node.published_in(topic, before + 1..sequence).next();
                assert_eq!(skipped, None, "untold: {}", context());
                assert!(form == "full" || form == "short", "{}", context());
                last.insert(topic, sequence);
            }
            ["subscribed", id] => answered.push(id.parse::<u64>().expect("a number")),
            ["unsubscribed"] => {}
            ["epoch", _, epoch] => next_epoch = epoch,
            _ => panic!("unexpected: {}", context()),
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, known.commands, "reader {reader}: each is answered once: {lines:#?}");
    for (topic, head) in &node.heads {
        let is_read = known.selectors.iter().any(|selector| selector.matches(topic.as_str()));
        if is_read && *head > Sequence::START {
            let last = last.get(topic.as_str()).copied();
            assert_eq!(last, Some(head.get()), "reader {reader} of {topic}: {lines:#?}");
            let epoch = epochs.get(topic.as_str()).copied();
            assert_eq!(epoch, Some(node.epoch()), "reader {reader} of {topic}: {lines:#?}");
        }
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

/// Every setting, by number.
#[allow(dead_code)]
pub const SETTINGS: [fn() -> Setting; 21] = [
    || roomy(1),
    || roomy(3),
    || small_ring(1),
    || small_mailboxes(3),
    || cramped(1),
    || cramped(3),
    || on_disk(3),
    || cramped_on_disk(3),
    || trimmed_on_disk(3),
    coming_and_going_on_disk,
    coming_back,
    mixed_subscriptions,
    joining_members,
    joining_new_topics,
    joining_after_losses,
    joining_after_losses_on_disk,
    bursts,
    || ring_beyond_history(3),
    || ring_beyond_disk(3),
    || renewed(3),
    || renewed_and_cramped(3),
];

/// Everything has room: nothing is ever lost.
pub fn roomy(shards: usize) -> Setting {
    Setting {
        shards,
        limits: Limits::default(),
        policy: TopicPolicy { history_count: 10_000, ..TopicPolicy::default() },
        mail: 10_000,
        may_have_gaps: false,
        published_before: 0,
        topics: texts(&["a", "a/b", "a/c", "b/b", "b/c/d"]),
        selectors: texts(&["a", "a/b", "a/c", "b/b", "b/c/d", "a/+", "a/#", "+/b", "#"]),
        sets: Vec::new(),
        begin: vec![Vec::new(); 3],
        shard: None,
        room: 200,
        budget_max: 5,
        burst_max: 1,
        weights: USUAL,
    }
}

/// Nothing has room: a ring of four, histories of three, three letters in a mailbox.
pub fn cramped(shards: usize) -> Setting {
    Setting {
        limits: Limits {
            recent_deliveries_max: 4,
            batch_bytes_max: 100,
            attached_per_turn: 1,
            ..Limits::default()
        },
        policy: TopicPolicy { history_count: 3, ..TopicPolicy::default() },
        mail: 3,
        may_have_gaps: true,
        ..roomy(shards)
    }
}

/// One name is looked at in a turn; there is room for everything.
pub fn small_steps(shards: usize) -> Setting {
    Setting { limits: Limits { attached_per_turn: 1, ..Limits::default() }, ..roomy(shards) }
}

/// The ring has no room; the histories have all.
pub fn small_ring(shards: usize) -> Setting {
    Setting { limits: cramped(1).limits, ..roomy(shards) }
}

/// Mailboxes have no room; the histories have all.
pub fn small_mailboxes(shards: usize) -> Setting {
    Setting { mail: 2, ..roomy(shards) }
}

/// The shard's memory holds next to nothing, and the disk everything.
pub fn on_disk(shards: usize) -> Setting {
    let policy = TopicPolicy {
        ack: AckLevel::Disk,
        history_count: 10_000,
        memory_count: 2,
        ..TopicPolicy::default()
    };
    Setting { policy, published_before: 6, ..roomy(shards) }
}

/// The same, with no room in the ring and in mailboxes.
pub fn cramped_on_disk(shards: usize) -> Setting {
    Setting { limits: cramped(1).limits, mail: 3, ..on_disk(shards) }
}

/// The disk drops things, too.
pub fn trimmed_on_disk(shards: usize) -> Setting {
    let policy = TopicPolicy { history_count: 5, ..on_disk(1).policy };
    Setting { policy, may_have_gaps: true, ..cramped_on_disk(shards) }
}

/// The ring has some room, and histories next to none: it reaches further back than these, now and then.
pub fn ring_beyond_history(shards: usize) -> Setting {
    Setting {
        limits: Limits { recent_deliveries_max: 12, ..cramped(1).limits },
        policy: TopicPolicy {
            history_count: 1,
            conflation: Some(Conflation::Off),
            ..TopicPolicy::default()
        },
        topics: texts(&["a", "a/b", "b/b"]),
        selectors: texts(&["a", "a/b", "b/b", "a/#", "+/b"]),
        weights: Weights { come_back: 3, ..USUAL },
        ..cramped(shards)
    }
}

/// The same with a disk that keeps little more.
pub fn ring_beyond_disk(shards: usize) -> Setting {
    let policy = TopicPolicy {
        history_count: 3,
        memory_count: 1,
        conflation: Some(Conflation::Off),
        ..on_disk(1).policy
    };
    Setting { policy, ..ring_beyond_history(shards) }
}

/// The store begins another epoch, with readers at every place and sessions that come back with positions of the old one.
pub fn renewed(shards: usize) -> Setting {
    Setting { weights: Weights { epoch: 1, come_back: 4, pages: 4, ..USUAL }, ..on_disk(shards) }
}

/// The same, with no room in the ring and in mailboxes: some are told by the ring, others fall off it.
pub fn renewed_and_cramped(shards: usize) -> Setting {
    Setting { limits: cramped(1).limits, mail: 3, ..renewed(shards) }
}

/// Topics far from home are forgotten and others come into their slots, while pages of them are on the way.
pub fn coming_and_going_on_disk() -> Setting {
    Setting {
        topics: texts(&["p0", "p1"]),
        selectors: texts(&["p0", "p1"]),
        begin: vec![Vec::new(); 2],
        shard: Some(1),
        room: 2_000,
        weights: Weights { change: 6, pages: 5, publish: 3, subscribe: 5, ..USUAL },
        ..on_disk(2)
    }
}

/// Sessions come back to a shard that is behind, into the slots of those that went.
pub fn coming_back() -> Setting {
    Setting {
        topics: texts(&["p0", "p1"]),
        selectors: texts(&["p0", "p1", "#"]),
        begin: vec![Vec::new(); 2],
        room: 2_000,
        weights: Weights { come_back: 8, tick: 6, turn: 14, room: 2, ..USUAL },
        ..roomy(2)
    }
}

/// Readers by name and by pattern on one shard, far from the topics' home: many subscriptions between two turns.
pub fn mixed_subscriptions() -> Setting {
    Setting {
        topics: texts(&["a/0", "a/1", "b/0", "b/1"]),
        selectors: texts(&["a/0", "a/1", "b/0", "a/+", "b/+", "#"]),
        begin: vec![Vec::new(); 4],
        shard: Some(1),
        published_before: 4,
        room: 2_000,
        weights: Weights { subscribe: 20, change: 6, turn: 16, turns: 6, publish: 5, ..USUAL },
        ..roomy(2)
    }
}

/// Readers of two patterns that ask for a third, which overlaps with both and selects nothing: joining them moves
/// cursors, and no topic is read afresh.
fn joining() -> Setting {
    Setting {
        topics: texts(&["a/0", "b/0", "c0"]),
        selectors: texts(&["a/+", "b/+", "+/x", "c0"]),
        sets: vec![vec![2], vec![2], vec![0], vec![1], vec![3], vec![0, 1, 2]],
        begin: vec![vec![2, 3], vec![2, 3], vec![4]],
        room: 300,
        budget_max: 100,
        burst_max: 6,
        weights: Weights {
            publish: 10,
            burst: 3,
            turn: 10,
            room: 4,
            subscribe: 3,
            unsubscribe: 2,
            come_back: 2,
            change: 0,
            pages: 0,
            open: 0,
            close: 0,
            tick: 0,
            turns: 5,
            stop: 3,
            epoch: 0,
            replace: 0,
        },
        ..roomy(1)
    }
}

/// They step in while batches are under way to others that read all three.
pub fn joining_members() -> Setting {
    // Each that joins does so once.
    let begin = [vec![vec![2, 3]; 6], vec![vec![5]; 6]].concat();
    let weights = Weights { turns: 0, stop: 1, burst: 0, subscribe: 4, ..joining().weights };
    Setting { begin, weights, budget_max: 2, ..joining() }
}

/// Meanwhile new topics come into the slot of another.
pub fn joining_new_topics() -> Setting {
    let often = ["a/0", "a/0", "a/0", "c0", "c0", "c0", "c0", "c0"].map(str::to_owned);
    let new = (0..16).map(|number| format!("b/{number}"));
    Setting {
        topics: often.into_iter().chain(new).collect(),
        shards: 2,
        shard: Some(1),
        begin: [vec![vec![2, 3]; 5], vec![vec![4]]].concat(),
        weights: Weights {
            burst: 5,
            room: 2,
            unsubscribe: 1,
            come_back: 1,
            replace: 5,
            ..joining().weights
        },
        ..joining()
    }
}

/// They are on a shard whose mailbox was full.
pub fn joining_after_losses() -> Setting {
    Setting {
        shards: 2,
        shard: Some(1),
        mail: 1,
        begin: [vec![vec![2, 3]; 5], vec![vec![4]]].concat(),
        may_have_gaps: true,
        policy: TopicPolicy {
            history_count: 2,
            conflation: Some(Conflation::Off),
            ..TopicPolicy::default()
        },
        ..joining()
    }
}

/// The same with topics on disk: nothing is lost.
pub fn joining_after_losses_on_disk() -> Setting {
    let lossy = joining_after_losses();
    let policy = TopicPolicy { conflation: Some(Conflation::Off), ..on_disk(1).policy };
    let weights = Weights { pages: 2, ..lossy.weights };
    Setting { policy, weights, may_have_gaps: false, ..lossy }
}

/// More is published than is walked through, to readers of few topics, while others are taken over.
pub fn bursts() -> Setting {
    Setting {
        topics: texts(&["c0", "c1", "c2"]),
        selectors: texts(&["c0", "c1", "c2"]),
        sets: Vec::new(),
        begin: vec![Vec::new(); 2],
        shard: Some(1),
        room: 3_000,
        budget_max: 100,
        burst_max: 200,
        weights: Weights { burst: 5, publish: 3, subscribe: 5, turn: 8, unsubscribe: 2, ..USUAL },
        ..roomy(2)
    }
}
