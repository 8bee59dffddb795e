//! Faults that were once in the server, or might be: tests plant them again and must find them. Decision 0039.
//!
//! They are compiled in only where debug assertions are, never into a program that is built for release; and only
//! code that is linked with the server can plant one, on its own thread.

/// A fault that a test can plant; the number is that of the audit that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 8: who stands beyond what a topic's home has reads on from there, untold.
    SilentBeyondTheHead,
    /// 9: idempotency keys do not outlive the process.
    KeysEndWithTheProcess,
    /// 41: idempotency keys grow old by the wall clock.
    KeysByTheWallClock,
    /// 61: a fetched page is told as one of the topic that came into its topic's place.
    PageOfAnotherTopic,
    /// 62: a request's ticket is given to another one while the first is still waited with.
    TicketGivenTwice,
    /// 63: a batch is told to the last members without what the ring lost meanwhile.
    LateTellingOfLess,
    /// 64: who conflates is sent ahead in topics of which nothing may be skipped.
    SentAheadInAll,
    /// 65: a reader by name is told a topic's history as news because a pattern's reader waits for it.
    HistoryAsNews,
    /// 66: a `subscribe` that is taken back before its topics are known has no answer.
    UnansweredSubscribe,
    /// 67: repeated keys are acknowledged though the write failed.
    RepeatsOfWhatFailed,
    /// 69: an end that comes with data is not heard.
    EndsUnheard,
    /// 70: joining subscriptions takes what the shard lost for known.
    GapTakenForKnown,
    /// 71: joining subscriptions takes the place in an earlier topic for one in the topic of the same slot.
    PlaceInAnEarlierTopic,
    /// 76: a session in the slot of one that was parked is set back.
    SlotOfAParkedSession,
    /// 77: a session steps in before what it has of the joined subscriptions was passed, or of what it was ahead in.
    StepsInTooEarly,
    /// Mail that a home sent before it learned that its topic is not wanted any more counts for a pattern that was asked for later.
    StaleStateTaken,
    /// 78: what was taken over from a home makes a delivery come twice.
    DeliveryComesTwice,
    /// 79: a topic is told the delta of an earlier one in its slot.
    DeltaOfAnotherTopic,
    /// Publications that memory lacks are reported as a gap without asking the disk.
    DiskIsNotAsked,
    /// Publications in memory are reported as a gap where the ring does not reach back.
    MemoryIsNotAsked,
    /// Publications in the ring are reported as a gap where memory and disk do not reach back.
    RingIsNotAsked,
    /// Publications in neither memory nor disk are skipped without a gap.
    UntoldGap,
    /// Publications lost by a follower's full mailbox are skipped without a gap.
    UntoldLossOfAFollower,
    /// The history of a topic is sent without applying the subscription's filter.
    UnfilteredAfresh,
    /// Publications that a filter rejects replace accepted ones.
    FilteredReplaces,
    /// Conflation leaves out the newest, too.
    NewestReplaced,
    /// Readers that lag are conflated though they did not ask for it.
    ConflatesUnasked,
    /// Readers are not told that a topic's numbering goes on in another epoch.
    EpochUntold,
    /// A session that fell off the ring receives no notice of it.
    EpochFallsOffTheRing,
    /// A publication of a new epoch is sent as a delta from one of the old epoch.
    DeltaAcrossEpochs,
    /// An `acknowledge` forgets what was acknowledged of other topics.
    AcknowledgedAlone,
    /// Where memory is short, what a policy keeps in any case is dropped, too.
    ShedToNothing,
    /// The batch of a poll is not kept until its arrival is known.
    PollsUnkept,
    /// The end of a device's old connection ends its new attachment.
    TakenOverAndGone,
}

#[cfg(debug_assertions)]
mod switch {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Takes the fault out again, also where it made a test panic.
    struct Planted;

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    /// Runs something with a fault planted into whatever this thread does meanwhile.
    pub fn with<T>(fault: Fault, run: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(fault));
        let _planted = Planted;
        run()
    }

    /// Whether a fault is planted on this thread.
    pub fn is_planted(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }
}

#[cfg(debug_assertions)]
pub use switch::{is_planted, with};

/// No fault is planted in a program that is built for release.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn is_planted(_fault: Fault) -> bool {
    false
}
