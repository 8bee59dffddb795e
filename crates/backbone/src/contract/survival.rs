//! The state after a kill and after a fault.

use std::collections::BTreeSet;

use model::AckLevel;

use super::run::{Outcome, Run, draft, keyed};
use super::{Checked, Fresh, broken, ensure};

const NAMES: [&str; 2] = ["a", "b"];
const ROUNDS: usize = 4;

/// A process is killed when it has told of so and so many publications, with others under way. A publication at the level of memory is gone
/// then, and the numbering that follows is a new epoch. A safer one is there, with its position and key, and
/// what follows goes on from it.
pub(super) fn what_was_told_survives_a_kill(fresh: &mut Fresh<'_>) -> Checked {
    (0..=ROUNDS * NAMES.len()).try_for_each(|count| kill_after(count, fresh))
}

fn kill_after(count: usize, fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let abilities = run.abilities();
    let tickets: Vec<_> = (0..ROUNDS)
        .flat_map(|round| NAMES.map(|name| (name, round)))
        .map(|(name, round)| {
            let text = format!("{name} {round}");
            let key = abilities.has_keys.then(|| text.as_str().into());
            run.append(model::Draft { idempotency_key: key, ..draft(name, &text) })
        })
        .collect();
    for ticket in tickets.into_iter().take(count) {
        run.outcome_of(ticket)?;
    }
    run.restart();
    for name in NAMES {
        let told = run.told_of(name);
        let state = run.follow(name)?;
        let text = || format!("killed after {count}: told {told:?}, then {state:?}");
        match told.last() {
            Some((last, _)) if abilities.level_max > AckLevel::Memory => {
                ensure(state.head.epoch == last.epoch, "safety", text)?;
                ensure(state.head.sequence >= last.sequence, "safety", text)?;
            }
            Some((last, _)) => ensure(state.head.epoch != last.epoch, "numbering", text)?,
            None => {}
        }
        if abilities.has_history {
            check_history(&mut run, name)?;
        }
        if abilities.has_keys && abilities.level_max > AckLevel::Memory {
            check_keys(&mut run, name)?;
        }
        let next = run.keep(draft(name, &format!("{name} after the kill")))?;
        ensure(next.epoch == state.head.epoch, "numbering", || {
            format!("{next:?} after {:?}", state.head)
        })?;
    }
    run.settle()
}

/// All that was told of a topic is in its history, and nothing is missing between that and what nobody was told of yet.
fn check_history(run: &mut Run, name: &str) -> Checked {
    let page = run.read_all(name)?;
    let mut last = page.complete_after;
    for publication in &page.publications {
        ensure(publication.follows(last), "safety", || format!("after {last} in {page:?}"))?;
        last = publication.sequence();
    }
    let kept: BTreeSet<_> =
        page.publications.iter().map(|it| it.sequence()).zip(page.texts()).collect();
    for (position, text) in run.told_of(name) {
        let is_there = kept.contains(&(position.sequence, text.clone()));
        ensure(is_there, "safety", || format!("{text} at {position:?} is not in {page:?}"))?;
    }
    Ok(())
}

/// The keys of all that was told of a topic are known.
fn check_keys(run: &mut Run, name: &str) -> Checked {
    for (first, key) in run.told_of(name) {
        let ticket = run.append(keyed(name, &format!("{key} again"), &key));
        match run.outcome_of(ticket)? {
            Outcome::Repeated(position) if position == first => {}
            other => {
                return broken("identity", format!("{key}, first kept at {first:?}: {other:?}"));
            }
        }
    }
    Ok(())
}

/// After a fault each append has one outcome, those that come later too, and a repeated key promises nothing that nobody knows.
pub(super) fn a_fault_leaves_one_outcome_each(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let first = run.append(draft("a", "before"));
    run.outcome_of(first)?;
    let has_keys = run.abilities().has_keys;
    let under_way: Vec<_> = (0..3)
        .map(|number| {
            let text = format!("under way {number}");
            let key = has_keys.then(|| text.as_str().into());
            run.append(model::Draft { idempotency_key: key, ..draft("a", &text) })
        })
        .collect();
    if !run.fail() {
        return run.settle();
    }
    let mut later = Vec::new();
    for (number, ticket) in under_way.into_iter().enumerate() {
        let outcome = run.outcome_of(ticket)?;
        if has_keys && !matches!(outcome, Outcome::Kept(_)) {
            let key = format!("under way {number}");
            later.push(run.append(keyed("a", &format!("{key} again"), &key)));
        }
    }
    later.push(run.append(draft("a", "later")));
    for ticket in later {
        let outcome = run.outcome_of(ticket)?;
        let is_refused = matches!(outcome, Outcome::NotKept(_) | Outcome::Unknown);
        ensure(is_refused, "faults", || format!("nothing can be kept any more: {outcome:?}"))?;
    }
    run.settle()
}

/// A refused publication is never there; one with an unknown outcome is there once or not at all, and its key tells which.
pub(super) fn what_is_not_kept_never_shows(fresh: &mut Fresh<'_>) -> Checked {
    // Where a fault strikes may depend on chance: it has several.
    (0..8).try_for_each(|_| fail_once(fresh))
}

fn fail_once(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let abilities = run.abilities();
    let texts: Vec<String> = (0..4).map(|number| format!("text {number}")).collect();
    let tickets: Vec<_> = texts
        .iter()
        .map(|text| {
            let key = abilities.has_keys.then(|| text.as_str().into());
            run.append(model::Draft { idempotency_key: key, ..draft("a", text) })
        })
        .collect();
    if !run.fail() || !abilities.has_history {
        return run.settle();
    }
    let outcomes: Vec<_> =
        tickets.into_iter().map(|ticket| run.outcome_of(ticket)).collect::<Result<_, _>>()?;
    run.restart();
    for (text, outcome) in texts.iter().zip(outcomes) {
        let found = run.read_all("a")?.texts().iter().filter(|it| *it == text).count();
        let is_right = match outcome {
            Outcome::Kept(_) => found == 1,
            Outcome::Unknown => found <= 1,
            Outcome::NotKept(_) | Outcome::Repeated(_) => found == 0,
        };
        ensure(is_right, "faults", || {
            format!("{text}: {outcome:?}, and it is there {found} times")
        })?;
        if abilities.has_keys {
            let ticket = run.append(keyed("a", text, text));
            let again = run.outcome_of(ticket)?;
            let is_repeated = matches!(again, Outcome::Repeated(_));
            ensure(is_repeated == (found == 1), "faults", || {
                format!("{text} is there {found} times, and its key is answered {again:?}")
            })?;
        }
    }
    run.settle()
}
