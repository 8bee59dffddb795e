//! Who handles which requests, on all shards.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::{HashMap, Selector, TopicName};
use slab::Slab;

use crate::tables::connections::ShardConnection;
use crate::topics::selector_tree::SelectorTree;

/// A session that handles the topics of a selector.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Its connection.
    pub connection: ShardConnection,
    /// What it handles.
    pub selector: Selector,
    /// Its public name.
    pub session: Arc<str>,
    /// Whose it is.
    pub principal: Arc<str>,
    /// What it called itself.
    pub client: Option<Arc<str>>,
}

/// Every registration of the node.
#[derive(Debug, Default)]
pub(super) struct Handlers {
    all: Slab<Registration>,
    tree: SelectorTree<u32>,
    /// Those of each connection.
    of_connection: HashMap<ShardConnection, HashMap<Selector, u32>>,
    /// Grows with each request, so that equal handlers take turns.
    turn: usize,
}

/// Goes through those who handle a topic, as far as it was let.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Those that were not looked at yet, the next one last.
    rest: Vec<u32>,
}

impl Handlers {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn add(&mut self, registration: Registration) {
        let Registration { connection, ref selector, .. } = registration;
        self.remove(connection, Some(selector));
        let selector = selector.clone();
        let index = self.all.insert(registration) as u32;
        self.tree.insert(&selector, index);
        self.of_connection.entry(connection).or_default().insert(selector, index);
    }

    /// Removes what a session handles: one selector, or all. Answers how many it were.
    pub fn remove(&mut self, connection: ShardConnection, only: Option<&Selector>) -> usize {
        let Some(indices) = self.of_connection.get_mut(&connection) else { return 0 };
        let gone = match only {
            Some(selector) => indices.remove_entry(selector).into_iter().collect(),
            None => std::mem::take(indices),
        };
        if indices.is_empty() {
            self.of_connection.remove(&connection);
        }
        for (selector, index) in &gone {
            self.all.remove(*index as usize);
            self.tree.remove(selector, *index);
        }
        gone.len()
    }

    /// Whether a connection handles a selector.
    pub fn has(&self, connection: ShardConnection, selector: &Selector) -> bool {
        self.of_connection.get(&connection).is_some_and(|known| known.contains_key(selector))
    }

    /// Shows `take` those who handle a topic, the most specific first and equal ones in turn, until it wants no
    /// more; answers how many were looked at.
    pub fn visit(
        &mut self,
        topic: &TopicName,
        mut take: impl FnMut(&Registration) -> ControlFlow<()>,
    ) -> usize {
        let (all, turn, mut steps) = (&self.all, self.turn, 0);
        self.turn = self.turn.wrapping_add(1);
        // How it ended does not matter here.
        let _ = self.tree.visit_specific_first(topic.as_str(), &mut |equal| {
            let equal = equal.as_slice();
            let (before, from) = equal.split_at(turn % equal.len());
            from.iter().chain(before).try_for_each(|index| {
                steps += 1;
                take(&all[*index as usize])
            })
        });
        steps
    }

    /// All who handle a topic, in the same order, to be looked at little by little.
    pub fn walk(&mut self, topic: &TopicName) -> Walk {
        let (turn, mut rest) = (self.turn, Vec::new());
        self.turn = self.turn.wrapping_add(1);
        let _ = self.tree.visit_specific_first(topic.as_str(), &mut |equal| {
            let equal = equal.as_slice();
            let (before, from) = equal.split_at(turn % equal.len());
            rest.extend(from.iter().chain(before));
            ControlFlow::Continue(())
        });
        rest.reverse();
        Walk { rest }
    }

    /// The next one of a walk, if that is still there; `None` at its end.
    pub fn next(&self, walk: &mut Walk, topic: &TopicName) -> Option<Option<&Registration>> {
        let index = walk.rest.pop()?;
        let known = self.all.get(index as usize);
        // Its place may be another one's by now.
        Some(known.filter(|known| known.selector.matches(topic.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;
    use crate::tables::connections::ConnectionId;
    use crate::tables::index::ShardIndex;

    fn connection(place: u32) -> ShardConnection {
        ShardConnection { shard: ShardIndex(0), id: ConnectionId::for_test(place) }
    }

    fn registration(link: u32, selector: &str) -> Registration {
        Registration {
            connection: connection(link),
            selector: Selector::parse(selector, &Limits::default()).expect("valid"),
            session: format!("s{link}").as_str().into(),
            principal: "p".into(),
            client: None,
        }
    }

    fn links(handlers: &mut Handlers, topic: &str) -> Vec<u32> {
        let topic = TopicName::parse(topic, &Limits::default()).expect("valid");
        let mut links = Vec::new();
        handlers.visit(&topic, |found| {
            links.push(found.connection.id.place());
            ControlFlow::Continue(())
        });
        links
    }

    #[test]
    fn the_most_specific_goes_first_and_equal_ones_take_turns() {
        let mut handlers = Handlers::default();
        for (link, selector) in [(1, "#"), (2, "a/#"), (3, "a/+"), (4, "a/b"), (5, "a/b")] {
            handlers.add(registration(link, selector));
        }
        let (one, other) = (links(&mut handlers, "a/b"), links(&mut handlers, "a/b"));
        assert_eq!((one.len(), one[2..].to_vec()), (5, vec![3, 2, 1]));
        assert_eq!(other[..2], [one[1], one[0]], "they take turns");
        assert_eq!(links(&mut handlers, "a/c/d"), [2, 1]);
    }

    #[test]
    fn a_session_registers_each_selector_once() {
        let mut handlers = Handlers::default();
        handlers.add(registration(1, "a"));
        handlers.add(registration(1, "a"));
        handlers.add(registration(1, "b"));
        assert_eq!(handlers.len(), 2);
        assert_eq!(handlers.remove(connection(1), None), 2);
        assert_eq!(links(&mut handlers, "a"), Vec::<u32>::new());
    }
}
