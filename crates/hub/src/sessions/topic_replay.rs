//! Reading topics afresh: the part of catching up that reads from histories and pages, each topic from a
//! sequence of its own.

use model::planted::{Fault, is_planted};
use model::{Event, GapReason, Publication, Sequence, SubscribedTopic};

use crate::hub::Hub;
use crate::sending::batch::Builder;
use crate::sending::encoder::{Encoder, Progress, Record};
use crate::sessions::fetched::Page;
use crate::sessions::replay::{InOrder, Replay};
use crate::sessions::replay_queue::{Announce, ReplayGap, ReplayTopic};
use crate::sessions::session::Session;
use crate::sessions::steps::{Budget, CatchUpStep, Told};
use crate::tables::index::{AudienceIndex, SessionIndex};
use crate::topics::history::History;
use crate::topics::topic::Topic;

/// Topics looked at for one session in one go.
const ENTRIES_MAX: usize = 4_096;

/// One topic that a session reads afresh.
struct Afresh<'a> {
    reader: SessionIndex,
    session: &'a Session,
    topic: &'a Topic,
    /// The audience by which it reads it, and the number that is told.
    audience: AudienceIndex,
    number: u32,
    /// Its place among those of the session's replay.
    entry: usize,
    wanted: &'a ReplayTopic,
    page: Option<&'a Page>,
    budget: Budget,
    in_order: Option<&'a InOrder>,
}

impl<E: Encoder> Hub<E> {
    /// Reads replay topics; answers `None` when it did not come to their end.
    pub(crate) fn replay(
        &self,
        reader: SessionIndex,
        session: &Session,
        replay: &Replay,
        budget: Budget,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) -> Option<Told> {
        for (entry, wanted) in replay.todo.iter().enumerate() {
            if entry == ENTRIES_MAX || budget.is_used_up(builder) {
                return None;
            }
            let known = self.topics.get(wanted.topic).filter(|_| replay.todo.counts(entry));
            let reading = known.and_then(|topic| Some((topic, session.audience_reading(topic)?)));
            let Some((topic, audience)) = reading else {
                builder.silent(CatchUpStep::PassBy { entry });
                continue;
            };
            let number = self.number_in(audience, wanted.topic, topic);
            let page = replay.page_of(wanted);
            let in_order = replay.in_order.as_deref();
            let afresh = Afresh {
                reader,
                session,
                topic,
                audience,
                number,
                entry,
                wanted,
                page,
                budget,
                in_order,
            };
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
        if self.must_announce(afresh) {
            // Where it stands before such a gap the reader knows best: it has to be told the gap from there.
            let is_of_its_place = |gap: &ReplayGap| gap.reason != GapReason::Epoch;
            let has_its_place = wanted.gap.as_ref().is_some_and(is_of_its_place);
            let start = wanted.begins_after.unwrap_or(after);
            let start = if has_its_place { Sequence::START } else { start };
            let recovered = wanted.recovered.filter(|_| wanted.announce == Announce::Yes);
            let announced = self.announcement(afresh, start, recovered);
            builder.record(Record::Topic(&announced), CatchUpStep::Announced { entry });
        }
        if let Some(ReplayGap { from, reason }) = wanted.gap {
            let gap = Event::Gap(self.gap(afresh.number, topic, from, after, reason));
            builder.record(Record::Event(&gap), step(after));
        }
        if wanted.epoch != topic.epoch && !is_planted(Fault::EpochUntold) {
            let gap = Event::Gap(self.gap(afresh.number, topic, None, after, GapReason::Epoch));
            builder.record(Record::Event(&gap), CatchUpStep::Renewed { entry });
        }
        if let Some(newest) = self.newest_only(afresh, after) {
            let before = newest.previous();
            builder.skipped(topic.count_between(after, before), step(before));
            after = before;
        }
        if self.is_beyond_memory(topic, after) {
            let Some(read) = self.replay_page(afresh, builder) else {
                return false;
            };
            after = read;
        }
        let kept_after = topic.in_memory_after();
        if kept_after > after {
            if !self.pass_over(afresh, after, kept_after, builder) {
                return false;
            }
            after = kept_after;
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

    fn must_announce(&self, afresh: &Afresh<'_>) -> bool {
        let &Afresh { session, topic, wanted, .. } = afresh;
        let reader = session.audience_reading(topic);
        match wanted.announce {
            Announce::No => false,
            Announce::Yes => true,
            Announce::WithTheFirst => {
                topic.is_revealed() && reader.is_some_and(|it| self.selects_by_pattern(it, topic))
            }
        }
    }

    /// The newest publication of a topic, if that is all that is to be told of it after `after`.
    fn newest_only<'a>(&self, afresh: &Afresh<'a>, after: Sequence) -> Option<&'a Publication> {
        let &Afresh { session, topic, wanted, .. } = afresh;
        let newest = topic.history.as_deref().and_then(History::newest)?;
        let is_ahead = wanted.conflates_after <= after && after < newest.previous();
        let is_newest = newest.sequence() == topic.head;
        let reader = session.audience_reading(topic).filter(|_| is_ahead && is_newest)?;
        self.skips_afresh(session, reader, wanted.topic).then_some(newest)
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
            let before = publication.previous();
            if before > after && !self.is_beyond_memory(topic, before) {
                // The store dropped what memory still has.
                return Some(after);
            }
            if before > after && !self.pass_over(afresh, after, before, builder) {
                return None;
            }
            after = publication.sequence();
            self.replay_publication(afresh, publication, step(after), builder);
        }
        let is_joined = !self.is_beyond_memory(topic, after);
        (is_joined || page.ends_at(after) || page.reaches_beyond(topic.head)).then_some(after)
    }

    /// Passes over publications that neither memory nor disk has, unless they are among those that the newest replaces:
    /// those that are among the recent deliveries still are told, and a gap for the others. Answers whether it came to
    /// the end.
    fn pass_over(
        &self,
        afresh: &Afresh<'_>,
        mut after: Sequence,
        through: Sequence,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) -> bool {
        let &Afresh { topic, entry, wanted, budget, .. } = afresh;
        let step = |after| CatchUpStep::Replay { entry, after, is_finished: false };
        let is_after = after >= wanted.conflates_after && through < topic.head;
        if is_after && self.reader_skips(afresh) {
            builder.replaced(step(through));
            return true;
        }
        let recent = self.recent_between(wanted.topic, after, through);
        for publication in recent.publications {
            if budget.is_full(builder) {
                return false;
            }
            self.tell_gap(afresh, after, publication.previous(), builder);
            after = publication.sequence();
            self.replay_publication(afresh, publication, step(after), builder);
        }
        builder.steps += recent.steps;
        if recent.has_more {
            return false;
        }
        self.tell_gap(afresh, after, through, builder);
        true
    }

    /// Tells a gap for what cannot be had, if there is such.
    fn tell_gap(
        &self,
        afresh: &Afresh<'_>,
        after: Sequence,
        through: Sequence,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) {
        let &Afresh { topic, entry, wanted, .. } = afresh;
        if after >= through || is_planted(Fault::UntoldGap) {
            return;
        }
        let step = CatchUpStep::Replay { entry, after: through, is_finished: false };
        let gap = self.gap(afresh.number, topic, Some(after.next()), through, wanted.reason);
        builder.record(Record::Event(&Event::Gap(gap)), step);
    }

    /// Whether the session is told the newest publication only, of what came since it began to read afresh.
    fn reader_skips(&self, afresh: &Afresh<'_>) -> bool {
        let &Afresh { session, topic, wanted, .. } = afresh;
        let reader = session.audience_reading(topic);
        reader.is_some_and(|reader| self.skips_afresh(session, reader, wanted.topic))
    }

    fn replay_publication(
        &self,
        afresh: &Afresh<'_>,
        publication: &Publication,
        step: CatchUpStep,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) {
        let &Afresh { session, topic, wanted, in_order, .. } = afresh;
        let reader = session.audience_reading(topic);
        builder.progress = self.progress_afresh(reader, topic, in_order);
        let sequence = publication.sequence();
        let is_replaced = wanted.conflates_after < sequence && sequence < topic.head;
        let refuses = |reader| !self.accepts(reader, wanted.topic, publication);
        if reader.is_some_and(refuses) && !is_planted(Fault::UnfilteredAfresh) {
            builder.filtered(step);
        } else if is_replaced
            && reader.is_some_and(|reader| self.skips_afresh(session, reader, wanted.topic))
        {
            builder.replaced(step);
        } else {
            let told_in = (session.encoding, self.stamps_of(reader));
            self.tell_whole(told_in, afresh.number, topic, publication, step, builder);
        }
    }

    /// From where a session could go on in a topic that it reads afresh.
    pub(crate) fn progress_afresh(
        &self,
        reader: Option<AudienceIndex>,
        topic: &Topic,
        in_order: Option<&InOrder>,
    ) -> Progress {
        match reader {
            Some(reader) if self.options_of(reader).is_resumable => {
                in_order.map_or(Progress::InTopic, |it| it.progress_in(&topic.name))
            }
            _ => Progress::Unknown,
        }
    }

    fn announcement(
        &self,
        afresh: &Afresh<'_>,
        start: Sequence,
        recovered: Option<bool>,
    ) -> SubscribedTopic {
        let &Afresh { reader, topic, audience, number, .. } = afresh;
        SubscribedTopic {
            topic: topic.name.clone(),
            number,
            subscriptions: self.served_by(reader, audience, &topic.name, &[]),
            epoch: self.topics.epoch(topic.epoch).clone(),
            head: topic.head,
            start,
            recovered,
        }
    }
}
