//! Finds the selectors that select a topic, by walking the topic's levels once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use model::Selector;
use smallvec::SmallVec;

/// Selectors with a value each; `V` is small and compared to remove it.
#[derive(Debug)]
pub struct SelectorTree<V> {
    root: Node<V>,
}

#[derive(Debug)]
struct Node<V> {
    children: HashMap<Box<str>, Node<V>, RandomState>,
    /// Values of selectors that end here.
    here: SmallVec<[V; 2]>,
    /// Values of selectors that end with `#` below here.
    rest: SmallVec<[V; 2]>,
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self { children: HashMap::default(), here: SmallVec::new(), rest: SmallVec::new() }
    }
}

impl<V> Default for SelectorTree<V> {
    fn default() -> Self {
        Self { root: Node::default() }
    }
}

impl<V: Copy + PartialEq> SelectorTree<V> {
    /// Adds `value` under `selector`; the same pair twice counts once.
    pub fn insert(&mut self, selector: &Selector, value: V) {
        let mut node = &mut self.root;
        for level in selector.as_str().split('/') {
            if level == "#" {
                if !node.rest.contains(&value) {
                    node.rest.push(value);
                }
                return;
            }
            node = node.children.entry(level.into()).or_default();
        }
        if !node.here.contains(&value) {
            node.here.push(value);
        }
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

fn remove_below<V: Copy + PartialEq>(node: &mut Node<V>, levels: &[&str], value: V) {
    match levels {
        [] => node.here.retain(|kept| *kept != value),
        ["#"] => node.rest.retain(|kept| *kept != value),
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

fn visit_below<V: Copy>(
    node: &Node<V>,
    levels: &[&str],
    is_reserved_root: bool,
    visit: &mut impl FnMut(V),
) {
    if !is_reserved_root {
        node.rest.iter().for_each(|value| visit(*value));
    }
    let Some((level, deeper)) = levels.split_first() else {
        node.here.iter().for_each(|value| visit(*value));
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
                let mut expected: Vec<usize> = (0..numbers.len())
                    .filter(|&n| list.contains(&numbers[n]) && numbers[n].matches(topic))
                    .collect();
                expected.sort_unstable();
                assert_eq!(found, expected, "{topic} after {text}");
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
