//! What readers of a node ask for, and where each topic must start at the earliest.

use std::sync::Arc;

use model::{
    CommandId, Epoch, Position, Resume, Selector, Sequence, Start, Subscribe, SubscribeOptions,
    TopicName, Unread, Unsubscribe,
};

use super::Node;

impl Node {
    pub fn subscribe(&mut self, reader: usize, selectors: &[&str], start: Start) {
        self.subscribe_with(reader, selectors, start, SubscribeOptions::default());
    }

    pub fn subscribe_with(
        &mut self,
        reader: usize,
        selectors: &[&str],
        start: Start,
        options: SubscribeOptions,
    ) {
        self.subscribe_from(reader, selectors, start, Vec::new(), options);
    }

    /// Subscribes, with positions by name; answers the command's number.
    pub fn subscribe_from(
        &mut self,
        reader: usize,
        selectors: &[&str],
        start: Start,
        positions: Vec<(&str, u64)>,
        options: SubscribeOptions,
    ) -> u64 {
        let selectors: Vec<Selector> = selectors.iter().map(|text| self.selector(text)).collect();
        let position = |at| Position {
            epoch: self.epoch.clone(),
            sequence: Sequence::new(at).expect("a sequence"),
        };
        let positions = positions.into_iter().map(|(name, at)| (self.topic(name), position(at)));
        let positions = positions.collect();
        self.subscribe_at(reader, selectors, start, positions, options)
    }

    pub(super) fn subscribe_at(
        &mut self,
        reader: usize,
        selectors: Vec<Selector>,
        start: Start,
        positions: Vec<(TopicName, Position)>,
        options: SubscribeOptions,
    ) -> u64 {
        self.commands += 1;
        let id = Some(CommandId(self.commands));
        let Some(known) = &mut self.readers[reader] else { return 0 };
        for selector in &selectors {
            known.selectors.retain(|kept| kept != selector);
            known.selectors.push(selector.clone());
            known.options.insert(selector.clone(), options.clone());
        }
        known.commands.push(self.commands);
        let shard = known.shard;
        let has_mail = self.has_unsent.iter().any(|it| *it)
            || self.mailboxes.iter().any(|mailbox| !mailbox.is_empty())
            || self.waiting.iter().flatten().any(|waiting| !waiting.is_empty());
        // What is on its way may be older than now.
        let topics = selectors.iter().filter_map(Selector::to_topic).filter(|_| !has_mail);
        let mut floors = Vec::new();
        for name in topics {
            // Where it is known here already it starts there, and otherwise where its home is at the least.
            let head = || self.heads.get(&name).copied().unwrap_or(Sequence::START);
            let head = self.hubs[shard].standing(&name).map_or_else(head, |(at, _)| at.sequence);
            let floor = match (&start, positions.iter().find(|(topic, _)| *topic == name)) {
                (_, Some((_, at))) if at.sequence > head || at.epoch != self.epoch => {
                    Sequence::START
                }
                (_, Some((_, at))) => at.sequence,
                (Start::Now, None) => head,
                (Start::Last(count), None) => self.before_newest(&name, *count, head),
                (Start::Snapshot, None) => self.before_newest(&name, 1, head),
                (Start::All | Start::Since(_) | Start::Resume(_), None) => Sequence::START,
            };
            let about = (self.commands, name.as_str().to_owned());
            if positions.iter().any(|(topic, _)| *topic == name) {
                self.resumed.insert(about.clone());
            }
            floors.push((about, floor.get()));
        }
        self.floors.extend(floors);
        let wanted =
            Subscribe { subscription: None, selectors, start, positions, name: None, options };
        let session = self.readers[reader].as_ref().expect("open").session;
        self.hubs[shard].subscribe(session, id, wanted).expect("within limits");
        self.commands
    }

    /// Subscribes a reader that keeps no positions, from its last id if it has one, and the epoch that topics were of when it was told that.
    pub fn subscribe_resumably(
        &mut self,
        reader: usize,
        selectors: &[&str],
        start: Start,
        last_id: Option<(&str, &str)>,
    ) {
        let selectors = selectors.iter().map(|text| self.selector(text)).collect();
        let options = SubscribeOptions { is_resumable: true, ..SubscribeOptions::default() };
        let mut wanted = Subscribe {
            subscription: None,
            selectors,
            start,
            positions: Vec::new(),
            name: None,
            options,
        };
        if let Some((id, epoch)) = last_id {
            let epoch = Epoch::new(epoch);
            let words: Vec<&str> = id.split(' ').collect();
            let number = |word: &str| word.parse::<u64>().expect("a number");
            let has_before_ms = number(words[0]);
            let unread = words.get(3).map(|unread_before_ms| {
                let after = self.topic(words[1]);
                let sequence = Sequence::new(number(words[2])).expect("small");
                let position = Position { epoch: epoch.clone(), sequence };
                wanted.positions.push((after.clone(), position));
                let start = words.get(4).map(|_| wanted.start.clone());
                Unread { after, has_before_ms: number(unread_before_ms), start }
            });
            let epochs = Arc::new([epoch]);
            wanted.start = Start::Resume(Box::new(Resume { epochs, has_before_ms, unread }));
        }
        let Some(known) = &self.readers[reader] else { return };
        self.hubs[known.shard].handle_time(self.now);
        self.hubs[known.shard].subscribe(known.session, None, wanted).expect("within limits");
    }

    pub fn unsubscribe(&mut self, reader: usize, selector: &str) {
        let selector = self.selector(selector);
        let Some(known) = &mut self.readers[reader] else { return };
        if !known.selectors.contains(&selector) {
            return;
        }
        known.selectors.retain(|kept| *kept != selector);
        // What is taken back before it is answered starts nowhere.
        self.floors.retain(|(id, name), _| {
            name != selector.as_str() || known.commands.binary_search(id).is_err()
        });
        let unwanted = Unsubscribe::Selectors(vec![selector]);
        // It may have been taken away meanwhile.
        let _ = self.hubs[known.shard].unsubscribe(known.session, None, unwanted);
    }
}
