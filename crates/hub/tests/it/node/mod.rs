//! A node of several hubs in one thread, with connections that take as little as the test says.

mod connections;
mod lines;
mod subscribing;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeBounds;
use std::rc::Rc;
use std::time::Duration;

use model::{
    AckLevel, Epoch, HashMap, HashSet, Limits, Moment, Payload, PayloadKind, PolicyRule, Position,
    Publication, Rates, Selector, Sequence, Start, SubscribeOptions, TopicName, TopicPolicy,
};
use tidegate_hub::{
    ConnectionId, Connections, EncodingIndex, Hub, HubMail, HubOptions, PageWanted, SessionIndex,
    ShardIndex, home_shard,
};

use self::connections::{Available, whole_messages};
pub use self::connections::{Connection, Gaps, Wire};
pub use self::lines::{BATCHED, FIRST_EPOCH, FRAGMENTED, LineEncoder, SECOND_EPOCH, SINGLE};

/// A reader of the node.
pub struct Reader {
    pub shard: usize,
    pub link: ConnectionId,
    pub session: SessionIndex,
    pub encoding: EncodingIndex,
    pub selectors: Vec<Selector>,
    /// The options that each was subscribed with last.
    options: HashMap<Selector, SubscribeOptions>,
    /// The numbers of its `subscribe` commands.
    pub commands: Vec<u64>,
    /// How many bytes its connection takes before it is first given room.
    room: usize,
}

/// How topics are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// Each by itself, by one.
    Dense,
    /// All together, and some of the numbers are others': as in a broker's stream.
    WithHoles,
}

impl Numbering {
    pub const BOTH: [Self; 2] = [Self::Dense, Self::WithHoles];
}

/// Several hubs and the mail between them.
pub struct Node {
    pub hubs: Vec<Hub<LineEncoder>>,
    pub wires: Vec<Wire>,
    pub heads: BTreeMap<TopicName, Sequence>,
    pub readers: Vec<Option<Reader>>,
    /// The time, which stands still unless it is moved.
    pub now: Moment,
    /// What was published: topic, sequence, text.
    pub published: Vec<(TopicName, Sequence, String)>,
    /// What is on disk of topics whose policy says so, oldest first.
    store: BTreeMap<TopicName, VecDeque<Publication>>,
    /// Pages that shards asked for, and that the store is yet to answer.
    pages: Vec<VecDeque<PageWanted>>,
    mailboxes: Vec<VecDeque<(ShardIndex, HubMail)>>,
    waiting: Vec<Vec<VecDeque<HubMail>>>,
    mailbox_len_max: usize,
    epoch: Epoch,
    /// The topics that were published to before the second epoch began, each with its head then.
    ended: Option<BTreeMap<TopicName, Sequence>>,
    limits: Limits,
    links: Connections<()>,
    commands: u64,
    /// Before what a `subscribe` must not start to read a topic, by its number and the topic's name.
    pub floors: HashMap<(u64, String), u64>,
    /// Those of them that are positions.
    resumed: HashSet<(u64, String)>,
    /// The steps of each shard when its mail was last taken.
    paid: Vec<u64>,
    /// Whether something was published on a shard since it last sent its mail.
    has_unsent: Vec<bool>,
    /// How many sessions the hubs closed.
    pub closed: usize,
    /// What a gap may cover.
    pub gaps: Gaps,
    /// The texts published to each topic, by sequence.
    texts: HashMap<String, BTreeMap<u64, String>>,
    /// The newest number given to any topic, where all are numbered together and others use some of the numbers.
    numbers: Option<u64>,
    /// Publications in a page, if fewer than were asked for.
    pub page_len: usize,
}

pub fn moment() -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 }
}

impl Node {
    pub fn new(shards: usize, limits: Limits, policies: Vec<PolicyRule>, mail: usize) -> Self {
        let hub = |shard: usize| {
            let options = HubOptions {
                shard: ShardIndex(shard as u16),
                shard_count: shards as u16,
                audiences: true,
                limits: limits.clone(),
                policies: policies.clone(),
                default_policy: TopicPolicy::default(),
            };
            Hub::new(options, LineEncoder)
        };
        Self {
            hubs: (0..shards).map(hub).collect(),
            wires: (0..shards).map(|_| Wire::default()).collect(),
            heads: BTreeMap::new(),
            readers: Vec::new(),
            now: moment(),
            published: Vec::new(),
            store: BTreeMap::new(),
            pages: (0..shards).map(|_| VecDeque::new()).collect(),
            mailboxes: (0..shards).map(|_| VecDeque::new()).collect(),
            waiting: vec![vec![VecDeque::new(); shards]; shards],
            mailbox_len_max: mail,
            epoch: Epoch::new(FIRST_EPOCH),
            ended: None,
            limits,
            links: Connections::default(),
            commands: 0,
            floors: HashMap::default(),
            resumed: HashSet::default(),
            paid: vec![0; shards],
            has_unsent: vec![false; shards],
            closed: 0,
            gaps: Gaps::Exact,
            texts: HashMap::default(),
            numbers: None,
            page_len: usize::MAX,
        }
    }

    /// Has it number the topics.
    pub fn with_numbering(self, numbering: Numbering) -> Self {
        let numbers = (numbering == Numbering::WithHoles).then_some(0);
        Self { numbers, ..self }
    }

    pub fn topic(&self, name: &str) -> TopicName {
        TopicName::parse(name, &self.limits).expect("a valid name")
    }

    pub fn selector(&self, text: &str) -> Selector {
        Selector::parse(text, &self.limits).expect("a valid selector")
    }

    pub fn open(&mut self, shard: usize, encoding: EncodingIndex, room: usize) -> usize {
        let link = self.links.open_unattached(());
        let session = self.hubs[shard].open_session(link, encoding);
        let connection = Connection { room, ..Connection::default() };
        self.wires[shard].connections.insert(link, connection);
        let (selectors, options, commands) = (Vec::new(), HashMap::default(), Vec::new());
        let reader = Reader { shard, link, session, encoding, selectors, options, commands, room };
        self.readers.push(Some(reader));
        self.readers.len() - 1
    }

    /// Closes a reader's session and opens another on `shard` that resumes from where it stands, or so far beyond
    /// that.
    pub fn come_back(&mut self, reader: usize, shard: usize, beyond: u64) {
        let Some(known) = &self.readers[reader] else { return };
        let connection = &self.wires[known.shard].connections[&known.link];
        let (places, renewed) = (connection.places.clone(), connection.renewed.clone());
        let (encoding, room) = (known.encoding, known.room);
        let (selectors, options) = (known.selectors.clone(), known.options.clone());
        self.close(reader);
        self.open(shard, encoding, room);
        self.readers[reader] = self.readers.pop().expect("just opened");
        for selector in &selectors {
            let places = places.iter().filter(|(name, _)| selector.matches(name));
            let positions = places.map(|(name, at)| {
                let epoch = if renewed.contains(name) { SECOND_EPOCH } else { FIRST_EPOCH };
                let sequence = Sequence::new(*at + beyond).expect("a sequence");
                (self.topic(name), Position { epoch: Epoch::new(epoch), sequence })
            });
            let (positions, options) = (positions.collect(), options[selector].clone());
            self.subscribe_at(reader, vec![selector.clone()], Start::Now, positions, options);
        }
    }

    /// The store begins a second epoch, once: every shard hears of that, and changes over in its next turns.
    pub fn begin_epoch(&mut self) {
        if self.ended.is_none() {
            self.forget_floors_of_positions();
            self.ended = Some(self.heads.clone());
            let (old, new) = (Epoch::new(FIRST_EPOCH), Epoch::new(SECOND_EPOCH));
            self.hubs.iter_mut().for_each(|hub| hub.handle_epoch(&old, &new));
            self.epoch = new;
        }
    }

    /// Positions that no answer came to yet will be of another epoch than their topics: these are read from the beginning.
    fn forget_floors_of_positions(&mut self) {
        for reader in 0..self.readers.len() {
            let lines = self.lines(reader);
            let Some(known) = &self.readers[reader] else { continue };
            let is_answered = |id: &u64| lines.contains(&format!("subscribed {id}"));
            let waiting: HashSet<u64> =
                known.commands.iter().copied().filter(|id| !is_answered(id)).collect();
            self.floors.retain(|(id, name), _| {
                !waiting.contains(id) || !self.resumed.contains(&(*id, name.clone()))
            });
        }
    }

    /// The epoch that a publication was given its place in.
    pub fn epoch_of(&self, topic: &str, sequence: u64) -> &'static str {
        let ended = self.ended.as_ref();
        let is_of_first =
            ended.is_none_or(|ended| ended.get(topic).is_some_and(|head| sequence <= head.get()));
        if is_of_first { FIRST_EPOCH } else { SECOND_EPOCH }
    }

    /// The epoch that topics are of now.
    pub fn epoch(&self) -> &str {
        self.epoch.as_str()
    }

    /// Sessions that the hub closed come back.
    fn bring_back_the_closed(&mut self, shard: usize) {
        while let Some((link, _)) = self.hubs[shard].poll_closing() {
            let is_it = |it: &Option<Reader>| {
                it.as_ref().is_some_and(|it| (it.shard, it.link) == (shard, link))
            };
            if let Some(reader) = self.readers.iter().position(is_it) {
                self.closed += 1;
                self.come_back(reader, shard, 0);
            }
        }
    }

    /// What the store, a shard's memory and its recent deliveries have.
    fn available(&self, shard: usize) -> Available {
        let held = |topic: &TopicName| {
            let kept = self.hubs[shard].history(topic, Sequence::START);
            let kept = kept.chain(self.store.get(topic).into_iter().flatten());
            let kept = kept.map(Publication::sequence);
            kept.chain(self.hubs[shard].recent(topic)).map(Sequence::get).collect()
        };
        self.heads.keys().map(|topic| (topic.as_str().to_owned(), held(topic))).collect()
    }

    fn look(&mut self, shard: usize) {
        let is_new = |it: &&Connection| it.seen < it.bytes.len();
        let mut connections = self.wires[shard].connections.values().filter(is_new);
        let available = match connections.any(Connection::has_gap_or_rest) {
            true => Rc::new(self.available(shard)),
            false => Rc::default(),
        };
        for connection in self.wires[shard].connections.values_mut() {
            connection.look(&available, &self.texts, self.gaps);
        }
    }

    /// The text of a publication.
    pub fn text(&self, topic: &str, sequence: u64) -> Option<&str> {
        self.texts.get(topic)?.get(&sequence).map(String::as_str)
    }

    /// What was published to a topic in a range of sequences, oldest first.
    pub fn published_in(
        &self,
        topic: &str,
        sequences: impl RangeBounds<u64>,
    ) -> impl Iterator<Item = (u64, &str)> {
        let texts = self.texts.get(topic).into_iter();
        let found = texts.flat_map(move |texts| {
            texts.range((sequences.start_bound().cloned(), sequences.end_bound().cloned()))
        });
        found.map(|(sequence, text)| (*sequence, text.as_str()))
    }

    /// After what the newest `count` publications of a topic come, of those through `head`.
    pub(super) fn before_newest(&self, topic: &TopicName, count: u64, head: Sequence) -> Sequence {
        let texts = self.texts.get(topic.as_str()).into_iter();
        let mut newest_first = texts.flat_map(|texts| texts.range(..=head.get()).rev());
        let before = newest_first.nth(count as usize).map_or(0, |(sequence, _)| *sequence);
        Sequence::new(before).expect("small")
    }

    /// About a second passes for every shard.
    pub fn tick(&mut self) {
        self.hubs.iter_mut().for_each(Hub::handle_tick);
    }

    pub fn close(&mut self, reader: usize) {
        if let Some(gone) = self.readers[reader].take() {
            self.hubs[gone.shard].close_session(gone.session);
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.elapsed += time;
        self.now.unix_ms += time.as_millis() as u64;
    }

    pub fn throttle(&mut self, reader: usize, rates: Rates) {
        let Some(known) = &self.readers[reader] else { return };
        self.hubs[known.shard].set_rates(known.session, rates, self.now);
    }

    pub fn publish(&mut self, name: &str, text: &str) {
        self.publish_late(name, text, 0);
    }

    /// Publishes what was given to a slow store some time ago.
    pub fn publish_late(&mut self, name: &str, text: &str, late_ms: u64) {
        let topic = self.topic(name);
        let (previous, sequence) = self.next_place(&topic);
        self.publish_at(&topic, previous, sequence, text, late_ms);
    }

    /// Gives a publication its place, and no hub hears of it.
    pub fn publish_unheard(&mut self, name: &str, text: &str) {
        let topic = self.topic(name);
        let (_, sequence) = self.next_place(&topic);
        self.texts.entry(name.to_owned()).or_default().insert(sequence.get(), text.to_owned());
    }

    /// Publishes what nobody knows of what was before it.
    pub fn publish_unknown(&mut self, name: &str, text: &str) {
        let topic = self.topic(name);
        let (_, sequence) = self.next_place(&topic);
        self.publish_at(&topic, Sequence::START, sequence, text, 0);
    }

    fn publish_at(
        &mut self,
        topic: &TopicName,
        previous: Sequence,
        sequence: Sequence,
        text: &str,
        late_ms: u64,
    ) {
        let position = Position { epoch: self.epoch.clone(), sequence };
        let payload = Payload::new(PayloadKind::Text, text.as_bytes());
        let now = Moment { unix_ms: self.now.unix_ms - late_ms, ..self.now };
        let publication = Publication::after(previous, payload, sequence, now);
        self.published.push((topic.clone(), sequence, text.to_owned()));
        let texts = self.texts.entry(topic.as_str().to_owned()).or_default();
        texts.insert(sequence.get(), text.to_owned());
        self.keep_on_disk(topic, &publication);
        let home = home_shard(topic, self.hubs.len() as u16);
        self.has_unsent[usize::from(home.0)] = true;
        let hub = &mut self.hubs[usize::from(home.0)];
        hub.handle_kept(topic, &position, publication, self.now);
    }

    /// The sequence before the next publication of a topic, and its own.
    fn next_place(&mut self, topic: &TopicName) -> (Sequence, Sequence) {
        const OTHERS: [u64; 8] = [0, 3, 0, 1, 7, 0, 0, 2];
        let head = self.heads.entry(topic.clone()).or_insert(Sequence::START);
        let sequence = match &mut self.numbers {
            None => head.next(),
            Some(newest) => {
                *newest += 1 + OTHERS[(*newest % 8) as usize];
                Sequence::new(*newest).expect("small")
            }
        };
        (std::mem::replace(head, sequence), sequence)
    }

    fn keep_on_disk(&mut self, topic: &TopicName, publication: &Publication) {
        let policy = self.hubs[0].policy_for(topic);
        if policy.ack == AckLevel::Disk {
            let stored = self.store.entry(topic.clone()).or_default();
            stored.push_back(publication.clone());
            while stored.len() > policy.history_count.max(1) {
                stored.pop_front();
            }
        }
    }

    /// The store answers the pages that a shard asked for until now, at most so many.
    pub fn answer_pages(&mut self, shard: usize, count: usize) {
        for _ in 0..count {
            let Some(PageWanted { page, topic, after, count }) = self.pages[shard].pop_front()
            else {
                return;
            };
            let stored = self.store.get(&topic).into_iter().flatten();
            let found = stored.filter(|publication| publication.sequence() > after);
            let publications = found.take(count.min(self.page_len)).cloned().collect();
            self.hubs[shard].handle_page(page, publications);
        }
    }

    /// One turn of a shard: mail, answers of the backbone, mail out, flush.
    pub fn turn(&mut self, shard: usize, budget: usize) -> bool {
        while let Some((from, mail)) = self.mailboxes[shard].pop_front() {
            self.hubs[shard].handle_mail(from, mail, self.now);
        }
        while let Some(topic) = self.hubs[shard].poll_ask() {
            let sequence = self.heads.get(&topic).copied().unwrap_or(Sequence::START);
            let position = Position { epoch: self.epoch.clone(), sequence };
            self.hubs[shard].handle_head(&topic, &position);
        }
        self.hubs[shard].renew_some();
        self.send_mail(shard);
        let has_more = self.hubs[shard].flush(&mut self.wires[shard], budget, self.now);
        while let Some(page) = self.hubs[shard].poll_page() {
            self.pages[shard].push_back(page);
        }
        self.look(shard);
        self.bring_back_the_closed(shard);
        has_more
    }

    /// Whether mail is under way between shards.
    pub fn has_mail(&self) -> bool {
        self.mailboxes.iter().any(|mailbox| !mailbox.is_empty())
            || self.waiting.iter().flatten().any(|waiting| !waiting.is_empty())
    }

    fn send_mail(&mut self, shard: usize) {
        self.has_unsent[shard] = false;
        let own = ShardIndex(shard as u16);
        for to in 0..self.hubs.len() {
            while self.mailboxes[to].len() < self.mailbox_len_max
                && let Some(mail) = self.waiting[shard][to].pop_front()
            {
                self.mailboxes[to].push_back((own, mail));
            }
            let has_room = self.waiting[shard][to].is_empty()
                && self.mailboxes[to].len() < self.mailbox_len_max;
            if has_room && self.hubs[shard].has_lapped_followers() {
                self.hubs[shard].handle_room(ShardIndex(to as u16));
            }
        }
        let work = self.hubs[shard].work();
        let mut paid = work - std::mem::replace(&mut self.paid[shard], work);
        while let Some((to, mail)) = self.hubs[shard].poll_mail() {
            // So a turn has no more to send than what it may do.
            paid = paid.checked_sub(1).expect("each message is a step at least");
            let index = usize::from(to.0);
            let is_full = !self.waiting[shard][index].is_empty()
                || self.mailboxes[index].len() >= self.mailbox_len_max;
            match (is_full, &mail) {
                (false, _) => self.mailboxes[index].push_back((own, mail)),
                (true, HubMail::Deliver { .. }) => self.hubs[shard].handle_mail_refused(to, &mail),
                (true, _) => self.waiting[shard][index].push_back(mail),
            }
        }
    }

    pub fn give_room(&mut self, reader: usize, bytes: usize) {
        let Some(known) = &self.readers[reader] else { return };
        let connections = &mut self.wires[known.shard].connections;
        let connection = connections.get_mut(&known.link).expect("the link is open");
        connection.room = connection.room.saturating_add(bytes);
        connection.is_full = false;
        self.hubs[known.shard].handle_writable(known.session);
    }

    /// Lets a reader's connection take so many bytes from now on, and no more.
    pub fn take_room(&mut self, reader: usize, room: usize) {
        let Some(known) = &self.readers[reader] else { return };
        let connections = &mut self.wires[known.shard].connections;
        connections.get_mut(&known.link).expect("the link is open").room = room;
    }

    /// Gives everybody room and lets all shards work until nothing is left to do.
    pub fn settle(&mut self) {
        // Who is ahead of a shard is told a gap once two ticks passed and the topic's home was asked.
        let (mut quiet, mut closed) = (0, self.closed);
        while quiet < 4 {
            self.settle_now();
            self.tick();
            quiet = if self.closed == closed { quiet + 1 } else { 0 };
            closed = self.closed;
        }
        self.settle_now();
    }

    fn settle_now(&mut self) {
        for _ in 0..100_000 {
            for reader in 0..self.readers.len() {
                self.give_room(reader, usize::MAX / 4);
            }
            let (mut is_busy, closed) = (false, self.closed);
            for shard in 0..self.hubs.len() {
                self.answer_pages(shard, usize::MAX);
                is_busy |= self.turn(shard, 100);
                is_busy |= !self.pages[shard].is_empty();
            }
            is_busy |= self.closed > closed;
            let has_mail = self.mailboxes.iter().any(|mailbox| !mailbox.is_empty())
                || self.waiting.iter().flatten().any(|waiting| !waiting.is_empty())
                || self.hubs.iter().any(Hub::has_lapped_followers);
            if is_busy || has_mail {
                continue;
            }
            let due = self.hubs.iter().filter_map(Hub::due_at).min();
            let Some(due) = due else { return };
            self.pass(due.saturating_sub(self.now.elapsed));
        }
        panic!("the node does not come to rest");
    }

    /// The whole lines that a reader received.
    pub fn lines(&self, reader: usize) -> Vec<String> {
        let Some(known) = &self.readers[reader] else { return Vec::new() };
        let (messages, _) = whole_messages(&self.wires[known.shard].connections[&known.link].bytes);
        messages.iter().flat_map(|message| message.lines().map(str::to_owned)).collect()
    }

    pub fn sends(&self, reader: usize) -> usize {
        let known = self.readers[reader].as_ref().expect("open");
        self.wires[known.shard].connections[&known.link].sends
    }
}
