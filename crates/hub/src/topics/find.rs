//! Finding the topics that patterns select.

use model::Selector;

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::tables::index::TopicIndex;
use crate::topics::name_walk::Walk;

impl<E: Encoder> Hub<E> {
    /// Finds the next topics of a walk, as far as `steps` go; answers whether these are all.
    pub(crate) fn find_next(
        &self,
        walk: &mut Walk,
        steps: &mut usize,
        found: &mut Vec<TopicIndex>,
    ) -> bool {
        let before = *steps;
        let is_done = walk.find_next(&self.topics, steps, found);
        self.note_work(before - *steps);
        is_done
    }

    /// The revealed topics that some patterns select, all at once.
    pub(crate) fn revealed_by(&self, patterns: &[&Selector]) -> Vec<TopicIndex> {
        let mut found = Vec::new();
        if !patterns.is_empty() {
            self.find_next(&mut Walk::of(patterns), &mut { usize::MAX }, &mut found);
        }
        found
    }
}
