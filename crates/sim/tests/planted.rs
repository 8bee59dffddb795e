//! Faults that were once in the server are planted again, one at a time, and each is found by the seeds that CI runs.
//!
//! Not every fault of [`Fault`] is reached by whole servers. The property tests of the hub demand the others (`properties.rs`,
//! `slots.rs`, in `crates/hub/tests/it`), where a history can be had that needs a particular order inside a shard.

#![cfg(debug_assertions)]

use model::planted::{self, Fault};
use tidegate_sim::{CI_SEEDS, CI_STEPS, first_broken};

const FAULTS: [Fault; 19] = [
    Fault::SilentBeyondTheHead,
    Fault::KeysEndWithTheProcess,
    Fault::KeysByTheWallClock,
    Fault::TicketGivenTwice,
    Fault::UnansweredSubscribe,
    Fault::RepeatsOfWhatFailed,
    Fault::EndsUnheard,
    Fault::DiskIsNotAsked,
    Fault::MemoryIsNotAsked,
    Fault::UntoldGap,
    Fault::UnfilteredAfresh,
    Fault::FilteredReplaces,
    Fault::NewestReplaced,
    Fault::ConflatesUnasked,
    Fault::EpochUntold,
    Fault::AcknowledgedAlone,
    Fault::ShedToNothing,
    Fault::PollsUnkept,
    Fault::TakenOverAndGone,
];

/// Whether a fault that is planted is found; says after how many seeds, and how.
fn is_found(fault: &str) -> bool {
    match first_broken(CI_SEEDS, CI_STEPS) {
        Some((seed, text)) => println!("{fault}: found after {} seeds: {text}", seed + 1),
        None => {
            println!("{fault}: not found within {CI_SEEDS} seeds");
            return false;
        }
    }
    true
}

#[test]
fn each_fault_is_found_by_the_seeds_that_ci_runs() {
    let mut missed = Vec::new();
    for fault in FAULTS {
        let name = format!("{fault:?}");
        let found = planted::with(fault, || is_found(&name));
        missed.extend((!found).then_some(name));
    }
    assert!(missed.is_empty(), "not found within {CI_SEEDS} seeds: {missed:?}");
}
