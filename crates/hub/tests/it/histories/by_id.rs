//! Subscriptions with ids, each held against a client of its own that knows nothing of the others: it takes what comes under
//! the numbers that serve it, ignores what it has, and must lack nothing that it asked for.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroUsize};

use model::{
    Conflation, Epoch, HashMap, Limits, Position, Rates, Selector, Sequence, Start, Subscribe,
    SubscribeOptions, SubscriptionId, TopicPolicy, Unsubscribe,
};
use tidegate_hub::EncodingIndex;

use super::choices::Choices;
use crate::node::{FIRST_EPOCH, Node, Numbering};

const TOPICS: [&str; 4] = ["a", "a/b", "a/c", "b"];
const SELECTORS: [&str; 6] = ["a", "a/b", "b", "a/#", "a/+", "#"];
/// Sessions with ids: single records, batches, pieces, both.
const ENCODINGS: [EncodingIndex; 4] =
    [EncodingIndex(4), EncodingIndex(5), EncodingIndex(6), EncodingIndex(7)];
const IDS: usize = 4;

/// A subscription, as its client sees it.
#[derive(Debug)]
struct Client {
    selectors: Vec<Selector>,
    ending: Option<&'static str>,
    /// Where it asked to begin, of topics that it has a position of.
    positions: HashMap<String, u64>,
    start: Start,
    /// The heads when it subscribed.
    heads: HashMap<String, u64>,
    /// Up to where it has each topic that it was told of.
    places: HashMap<String, u64>,
    /// Where it began in each.
    starts: HashMap<String, u64>,
    completed: usize,
}

/// One session: what came on its connection, and its subscriptions.
#[derive(Debug, Default)]
struct Peer {
    seen: usize,
    /// What a number stands for: the topic, and which subscriptions it serves.
    numbers: HashMap<u64, (String, Vec<u32>)>,
    /// The subscriptions that were answered last.
    clients: HashMap<u32, Client>,
    /// What was asked for since and is not answered yet: a subscription, or its end.
    asked: HashMap<u32, VecDeque<Option<Client>>>,
    /// Payloads of which pieces are to come, by number and sequence.
    pieces: HashMap<(u64, u64), String>,
}

impl Client {
    fn names(&self, topic: &str) -> bool {
        self.selectors.iter().any(|selector| selector.as_str() == topic)
    }
}

impl Peer {
    /// A subscription began anew, or ended: what was described to it before means nothing.
    fn forget_numbers_of(&mut self, id: u32) {
        self.numbers.values_mut().for_each(|(_, ids)| ids.retain(|known| *known != id));
        // No more pieces come of what nobody reads.
        let numbers = &self.numbers;
        self.pieces.retain(|(number, _), _| numbers.get(number).is_some_and(|it| !it.1.is_empty()));
    }
}

struct History {
    node: Node,
    peers: Vec<Peer>,
    may_lose: bool,
    published: u64,
}

/// Runs a history in which everything is kept, with dense sequences, and with holes in them.
pub fn run(words: &[u64]) {
    for numbering in Numbering::BOTH {
        run_with(words, 1, 64, numbering, false);
        run_with(words, 3, 4, numbering, false);
    }
}

/// The same with short histories: what is lost is told.
pub fn run_cramped(words: &[u64]) {
    run_with(words, 1, 4, Numbering::Dense, true);
}

fn run_with(words: &[u64], shards: usize, recent: usize, numbering: Numbering, may_lose: bool) {
    let limits = Limits {
        attached_per_turn: 2,
        recent_deliveries_max: recent,
        batch_bytes_max: 100,
        fragment_bytes: 20,
        ..Limits::default()
    };
    let history_count = if may_lose { 3 } else { 10_000 };
    let conflation = Some(Conflation::Off);
    let policy = TopicPolicy { history_count, conflation, ..TopicPolicy::default() };
    let rules =
        vec![model::PolicyRule { selector: Selector::parse("#", &limits).expect("valid"), policy }];
    let mut node = Node::new(shards, limits, rules, 10_000).with_numbering(numbering);
    for (at, encoding) in ENCODINGS.into_iter().enumerate() {
        node.open(at % shards, encoding, 300);
    }
    let peers = ENCODINGS.iter().map(|_| Peer::default()).collect();
    let mut history = History { node, peers, may_lose, published: 0 };
    words.iter().for_each(|word| history.step(*word));
    // The time stands still: whoever rests would do so for ever.
    (0..ENCODINGS.len()).for_each(|peer| history.node.throttle(peer, Rates::default()));
    history.node.settle();
    history.look();
    history.check_end();
}

impl History {
    fn step(&mut self, word: u64) {
        let mut choices = Choices::of(word);
        let kind = choices.weighted(&[8, 3, 16, 12, 6, 2, 2]);
        let peer = choices.below(ENCODINGS.len());
        match kind {
            0 => self.subscribe(peer, &mut choices),
            1 => self.unsubscribe(peer, choices.below(IDS)),
            2 => self.publish(&mut choices),
            3 => {
                let (shard, budget) = (choices.below(3), 1 + choices.below(8));
                let shard = shard % self.node.hubs.len();
                self.node.turn(shard, budget);
            }
            4 => self.node.give_room(peer, choices.below(256) * 4),
            5 => self.come_back(peer, &mut choices),
            _ => {
                let bytes = NonZeroU32::new(50 + choices.below(200) as u32);
                let bytes = bytes.filter(|_| choices.is(128));
                self.node.throttle(peer, Rates { bytes, ..Rates::default() });
                self.node.pass(std::time::Duration::from_millis(choices.below(256) as u64 * 20));
            }
        }
        self.look();
    }

    fn publish(&mut self, choices: &mut Choices) {
        self.published += 1;
        let topic = TOPICS[choices.below(TOPICS.len())];
        let length = if choices.is(40) { 50 } else { 1 };
        let ending = choices.below(2);
        let text = format!("{}{}{ending}", self.published, "x".repeat(length));
        self.node.publish(topic, &text);
    }

    fn subscribe(&mut self, peer: usize, choices: &mut Choices) {
        let id = 1 + choices.below(IDS) as u32;
        let count = NonZeroUsize::new(1 + choices.below(2)).expect("not 0");
        let selectors = (0..count.get()).map(|_| SELECTORS[choices.below(SELECTORS.len())]);
        let selectors: Vec<Selector> = selectors.map(|text| self.node.selector(text)).collect();
        let ending = [None, None, Some("0")][choices.below(3)];
        let start = match choices.below(4) {
            0 => Start::Now,
            1 => Start::Snapshot,
            2 => Start::All,
            _ => Start::Last(2),
        };
        self.ask(peer, id, selectors, ending, start, HashMap::default());
    }

    fn ask(
        &mut self,
        peer: usize,
        id: u32,
        selectors: Vec<Selector>,
        ending: Option<&'static str>,
        start: Start,
        positions: HashMap<String, u64>,
    ) {
        let options =
            SubscribeOptions { filter: ending.map(Into::into), ..SubscribeOptions::default() };
        let epoch = Epoch::new(FIRST_EPOCH);
        let wanted = Subscribe {
            subscription: Some(SubscriptionId(NonZeroU32::new(id).expect("not 0"))),
            selectors: selectors.clone(),
            start: start.clone(),
            positions: positions
                .iter()
                .map(|(name, at)| {
                    let sequence = Sequence::new(*at).expect("small");
                    (self.node.topic(name), Position { epoch: epoch.clone(), sequence })
                })
                .collect(),
            name: None,
            options,
        };
        let heads = self.node.heads.iter();
        let heads = heads.map(|(name, at)| (name.as_str().to_owned(), at.get())).collect();
        let Some(known) = &self.node.readers[peer] else { return };
        let (shard, session) = (known.shard, known.session);
        self.node.hubs[shard].subscribe(session, None, wanted).expect("within limits");
        let client = Client {
            selectors,
            ending,
            positions,
            start,
            heads,
            places: HashMap::default(),
            starts: HashMap::default(),
            completed: 0,
        };
        self.peers[peer].asked.entry(id).or_default().push_back(Some(client));
    }

    fn unsubscribe(&mut self, peer: usize, which: usize) {
        let id = 1 + which as u32;
        let subscription = SubscriptionId(NonZeroU32::new(id).expect("not 0"));
        let Some(known) = &self.node.readers[peer] else { return };
        let (shard, session) = (known.shard, known.session);
        let unwanted = Unsubscribe::Subscription(subscription);
        let answer = self.node.hubs[shard].unsubscribe(session, None, unwanted);
        let Peer { clients, asked, .. } = &mut self.peers[peer];
        let asked = asked.entry(id).or_default();
        let is_there = asked.back().map_or(clients.contains_key(&id), Option::is_some);
        assert_eq!(answer.is_ok(), is_there, "{answer:?}");
        if is_there {
            asked.push_back(None);
        }
    }

    /// The connection is cut; each subscription resumes in a new session from its own places.
    fn come_back(&mut self, peer: usize, choices: &mut Choices) {
        self.look();
        let shard = choices.below(3) % self.node.hubs.len();
        self.node.close(peer);
        self.node.open(shard, ENCODINGS[peer], 300);
        self.node.readers[peer] = self.node.readers.pop().expect("just opened");
        let mut gone = std::mem::take(&mut self.peers[peer]);
        for id in 1..=IDS as u32 {
            let last = gone.asked.remove(&id).and_then(|mut asked| asked.pop_back());
            let answered = gone.clients.remove(&id);
            let Some(mut client) = last.unwrap_or(answered) else { continue };
            // Where it was to begin it still is to.
            for (topic, at) in std::mem::take(&mut client.positions) {
                client.places.entry(topic).or_insert(at);
            }
            self.ask(peer, id, client.selectors, client.ending, Start::All, client.places);
        }
    }

    /// Takes what came since the last time.
    fn look(&mut self) {
        for at in 0..self.peers.len() {
            let lines = self.node.lines(at);
            let mut peer = std::mem::take(&mut self.peers[at]);
            for line in &lines[peer.seen.min(lines.len())..] {
                self.take(&mut peer, line);
            }
            peer.seen = lines.len();
            self.peers[at] = peer;
        }
    }

    fn take(&self, peer: &mut Peer, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "@topic" => self.describe(peer, number(1), words[2], number(3), words[4]),
            "@subscribed" => {
                let id = number(1) as u32;
                let answered = peer.asked.get_mut(&id).and_then(VecDeque::pop_front).flatten();
                peer.clients.insert(id, answered.expect("the answer to a `subscribe`"));
                peer.forget_numbers_of(id);
            }
            "@unsubscribed" => {
                let id = number(1) as u32;
                let answered = peer.asked.get_mut(&id).and_then(VecDeque::pop_front);
                assert!(matches!(answered, Some(None)), "the answer to an `unsubscribe`");
                assert!(peer.clients.remove(&id).is_some(), "it was there");
                peer.forget_numbers_of(id);
            }
            "@publication" => self.tell(peer, number(1), words[2], number(3), words[4]),
            "@fragment" => {
                let key = (number(1), number(3));
                if number(4) == 0 {
                    // It counts from its first piece on.
                    let text = self.node.text(words[2], key.1).expect("it was published");
                    self.tell(peer, key.0, words[2], key.1, text);
                    peer.pieces.insert(key, String::new());
                }
                let Some(text) = peer.pieces.get_mut(&key) else {
                    let is_read = peer.numbers[&key.0].1.iter().any(|id| {
                        peer.clients
                            .get(id)
                            .is_some_and(|it| it.starts.get(words[2]).is_some_and(|at| key.1 > *at))
                    });
                    return assert!(!is_read, "`{line}` without the first piece");
                };
                text.push_str(words[6]);
                if text.len() as u64 == number(5) {
                    let text = peer.pieces.remove(&key).expect("it is there");
                    assert_eq!(self.node.text(words[2], key.1), Some(&*text), "in its pieces");
                }
            }
            "@gap" => self.tell_gap(peer, number(1), words[2], number(3), words[4]),
            "@complete" => self.complete(peer, number(1) as u32),
            "lag" => {}
            _ => panic!("`{line}` is not for sessions with ids"),
        }
    }

    fn describe(&self, peer: &mut Peer, number: u64, topic: &str, start: u64, ids: &str) {
        let ids = ids.split(',').filter_map(|id| id.parse().ok());
        let ids: Vec<u32> = ids.collect();
        assert!(!ids.is_empty(), "`{topic}` is described to nobody");
        for id in &ids {
            let client = peer.clients.get_mut(id).expect("only those who were answered");
            let is_its = client.selectors.iter().any(|selector| selector.matches(topic));
            assert!(is_its, "{id} did not ask for `{topic}`: {client:?}");
            if !client.places.contains_key(topic) {
                self.check_start(client, topic, start);
                client.places.insert(topic.to_owned(), start);
                client.starts.insert(topic.to_owned(), start);
            }
        }
        peer.numbers.insert(number, (topic.to_owned(), ids));
    }

    /// Nothing is passed over by where a subscription begins, and `now` is not before it was made.
    fn check_start(&self, client: &Client, topic: &str, start: u64) {
        if let Some(at) = client.positions.get(topic) {
            if !self.may_lose {
                self.check_nothing_between(client, topic, *at, start);
            }
            return;
        }
        let head = client.heads.get(topic).copied().unwrap_or(0);
        match client.start {
            Start::All if !self.may_lose => self.check_nothing_between(client, topic, 0, start),
            // What is on its way to its shard was published before.
            Start::Now if self.node.hubs.len() == 1 && client.names(topic) => {
                assert!(start >= head, "begins at {start} before {head}: {client:?}");
            }
            _ => {}
        }
    }

    fn tell(&self, peer: &mut Peer, number: u64, topic: &str, sequence: u64, text: &str) {
        let (name, ids) = peer.numbers.get(&number).expect("described before");
        assert_eq!(name, topic, "a number has one meaning");
        assert_eq!(self.node.text(topic, sequence), Some(text), "as it was published");
        for id in ids {
            let Some(client) = peer.clients.get_mut(id) else { continue };
            let Some(place) = client.places.get(topic).copied() else { continue };
            assert!(client.ending.is_none_or(|it| text.ends_with(it)), "{text} for {client:?}");
            if sequence > place {
                self.check_nothing_between(client, topic, place, sequence - 1);
                client.places.insert(topic.to_owned(), sequence);
            }
        }
    }

    fn tell_gap(&self, peer: &mut Peer, number: u64, topic: &str, to: u64, reason: &str) {
        let (name, ids) = peer.numbers.get(&number).expect("described before");
        assert_eq!(name, topic, "a number has one meaning");
        assert_ne!(reason, "epoch", "there is one epoch");
        for id in ids {
            let Some(client) = peer.clients.get_mut(id) else { continue };
            let Some(place) = client.places.get_mut(topic) else { continue };
            if to > *place {
                assert!(self.may_lose, "a gap to {to} from {place} where all is kept");
                *place = to;
            }
        }
    }

    fn complete(&self, peer: &mut Peer, id: u32) {
        let client = peer.clients.get_mut(&id).expect("it did not end before");
        client.completed += 1;
        assert_eq!(client.completed, 1, "once for each `subscribe`");
        let client = &peer.clients[&id];
        for (topic, head) in &client.heads {
            if client.selectors.iter().any(|selector| selector.matches(topic)) && *head > 0 {
                let place = client.places.get(topic).copied();
                // A shard may not have heard of what was published elsewhere a moment ago.
                let is_far = self.node.hubs.len() > 1;
                assert!(place.is_some() || is_far, "complete without `{topic}`: {client:?}");
                if let Some(place) = place.filter(|_| !is_far) {
                    self.check_nothing_between(client, topic, place, *head);
                    let is_its = |number| {
                        peer.numbers
                            .get(number)
                            .is_some_and(|it| it.0 == *topic && it.1.contains(&id))
                    };
                    let rest = peer.pieces.keys().find(|(number, at)| {
                        is_its(number) && at <= head && *at > client.starts[topic]
                    });
                    assert_eq!(rest, None, "complete before the pieces came");
                }
            }
        }
    }

    /// Whatever was published after `place` up to `through` the subscription's filter does not accept.
    fn check_nothing_between(&self, client: &Client, topic: &str, place: u64, through: u64) {
        if place >= through {
            return;
        }
        let mut between = self.node.published_in(topic, place + 1..=through);
        let lost = between.find(|(_, text)| client.ending.is_none_or(|it| text.ends_with(it)));
        assert_eq!(lost, None, "`{topic}` after {place} is lost to {client:?}");
    }

    fn check_end(&self) {
        for peer in &self.peers {
            assert!(peer.asked.values().all(VecDeque::is_empty), "all is answered");
            for (id, client) in &peer.clients {
                assert_eq!(client.completed, 1, "{id}: {client:?}");
                for (topic, head) in &self.node.heads {
                    let topic = topic.as_str();
                    if client.selectors.iter().any(|selector| selector.matches(topic)) {
                        let place = client.places.get(topic);
                        let place =
                            *place.unwrap_or_else(|| panic!("{id} lacks `{topic}`: {client:?}"));
                        self.check_nothing_between(client, topic, place, head.get());
                    }
                }
            }
        }
    }
}
