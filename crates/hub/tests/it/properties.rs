//! What holds of any history, over histories that are drawn at random from fixed seeds. And what these tests are worth:
//! faults are planted in the hub, and each must be found among the very histories that are drawn here.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(debug_assertions)]
use model::planted::Fault;

use crate::histories::{by_id, mixtures, resumes, streams};

/// A kind of history: how many of them are run, and how.
#[derive(Clone, Copy)]
struct Property {
    name: &'static str,
    cases: u64,
    words_max: u64,
    run: fn(&[u64]),
}

/// The next number after `state`: SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A number of the environment, for longer runs: `HISTORIES` of each property, from another `HISTORIES_SEED`.
fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

impl Property {
    /// The words of a case, always the same ones.
    fn words(&self, case: u64) -> Vec<u64> {
        let mut state =
            self.name.bytes().fold(asked("HISTORIES_SEED").unwrap_or(0), |all, byte| {
                all.wrapping_mul(31).wrapping_add(u64::from(byte))
            });
        state = state.wrapping_add(case << 32);
        let len = 1 + draw(&mut state) % self.words_max;
        (0..len).map(|_| draw(&mut state)).collect()
    }

    fn fails(&self, words: &[u64]) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.run)(words))).is_err()
    }

    /// Runs every case; the first that fails is told as short as it can be made.
    fn hold(&self) {
        let cases = asked("HISTORIES").unwrap_or(self.cases);
        if let Some(case) = (1..=cases).find(|case| self.fails(&self.words(*case))) {
            let words = self.shortened(self.words(case));
            let listed = words.iter().fold(String::new(), |mut listed, word| {
                write!(listed, "{word:#x}, ").expect("a string takes all");
                listed
            });
            println!("{} fails in case {case}; shortened to [{listed}], which ends so:", self.name);
            (self.run)(&words);
        }
    }

    /// Leaves out steps as long as it fails without them.
    fn shortened(&self, mut words: Vec<u64>) -> Vec<u64> {
        let mut piece = words.len() / 2;
        while piece > 0 {
            let mut at = 0;
            while at < words.len() {
                let mut fewer = words.clone();
                fewer.drain(at..(at + piece).min(words.len()));
                if self.fails(&fewer) {
                    words = fewer;
                } else {
                    at += piece;
                }
            }
            piece /= 2;
        }
        words
    }

    /// After how many cases a planted fault is found, if it is.
    #[cfg(debug_assertions)]
    fn finds(&self, fault: Fault) -> Option<u64> {
        model::planted::with(fault, || (1..=self.cases).find(|case| self.fails(&self.words(*case))))
    }
}

macro_rules! properties {
    ($($name:ident: $cases:literal of $words:literal, $run:expr;)*) => {
        mod property {
            use super::*;
            $(
                #[allow(non_upper_case_globals)]
                pub const $name: Property = Property {
                    name: stringify!($name),
                    cases: $cases,
                    words_max: $words,
                    run: $run,
                };
            )*
        }
        $(
            #[test]
            fn $name() {
                property::$name.hold();
            }
        )*
    };
}

properties! {
    one_shard_loses_nothing: 3_000 of 120, |words| streams::run(streams::roomy(1), words);
    one_shard_reads_on_from_history: 4_000 of 120, |words| streams::run(streams::small_ring(1), words);
    one_shard_announces_every_gap: 5_000 of 120, |words| streams::run(streams::cramped(1), words);
    three_shards_lose_nothing: 3_000 of 120, |words| streams::run(streams::roomy(3), words);
    three_shards_lose_nothing_in_small_steps: 3_000 of 120, |words| streams::run(streams::small_steps(3), words);
    three_shards_make_up_for_full_mailboxes: 4_000 of 120, |words| streams::run(streams::small_mailboxes(3), words);
    three_shards_tell_what_is_on_disk: 3_000 of 120, |words| streams::run(streams::on_disk(3), words);
    three_shards_read_on_from_disk: 4_000 of 120, |words| streams::run(streams::cramped_on_disk(3), words);
    three_shards_read_on_from_a_disk_that_drops: 4_000 of 120, |words| streams::run(streams::trimmed_on_disk(3), words);
    three_shards_announce_every_gap: 5_000 of 120, |words| streams::run(streams::cramped(3), words);
    one_shard_tells_what_the_ring_has: 4_000 of 120, |words| streams::run(streams::ring_beyond_history(1), words);
    three_shards_tell_what_the_ring_has: 3_000 of 120, |words| streams::run(streams::ring_beyond_history(3), words);
    three_shards_tell_what_the_ring_has_beyond_the_disk: 3_000 of 120, |words| streams::run(streams::ring_beyond_disk(3), words);
    a_new_epoch_is_told_before_what_is_of_it: 3_000 of 120, |words| streams::run(streams::renewed(3), words);
    a_new_epoch_is_told_to_those_who_fell_off: 4_000 of 120, |words| streams::run(streams::renewed_and_cramped(3), words);
    no_delta_reaches_across_an_epoch: 3_000 of 120, |words| mixtures::run(&mixtures::alike_and_renewed(words));
    topics_that_come_and_go_have_their_own_pages: 3_000 of 120, |words| streams::run(streams::coming_and_going_on_disk(), words);
    who_comes_back_gets_what_it_lacks: 3_000 of 120, |words| streams::run(streams::coming_back(), words);
    readers_by_name_and_by_pattern_start_where_they_asked: 4_000 of 120, |words| streams::run(streams::mixed_subscriptions(), words);
    members_that_join_lose_nothing: 3_000 of 120, |words| streams::run(streams::joining_members(), words);
    joining_loses_nothing_of_new_topics: 4_000 of 120, |words| streams::run(streams::joining_new_topics(), words);
    joining_hides_no_loss: 3_000 of 120, |words| streams::run(streams::joining_after_losses(), words);
    joining_hides_nothing_that_is_on_disk: 3_000 of 120, |words| streams::run(streams::joining_after_losses_on_disk(), words);
    bursts_come_once: 4_000 of 60, |words| streams::run(streams::bursts(), words);
    any_mixture_ends_with_what_the_server_has: 12_000 of 105, |words| mixtures::run(&mixtures::mixture(words));
    readers_that_are_alike_lose_nothing_untold: 5_000 of 101, |words| mixtures::run(&mixtures::alike(words));
    whoever_goes_on_from_the_last_place_told_loses_nothing: 2_000 of 121, |words| resumes::run(words);
    whoever_goes_on_from_the_last_place_told_loses_nothing_across_an_epoch: 2_000 of 121, |words| resumes::run_across_an_epoch(words);
    subscriptions_with_ids_lack_nothing: 1_200 of 121, by_id::run;
    subscriptions_with_ids_are_told_what_they_lack: 2_000 of 121, by_id::run_cramped;
    readers_that_are_alike_get_deltas_of_their_own: 3_000 of 121, |words| mixtures::run(&mixtures::alike_and_far(words));
}

macro_rules! faults {
    ($($name:ident: $fault:ident by $property:ident;)*) => {
        #[cfg(debug_assertions)]
        mod planted {
            use super::*;
            $(
                #[test]
                fn $name() {
                    let found = property::$property.finds(Fault::$fault);
                    println!("{}: {found:?} of {}", stringify!($fault), stringify!($property));
                    assert!(found.is_some(), "planted, and found by none of {}", stringify!($property));
                }
            )*
        }
    };
}

faults! {
    silent_beyond_the_head: SilentBeyondTheHead by who_comes_back_gets_what_it_lacks;
    page_of_another_topic: PageOfAnotherTopic by topics_that_come_and_go_have_their_own_pages;
    late_telling_of_less: LateTellingOfLess by readers_that_are_alike_lose_nothing_untold;
    sent_ahead_in_all: SentAheadInAll by any_mixture_ends_with_what_the_server_has;
    history_as_news: HistoryAsNews by readers_by_name_and_by_pattern_start_where_they_asked;
    unanswered_subscribe: UnansweredSubscribe by readers_by_name_and_by_pattern_start_where_they_asked;
    gap_taken_for_known: GapTakenForKnown by joining_hides_no_loss;
    gap_on_disk_taken_for_known: GapTakenForKnown by joining_hides_nothing_that_is_on_disk;
    place_in_an_earlier_topic: PlaceInAnEarlierTopic by joining_loses_nothing_of_new_topics;
    slot_of_a_parked_session: SlotOfAParkedSession by who_comes_back_gets_what_it_lacks;
    steps_in_too_early: StepsInTooEarly by members_that_join_lose_nothing;
    delivery_comes_twice: DeliveryComesTwice by bursts_come_once;
    delta_of_another_topic: DeltaOfAnotherTopic by readers_that_are_alike_get_deltas_of_their_own;
    disk_is_not_asked: DiskIsNotAsked by three_shards_read_on_from_a_disk_that_drops;
    memory_is_not_asked: MemoryIsNotAsked by one_shard_announces_every_gap;
    ring_is_not_asked: RingIsNotAsked by one_shard_tells_what_the_ring_has;
    ring_is_not_asked_beyond_the_disk: RingIsNotAsked by three_shards_tell_what_the_ring_has_beyond_the_disk;
    epoch_untold: EpochUntold by a_new_epoch_is_told_before_what_is_of_it;
    epoch_falls_off_the_ring: EpochFallsOffTheRing by a_new_epoch_is_told_to_those_who_fell_off;
    delta_across_epochs: DeltaAcrossEpochs by no_delta_reaches_across_an_epoch;
    untold_gap: UntoldGap by one_shard_announces_every_gap;
    filtered_replaces: FilteredReplaces by any_mixture_ends_with_what_the_server_has;
    newest_replaced: NewestReplaced by any_mixture_ends_with_what_the_server_has;
    conflates_unasked: ConflatesUnasked by any_mixture_ends_with_what_the_server_has;
    untold_loss_of_a_follower: UntoldLossOfAFollower by three_shards_announce_every_gap;
}
