//! `[limits]`: a row for each of `model::Limits`, which says name, default and meaning.

use model::Limits;

use crate::config::schema::{Kind, Reload, Section, is, key};

pub(super) fn limits() -> Section {
    let row = |(name, default, meaning): (&'static str, String, String)| {
        let min = u64::from(name != "memory_bytes_max");
        let kind = Kind::Limit(min, 1 << 53, |it: &mut crate::Config, name, number| {
            it.limits.set(name, number);
        });
        key(name, is(default), reload_of(name), kind, meaning)
    };
    Section {
        name: "limits",
        meaning: "Every bound. Nothing grows beyond one of these.",
        keys: Limits::catalogue().into_iter().map(row).collect(),
    }
}

/// Limits that shards read from their configuration each time. The others are copied at the start, or are asked by
/// threads that keep the first configuration.
const LIVE: [&str; 25] = [
    "answer_ms",
    "connections_per_address_max",
    "device_unsent_bytes_max",
    "devices_per_session_max",
    "failed_keys_per_minute_max",
    "filter_bytes_max",
    "foreign_origins_max",
    "handler_concurrency_max",
    "interval_ms_max",
    "keep_alive_ms",
    "mail_waiting_max",
    "message_ms",
    "padding_bytes_max",
    "ping_after_ms",
    "poll_bytes_max",
    "poll_ms",
    "poll_silence_ms",
    "request_ms",
    "request_timeout_ms_max",
    "requests_per_second_per_address_max",
    "silence_ms",
    "stream_keep_alive_ms",
    "stream_ms_max",
    "subscriber_age_ms",
    "unknown_hosts_max",
];

fn reload_of(limit: &str) -> Reload {
    match limit {
        // Said to a device when it attaches.
        "device_heartbeat_ms" => Reload::NewConnections,
        limit if LIVE.contains(&limit) => Reload::Live,
        _ => Reload::Restart,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Sources below a folder of `crates`.
    fn sources(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => sources(&path, all),
                false => all.push((path.clone(), std::fs::read_to_string(path).expect("text"))),
            }
        }
    }

    /// What copies limits when it is made goes on with the copy: a reload does not reach it.
    #[test]
    fn who_copies_limits_when_it_is_made_heeds_none_that_is_live() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in crates");
        let mut all = Vec::new();
        for part in ["admin", "backbone", "hub", "server", "bridges"] {
            sources(&crates.join(part).join("src"), &mut all);
        }
        let is_of_server = |path: &Path| path.starts_with(crates.join("server"));
        all.retain(|(path, text)| !is_of_server(path) || text.contains("limits: &Limits) -> Self"));
        assert!(all.len() > 100, "{}", all.len());
        for (path, text) in &all {
            let heeded = LIVE.iter().find(|live| {
                let word = format!("limits.{live}");
                text.match_indices(&word).any(|(at, _)| {
                    let next = text[at + word.len()..].chars().next();
                    !next.is_some_and(|next| next == '_' || next.is_alphanumeric())
                })
            });
            assert_eq!(heeded, None, "{}", path.display());
        }
    }

    #[test]
    fn what_is_live_is_a_limit() {
        let all = Limits::catalogue();
        for live in LIVE {
            assert!(all.iter().any(|(name, ..)| *name == live), "{live}");
        }
    }
}
