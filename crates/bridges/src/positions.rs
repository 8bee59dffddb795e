//! How far a bridge came, kept by the server under names of subscribers. Pure.
//!
//! One name knows only so many topics, and writes all of them whenever one changes. So a bridge has several names,
//! each for a share of its topics, and puts together itself what they came to.

use std::collections::VecDeque;

use model::{Acknowledge, Limits, Position, SubscriberName, TopicName};
use protocol::native::json;
use sha2::{Digest, Sha256};

/// The names of one bridge; without a store the server remembers none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PositionStore {
    /// Whose names they are: a principal.
    owner: &'static str,
    names: Vec<SubscriberName>,
}

impl PositionStore {
    pub(crate) fn new(owner: &'static str, names: Vec<SubscriberName>) -> Self {
        Self { owner, names }
    }

    /// The topics whose values say what the names came to.
    pub(crate) fn topics(&self, limits: &Limits) -> VecDeque<TopicName> {
        let topic = |name: &SubscriberName| {
            let text = format!("$subscribers/{}/{}", self.owner, name.as_str());
            TopicName::parse(&text, limits).expect("names are levels of topics")
        };
        self.names.iter().map(topic).collect()
    }

    /// The content of such a value.
    pub(crate) fn read(value: &[u8], limits: &Limits) -> Vec<(TopicName, Position)> {
        json::decode_positions(value, limits).unwrap_or_default().into_iter().collect()
    }

    /// The commands that have `positions` kept.
    pub(crate) fn commands(&self, positions: Vec<(TopicName, Position)>) -> VecDeque<Acknowledge> {
        let command =
            |name: &SubscriberName| Acknowledge { name: name.clone(), positions: Vec::new() };
        let mut commands: VecDeque<Acknowledge> = self.names.iter().map(command).collect();
        if commands.is_empty() {
            return commands;
        }
        for (topic, position) in positions {
            // Not to be changed: what is on disk is found by it.
            let part = usize::from(Sha256::digest(topic.as_str())[0]) % commands.len();
            commands[part].positions.push((topic, position));
        }
        commands.retain(|command| !command.positions.is_empty());
        commands
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Sequence};

    use super::*;

    #[test]
    fn each_topic_has_one_name_and_all_names_have_some() {
        let limits = Limits::default();
        let name = |part| SubscriberName::parse(&format!("webhook.w.{part:x}")).expect("valid");
        let store = PositionStore::new("$webhooks", (0..16).map(name).collect());
        let at = Position { epoch: Epoch::new("e"), sequence: Sequence::START.next() };
        let topic = |number| TopicName::parse(&format!("a/{number}"), &limits).expect("valid");
        let positions: Vec<_> = (0..1_000).map(|number| (topic(number), at.clone())).collect();
        let commands = store.commands(positions.clone());
        assert_eq!(commands.len(), 16);
        assert_eq!(commands.iter().map(|it| it.positions.len()).sum::<usize>(), 1_000);
        let again = store.commands(vec![positions[7].clone()]);
        let has_it = |it: &&Acknowledge| it.positions.contains(&positions[7]);
        assert_eq!(commands.iter().find(has_it).map(|it| &it.name), Some(&again[0].name));
        assert!(PositionStore::default().commands(positions).is_empty());
        assert_eq!(store.topics(&limits)[10].as_str(), "$subscribers/$webhooks/webhook.w.a");
    }
}
