//! What the hub must be told about payloads: it does not look into them itself.

use model::{DeltaKind, Publication, TopicName};

/// Knows what is in payloads.
pub trait Payloads {
    /// A filter, ready to be asked.
    type Filter;

    /// The filter that `text` spells out. The caller of `subscribe` has checked that it does.
    fn filter(&self, text: &str) -> Self::Filter;

    /// Whether a filter accepts a publication.
    fn accepts(&self, filter: &Self::Filter, topic: &TopicName, publication: &Publication) -> bool;

    /// What a publication is about: the text at `pointer` (RFC 6901) of its JSON, if there is one.
    fn entity(&self, pointer: &str, publication: &Publication) -> Option<Box<str>>;

    /// What makes `next` of `base`, if that is clearly smaller than `next`, and the check of the result.
    fn delta(
        &self,
        kind: DeltaKind,
        base: &Publication,
        next: &Publication,
    ) -> Option<(Box<[u8]>, u32)>;
}
