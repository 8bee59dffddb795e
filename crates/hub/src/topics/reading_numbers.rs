//! Numbers of topics that are read with certain options, where a session may read a topic with several.
//!
//! A number stands for a topic and for options, so that a frame holds nothing of one session. It may be given again once
//! nobody reads with these options, or the topic is gone: every session is told what a number means before it is used.

use model::HashMap;

use crate::audiences::options::OptionsIndex;
use crate::tables::index::TopicIndex;

/// The numbers that were given out.
#[derive(Debug, Default)]
pub(crate) struct ReadingNumbers {
    by_options: HashMap<OptionsIndex, HashMap<TopicIndex, u32>>,
    free: Vec<u32>,
    end: u32,
}

impl ReadingNumbers {
    /// The number of a topic that is read with these options.
    pub(crate) fn find_or_give(&mut self, options: OptionsIndex, topic: TopicIndex) -> u32 {
        let Self { by_options, free, end } = self;
        *by_options.entry(options).or_default().entry(topic).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                *end += 1;
                *end - 1
            })
        })
    }

    /// Takes back the numbers of options with which nobody reads any more.
    pub(crate) fn forget_options(&mut self, options: OptionsIndex) {
        self.free.extend(self.by_options.remove(&options).into_iter().flatten().map(|it| it.1));
    }

    /// Takes back the numbers of a topic that is gone.
    pub(crate) fn forget_topic(&mut self, topic: TopicIndex) {
        let numbers = self.by_options.values_mut().filter_map(|topics| topics.remove(&topic));
        self.free.extend(numbers);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::tables::index::Slot;

    #[test]
    fn a_number_has_one_meaning_until_it_is_taken_back() {
        let mut numbers = ReadingNumbers::default();
        let topic = |place| TopicIndex(Slot::of(place, NonZeroU32::MIN));
        let (one, other) = (OptionsIndex::of_place(1), OptionsIndex::of_place(2));
        assert_eq!(numbers.find_or_give(one, topic(5)), 0);
        assert_eq!(numbers.find_or_give(other, topic(5)), 1);
        assert_eq!(numbers.find_or_give(one, topic(6)), 2);
        assert_eq!(numbers.find_or_give(one, topic(5)), 0);
        numbers.forget_options(other);
        assert_eq!(numbers.find_or_give(one, topic(7)), 1);
        numbers.forget_topic(topic(6));
        assert_eq!(numbers.find_or_give(other, topic(5)), 2);
    }
}
