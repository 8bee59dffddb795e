//! Reading topics afresh: the part of catching up that reads from histories and pages, each topic from a
//! sequence of its own.

use model::{Event, GapReason, Publication, Sequence, SubscribedTopic};

use crate::batch::Builder;
use crate::catch_up::{Budget, CatchUpStep, Told};
use crate::encoder::{Encoder, Record};
use crate::history::History;
use crate::hub::Hub;
use crate::page::Page;
use crate::replay::{Replay, ReplayGap, ReplayTopic};
use crate::session::Session;
use crate::topic::Topic;

/// One topic that a session reads afresh.
struct Afresh<'a> {
    session: &'a Session,
    topic: &'a Topic,
    /// Its place among those of the session's replay.
    entry: usize,
    wanted: &'a ReplayTopic,
    page: Option<&'a Page>,
    budget: Budget,
}

impl<E: Encoder> Hub<E> {
    /// Reads replay topics; answers `None` when it did not come to their end.
    pub(crate) fn replay(
        &self,
        session: &Session,
        replay: &Replay,
        budget: Budget,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) -> Option<Told> {
        for (entry, wanted) in replay.todo.iter().enumerate() {
            if budget.is_used_up(builder) {
                return None;
            }
            let Some(topic) = self.topics.get(wanted.topic) else {
                builder.silent(CatchUpStep::Replay {
                    entry,
                    after: wanted.after,
                    is_finished: true,
                });
                continue;
            };
            let page = replay.page.as_ref().filter(|page| page.topic == wanted.topic);
            let afresh = Afresh { session, topic, entry, wanted, page, budget };
            if !self.replay_topic(&afresh, builder) {
                return None;
            }
        }
        let replayed = replay.todo.iter().map(|wanted| wanted.topic).collect();
        Some(Told { replayed, ..Told::default() })
    }

    /// Reads one topic from where `wanted` says to its head; answers whether it came to the end.
    fn replay_topic(&self, afresh: &Afresh<'_>, builder: &mut Builder<'_, E, CatchUpStep>) -> bool {
        let &Afresh { topic, entry, wanted, budget, .. } = afresh;
        let mut after = wanted.after;
        let step = |after| CatchUpStep::Replay { entry, after, is_finished: false };
        if wanted.announce {
            // Where it stands before such a gap the reader knows best: it has to be told the gap from there.
            let is_lagged = |gap: &ReplayGap| gap.reason == GapReason::Lagged;
            let start =
                if wanted.gap.as_ref().is_some_and(is_lagged) { Sequence::START } else { after };
            let announced = self.announcement(topic, start, wanted.recovered);
            builder.record(Record::Topic(&announced), CatchUpStep::Announced { entry });
        }
        if let Some(ReplayGap { from, reason }) = wanted.gap {
            let gap = Event::Gap(self.gap(topic, from, after, reason));
            builder.record(Record::Event(&gap), step(after));
        }
        if self.is_beyond_memory(topic, after) {
            let Some(read) = self.replay_page(afresh, builder) else {
                return false;
            };
            after = read;
        }
        let oldest = topic.history.as_deref().and_then(History::oldest);
        let kept_after = oldest.map_or(topic.head, |oldest| oldest.sequence().back(1));
        if kept_after > after {
            let gap = Event::Gap(self.gap(topic, Some(after.next()), kept_after, wanted.reason));
            after = kept_after;
            builder.record(Record::Event(&gap), step(after));
        }
        for publication in topic.history.iter().flat_map(|history| history.after(after)) {
            if budget.is_used_up(builder) {
                return false;
            }
            self.replay_publication(afresh, publication, step(publication.sequence()), builder);
        }
        let after = topic.head.max(after);
        builder.silent(CatchUpStep::Replay { entry, after, is_finished: true });
        true
    }

    /// Reads what was fetched from the store; answers up to where, or `None` when more of it must be
    /// fetched, or sent, first.
    fn replay_page(
        &self,
        afresh: &Afresh<'_>,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) -> Option<Sequence> {
        let &Afresh { topic, entry, wanted, page, budget, .. } = afresh;
        let step = |after| CatchUpStep::Replay { entry, after, is_finished: false };
        let (page, mut after) = (page?, wanted.after);
        let publications = page.publications.as_ref()?;
        // The store may have some already that this shard is yet to hear of: those come as deliveries.
        let here = wanted.after.next()..=topic.head;
        for publication in publications.iter().filter(|it| here.contains(&it.sequence())) {
            if budget.is_used_up(builder) {
                return None;
            }
            let before = publication.sequence().back(1);
            if before > after {
                let gap = self.gap(topic, Some(after.next()), before, wanted.reason);
                builder.record(Record::Event(&Event::Gap(gap)), step(before));
            }
            after = publication.sequence();
            self.replay_publication(afresh, publication, step(after), builder);
        }
        let is_joined = !self.is_beyond_memory(topic, after);
        (is_joined || page.ends_at(after)).then_some(after)
    }

    fn replay_publication(
        &self,
        afresh: &Afresh<'_>,
        publication: &Publication,
        step: CatchUpStep,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) {
        let &Afresh { session, topic, wanted, .. } = afresh;
        let audiences = session.memberships.iter().map(|membership| membership.audience);
        let reader = audiences.into_iter().find(|audience| self.is_read_by(topic, *audience));
        let sequence = publication.sequence();
        let is_replaced = wanted.conflates_after < sequence && sequence < topic.head;
        if reader.is_some_and(|reader| !self.accepts(reader, wanted.topic, publication)) {
            builder.filtered(step);
        } else if is_replaced
            && reader.is_some_and(|reader| self.skips_afresh(session, reader, wanted.topic))
        {
            builder.replaced(step);
        } else {
            self.tell_whole(session, topic, publication, step, builder);
        }
    }

    fn announcement(
        &self,
        topic: &Topic,
        start: Sequence,
        recovered: Option<bool>,
    ) -> SubscribedTopic {
        SubscribedTopic {
            topic: topic.name.clone(),
            number: topic.number,
            epoch: self.topics.epoch(topic.epoch).clone(),
            head: topic.head,
            start,
            recovered,
        }
    }
}
