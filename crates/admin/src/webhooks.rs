//! The counters of webhooks, for metrics: each webhook writes its own, a scrape reads all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::Entry;

macro_rules! webhook_counters {
    ($($(#[doc = $doc:literal])* $name:ident $kind:ident;)*) => {
        /// Counters and gauges of one webhook.
        #[derive(Debug, Default)]
        pub struct WebhookCounters {
            /// The webhook's name.
            pub name: String,
            $($(#[doc = $doc])* pub $name: AtomicU64,)*
        }

        impl WebhookCounters {
            /// Name, whether it is a `counter` or a `gauge`, description and value of each.
            pub(crate) fn entries(&self) -> Vec<Entry> {
                vec![$((
                    stringify!($name),
                    stringify!($kind),
                    concat!($($doc),*).trim_ascii(),
                    self.$name.load(Ordering::Relaxed),
                ),)*]
            }
        }
    };
}

webhook_counters! {
    /// Publications that a webhook's endpoint took.
    delivered counter;
    /// Attempts of a webhook that failed.
    attempts_failed counter;
    /// Publications of a webhook that became dead letters.
    dead_letters counter;
    /// Publications that a webhook could not have any more, as far as they were counted.
    missed counter;
    /// Publications that a webhook skipped because its topics' policies conflate.
    conflated counter;
    /// Publications of a webhook that wait now.
    pending gauge;
    /// Payload bytes of these.
    pending_bytes gauge;
    /// Topics of a webhook of which something is remembered now.
    topics gauge;
    /// When the oldest of those that wait was read, in seconds since 1970; 0 if none waits.
    oldest_pending_timestamp_seconds gauge;
    /// When a webhook's endpoint last took a publication, in seconds since 1970; 0 if it never did.
    last_success_timestamp_seconds gauge;
    /// Whether a webhook's endpoint fails now (1), or is gone for good (2).
    failing gauge;
}

impl WebhookCounters {
    /// Those of a webhook that did nothing yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}
