//! Who handles which requests, on all shards.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::{Selector, TopicName};
use slab::Slab;

use crate::index::ShardIndex;
use crate::selector_tree::SelectorTree;

/// A session that handles the topics of a selector.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Where the session is.
    pub shard: ShardIndex,
    /// Its connection there.
    pub link: u32,
    /// Which connection of that number.
    pub serial: u32,
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
    of_link: HashMap<(ShardIndex, u32), Vec<u32>, RandomState>,
    /// Grows with each request, so that equal handlers take turns.
    turn: usize,
}

impl Handlers {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn add(&mut self, registration: Registration) {
        let Registration { shard, link, serial, ref selector, .. } = registration;
        self.remove(shard, link, serial, Some(selector));
        let selector = selector.clone();
        let index = self.all.insert(registration) as u32;
        self.tree.insert(&selector, index);
        self.of_link.entry((shard, link)).or_default().push(index);
    }

    /// Removes what a session handles: one selector, or all. Answers how many it were.
    pub fn remove(
        &mut self,
        shard: ShardIndex,
        link: u32,
        serial: u32,
        only: Option<&Selector>,
    ) -> usize {
        let Some(indices) = self.of_link.get_mut(&(shard, link)) else { return 0 };
        let (all, tree) = (&mut self.all, &mut self.tree);
        let before = indices.len();
        indices.retain(|index| {
            let known = &all[*index as usize];
            let is_it = known.serial == serial && only.is_none_or(|only| *only == known.selector);
            if is_it {
                let gone = all.remove(*index as usize);
                tree.remove(&gone.selector, *index);
            }
            !is_it
        });
        let gone = before - indices.len();
        if indices.is_empty() {
            self.of_link.remove(&(shard, link));
        }
        gone
    }

    /// Those who handle a topic and are accepted, the most specific first; equal ones take turns.
    pub fn candidates(
        &mut self,
        topic: &TopicName,
        accepts: impl Fn(&Registration) -> bool,
    ) -> Vec<Registration> {
        let mut found: Vec<u32> = Vec::new();
        self.tree.visit_matches(topic.as_str(), &mut |index| found.push(index));
        found.retain(|index| accepts(&self.all[*index as usize]));
        let rank = |index: &u32| specificity(&self.all[*index as usize].selector);
        found.sort_by_cached_key(|index| (std::cmp::Reverse(rank(index)), *index));
        if let Some(first) = found.first() {
            let best = rank(first);
            let equal = found.iter().take_while(|index| rank(index) == best).count();
            found[..equal].rotate_left(self.turn % equal);
            self.turn = self.turn.wrapping_add(1);
        }
        found.into_iter().map(|index| self.all[index as usize].clone()).collect()
    }
}

/// Greater for what is more specific: level by level a name before `+` before `#`.
fn specificity(selector: &Selector) -> Vec<u8> {
    let rank = |level| match level {
        "#" => 0,
        "+" => 1,
        _ => 2,
    };
    selector.as_str().split('/').map(rank).collect()
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;

    fn registration(link: u32, selector: &str) -> Registration {
        Registration {
            shard: ShardIndex(0),
            link,
            serial: 1,
            selector: Selector::parse(selector, &Limits::default()).expect("valid"),
            session: format!("s{link}").as_str().into(),
            principal: "p".into(),
            client: None,
        }
    }

    fn links(handlers: &mut Handlers, topic: &str) -> Vec<u32> {
        let topic = TopicName::parse(topic, &Limits::default()).expect("valid");
        handlers.candidates(&topic, |_| true).iter().map(|found| found.link).collect()
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
        assert_eq!(handlers.remove(ShardIndex(0), 1, 1, None), 2);
        assert_eq!(links(&mut handlers, "a"), Vec::<u32>::new());
    }
}
