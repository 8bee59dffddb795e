//! What a shard counted, as the API is told it.

use admin::ShardCounters;
use engine::Io;

use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// What this shard counted.
    pub(crate) fn counters(&self) -> ShardCounters {
        let (hub, io) = (self.hub.counters(), self.edge.io.counters());
        let requests = self.asking.under_way.counters();
        // The budget is the process's: one shard tells of it, so that sums are right.
        let is_first = self.index.0 == 0;
        let [memory_allocated_bytes, memory_reserved_bytes, memory_correction_bytes] =
            if is_first { self.memory.parts() } else { [0; 3] };
        ShardCounters {
            connections: self.edge.connections.socket_count() as u64,
            sessions: hub.sessions,
            audiences: hub.audiences,
            subscriptions: hub.subscriptions,
            topics: hub.topics,
            history_bytes: hub.history_bytes,
            deliveries: hub.deliveries,
            delivered: hub.delivered,
            records_encoded: hub.records_encoded,
            deltas: hub.deltas,
            conflated: hub.conflated,
            filtered: hub.filtered,
            rests: hub.rests,
            lagged_unsubscribes: hub.lagged_unsubscribes,
            stalled_sessions: hub.stalled_sessions,
            recent_bytes: hub.recent_bytes,
            shed_bytes: hub.shed_bytes,
            memory_pressure: self.memory.pressure() as u64,
            memory_allocated_bytes,
            memory_reserved_bytes,
            memory_correction_bytes,
            memory_refusals: if is_first { self.memory.refused() } else { 0 },
            answers_bytes_peak: hub.answers_bytes_peak.max(self.counters.answers_bytes_peak),
            inputs_waiting: self.edge.inputs.len() as u64,
            operations_pending: hub.operations_pending,
            hub_mail: hub.mail,
            hub_mail_peak: hub.mail_peak,
            mail_waiting: self.peers.waiting() as u64,
            store_reads: self.reading.len() as u64,
            commands_parked: self.publishing.counts().0,
            commands_given_up: self.publishing.counts().1
                + self.reading.timed_out()
                + self.subscribers.timed_out(),
            batches_held: hub.batches_held,
            gaps: hub.gaps,
            stalls: hub.stalls,
            lapped_sessions: hub.lapped_sessions,
            lapped_followers: hub.lapped_followers,
            work: self.work(),
            work_per_turn_peak: self.turn.peak(),
            subscribes_waiting: self.subscribers.waiting() as u64,
            devices: self.devices.statistics.devices(),
            changes_waiting: self.subscribers.changes_waiting() as u64,
            requests: requests.requests,
            requests_answered: requests.answered,
            requests_refused: requests.refused,
            requests_timed_out: requests.timed_out,
            late_answers: requests.late_answers,
            requests_open: requests.open,
            handlers: if self.index.0 == 0 { requests.handlers } else { 0 },
            accept_pauses: io.accept_pauses,
            tls_handshakes: io.tls_handshakes,
            tls_handshakes_failed: io.tls_handshakes_failed,
            tls_handshakes_put_off: io.tls_handshakes_put_off,
            connections_accepted: io.accepts,
            receives: io.receives,
            sends: io.sends,
            sends_cut_short: io.sends_cut_short,
            bytes_in: io.bytes_in,
            bytes_out: io.bytes_out,
            ..self.counters
        }
    }
}
