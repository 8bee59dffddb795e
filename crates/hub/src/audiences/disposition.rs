//! What becomes of each delivery of a batch, decided once for a whole audience: told as it is, told as
//! a delta, replaced by a newer one in the same batch, or not accepted by the filter.

use model::HashSet;
use model::planted::{Fault, is_planted};
use model::{Conflation, DeltaKind, Publication};

use crate::audiences::job::Verdict;
use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::tables::index::{AudienceIndex, TopicIndex};
use crate::topics::conflation_keys::EntityIndex;
use crate::topics::delivery::What;

/// The verdicts over one batch.
#[derive(Debug)]
pub(crate) struct Judged {
    pub verdicts: Vec<Verdict>,
    /// Members in step since before this delivery have what all deltas are made from; 0 without deltas.
    pub deltas_since: u64,
}

impl<E: Encoder> Hub<E> {
    /// Judges the deliveries of a batch, and notes what the audience will have been told.
    pub(crate) fn judge(&mut self, audience: AudienceIndex, cut: &[u64]) -> Judged {
        let mut judged = Judged { verdicts: vec![Verdict::Tell; cut.len()], deltas_since: 0 };
        let mut newer: HashSet<(TopicIndex, EntityIndex)> = HashSet::default();
        // From the newest on, so that it is known what replaces what. What the filter does not accept
        // replaces nothing.
        for (at, &number) in cut.iter().enumerate().rev() {
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let What::Publication(publication) = &delivery.what else { continue };
            if !self.accepts(audience, delivery.topic, publication) {
                judged.verdicts[at] = Verdict::Filtered;
                if is_planted(Fault::FilteredReplaces) {
                    newer.insert((delivery.topic, delivery.entity));
                }
                continue;
            }
            let is_known = self.is_about_known(delivery.topic, delivery.entity);
            let conflates = self.conflation_of(audience, delivery.topic) == Conflation::Always;
            if !conflates || !is_known {
                continue;
            }
            let is_newest = newer.insert((delivery.topic, delivery.entity));
            if !is_newest || is_planted(Fault::NewestReplaced) {
                judged.verdicts[at] = Verdict::Replaced;
            }
        }
        self.judge_deltas(audience, cut, &mut judged);
        judged
    }

    fn judge_deltas(&mut self, audience: AudienceIndex, cut: &[u64], judged: &mut Judged) {
        let kind = self.options_of(audience).delta;
        if kind == DeltaKind::None {
            return;
        }
        let limits = &self.settings.limits;
        // What is told in pieces is no base: a reader may not have all of it yet.
        let in_pieces = self.encoder.fragments(self.encoding_of(audience));
        let base_bytes_max = if in_pieces { limits.fragment_bytes } else { usize::MAX };
        let base_bytes_max = limits.delta_bytes_max.min(base_bytes_max);
        let bases = self.audiences.bases.entry(audience).or_default();
        let mut oldest_base = u64::MAX;
        for (at, &number) in cut.iter().enumerate() {
            let Some(delivery) = self.deliveries.get(number) else { continue };
            if matches!(delivery.what, What::Epoch { .. }) && !is_planted(Fault::DeltaAcrossEpochs)
            {
                // What comes next is no difference to what was told before.
                bases.forget(delivery.topic);
            }
            let What::Publication(publication) = &delivery.what else { continue };
            if !matches!(judged.verdicts[at], Verdict::Tell) {
                continue;
            }
            let topic = delivery.topic;
            let Some((base_delivery, base)) = bases.replace(topic, number, publication) else {
                continue;
            };
            let is_small = base.payload().len() <= base_bytes_max
                && publication.payload().len() <= limits.delta_bytes_max;
            if base.kind() != publication.kind() || !is_small {
                continue;
            }
            let encoder = &self.encoder;
            let make = || encoder.delta(kind, &base, publication);
            let made = &mut self.flush.made_deltas;
            if let Some(delta) = made.find_or_make(topic, &base, publication, kind, make) {
                // A base in this very batch is told to everybody who is told the delta.
                let is_in_batch = cut.first().is_some_and(|first| base_delivery >= *first);
                if !is_in_batch {
                    oldest_base = oldest_base.min(base_delivery);
                }
                judged.verdicts[at] = Verdict::Delta(delta);
            }
        }
        let has_deltas = judged.verdicts.iter().any(|it| matches!(it, Verdict::Delta(_)));
        judged.deltas_since = match (has_deltas, cut.first()) {
            (true, Some(first)) => oldest_base.min(*first),
            _ => 0,
        };
    }

    /// Whether the filter of an audience, if it has one, accepts a publication.
    pub(crate) fn accepts(
        &self,
        audience: AudienceIndex,
        topic: TopicIndex,
        publication: &Publication,
    ) -> bool {
        let known = self.options.at(self.audiences.at(audience).key.options);
        let Some(filter) = &known.filter else { return true };
        /// What a filter costs, about, beside looking at a delivery.
        const STEPS_OF_A_FILTER: usize = 16;
        self.note_work(STEPS_OF_A_FILTER);
        self.encoder.accepts(filter, &self.topics.at(topic).name, publication)
    }

    /// What an audience's sessions may skip of a topic: the stricter of subscription and policy.
    pub(crate) fn conflation_of(&self, audience: AudienceIndex, topic: TopicIndex) -> Conflation {
        let policy = self.policy(self.topics.at(topic).policy).conflation();
        policy.max(self.options_of(audience).conflation)
    }

    /// Whether it is known what a publication is about: always, where the topic has no conflation key.
    pub(crate) fn is_about_known(&self, topic: TopicIndex, entity: EntityIndex) -> bool {
        let policy = self.policy(self.topics.at(topic).policy);
        entity != EntityIndex::NONE || policy.conflation_key.is_none()
    }

    /// What a publication is about, where its topic has a conflation key.
    pub(crate) fn entity_of(
        &mut self,
        topic: TopicIndex,
        publication: &Publication,
    ) -> EntityIndex {
        let policy = self.policy(self.topics.at(topic).policy);
        let Some(pointer) = &policy.conflation_key else { return EntityIndex::NONE };
        let Some(key) = self.encoder.entity(pointer, publication) else {
            return EntityIndex::NONE;
        };
        let count_max = self.settings.limits.conflation_keys_max;
        self.topics.at_mut(topic).rare_mut().entities.find_or_make(key, count_max)
    }

    /// Whether something newer was delivered that replaces what was delivered as `number`.
    pub(crate) fn is_replaced(&self, topic: TopicIndex, entity: EntityIndex, number: u64) -> bool {
        let known = self.topics.at(topic);
        match (self.policy(known.policy).conflation_key.is_some(), &known.rare) {
            (false, _) => known.newest_delivery > number,
            (true, rare) => {
                rare.as_ref().is_some_and(|rare| rare.entities.is_replaced(entity, number))
            }
        }
    }
}
