//! How subscriptions are read: each different manner is kept once, however many audiences have it.

use std::cell::RefCell;

use model::{Conflation, DeltaKind, HashMap, Stamps, SubscribeOptions};

use crate::sending::encoder::{EncodingIndex, Progress};
use crate::tables::index::{SessionIndex, Slots, TopicIndex};
use crate::topics::reading_numbers::ReadingNumbers;

/// How a subscription is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Manner {
    pub options: SubscribeOptions,
    pub encoding: EncodingIndex,
    /// Whether its subscriptions have ids.
    pub is_by_id: bool,
    /// The one session that reads so, where audiences are turned off (to measure what they are worth).
    pub solo: Option<SessionIndex>,
}

/// The place of a manner in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OptionsIndex(u32);

#[cfg(test)]
impl OptionsIndex {
    pub(crate) fn of_place(place: u32) -> Self {
        Self(place)
    }
}

/// One manner, and its filter ready to be asked.
#[derive(Debug)]
pub(crate) struct Known<F> {
    pub manner: Manner,
    pub filter: Option<F>,
    /// Whether topics have a number for each manner in which they are read.
    pub has_ids: bool,
    /// Whether it is the manner in which most read that have ids.
    pub is_usual: bool,
    holders: u32,
}

impl<F> Known<F> {
    /// Whether all publications are told as they are.
    pub(crate) fn is_plain(&self) -> bool {
        let SubscribeOptions { conflation, interval, delta, filter, .. } = &self.manner.options;
        *conflation < Conflation::Always
            && interval.is_zero()
            && *delta == DeltaKind::None
            && filter.is_none()
    }

    /// The encoding, and the stamps of each publication in it.
    pub(crate) fn told_in(&self) -> (EncodingIndex, Stamps) {
        (self.manner.encoding, self.manner.options.stamps)
    }

    /// From where a reader could go on that is told everything in order.
    pub(crate) fn progress_in_order(&self) -> Progress {
        match self.manner.options.is_resumable {
            true => Progress::InOrder,
            false => Progress::Unknown,
        }
    }
}

/// All manners in which audiences of this shard read.
#[derive(Debug)]
pub(crate) struct OptionsTable<F> {
    slots: Slots<Known<F>>,
    by_manner: HashMap<Manner, OptionsIndex>,
    /// Numbers of topics that are read in one of them. Given out when they are first told.
    numbers: RefCell<ReadingNumbers>,
}

impl<F> Default for OptionsTable<F> {
    fn default() -> Self {
        Self { slots: Slots::default(), by_manner: HashMap::default(), numbers: RefCell::default() }
    }
}

impl<F> OptionsTable<F> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn has(&self, manner: &Manner) -> bool {
        self.by_manner.contains_key(manner)
    }

    /// The place of `manner`, which one more holds from now on.
    pub(crate) fn hold(
        &mut self,
        manner: &Manner,
        has_ids: bool,
        filter: impl Fn(&str) -> F,
    ) -> OptionsIndex {
        if let Some(&known) = self.by_manner.get(manner) {
            self.hold_again(known);
            return known;
        }
        let filter = manner.options.filter.as_deref().map(filter);
        let is_usual = manner.is_by_id && manner.options == SubscribeOptions::default();
        let known = Known { manner: manner.clone(), filter, has_ids, is_usual, holders: 1 };
        let index = OptionsIndex(self.slots.insert(known));
        self.by_manner.insert(manner.clone(), index);
        index
    }

    pub(crate) fn hold_again(&mut self, index: OptionsIndex) {
        self.slots.get_mut(index.0).expect("held options exist").holders += 1;
    }

    /// The number by which a topic is told to those who read with these options, if its own is `number`.
    pub(crate) fn number_of(&self, index: OptionsIndex, topic: TopicIndex, number: u32) -> u32 {
        let known = self.at(index);
        match (known.has_ids, known.is_usual) {
            (false, _) => number,
            (true, true) => number * 2,
            (true, false) => self.numbers.borrow_mut().find_or_give(index, topic) * 2 + 1,
        }
    }

    /// Takes back the numbers of a topic that is gone.
    pub(crate) fn forget_topic(&mut self, topic: TopicIndex) {
        self.numbers.get_mut().forget_topic(topic);
    }

    /// Lets go of options; what nobody holds is forgotten, and the numbers of topics that were read so are taken back.
    pub(crate) fn release(&mut self, index: OptionsIndex) {
        let known = self.slots.get_mut(index.0).expect("held options exist");
        known.holders -= 1;
        if known.holders == 0
            && let Some(gone) = self.slots.remove(index.0)
        {
            self.by_manner.remove(&gone.manner);
            self.numbers.get_mut().forget_options(index);
        }
    }

    pub(crate) fn at(&self, index: OptionsIndex) -> &Known<F> {
        self.slots.get(index.0).expect("held options exist")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_kept_once_and_as_long_as_somebody_has_them() {
        let mut table = OptionsTable::<String>::default();
        let manner = |filter: Option<&str>| Manner {
            options: SubscribeOptions { filter: filter.map(Into::into), ..Default::default() },
            encoding: EncodingIndex(0),
            is_by_id: false,
            solo: None,
        };
        let (plain, filtered) = (manner(None), manner(Some("a > 1")));
        let one = table.hold(&plain, false, str::to_owned);
        assert_eq!(table.hold(&plain, false, str::to_owned), one);
        let other = table.hold(&filtered, false, str::to_owned);
        assert_eq!(table.at(other).filter.as_deref(), Some("a > 1"));
        table.release(one);
        table.release(other);
        assert!(table.has(&plain) && !table.has(&filtered));
        assert_eq!(table.len(), 1);
    }
}
