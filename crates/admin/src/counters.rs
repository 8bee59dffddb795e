//! The counters of a shard, of itself and of applications.

use std::time::Duration;

/// A counter's name, whether it is a `counter` or a `gauge`, its description and its value.
pub(crate) type Entry = (&'static str, &'static str, &'static str, u64);

/// The name of a counter in metrics: that of its field, unless it says otherwise.
macro_rules! metric_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $metric:ident) => {
        stringify!($metric)
    };
}

macro_rules! counters {
    ($(#[doc = $about:literal])* $of:ident: $($(#[doc = $doc:literal])* $name:ident $kind:ident $(as $metric:ident)?;)*) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $of { $($(#[doc = $doc])* pub $name: u64,)* }

        impl $of {
            /// Adds those of another shard.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Name and value of each, as the API for applications tells them.
            pub fn members(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Name in metrics, whether it is a `counter` or a `gauge`, description and value of each.
            pub fn entries(&self) -> Vec<Entry> {
                vec![$((
                    metric_name!($name $($metric)?),
                    stringify!($kind),
                    concat!($($doc),*).trim_ascii(),
                    self.$name,
                ),)*]
            }
        }
    };
}

counters! {
    /// Counters and gauges of one application.
    ApplicationCounters:
    /// Devices attached now.
    devices gauge;
    /// WebSockets for one device open now.
    websockets gauge;
    /// Attachments so far.
    attaches counter;
    /// Requests handed to devices.
    requests counter;
    /// Answers of devices.
    answers counter;
    /// Requests that devices declined.
    errors counter;
    /// Answers that came too late, twice, or to nothing.
    late_answers counter;
    /// Events of devices.
    events counter;
    /// Bytes of all messages of devices.
    bytes_up counter as received_bytes;
    /// Bytes of the payloads of requests to devices.
    bytes_down counter as sent_bytes;
}

counters! {
    /// Counters and gauges of one shard.
    ShardCounters:
    /// Connections open now.
    connections gauge;
    /// Connections accepted.
    connections_accepted counter;
    /// Times that accepting paused because no descriptor or connection was left.
    accept_pauses counter;
    /// TLS handshakes that succeeded.
    tls_handshakes counter;
    /// TLS handshakes that failed; the log tells why.
    tls_handshakes_failed counter;
    /// Times that a TLS handshake had to wait for a later turn.
    tls_handshakes_put_off counter;
    /// WebSocket sessions open now.
    sessions gauge;
    /// Audiences there are now.
    audiences gauge;
    /// Subscriptions of sessions to audiences now.
    subscriptions gauge;
    /// Topics known now.
    topics gauge;
    /// Payload bytes kept in histories now.
    history_bytes gauge;
    /// Publications kept by this shard as their topics' home.
    publications counter;
    /// Publications handed to this shard's readers, once each however many read.
    deliveries counter;
    /// Publications sent to sessions.
    delivered counter;
    /// Publications sent to sessions as deltas.
    deltas counter;
    /// Publication records encoded.
    records_encoded counter;
    /// Publications that sessions skipped by conflation.
    conflated counter;
    /// Publications not sent because a subscription's filter did not accept them.
    filtered counter;
    /// Times that a session was sent all that it may be, and had to rest.
    rests counter;
    /// Subscriptions ended because their session lagged.
    lagged_unsubscribes counter;
    /// Sessions that take nothing now.
    stalled_sessions gauge;
    /// Devices attached now.
    devices gauge;
    /// Requests of this shard's sessions and HTTP peers.
    requests counter;
    /// Of these, answered.
    requests_answered counter;
    /// Of these, refused: nobody, too many, declined, gone, or not in time.
    requests_refused counter;
    /// Of these, not answered in time.
    requests_timed_out counter;
    /// Answers that came when nobody waited any more, and were discarded.
    late_answers counter;
    /// Subscription commands that wait now for an earlier one of their session.
    changes_waiting gauge;
    /// Requests that handlers here have now.
    requests_open gauge;
    /// Selectors that sessions of the node handle now.
    handlers gauge;
    /// Payload bytes that recent deliveries keep alive now.
    recent_bytes gauge;
    /// Payload bytes shed from histories because memory was short.
    shed_bytes counter;
    /// How short memory is: 1 histories are shed, 2 slow sessions too, 3 nothing more is taken.
    memory_pressure gauge;
    /// Bytes that the process has allocated, told by its first shard.
    memory_allocated_bytes gauge;
    /// Bytes reserved for what will be allocated, told by its first shard.
    memory_reserved_bytes gauge;
    /// Bytes that the kernel counts beyond these: overhead, stacks, the program, sockets; with a budget only.
    memory_correction_bytes gauge;
    /// Times that something was refused because memory_bytes_max was used up, told by the first shard.
    memory_refusals counter;
    /// Batches, and releases of topics, that were held back for an interval.
    batches_held counter;
    /// Gaps told to sessions: publications that could not be had any more.
    gaps counter;
    /// Times that a session fell behind because its connection was full.
    stalls counter;
    /// Times that a session fell behind further than the recent deliveries reach.
    lapped_sessions counter;
    /// Times that another shard's mailbox was full and history had to be sent again.
    lapped_followers counter;
    /// Steps taken in what peers choose the number of: selectors, topics, readers, handlers.
    work counter as work_steps;
    /// The most of these steps that one turn of the shard took so far.
    work_per_turn_peak gauge as turn_peak_steps;
    /// Subscribes by name that wait to hear what their name came to.
    subscribes_waiting gauge;
    /// Receive system calls.
    receives counter;
    /// Send system calls.
    sends counter;
    /// Send system calls that the socket took less of than given.
    sends_cut_short counter;
    /// Bytes received.
    bytes_in counter as received_bytes;
    /// Bytes sent.
    bytes_out counter as sent_bytes;
    /// Turns of the shard's loop.
    turns counter;
    /// Ordinary HTTP requests.
    http_requests counter;
    /// The most bytes of answers that ever waited for one connection of the shard.
    answers_bytes_peak gauge as answers_peak_bytes;
    /// Operations that go through the topics of patterns now, a part in each turn.
    operations_pending gauge;
    /// Messages of the hub for other shards that leave at the end of this turn.
    hub_mail gauge;
    /// The most of these that there ever were.
    hub_mail_peak gauge;
    /// Messages for other shards that wait now because mailboxes are full.
    mail_waiting gauge;
    /// Pages of histories that are awaited from the store now.
    store_reads gauge;
    /// Publications and acknowledgements that wait now to be kept, at their topics' homes and on disk.
    commands_parked gauge;
    /// Commands that waited for `parked_ms` without an answer, and were refused.
    commands_given_up counter;
    /// Commands that sessions had carried out or refused.
    commands counter;
    /// Connections whose input waits: for others' turns, or until earlier answers are taken.
    inputs_waiting gauge;
    /// Positions of durable topics that clients came with and the store never gave.
    positions_beyond counter;
    /// Commands and requests refused, whatever the code.
    refusals counter;
}

/// How long things took: how many took at most so long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// For each of `BOUNDS`, those that took no longer and longer than the one before; at last, those beyond.
    counts: [u64; 11],
    sum: Duration,
}

impl Times {
    /// Where the buckets end, in seconds.
    const BOUNDS: [f64; 10] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

    /// Notes one.
    pub fn note(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[at.unwrap_or(Self::BOUNDS.len())] += 1;
        self.sum += took;
    }

    /// The end of each bucket in seconds, and how many are in it.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        Self::BOUNDS.into_iter().chain([f64::INFINITY]).zip(self.counts).collect()
    }

    /// How many there are, and all of them in seconds.
    pub(crate) fn count_and_sum(&self) -> (u64, f64) {
        (self.counts.iter().sum(), self.sum.as_secs_f64())
    }
}
