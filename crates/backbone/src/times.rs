//! The times of publications, which never go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::Moment;

/// The time of the newest publication of this process, shared by all its shards.
///
/// Readers resume by time, across topics: what is published later is never labelled earlier, whatever the
/// wall clock does. One that is set back makes times stand still until it has caught up.
#[derive(Clone, Debug, Default)]
pub struct LatestTime(Arc<AtomicU64>);

impl LatestTime {
    /// The moment at which something is published now.
    pub fn label(&self, now: Moment) -> Moment {
        // The common case writes nothing, so that shards do not contend.
        let latest = self.0.load(Ordering::Relaxed);
        let unix_ms = match latest < now.unix_ms {
            true => self.0.fetch_max(now.unix_ms, Ordering::Relaxed).max(now.unix_ms),
            false => latest,
        };
        Moment { unix_ms, ..now }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let (one, at) =
            (LatestTime::default(), |unix_ms| Moment { elapsed: Duration::ZERO, unix_ms });
        let another = one.clone();
        let labels = [(&one, 10), (&another, 4), (&one, 9), (&another, 11), (&one, 3)];
        let labels = labels.map(|(shard, now)| shard.label(at(now)).unix_ms);
        assert_eq!(labels, [10, 10, 10, 11, 11]);
    }
}
