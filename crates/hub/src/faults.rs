//! Faults that the hub once had, or might have: tests plant them again and must find them. None is in the program.

/// What is wrong while it is planted. The numbers are those of the audit that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 8: who stands beyond what a topic's home has reads on from there, untold.
    SilentBeyondTheHead,
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
    /// 70: joining subscriptions takes what the shard lost for known.
    GapTakenForKnown,
    /// 71: joining subscriptions takes the place in an earlier topic for one in the topic of the same slot.
    PlaceInAnEarlierTopic,
    /// 76: a session in the slot of one that was parked is set back.
    SlotOfAParkedSession,
    /// 77: a session steps in before what it has of the joined subscriptions was passed.
    StepsInTooEarly,
    /// 78: what was taken over from a home makes a delivery come twice.
    DeliveryComesTwice,
    /// 79: a topic is told the delta of an earlier one in its slot.
    DeltaOfAnotherTopic,
    /// What memory lacks is told as a gap without asking the disk.
    DiskIsNotAsked,
    /// What memory has is told as a gap where the ring does not reach back.
    MemoryIsNotAsked,
    /// What neither memory nor disk has is passed over untold.
    UntoldGap,
    /// What a follower's full mailbox lost is passed over untold.
    UntoldLossOfAFollower,
}

#[cfg(feature = "checks")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in all hubs of this thread, or takes it out again.
#[cfg(feature = "checks")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

#[cfg(feature = "checks")]
pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

#[cfg(not(feature = "checks"))]
pub(crate) const fn is_planted(_fault: Fault) -> bool {
    false
}
