//! Finds the selectors that select a topic, by walking the topic's levels once.

use std::hash::Hash;
use std::ops::ControlFlow;

use model::{HashMap, Selector};
use smallvec::SmallVec;

use crate::tables::places::SmallSet;

/// Selectors with a value each; `V` is small and compared to remove it.
#[derive(Debug)]
pub struct SelectorTree<V> {
    root: Node<V>,
}

#[derive(Debug)]
struct Node<V> {
    children: HashMap<Box<str>, Node<V>>,
    /// Values of selectors that end here.
    here: SmallSet<V>,
    /// Values of selectors that end with `#` below here.
    rest: SmallSet<V>,
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self { children: HashMap::default(), here: SmallSet::default(), rest: SmallSet::default() }
    }
}

impl<V> Default for SelectorTree<V> {
    fn default() -> Self {
        Self { root: Node::default() }
    }
}

impl<V: Copy + Eq + Hash> SelectorTree<V> {
    /// Adds `value` under `selector`; the same pair twice counts once.
    pub fn insert(&mut self, selector: &Selector, value: V) {
        let mut node = &mut self.root;
        for level in selector.as_str().split('/') {
            if level == "#" {
                node.rest.insert(value);
                return;
            }
            node = node.children.entry(level.into()).or_default();
        }
        node.here.insert(value);
    }

    /// Removes `value` from `selector`, and branches that hold nothing any more.
    pub fn remove(&mut self, selector: &Selector, value: V) {
        let levels: SmallVec<[&str; 16]> = selector.as_str().split('/').collect();
        remove_below(&mut self.root, &levels, value);
    }

    /// Tells `visit` the value of every selector that selects `topic`; one value may come twice
    /// if it stands under several selectors.
    pub fn visit_matches(&self, topic: &str, visit: &mut impl FnMut(V)) {
        let levels: SmallVec<[&str; 16]> = topic.split('/').collect();
        visit_below(&self.root, &levels, topic.starts_with('$'), visit);
    }
}

impl<V: Copy + Eq + Hash> SelectorTree<V> {
    /// Whether one of the selectors selects `topic`.
    pub fn selects(&self, topic: &str) -> bool {
        self.visit_specific_first(topic, &mut |_| ControlFlow::Break(())).is_break()
    }

    /// Whether `value` is the one of a selector that selects `topic`.
    pub(crate) fn selects_for(&self, topic: &str, value: V) -> bool {
        let is_there = |values: &SmallSet<V>| match values.contains(value) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        self.visit_specific_first(topic, &mut { is_there }).is_break()
    }

    /// Shows `visit` the values of the selectors that select `topic`, those of one selector together: the most
    /// specific first, level by level a name before `+` before `#`, until it wants no more.
    pub(crate) fn visit_specific_first(
        &self,
        topic: &str,
        visit: &mut impl FnMut(&SmallSet<V>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let levels: SmallVec<[&str; 16]> = topic.split('/').collect();
        visit_specific_below(&self.root, &levels, topic.starts_with('$'), visit)
    }
}

fn visit_specific_below<V: Copy + Eq + Hash>(
    node: &Node<V>,
    levels: &[&str],
    is_reserved_root: bool,
    visit: &mut impl FnMut(&SmallSet<V>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match levels.split_first() {
        None => show(&node.here, visit)?,
        Some((level, deeper)) => {
            if let Some(child) = node.children.get(*level) {
                visit_specific_below(child, deeper, false, visit)?;
            }
            if !is_reserved_root && let Some(child) = node.children.get("+") {
                visit_specific_below(child, deeper, false, visit)?;
            }
        }
    }
    match is_reserved_root {
        true => ControlFlow::Continue(()),
        false => show(&node.rest, visit),
    }
}

fn show<V: Copy + Eq + Hash>(
    values: &SmallSet<V>,
    visit: &mut impl FnMut(&SmallSet<V>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match values.is_empty() {
        true => ControlFlow::Continue(()),
        false => visit(values),
    }
}

fn remove_below<V: Copy + Eq + Hash>(node: &mut Node<V>, levels: &[&str], value: V) {
    match levels {
        [] => drop(node.here.remove(value)),
        ["#"] => drop(node.rest.remove(value)),
        [level, deeper @ ..] => {
            if let Some(child) = node.children.get_mut(*level) {
                remove_below(child, deeper, value);
                if child.here.is_empty() && child.rest.is_empty() && child.children.is_empty() {
                    node.children.remove(*level);
                }
            }
        }
    }
}

fn visit_below<V: Copy + Eq + Hash>(
    node: &Node<V>,
    levels: &[&str],
    is_reserved_root: bool,
    visit: &mut impl FnMut(V),
) {
    if !is_reserved_root {
        node.rest.as_slice().iter().for_each(|value| visit(*value));
    }
    let Some((level, deeper)) = levels.split_first() else {
        node.here.as_slice().iter().for_each(|value| visit(*value));
        return;
    };
    if let Some(child) = node.children.get(*level) {
        visit_below(child, deeper, false, visit);
    }
    if !is_reserved_root && let Some(child) = node.children.get("+") {
        visit_below(child, deeper, false, visit);
    }
}

#[cfg(test)]
mod tests {
    use model::Limits;
    use proptest::prelude::*;

    use super::*;

    /// The tree finds exactly the selectors that matching one by one finds.
    fn check_steps(steps: &[(bool, String)], topics: &[String]) {
        let limits = Limits::default();
        let mut tree = SelectorTree::default();
        let mut list: Vec<Selector> = Vec::new();
        let mut numbers: Vec<Selector> = Vec::new();
        for (is_insert, text) in steps {
            let Ok(selector) = Selector::parse(text, &limits) else { continue };
            let number = numbers.iter().position(|known| *known == selector).unwrap_or_else(|| {
                numbers.push(selector.clone());
                numbers.len() - 1
            });
            if *is_insert {
                tree.insert(&selector, number);
                if !list.contains(&selector) {
                    list.push(selector);
                }
            } else {
                tree.remove(&selector, number);
                list.retain(|kept| *kept != selector);
            }
            for topic in topics {
                let mut found = Vec::new();
                tree.visit_matches(topic, &mut |number: usize| found.push(number));
                found.sort_unstable();
                let mut specific_first = Vec::new();
                let _ = tree.visit_specific_first(topic, &mut |numbers: &SmallSet<usize>| {
                    specific_first.extend_from_slice(numbers.as_slice());
                    ControlFlow::Continue(())
                });
                specific_first.sort_unstable();
                assert_eq!(specific_first, found, "{topic} after {text}");
                let mut expected: Vec<usize> = (0..numbers.len())
                    .filter(|&n| list.contains(&numbers[n]) && numbers[n].matches(topic))
                    .collect();
                expected.sort_unstable();
                assert_eq!(found, expected, "{topic} after {text}");
                for number in 0..numbers.len() {
                    let is_expected = expected.contains(&number);
                    assert_eq!(
                        tree.selects_for(topic, number),
                        is_expected,
                        "{topic} after {text}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_matching_one_by_one(
            steps in prop::collection::vec(
                (prop::bool::weighted(0.7), "(a|b|\\+|\\$s)(/(a|b|\\+)){0,2}(/#)?|#"), 1..20),
            topics in prop::collection::vec("(a|b|\\$s)(/(a|b|c)){0,3}", 1..6),
        ) {
            check_steps(&steps, &topics);
        }
    }
}
