//! What a hub counts.

/// What a hub counted since its start. Gauges are computed by [`Hub::counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions open now.
    pub sessions: u64,
    /// Audiences there are now.
    pub audiences: u64,
    /// Topics known now, at home or followed.
    pub topics: u64,
    /// Payload bytes kept in histories now; bytes shared between shards count on each.
    pub history_bytes: u64,
    /// Payload bytes that recent deliveries keep alive now; most of them histories keep too.
    pub recent_bytes: u64,
    /// Sessions that take nothing now.
    pub stalled_sessions: u64,
    /// Operations that go through the topics of patterns, and go on in later turns.
    pub operations_pending: u64,
    /// Messages for other shards that the caller did not take yet.
    pub mail: u64,
    /// The most of them that there ever were: not more than the steps of a turn.
    pub mail_peak: u64,
    /// Memberships of sessions in audiences now.
    pub subscriptions: u64,
    /// Publications handed to this shard's readers, once each however many read.
    pub deliveries: u64,
    /// Publications to sessions: what connections took.
    pub delivered: u64,
    /// Publication records encoded.
    pub records_encoded: u64,
    /// Gaps told to sessions.
    pub gaps: u64,
    /// Those of them that were told as deltas.
    pub deltas: u64,
    /// Publications skipped by conflation.
    pub conflated: u64,
    /// Publications not sent because a filter did not accept them.
    pub filtered: u64,
    /// Batches, and releases of topics, that were held back for an interval.
    pub batches_held: u64,
    /// Times that a session was sent all that it may be, and had to rest.
    pub rests: u64,
    /// Subscriptions that ended because their session lagged.
    pub lagged_unsubscribes: u64,
    /// Payload bytes shed from histories because memory was short.
    pub shed_bytes: u64,
    /// Times that a session fell behind because its connection was full.
    pub stalls: u64,
    /// Times that a session fell behind further than the recent deliveries reach.
    pub lapped_sessions: u64,
    /// Times that a follower shard had to be sent history because its mailbox was full.
    pub lapped_followers: u64,
    /// The most bytes of answers that ever waited for one session's connection.
    pub answers_bytes_peak: u64,
}

impl Counters {
    pub(crate) fn note_answers(&mut self, bytes: usize) {
        self.answers_bytes_peak = self.answers_bytes_peak.max(bytes as u64);
    }
}
