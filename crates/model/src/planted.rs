//! Faults that were once in the server, or might be, and can be planted to see that the simulation finds them. Those of
//! who gets what are the hub's own (`hub::Fault`).
//!
//! They are compiled in only where debug assertions are, never into a program that is built for release; and only
//! code that is linked with the server can plant one, on its own thread.

/// A fault; the number is that of the audit that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 9: idempotency keys do not outlive the process.
    KeysEndWithTheProcess,
    /// 41: idempotency keys grow old by the wall clock.
    KeysByTheWallClock,
    /// 67: repeated keys are acknowledged though the write failed.
    RepeatsOfWhatFailed,
    /// 69: an end that comes with data is not heard.
    EndsUnheard,
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

    pub(super) fn get() -> Option<Fault> {
        PLANTED.get()
    }

    /// Plants a fault into whatever this thread runs, or takes it out again.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }
}

#[cfg(debug_assertions)]
pub use switch::plant;

/// Whether a fault is planted on this thread. Never in a program that is built for release.
#[inline]
pub fn is_planted(fault: Fault) -> bool {
    #[cfg(debug_assertions)]
    return switch::get() == Some(fault);
    #[cfg(not(debug_assertions))]
    {
        let _ = fault;
        false
    }
}
