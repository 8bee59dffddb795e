//! The subscriptions of a client and what each is at. Pure.
//!
//! A subscription outlives connections. It is `Waiting` while there is none, `Asked` from the
//! command until the answer, then `Live`; a break takes it back to `Waiting`. A refusal, or an
//! unsubscribe, ends it.

use model::{CommandId, DeltaKind, Position, Selector, Start, Subscribe, TopicName};

/// What a subscription is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionState {
    /// There is no connection; it will be asked for again.
    Waiting,
    /// The server was asked and has not answered yet.
    Asked,
    /// The server sends its publications.
    Live,
}

/// One subscription.
#[derive(Clone, Debug)]
struct Subscription {
    wanted: Subscribe,
    asked_as: Option<CommandId>,
    state: SubscriptionState,
    /// It was live once: what comes next must join on to what was read.
    was_live: bool,
}

impl Subscription {
    fn reads(&self, topic: &TopicName) -> bool {
        self.wanted.selectors.iter().any(|selector| selector.matches(topic.as_str()))
    }

    /// What to say to read on from `positions`.
    fn resumed(&self, positions: &[(TopicName, Position)]) -> Subscribe {
        let start = if self.was_live { Start::All } else { self.wanted.start.clone() };
        let own = positions.iter().filter(|(topic, _)| self.reads(topic));
        Subscribe { start, positions: own.cloned().collect(), ..self.wanted.clone() }
    }
}

/// All subscriptions of one client.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    all: Vec<Subscription>,
}

impl Subscriptions {
    /// Adds one; what has the same selectors is replaced.
    pub fn add(&mut self, wanted: Subscribe, asked_as: Option<CommandId>) {
        self.all.retain(|known| known.wanted.selectors != wanted.selectors);
        let state = match asked_as {
            Some(_) => SubscriptionState::Asked,
            None => SubscriptionState::Waiting,
        };
        self.all.push(Subscription { wanted, asked_as, state, was_live: false });
    }

    /// Ends what was subscribed with `selector`; answers whether there was such a thing.
    pub fn remove(&mut self, selector: &Selector) -> bool {
        let mut found = false;
        for known in &mut self.all {
            let before = known.wanted.selectors.len();
            known.wanted.selectors.retain(|kept| kept != selector);
            found |= known.wanted.selectors.len() < before;
        }
        self.all.retain(|known| !known.wanted.selectors.is_empty());
        found
    }

    /// What to say on a new connection, each with the positions it resumes from. A topic without a
    /// position came into being meanwhile: all of it is news.
    pub fn wanted(&self, positions: &[(TopicName, Position)]) -> Vec<Subscribe> {
        self.all.iter().map(|known| known.resumed(positions)).collect()
    }

    /// Whether any of them selects `topic`.
    pub fn read(&self, topic: &TopicName) -> bool {
        self.all.iter().any(|known| known.reads(topic))
    }

    /// What to say so that `topic` comes whole, of a subscription that asked for deltas; and its index.
    pub fn without_deltas(
        &mut self,
        topic: &TopicName,
        positions: &[(TopicName, Position)],
    ) -> Option<(usize, Subscribe)> {
        let mut all = self.all.iter_mut().enumerate();
        let (index, known) = all.find(|(_, known)| known.reads(topic))?;
        if known.wanted.options.delta == DeltaKind::None {
            return None;
        }
        known.wanted.options.delta = DeltaKind::None;
        Some((index, known.resumed(positions)))
    }

    /// Notes that the subscription at `index` was asked for.
    pub fn handle_asked(&mut self, index: usize, id: CommandId) {
        if let Some(known) = self.all.get_mut(index) {
            (known.asked_as, known.state) = (Some(id), SubscriptionState::Asked);
        }
    }

    /// Notes that the server answered.
    pub fn handle_subscribed(&mut self, id: Option<CommandId>) {
        for known in self.all.iter_mut().filter(|known| known.asked_as == id) {
            (known.state, known.was_live) = (SubscriptionState::Live, true);
        }
    }

    /// Forgets what the server refused.
    pub fn handle_refused(&mut self, id: Option<CommandId>) {
        let is_it = |known: &Subscription| {
            known.state == SubscriptionState::Asked && id.is_some() && known.asked_as == id
        };
        self.all.retain(|known| !is_it(known));
    }

    /// Notes that the connection is gone: everything has to be asked for again.
    pub fn handle_disconnect(&mut self) {
        for known in &mut self.all {
            (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
        }
    }

    /// What the subscription with `selector` is at.
    pub fn state(&self, selector: &Selector) -> Option<SubscriptionState> {
        let mut all = self.all.iter();
        all.find(|known| known.wanted.selectors.contains(selector)).map(|known| known.state)
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Limits, Sequence, SubscribeOptions};

    use super::*;

    fn selector(text: &str) -> Selector {
        Selector::parse(text, &Limits::default()).expect("valid")
    }

    fn subscribe(text: &str) -> Subscribe {
        Subscribe {
            selectors: vec![selector(text)],
            start: Start::Snapshot,
            positions: Vec::new(),
            name: None,
            options: SubscribeOptions::default(),
        }
    }

    #[test]
    fn a_subscription_goes_through_its_states() {
        let (mut all, id) = (Subscriptions::default(), Some(CommandId(7)));
        all.add(subscribe("a/+"), id);
        assert_eq!(all.state(&selector("a/+")), Some(SubscriptionState::Asked));
        all.handle_subscribed(id);
        assert_eq!(all.state(&selector("a/+")), Some(SubscriptionState::Live));
        all.handle_disconnect();
        assert_eq!(all.state(&selector("a/+")), Some(SubscriptionState::Waiting));
        all.handle_asked(0, CommandId(9));
        all.handle_refused(Some(CommandId(9)));
        assert_eq!(all.state(&selector("a/+")), None);
    }

    #[test]
    fn each_resumes_from_the_positions_of_its_own_topics() {
        let mut all = Subscriptions::default();
        all.add(subscribe("a/+"), None);
        all.add(subscribe("b"), None);
        let at = |topic: &str| {
            let sequence = Sequence::new(3).expect("small");
            let topic = TopicName::parse(topic, &Limits::default()).expect("valid");
            (topic, Position { epoch: Epoch::new("e"), sequence })
        };
        let wanted = all.wanted(&[at("a/x"), at("b"), at("c")]);
        assert_eq!(wanted[0].positions, [at("a/x")]);
        assert_eq!(wanted[1].positions, [at("b")]);
        assert!(all.remove(&selector("b")) && !all.remove(&selector("b")));
        assert_eq!(all.wanted(&[]).len(), 1);
    }
}
