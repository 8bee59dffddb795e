//! Sessions that name their subscriptions: one reader for each set of options, and what each subscription selects.
//!
//! A reader ([`Session`](crate::sessions::session::Session)) sees each topic once. The first reader of a session is the one
//! that its owner knows; the others share its connection. Nothing here is of sessions without ids.

use model::{HashMap, Selector, SubscriptionId};
use smallvec::{SmallVec, smallvec};

use crate::tables::index::{SessionIndex, Slots};

/// Which of a session's readers one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderPart {
    /// The only one.
    Whole,
    /// The first of several: what waits for the connection waits here.
    First,
    /// Another one.
    Further,
}

/// The place of a selector in the table of those that subscriptions with ids have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SelectorIndex(u32);

/// One selector of a subscription. 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Owned {
    subscription: SubscriptionId,
    selector: SelectorIndex,
}

/// A selector, and how many subscriptions have it.
#[derive(Debug)]
struct Held {
    selector: Selector,
    holders: u32,
}

/// The readers of sessions that have several, and the subscriptions with ids.
#[derive(Debug, Default)]
pub(crate) struct ReaderTable {
    /// By the first reader of a session, the others.
    further: HashMap<SessionIndex, Vec<SessionIndex>>,
    /// By another reader, the first.
    first: HashMap<SessionIndex, SessionIndex>,
    /// By reader, what its subscriptions select.
    owned: HashMap<SessionIndex, Vec<Owned>>,
    selectors: Slots<Held>,
    places: HashMap<Selector, SelectorIndex>,
}

impl ReaderTable {
    /// How many readers there are beside the first ones.
    pub(crate) fn further_count(&self) -> usize {
        self.first.len()
    }

    /// The first reader of a session, by any.
    pub(crate) fn first_of(&self, reader: SessionIndex) -> SessionIndex {
        self.first.get(&reader).copied().unwrap_or(reader)
    }

    /// All readers of a session, by any; the first is first.
    pub(crate) fn all_of(&self, reader: SessionIndex) -> SmallVec<[SessionIndex; 4]> {
        let first = self.first_of(reader);
        let mut all = smallvec![first];
        all.extend(self.further.get(&first).into_iter().flatten().copied());
        all
    }

    /// Adds a reader to a session.
    pub(crate) fn add(&mut self, first: SessionIndex, reader: SessionIndex) {
        self.further.entry(first).or_default().push(reader);
        self.first.insert(reader, first);
    }

    /// Takes a reader out of its session; answers whether the first is the only one now.
    pub(crate) fn remove(&mut self, reader: SessionIndex) -> bool {
        self.disown_all(reader);
        let Some(first) = self.first.remove(&reader) else { return true };
        let Some(further) = self.further.get_mut(&first) else { return true };
        further.retain(|known| *known != reader);
        let is_alone = further.is_empty();
        if is_alone {
            self.further.remove(&first);
        }
        is_alone
    }

    /// Notes what a subscription selects.
    pub(crate) fn own(
        &mut self,
        reader: SessionIndex,
        subscription: SubscriptionId,
        selectors: &[Selector],
    ) {
        for selector in selectors {
            let selector = self.hold(selector);
            self.owned.entry(reader).or_default().push(Owned { subscription, selector });
        }
    }

    /// Forgets a subscription; answers what it selected, and which of that no other subscription of the reader selects.
    pub(crate) fn disown(
        &mut self,
        reader: SessionIndex,
        subscription: SubscriptionId,
    ) -> (Vec<Selector>, Vec<Selector>) {
        let (mut its, mut only_its) = (Vec::new(), Vec::new());
        let Some(owned) = self.owned.get_mut(&reader) else { return (its, only_its) };
        let ended = owned.extract_if(.., |it| it.subscription == subscription);
        let ended: Vec<Owned> = ended.collect();
        let left: model::HashSet<u32> = owned.iter().map(|it| it.selector.0).collect();
        if owned.is_empty() {
            self.owned.remove(&reader);
        }
        for Owned { selector, .. } in ended {
            let known = self.at(selector).clone();
            if !left.contains(&selector.0) && !only_its.contains(&known) {
                only_its.push(known.clone());
            }
            its.push(known);
            self.release(selector);
        }
        (its, only_its)
    }

    /// Forgets all subscriptions of a reader.
    pub(crate) fn disown_all(&mut self, reader: SessionIndex) {
        for Owned { selector, .. } in self.owned.remove(&reader).unwrap_or_default() {
            self.release(selector);
        }
    }

    /// How many selectors the subscriptions of a reader have.
    pub(crate) fn count_in(&self, reader: SessionIndex) -> usize {
        self.owned.get(&reader).map_or(0, Vec::len)
    }

    /// Whether a reader has a subscription.
    pub(crate) fn has(&self, reader: SessionIndex, subscription: SubscriptionId) -> bool {
        self.owned(reader).any(|(known, _)| known == subscription)
    }

    /// What the subscriptions of a reader select.
    pub(crate) fn owned(
        &self,
        reader: SessionIndex,
    ) -> impl Iterator<Item = (SubscriptionId, &Selector)> {
        let owned = self.owned.get(&reader).into_iter().flatten();
        owned.map(|it| (it.subscription, self.at(it.selector)))
    }

    fn at(&self, index: SelectorIndex) -> &Selector {
        &self.selectors.get(index.0).expect("held selectors exist").selector
    }

    fn hold(&mut self, selector: &Selector) -> SelectorIndex {
        if let Some(known) = self.places.get(selector) {
            self.selectors.get_mut(known.0).expect("held selectors exist").holders += 1;
            return *known;
        }
        let held = Held { selector: selector.clone(), holders: 1 };
        let index = SelectorIndex(self.selectors.insert(held));
        self.places.insert(selector.clone(), index);
        index
    }

    fn release(&mut self, index: SelectorIndex) {
        let held = self.selectors.get_mut(index.0).expect("held selectors exist");
        held.holders -= 1;
        if held.holders == 0
            && let Some(gone) = self.selectors.remove(index.0)
        {
            self.places.remove(&gone.selector);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use model::Limits;

    use super::*;
    use crate::tables::index::Slot;

    fn reader(place: u32) -> SessionIndex {
        SessionIndex(Slot::of(place, NonZeroU32::MIN))
    }

    fn id(number: u32) -> SubscriptionId {
        SubscriptionId(NonZeroU32::new(number).expect("not 0"))
    }

    fn selectors(texts: &[&str]) -> Vec<Selector> {
        let parse = |text: &&str| Selector::parse(text, &Limits::default()).expect("valid");
        texts.iter().map(parse).collect()
    }

    #[test]
    fn a_subscription_costs_eight_bytes_for_each_selector() {
        assert_eq!(size_of::<Owned>(), 8);
    }

    #[test]
    fn what_another_subscription_selects_is_not_only_its() {
        let mut table = ReaderTable::default();
        table.own(reader(1), id(7), &selectors(&["a/x", "a/+"]));
        table.own(reader(1), id(9), &selectors(&["a/x"]));
        assert_eq!(table.count_in(reader(1)), 3);
        let (its, only_its) = table.disown(reader(1), id(7));
        assert_eq!((its, only_its), (selectors(&["a/x", "a/+"]), selectors(&["a/+"])));
        assert_eq!(table.disown(reader(1), id(9)).1, selectors(&["a/x"]));
        assert!(table.owned.is_empty() && table.places.is_empty());
    }

    #[test]
    fn readers_of_a_session_are_found_by_any_of_them() {
        let mut table = ReaderTable::default();
        table.add(reader(1), reader(2));
        table.add(reader(1), reader(3));
        assert_eq!(table.all_of(reader(3)).to_vec(), [reader(1), reader(2), reader(3)]);
        assert!(!table.remove(reader(2)) && table.remove(reader(3)));
        assert_eq!((table.all_of(reader(1)).len(), table.further_count()), (1, 0));
    }
}
