//! The events for followers and readers.

use model::{HistoryStart, Sequence};

use super::run::{Run, State, draft, topic};
use super::{Checked, Fresh, ensure};
use crate::ReadWanted;

/// `follow` tells where a topic stands, also of one that never was, and whether what it brings joins on.
pub(super) fn who_follows_learns_the_state(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    let state = run.follow("a")?;
    let of_nothing = (state.head.sequence, state.newest.len(), state.complete_after);
    ensure(of_nothing == (Sequence::START, 0, Sequence::START), "follow", || {
        format!("a topic that never was: {state:?}")
    })?;
    for number in 0..4 {
        run.keep(draft("b", &format!("b {number}")))?;
        let head = run.keep(draft("a", &format!("a {number}")))?;
        let state = run.follow("a")?;
        ensure(state.head == head, "follow", || format!("{head:?} is the newest: {state:?}"))?;
        check_state(&state)?;
    }
    run.settle()
}

/// The newest publications of a state follow each other, and the last is the head.
fn check_state(state: &State) -> Checked {
    let mut last = state.complete_after;
    for publication in &state.newest {
        let follows = publication.follows(last);
        ensure(follows, "follow", || format!("{publication:?} comes after {last}: {state:?}"))?;
        last = publication.sequence();
    }
    ensure(last == state.head.sequence, "follow", || format!("it ends at {last}: {state:?}"))
}

/// A follower is told of everything that others publish there, in one order with its own publications, and of nothing else.
pub(super) fn others_are_told_of_without_a_seam(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    if !run.publish_elsewhere("a", "before") {
        return run.settle();
    }
    let state = run.follow("a")?;
    check_state(&state)?;
    // What was published before is in the state, or follows it: whatever comes now joins on to it.
    let mut expected = match state.head.sequence {
        Sequence::START => vec!["before".to_owned()],
        _ => Vec::new(),
    };
    for number in 0..5 {
        run.publish_elsewhere("b", &format!("unwanted {number}"));
        run.publish_elsewhere("a", &format!("theirs {number}"));
        expected.push(format!("theirs {number}"));
        if number % 2 == 0 {
            run.keep(draft("a", &format!("ours {number}")))?;
        }
    }
    run.settle()?;
    let heard: Vec<String> = run.heard.iter().map(|(_, text)| text.clone()).collect();
    ensure(heard == expected, "follow", || format!("{heard:?} instead of {expected:?}"))
}

/// `unfollow` ends what others publish and nothing else; who follows again learns what was missed.
pub(super) fn unfollow_ends_what_others_publish(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    run.follow("a")?;
    run.keep(draft("a", "followed"))?;
    run.unfollow("a");
    run.unfollow("never followed");
    run.publish_elsewhere("a", "missed");
    let own = run.append(draft("a", "unfollowed"));
    let own = match run.outcome_of(own) {
        Err(broken) if broken.promise == "outcome" => {
            return Err(super::Broken { promise: "unfollow", ..broken });
        }
        outcome => outcome?,
    };
    let is_kept = matches!(own, super::run::Outcome::Kept(_));
    ensure(is_kept, "unfollow", || format!("an own append to what is not followed: {own:?}"))?;
    run.publish_elsewhere("a", "missed, too");
    run.settle()?;
    ensure(run.heard.is_empty(), "unfollow", || format!("{:?}", run.heard))?;
    let state = run.follow("a")?;
    check_state(&state)?;
    let newest = run.told_of("a").last().map(|(position, _)| position.sequence);
    ensure(Some(state.head.sequence) >= newest, "follow", || {
        format!("{newest:?} was told, and the head is {:?}", state.head)
    })?;
    if run.publish_elsewhere("a", "heard again") {
        run.settle()?;
        let heard = [(topic("a"), "heard again".to_owned())];
        ensure(run.heard == heard, "follow", || format!("{:?}", run.heard))?;
    }
    run.settle()
}

/// A history is read as it was told: whole, in order, from any place; and the page says which sequence it follows.
pub(super) fn a_history_is_read_whole(fresh: &mut Fresh<'_>) -> Checked {
    let mut run = Run::new(fresh);
    for number in 0..6 {
        run.keep(draft("a", &format!("a {number}")))?;
        run.keep(draft("b", &format!("b {number}")))?;
    }
    let told = run.told_of("a");
    let place = |at: usize| told[at].0.sequence;
    let (head, nowhere) = (place(5), Sequence::START);
    if !run.abilities().has_history {
        let page = run.read_all("a")?;
        let is_honest = page.publications.is_empty() && page.complete_after == head;
        ensure(is_honest, "read", || format!("it keeps no history: {page:?}"))?;
        return run.settle();
    }
    let last = |count| ReadWanted::of_history(HistoryStart::Last(count), 100, head);
    // In a hole of the numbering, where it has holes.
    let just_before = place(3).back(1);
    let cases: [(&str, ReadWanted, &[usize], Sequence); 8] = [
        ("a", ReadWanted::after(nowhere, 100), &[0, 1, 2, 3, 4, 5], nowhere),
        ("a", ReadWanted::after(nowhere, 2), &[0, 1], nowhere),
        ("a", ReadWanted::after(place(1), 2), &[2, 3], place(1)),
        ("a", ReadWanted::after(just_before, 100), &[3, 4, 5], just_before),
        ("a", ReadWanted { before: place(2), ..ReadWanted::after(nowhere, 9) }, &[0, 1], nowhere),
        ("a", ReadWanted { after: nowhere, count: 2, ..last(2) }, &[4, 5], place(3)),
        ("a", ReadWanted::after(head, 100), &[], head),
        ("never was", ReadWanted::after(nowhere, 100), &[], nowhere),
    ];
    for (name, wanted, expected, complete_after) in cases {
        let page = run.read(name, wanted)?;
        let expected: Vec<&str> = expected.iter().map(|at| told[*at].1.as_str()).collect();
        ensure(page.texts() == expected, "read", || format!("{wanted:?}: {page:?}"))?;
        let is_told = page.complete_after == complete_after;
        ensure(is_told, "read", || format!("complete after {complete_after}: {page:?}"))?;
        for (at, publication) in page.publications.iter().enumerate() {
            let before = match at {
                0 => page.complete_after,
                at => page.publications[at - 1].sequence(),
            };
            ensure(publication.follows(before), "read", || format!("after {before}: {page:?}"))?;
        }
    }
    run.settle()
}
