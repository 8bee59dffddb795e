//! The answers to appends.

use model::{AckLevel, Code, Epoch, Expected, Position, Sequence};

use super::run::{Outcome, Run, draft, expecting, keyed, moment};
use super::{Checked, Fresh, broken, ensure};

/// Every append is answered once, with its own ticket and payload; those of one topic in the order in which they were
/// handed over, whatever happens to other topics.
pub(super) fn appends_are_answered_in_order(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let tickets: Vec<_> = (0..5)
        .flat_map(|round| ["a", "b/c", "a"].map(|name| (name, round)))
        .enumerate()
        .map(|(number, (name, _))| run.append(draft(name, &format!("{name} {number}"))))
        .collect();
    for ticket in tickets {
        match run.outcome_of(ticket)? {
            Outcome::Kept(_) => {}
            other => return broken("outcome", format!("a plain draft: {other:?}")),
        }
    }
    let told = [("a", 10), ("b/c", 5)].map(|(name, count)| (run.told_of(name).len(), count));
    ensure(told.iter().all(|(told, count)| told == count), "order", || format!("{told:?}"))?;
    run.settle()
}

/// Later publications have no earlier times, in any topic, also if the clock is set back.
pub(super) fn times_never_go_back(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let level = run.abilities().level_max;
    for (name, unix_ms) in [("a", 5_000), ("b", 2_000), ("a", 1_000), ("c", 6_000), ("b", 0)] {
        let ticket = run.append_at(draft(name, &unix_ms.to_string()), level, moment(unix_ms));
        run.outcome_of(ticket)?;
    }
    run.settle()
}

/// A repeated key is answered with the first position and changes nothing; other topics and keys are not affected.
pub(super) fn a_repeated_key_counts_once(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    if !run.abilities().has_keys {
        let ticket = run.append(keyed("a", "first", "k1"));
        let outcome = run.outcome_of(ticket)?;
        let is_refused = matches!(outcome, Outcome::NotKept(_));
        return ensure(is_refused, "identity", || format!("it has no keys: {outcome:?}"));
    }
    let first = run.keep(keyed("a", "first", "k1"))?;
    run.keep(draft("a", "second"))?;
    let again = run.append(keyed("a", "again", "k1"));
    check_repeats(run.outcome_of(again)?, &first)?;
    run.keep(keyed("b", "other topic", "k1"))?;
    run.keep(keyed("a", "other key", "k2"))?;
    // The first is not answered yet when the second comes.
    let pair = [run.append(keyed("a", "quick", "k3")), run.append(keyed("a", "quicker", "k3"))];
    let Outcome::Kept(position) = run.outcome_of(pair[0])? else {
        return broken("identity", "a new key, and it is not kept");
    };
    check_repeats(run.outcome_of(pair[1])?, &position)?;
    let texts: Vec<String> = run.told_of("a").into_iter().map(|(_, text)| text).collect();
    let expected = ["first", "second", "other key", "quick"];
    ensure(texts == expected, "identity", || format!("{texts:?}"))?;
    run.settle()
}

fn check_repeats(outcome: Outcome, first: &Position) -> Checked {
    let is_first = matches!(&outcome, Outcome::Repeated(position) if position == first);
    ensure(is_first, "identity", || format!("a key first kept at {first:?}: {outcome:?}"))
}

/// A draft that expects another newest sequence than the topic has is refused, and changes nothing.
pub(super) fn an_expected_head_is_checked(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    if !run.abilities().expects {
        let ticket = run.append(expecting("a", "first", Expected::sequence(Sequence::START)));
        let outcome = run.outcome_of(ticket)?;
        let is_refused = matches!(outcome, Outcome::NotKept(_));
        return ensure(is_refused, "expected", || format!("it cannot check that: {outcome:?}"));
    }
    let first = run.keep(expecting("a", "first", Expected::sequence(Sequence::START)))?;
    run.keep(draft("b", "between"))?;
    let of_epoch =
        |epoch: &Epoch| Expected { epoch: Some(epoch.clone()), sequence: first.sequence };
    let wrong = [Expected::sequence(Sequence::START), of_epoch(&Epoch::new("another"))];
    for (number, expected) in wrong.into_iter().enumerate() {
        let ticket = run.append(expecting("a", &format!("wrong {number}"), expected));
        let outcome = run.outcome_of(ticket)?;
        let code = match &outcome {
            Outcome::NotKept(refusal) => Some(refusal.code),
            _ => None,
        };
        let is_refused = code == Some(Code::SequenceMismatch);
        ensure(is_refused, "expected", || format!("a wrong expectation: {outcome:?}"))?;
    }
    let second = run.keep(expecting("a", "second", of_epoch(&first.epoch)))?;
    run.keep(expecting("a", "third", Expected::sequence(second.sequence)))?;
    run.settle()
}

/// A draft that is to be safer than the backbone can keep it is refused; up to that it is kept.
pub(super) fn a_level_beyond_its_own_is_refused(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let level_max = run.abilities().level_max;
    for level in [AckLevel::Memory, AckLevel::Disk] {
        let ticket = run.append_at(draft("a", level.name()), level, moment(1_000));
        let outcome = run.outcome_of(ticket)?;
        let is_right = match outcome {
            Outcome::Kept(_) => level <= level_max,
            _ => level > level_max,
        };
        ensure(is_right, "levels", || format!("{level:?} of {level_max:?}: {outcome:?}"))?;
    }
    run.settle()
}
