//! Every bound in the server, by name, with its unit and default.

use std::time::Duration;

macro_rules! limits {
    ($($(#[doc = $doc:literal])* $name:ident : $kind:ty = $default:expr;)*) => {
        /// Every bound in the server. Everything that can grow has one here.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits { $($(#[doc = $doc])* pub $name: $kind,)* }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Limits {
            /// Name, default as configuration writes it, and description of every limit, in order.
            pub fn catalogue() -> Vec<(&'static str, String, String)> {
                let defaults = Self::default();
                vec![$((
                    stringify!($name),
                    LimitValue::written(&defaults.$name),
                    concat!($($doc, "\n"),*).lines().map(str::trim).collect::<Vec<_>>().join(" "),
                ),)*]
            }

            /// Name and value, as configuration writes it, of those that are not at their default.
            pub fn changed(&self) -> Vec<(&'static str, String)> {
                let defaults = Self::default();
                let all = [$((
                    stringify!($name),
                    LimitValue::written(&self.$name),
                    self.$name == defaults.$name,
                ),)*];
                all.into_iter()
                    .filter(|(.., is_default)| !is_default)
                    .map(|(name, value, _)| (name, value))
                    .collect()
            }

            /// Sets the limit called `name`; `value` is in the unit that the name ends with.
            /// Answers false when there is no such limit.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = LimitValue::read(value),)*
                    _ => return false,
                }
                true
            }
        }
    };
}

trait LimitValue {
    fn written(&self) -> String;
    fn read(value: u64) -> Self;
}

impl LimitValue for usize {
    fn written(&self) -> String {
        self.to_string()
    }
    fn read(value: u64) -> Self {
        usize::try_from(value).unwrap_or(usize::MAX)
    }
}

impl LimitValue for Duration {
    fn written(&self) -> String {
        self.as_millis().to_string()
    }
    fn read(value: u64) -> Self {
        Duration::from_millis(value)
    }
}

limits! {
    /// Bytes in a topic name or selector.
    topic_bytes_max: usize = 512;
    /// Levels in a topic name or selector.
    topic_levels_max: usize = 32;
    /// Topics that one shard owns or follows.
    topics_per_shard_max: usize = 20_000_000;
    /// Bytes in one payload.
    payload_bytes_max: usize = 1 << 20;
    /// Bytes in one WebSocket message from a peer, all its fragments together.
    message_bytes_max: usize = 3 << 19;
    /// Bytes in an HTTP request head.
    head_bytes_max: usize = 16 << 10;
    /// Header fields in an HTTP request head.
    head_fields_max: usize = 64;
    /// Bytes in an ordinary HTTP request's body.
    body_bytes_max: usize = 4 << 20;
    /// Publications in one batch request.
    batch_len_max: usize = 10_000;
    /// Topics in one page of a listing.
    page_len_max: usize = 10_000;
    /// Bytes of names and values in one page of a table (`GET /v1/topics?values=true`); one value may be larger.
    table_bytes_max: usize = 4 << 20;
    /// Connections per shard; the descriptor table may allow fewer.
    connections_per_shard_max: usize = 4_000_000;
    /// Subscriptions (selectors) of one session.
    subscriptions_per_session_max: usize = 10_000;
    /// Names of topics that a shard looks at in one turn for subscriptions to patterns that begin, change, end or fall
    /// behind.
    attached_per_turn: usize = 16_384;
    /// Operations of a shard that go through the topics of patterns and are not done, before a `subscribe` to a pattern is
    /// refused (4115).
    operations_pending_max: usize = 65_536;
    /// Steps in which a `subscribe` may be compared with what its session reads already.
    overlap_steps_max: usize = 100_000;
    /// Names of topics that a `subscribe` may look at in one turn because its session stands at different places in the
    /// patterns that it joins.
    merged_names_max: usize = 16_384;
    /// Bytes of answers that wait for one connection, or are under way to it, before its commands wait.
    answers_bytes_max: usize = 256 << 10;
    /// Topics that one session may read afresh at a time (snapshot, resume, after a long stall).
    replay_topics_max: usize = 1_000_000;
    /// Bytes that one WebSocket message of several records may hold.
    batch_bytes_max: usize = 16 << 10;
    /// Recent deliveries that a shard remembers in order, so that slow sessions can read on.
    recent_deliveries_max: usize = 65_536;
    /// Payload bytes that those recent deliveries may keep alive in a shard.
    recent_deliveries_bytes_max: usize = 64 << 20;
    /// Messages waiting in a shard's mailbox.
    mailbox_len_max: usize = 16_384;
    /// Messages of a shard for another one that wait because its mailbox is full, before commands and requests that may need
    /// another shard are refused (4001).
    mail_waiting_max: usize = 16_384;
    /// Pages of histories that a shard awaits from the store, before a `history` that needs another is refused (4116).
    store_reads_max: usize = 1_024;
    /// Publications and acknowledgements of a shard that wait to be kept, at their topics' homes and on disk, before others are
    /// refused (4001).
    parked_commands_max: usize = 262_144;
    /// Milliseconds that a command may wait for an answer from elsewhere (a topic's home, the store), before it is refused (4108).
    parked_ms: Duration = Duration::from_secs(60);
    /// Ordinary HTTP requests that a shard has handed on and awaits.
    requests_in_flight_max: usize = 1_024;
    /// Bytes in an idempotency key.
    idempotency_key_bytes_max: usize = 128;
    /// Idempotency keys remembered by a shard.
    idempotency_keys_max: usize = 100_000;
    /// Milliseconds for which an idempotency key is remembered.
    idempotency_window_ms: Duration = Duration::from_secs(300);
    /// Records of durable topics that wait for the disk.
    store_records_in_flight_max: usize = 65_536;
    /// Subscribes by name of one shard's sessions that wait to hear what their name came to.
    subscribes_waiting_max: usize = 1_024;
    /// Selectors and positions in subscription commands of one session that wait for its earlier `subscribe` with a
    /// name.
    changes_waiting_max: usize = 10_000;
    /// Topics of which one durable subscriber's position is remembered.
    subscriber_positions_max: usize = 1_000;
    /// Names of one principal whose positions a shard remembers.
    subscriber_names_max: usize = 1_000;
    /// Milliseconds after which a name that acknowledged nothing may be forgotten.
    subscriber_age_ms: Duration = Duration::from_secs(30 * 24 * 3_600);
    /// Bytes in the epoch of a position.
    epoch_bytes_max: usize = 64;
    /// Milliseconds that a session lags before it is told so.
    lag_told_ms: Duration = Duration::from_secs(1);
    /// Milliseconds that a session lags before a topic with the conflation `unsubscribe` is taken from it.
    lag_unsubscribe_ms: Duration = Duration::from_secs(5);
    /// Milliseconds that a subscription's or topic's interval may be.
    interval_ms_max: Duration = Duration::from_secs(60);
    /// Different options that the subscriptions of one shard may have.
    subscribe_options_max: usize = 100_000;
    /// Bytes in a filter.
    filter_bytes_max: usize = 1_024;
    /// Entities that a topic with a conflation key may be about; more are not conflated.
    conflation_keys_max: usize = 100_000;
    /// Bytes of a payload in one piece, for clients that take large ones in pieces.
    fragment_bytes: usize = 16 << 10;
    /// Bytes of payloads that may have deltas.
    delta_bytes_max: usize = 1 << 20;
    /// Bytes of memory, sockets included, that the server uses at most: near it histories and then slow sessions
    /// are shed, at it nothing more is taken (4106); 0 is without bound.
    memory_bytes_max: usize = 0;
    /// Publications in one page of a history.
    history_page_len_max: usize = 1_000;
    /// Milliseconds that a request head, body or handshake may take to arrive.
    request_ms: Duration = Duration::from_secs(10);
    /// Milliseconds until a connection has to be open, where it begins with the header of a proxy or a TLS handshake.
    opening_ms: Duration = Duration::from_secs(10);
    /// Steps of TLS handshakes in one turn of a shard: each takes up to some 200 µs, and others wait as long.
    handshakes_per_turn_max: usize = 8;
    /// Milliseconds that one WebSocket message may take from its first byte to its last.
    message_ms: Duration = Duration::from_secs(120);
    /// Milliseconds that an ordinary HTTP answer may take from its first byte to its last.
    answer_ms: Duration = Duration::from_secs(300);
    /// Milliseconds that the server takes to stop at most; then the process ends all the same, with status 1.
    stop_ms: Duration = Duration::from_secs(9);
    /// Milliseconds of silence after which a WebSocket peer is pinged.
    ping_after_ms: Duration = Duration::from_secs(25);
    /// Milliseconds of silence after which a peer counts as gone.
    silence_ms: Duration = Duration::from_secs(60);
    /// Milliseconds after which a response that goes on is sent a sign of life.
    stream_keep_alive_ms: Duration = Duration::from_secs(15);
    /// Milliseconds that a response may go on; then its reader is told to ask again.
    stream_ms_max: Duration = Duration::from_secs(3_600);
    /// Bytes of padding that a reader may ask for, to get through proxies that hold back the first ones.
    padding_bytes_max: usize = 64 << 10;
    /// Milliseconds that a poll waits for something to tell.
    poll_ms: Duration = Duration::from_secs(20);
    /// Milliseconds after the last poll at which a session that is polled counts as gone.
    poll_silence_ms: Duration = Duration::from_secs(30);
    /// Bytes in the answer to one poll, beyond which the rest is left to the next.
    poll_bytes_max: usize = 1 << 20;
    /// Requests that sessions and devices of one shard may have open, and as many that it waits for.
    requests_open_max: usize = 1 << 20;
    /// Requests that may be open with one session at a time.
    handler_concurrency_max: usize = 4_096;
    /// Selectors that one session may handle.
    handlers_per_session_max: usize = 1_000;
    /// Selectors that all sessions may handle.
    handlers_max: usize = 100_000;
    /// Requests that one session may wait for at a time.
    requests_per_session_max: usize = 4_096;
    /// Requests of one shard that may be looking for who may answer them, or be handed to all, at a time.
    request_searches_max: usize = 64;
    /// Payload bytes of answers that a shard remembers for requests with a key.
    request_outcomes_bytes_max: usize = 64 << 20;
    /// Bytes of what a client calls itself that are remembered.
    client_bytes_max: usize = 128;
    /// Wrong tokens, and keys of applications, from one address (of IPv6: one /64) that are checked in a minute.
    failed_keys_per_minute_max: usize = 60;
    /// Connections from one address (of IPv6: one /64), sessions that are polled included.
    connections_per_address_max: usize = 10_000;
    /// HTTP requests from one address (of IPv6: one /64) that are served in a second.
    requests_per_second_per_address_max: usize = 2_000;
    /// Addresses whose connections, requests and wrong tokens are counted; those beyond are not.
    addresses_max: usize = 16_384;
    /// Milliseconds in which a WebSocket has to present a token, where access.anonymous is "none".
    authenticate_ms: Duration = Duration::from_secs(10);
    /// Proofs, and keys for one WebSocket, that may be used in a minute.
    proofs_per_minute_max: usize = 1_000_000;
    /// Names of hosts that were refused and are remembered, so that each is logged once.
    unknown_hosts_max: usize = 100;
    /// Origins of pages that were refused and are remembered, so that each is logged once.
    foreign_origins_max: usize = 100;
    /// Devices that one session may attach.
    devices_per_session_max: usize = 1_000;
    /// Requests that may be open with one device at a time.
    device_requests_max: usize = 16;
    /// Milliseconds that the answer to a request may take.
    request_timeout_ms_max: Duration = Duration::from_secs(300);
    /// Milliseconds between a device's heartbeats, unless it says otherwise when it attaches.
    device_heartbeat_ms: Duration = Duration::from_secs(60);
    /// Bytes of requests that wait for one device's connection.
    device_unsent_bytes_max: usize = 2 << 20;
    /// Devices that went and are remembered by a shard, so that asking them is answered 410 rather than 404.
    devices_gone_max: usize = 100_000;
    /// Commands of one bridge, such as a webhook, that wait for a shard; beyond that it gives no further ones.
    bridge_commands_max: usize = 64;
    /// Publications of one topic that a webhook holds; those after them it takes from the topic's history later.
    webhook_topic_pending_max: usize = 100;
    /// Topics of one webhook of which it is remembered how far they were read although nothing of them waits.
    webhook_topics_max: usize = 100_000;
    /// Publications of one webhook that wait to be delivered; beyond that it reads no further.
    webhook_pending_max: usize = 10_000;
    /// Payload bytes of these.
    webhook_pending_bytes_max: usize = 64 << 20;
    /// Milliseconds that a kept-alive HTTP connection may idle between requests.
    keep_alive_ms: Duration = Duration::from_secs(60);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_name() {
        let mut limits = Limits::default();
        assert!(limits.set("payload_bytes_max", 5));
        assert!(limits.set("silence_ms", 1500));
        assert!(!limits.set("payload_bytes", 5));
        let changed = [("payload_bytes_max", "5".to_owned()), ("silence_ms", "1500".to_owned())];
        assert_eq!(limits.changed(), changed);
        assert_eq!(limits.payload_bytes_max, 5);
        assert_eq!(limits.silence_ms, Duration::from_millis(1500));
    }

    #[test]
    fn the_catalogue_names_unit_and_default() {
        let catalogue = Limits::catalogue();
        let silence = catalogue.iter().find(|entry| entry.0 == "silence_ms").expect("is a limit");
        assert_eq!(silence.1, "60000");
        assert!(silence.2.starts_with("Milliseconds of silence"));
    }
}
