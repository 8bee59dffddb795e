//! How a run tells how far it is.

/// The receiver of a run's progress.
pub trait Progress: Sync {
    /// Something worth saying once.
    fn note(&self, text: &str);
    /// A phase began; it takes so many seconds, if that is known.
    fn phase(&self, name: &str, seconds: Option<u64>);
    /// How the phase goes.
    fn look(&self, look: ProgressLook);
    /// Whether the user wants the run to end now.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// How a phase goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgressLook {
    /// Clients whose subscription stands.
    pub live: usize,
    /// Clients wanted.
    pub clients: usize,
    /// Messages delivered a second, just now.
    pub messages_per_second: f64,
    /// Seconds of the phase so far.
    pub seconds: f64,
}

/// Says nothing.
pub struct Quiet;

impl Progress for Quiet {
    fn note(&self, _text: &str) {}
    fn phase(&self, _name: &str, _seconds: Option<u64>) {}
    fn look(&self, _look: ProgressLook) {}
}
