//! Subscriptions by what they select: a tree over the levels of their selectors, so that thousands of them cost a
//! walk and no comparison. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::{Selector, TopicName};

use crate::subscription_id::SubscriptionId;

#[derive(Debug, Default)]
struct Node {
    children: BTreeMap<Box<str>, Node>,
    /// Those with a selector that ends here.
    readers: BTreeSet<SubscriptionId>,
}

/// The subscriptions by their selectors, as a tree of levels.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: Node,
    /// Nodes that were looked at: what tests count in place of time.
    #[cfg(test)]
    steps: std::cell::Cell<usize>,
}

impl Tree {
    /// Adds somebody with these selectors.
    pub(crate) fn add(&mut self, id: SubscriptionId, selectors: &[Selector]) {
        for selector in selectors {
            let mut node = &mut self.root;
            for level in selector.as_str().split('/') {
                node = node.children.entry(level.into()).or_default();
            }
            node.readers.insert(id);
        }
    }

    /// Takes somebody away who was added with these selectors.
    pub(crate) fn remove(&mut self, id: SubscriptionId, selectors: &[Selector]) {
        for selector in selectors {
            self.root.remove(id, selector.as_str().split('/'));
        }
    }

    /// Those who select `topic`, each once, the oldest first.
    pub(crate) fn readers_of(&self, topic: &TopicName) -> BTreeSet<SubscriptionId> {
        let mut found = BTreeSet::new();
        let is_servers = topic.as_str().starts_with('$');
        self.gather(&self.root, topic.as_str().split('/'), is_servers, &mut found);
        found
    }

    /// One who may select a topic that any of `selectors` selects, and whom `is_it` accepts.
    pub(crate) fn first(
        &self,
        selectors: &[Selector],
        is_it: impl Fn(SubscriptionId) -> bool,
    ) -> Option<SubscriptionId> {
        let mut take =
            |id| if is_it(id) { ControlFlow::Break(id) } else { ControlFlow::Continue(()) };
        self.overlapping(selectors, &mut take).break_value()
    }

    /// All who may select a topic that any of `selectors` selects, the oldest first.
    pub(crate) fn all(&self, selectors: &[Selector]) -> BTreeSet<SubscriptionId> {
        let mut found = BTreeSet::new();
        let mut take = |id| {
            found.insert(id);
            ControlFlow::<()>::Continue(())
        };
        let _ = self.overlapping(selectors, &mut take);
        found
    }

    fn overlapping<B>(
        &self,
        selectors: &[Selector],
        take: &mut impl FnMut(SubscriptionId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        selectors.iter().try_for_each(|selector| {
            let mut levels = selector.as_str().split('/').collect::<Vec<_>>();
            levels.reverse();
            self.meet(&self.root, &mut levels, take)
        })
    }

    /// Visits the nodes of those selectors that overlap with what remains of one; `levels` has its next level last.
    fn meet<B>(
        &self,
        node: &Node,
        levels: &mut Vec<&str>,
        take: &mut impl FnMut(SubscriptionId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.note_step();
        let Some(level) = levels.pop() else {
            // "a" and "a/#" overlap, because "#" includes the level before it.
            let rest = node.children.get("#").into_iter().flat_map(|rest| &rest.readers);
            return node.readers.iter().chain(rest).try_for_each(|id| take(*id));
        };
        let found = match level {
            "#" => self.meet_all_below(node, take),
            _ => self.meet_level(node, level, levels, take),
        };
        levels.push(level);
        found
    }

    fn meet_level<B>(
        &self,
        node: &Node,
        level: &str,
        levels: &mut Vec<&str>,
        take: &mut impl FnMut(SubscriptionId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if let Some(rest) = node.children.get("#") {
            rest.readers.iter().try_for_each(|id| take(*id))?;
        }
        if level == "+" {
            let others = node.children.iter().filter(|(name, _)| &***name != "#");
            return others.map(|(_, child)| child).try_for_each(|it| self.meet(it, levels, take));
        }
        let named = [level, "+"].into_iter().filter_map(|name| node.children.get(name));
        named.into_iter().try_for_each(|child| self.meet(child, levels, take))
    }

    fn meet_all_below<B>(
        &self,
        node: &Node,
        take: &mut impl FnMut(SubscriptionId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.note_step();
        node.readers.iter().try_for_each(|id| take(*id))?;
        node.children.values().try_for_each(|child| self.meet_all_below(child, take))
    }

    fn gather<'a>(
        &self,
        node: &Node,
        mut levels: std::str::Split<'a, char>,
        is_servers: bool,
        found: &mut BTreeSet<SubscriptionId>,
    ) {
        self.note_step();
        // Wildcards in the first level select none of the server's own topics.
        if let Some(rest) = node.children.get("#").filter(|_| !is_servers) {
            found.extend(&rest.readers);
        }
        let Some(level) = levels.next() else { return found.extend(&node.readers) };
        let wild = node.children.get("+").filter(|_| !is_servers);
        for child in node.children.get(level).into_iter().chain(wild) {
            self.gather(child, levels.clone(), false, found);
        }
    }

    /// How many nodes were looked at.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> usize {
        self.steps.get()
    }

    #[cfg(test)]
    fn note_step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    #[cfg(not(test))]
    fn note_step(&self) {}
}

impl Node {
    fn remove(&mut self, id: SubscriptionId, mut levels: std::str::Split<'_, char>) {
        let Some(level) = levels.next() else {
            self.readers.remove(&id);
            return;
        };
        let Some(child) = self.children.get_mut(level) else { return };
        child.remove(id, levels);
        if child.readers.is_empty() && child.children.is_empty() {
            self.children.remove(level);
        }
    }
}
