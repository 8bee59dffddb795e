//! How far the application was handed what its subscriptions were told. Pure.
//!
//! Received updates are further: they wait for [`Client::next`](crate::Client::next). Positions that are stored have to be
//! of what was handed out, or what waits would be lost to whoever goes on from them.

use std::collections::HashMap;

use model::{Position, RandomState, TopicName};

/// Updates of a topic that are not handed out yet.
#[derive(Debug)]
struct Ahead {
    last: Position,
    /// Where the topic is after that: there may be nothing up to there.
    through: Position,
}

/// The positions of one subscription, as its user may store them.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    handed: HashMap<TopicName, Position, RandomState>,
    ahead: HashMap<TopicName, Ahead, RandomState>,
}

impl Progress {
    /// It goes on from `positions`.
    pub(crate) fn new(positions: &[(TopicName, Position)]) -> Self {
        Self { handed: positions.iter().cloned().collect(), ahead: HashMap::default() }
    }

    /// Where it is in each topic.
    pub(crate) fn positions(&self) -> Vec<(TopicName, Position)> {
        self.handed.iter().map(|(topic, at)| (topic.clone(), at.clone())).collect()
    }

    /// Notes that something is to be handed out.
    pub(crate) fn handle_told(&mut self, topic: TopicName, at: Position) {
        self.ahead.insert(topic, Ahead { last: at.clone(), through: at });
    }

    /// Notes that there is nothing up to a place, after what was told before.
    pub(crate) fn handle_passed(&mut self, topic: TopicName, at: Position) {
        match self.ahead.get_mut(&topic) {
            Some(ahead) => ahead.through = at,
            None => drop(self.handed.insert(topic, at)),
        }
    }

    /// Notes that the application has it.
    pub(crate) fn handle_handed(&mut self, topic: &TopicName, at: Position) {
        let is_last = self.ahead.get(topic).is_none_or(|ahead| ahead.last == at);
        let through =
            if is_last { self.ahead.remove(topic).map(|ahead| ahead.through) } else { None };
        self.handed.insert(topic.clone(), through.unwrap_or(at));
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Limits, Sequence};

    use super::*;

    fn at(number: u64) -> Position {
        Position { epoch: Epoch::new("e"), sequence: Sequence::new(number).expect("small") }
    }

    #[test]
    fn positions_are_of_what_was_handed_out_and_pass_over_nothing() {
        let topic = TopicName::parse("a", &Limits::default()).expect("valid");
        let mut progress = Progress::new(&[(topic.clone(), at(7))]);
        let mut said = vec![progress.positions()[0].1.clone()];
        progress.handle_passed(topic.clone(), at(8));
        said.push(progress.positions()[0].1.clone());
        progress.handle_told(topic.clone(), at(9));
        progress.handle_told(topic.clone(), at(10));
        progress.handle_passed(topic.clone(), at(12));
        said.push(progress.positions()[0].1.clone());
        for handed in [9, 10] {
            progress.handle_handed(&topic, at(handed));
            said.push(progress.positions()[0].1.clone());
        }
        assert_eq!(said, [7, 8, 8, 9, 12].map(at));
    }
}
