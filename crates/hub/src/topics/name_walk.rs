//! Going through the topics that patterns select: a piece in each turn, however many there are. What has to look at all
//! of them is a pending operation, `operations.rs`.

use model::{Selector, TopicName};

use crate::tables::index::TopicIndex;
use crate::topics::selector_tree::SelectorTree;
use crate::topics::topic::TopicTable;

/// Several patterns, looked for in one pass over the names.
#[derive(Debug)]
struct Patterns {
    tree: SelectorTree<()>,
    /// What all their topics start with.
    prefix: String,
}

impl Patterns {
    fn of(patterns: &[&Selector]) -> Self {
        let prefixes = patterns.iter().map(|pattern| pattern.literal_prefix());
        let prefix = prefixes.reduce(common_start).unwrap_or("").trim_end_matches('/').to_owned();
        let mut tree = SelectorTree::default();
        patterns.iter().for_each(|pattern| tree.insert(pattern, ()));
        Self { tree, prefix }
    }
}

/// What two texts both start with.
fn common_start<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    &one[..one.floor_char_boundary(same)]
}

/// How far the revealed topics were gone through that some patterns select, in order of name.
#[derive(Debug)]
pub(crate) struct Walk {
    patterns: Patterns,
    after: Option<TopicName>,
    /// Where it begins, if not with the least name: those before it follow at the end.
    first: Option<TopicName>,
    /// Whether it has come to those before `first`.
    has_turned: bool,
}

impl Walk {
    /// Through what some patterns select.
    pub(crate) fn of(patterns: &[&Selector]) -> Self {
        Self::from(patterns, None)
    }

    /// The same from `first` to the greatest name, then from the least to `first`.
    pub(crate) fn from(patterns: &[&Selector], first: Option<TopicName>) -> Self {
        Self { patterns: Patterns::of(patterns), after: None, first, has_turned: false }
    }

    /// Finds the next topics, as far as `steps` go; answers whether these are all.
    pub(crate) fn find_next(
        &mut self,
        topics: &TopicTable,
        steps: &mut usize,
        found: &mut Vec<TopicIndex>,
    ) -> bool {
        loop {
            if !self.find_in_part(topics, steps, found) {
                return false;
            }
            if !self.turn() {
                return true;
            }
        }
    }

    fn find_in_part(
        &mut self,
        topics: &TopicTable,
        steps: &mut usize,
        found: &mut Vec<TopicIndex>,
    ) -> bool {
        let seen = self.after.clone();
        let from = seen.as_ref().map_or(self.start(), TopicName::as_str);
        let mut last: Option<&TopicName> = None;
        for (name, index) in topics.revealed_from(from) {
            if !self.spans(name) {
                break;
            }
            if seen.as_ref() == Some(name) {
                continue;
            }
            if *steps == 0 {
                self.after = last.cloned().or_else(|| seen.clone());
                return false;
            }
            *steps -= 1;
            if self.patterns.tree.selects(name.as_str()) {
                found.push(index);
            }
            last = Some(name);
        }
        true
    }

    /// Where a part of it begins of which nothing was looked at.
    fn start(&self) -> &str {
        let prefix = &*self.patterns.prefix;
        match &self.first {
            Some(first) if !self.has_turned => prefix.max(first.as_str()),
            _ => prefix,
        }
    }

    /// Whether a name belongs to the part that it is in.
    fn spans(&self, name: &TopicName) -> bool {
        let is_over = self.has_turned && self.first.as_ref().is_some_and(|first| name >= first);
        !is_over && name.as_str().starts_with(&self.patterns.prefix)
    }

    /// Goes on with the names before the first one; answers whether there may be some.
    fn turn(&mut self) -> bool {
        let must_turn = self.first.is_some() && !self.has_turned;
        if must_turn {
            (self.after, self.has_turned) = (None, true);
        }
        must_turn
    }
}
