//! The promises of every backbone, as clauses that the tests of each implementation check.
//!
//! The suite drives any kind of backbone: it asks through the trait, lets the world go on ([`Subject::drive`]), and holds
//! everything that it is told against what it asked for ([`run::Run`]). A clause adds a course of events: [`order`] what is answered
//! to appends, [`following`] what followers and readers are told, [`survival`] what a kill and a fault leave.
//! `tests/contract.rs` has backbones that are wrong in one way each, and the clause that finds it.
//!
//! [`stream`] is a broker in memory, and a backbone over it whose sequences have holes.

mod following;
mod order;
mod run;
pub mod stream;
mod survival;

use std::fmt;

use model::Draft;

use crate::Backbone;

/// A backbone under test, and the world around it.
pub trait Subject {
    /// The backbone, as it is now.
    fn backbone(&mut self) -> &mut dyn Backbone;

    /// Lets the world go on a little: something is written, delivered, answered. Answers false once nothing more
    /// happens by itself.
    fn drive(&mut self) -> bool;

    /// Ends the backbone as a killed process ends, with whatever is under way, and starts another one on what is left.
    /// It mends what [`Subject::fail`] broke.
    fn restart(&mut self);

    /// From now on nothing can be kept, and what is under way may arrive or not. Answers whether that can happen to it.
    fn fail(&mut self) -> bool {
        false
    }

    /// Somebody else publishes. Answers whether anybody else can.
    fn publish_elsewhere(&mut self, _draft: Draft) -> bool {
        false
    }
}

/// How the suite comes by subjects: each begins with nothing kept, in an epoch of its own.
pub type Fresh<'a> = dyn FnMut() -> Box<dyn Subject> + 'a;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one.
    pub promise: &'static str,
    /// How it shows.
    pub text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.text)
    }
}

/// The result of a clause.
type Checked<T = ()> = Result<T, Broken>;

fn broken<T>(promise: &'static str, text: impl Into<String>) -> Checked<T> {
    Err(Broken { promise, text: text.into() })
}

fn ensure(is_true: bool, promise: &'static str, text: impl FnOnce() -> String) -> Checked {
    if is_true { Ok(()) } else { broken(promise, text()) }
}

/// A course of events, on subjects of its own.
type Clause = fn(&mut Fresh<'_>) -> Checked;

const CLAUSES: [Clause; 12] = [
    order::appends_are_answered_in_order,
    order::times_never_go_back,
    order::a_repeated_key_counts_once,
    order::an_expected_head_is_checked,
    order::a_level_beyond_its_own_is_refused,
    following::who_follows_learns_the_state,
    following::others_are_told_of_without_a_seam,
    following::unfollow_ends_what_others_publish,
    following::a_history_is_read_whole,
    survival::what_was_told_survives_a_kill,
    survival::a_fault_leaves_one_outcome_each,
    survival::what_is_not_kept_never_shows,
];

/// The promises that subjects break, each clause's first.
pub fn find_broken(fresh: &mut Fresh<'_>) -> Vec<Broken> {
    CLAUSES.iter().filter_map(|clause| clause(fresh).err()).collect()
}

/// Checks all clauses.
///
/// # Panics
/// With the promises that are broken.
pub fn check(fresh: &mut Fresh<'_>) {
    let broken: Vec<String> = find_broken(fresh).iter().map(Broken::to_string).collect();
    assert!(broken.is_empty(), "the contract is broken:\n{}", broken.join("\n"));
}
