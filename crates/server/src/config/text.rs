//! The configuration in words: the default file and the reference, from one list of settings.

use model::Limits;

/// A section of the file.
struct Section {
    name: &'static str,
    meaning: &'static str,
    settings: &'static [Setting],
    /// Lines for the default file that show a list of tables.
    example: &'static str,
}

/// One setting. Without a default it stands commented out, with `shown` as an example.
struct Setting {
    name: &'static str,
    default: Option<&'static str>,
    shown: &'static str,
    meaning: &'static str,
}

const fn setting(name: &'static str, default: &'static str, meaning: &'static str) -> Setting {
    Setting { name, default: Some(default), shown: default, meaning }
}

const fn optional(name: &'static str, shown: &'static str, meaning: &'static str) -> Setting {
    Setting { name, default: None, shown, meaning }
}

const SECTIONS: [Section; 10] = [
    Section {
        name: "server",
        meaning: "The node and its address.",
        settings: &[
            setting("name", "\"tidegate\"", "The node's name, told to clients."),
            setting(
                "listen",
                "\"127.0.0.1:8470\"",
                "Where it listens: an address or a name of this machine, and a port. Everything is served there: WebSocket, HTTP, \
                 metrics, the page.",
            ),
        ],
        example: "",
    },
    Section {
        name: "engine",
        meaning: "How the machine is used.",
        settings: &[
            optional(
                "shards",
                "2",
                "Shards (threads). As many as cores unless set; may exceed them to hold more \
                 connections.",
            ),
            setting(
                "private_fd_tables",
                "true",
                "Whether each shard has a descriptor table of its own: descriptor limits count \
                 per table.",
            ),
            setting("pin_cores", "false", "Whether shards are pinned to cores."),
            setting(
                "accept_share_percent",
                "25",
                "Percent of a turn that accepting connections may take.",
            ),
            setting("accepts_per_turn_max", "64", "Connections accepted in one turn at most."),
            setting("backlog", "4096", "Connections that wait to be accepted, per shard."),
            optional(
                "send_buffer_bytes",
                "65536",
                "Bytes in a socket's send buffer; the kernel chooses unless set.",
            ),
            setting(
                "notsent_lowat_bytes",
                "32768",
                "Unsent bytes above which a client counts as slow.",
            ),
            setting(
                "user_timeout_ms",
                "60000",
                "Milliseconds that sent bytes may stay unacknowledged before a connection is \
                 given up.",
            ),
            setting(
                "audiences",
                "true",
                "Whether sessions that see the same stream share one batch. Off only to measure.",
            ),
        ],
        example: "",
    },
    Section {
        name: "store",
        meaning: "The disk, for topics whose policy says `ack = \"disk\"`.",
        settings: &[optional(
            "path",
            "\"data\"",
            "The directory of the durable log; made if it is not there. One server at a time.",
        )],
        example: "",
    },
    Section {
        name: "access",
        meaning: "Who may do what. A token is given with `Authorization: Bearer`, `?token=` or \
                  `hello`.",
        settings: &[
            setting(
                "anonymous",
                "\"all\"",
                "What clients without a token may do: \"all\", \"read\" or \"none\".",
            ),
            setting(
                "origins",
                "[]",
                "Origins of web pages that may connect, besides the server's own, such as [\"https://app.example.com\"]; \
                 \"loopback\" is every page of the visitor's own machine (development servers), \"*\" is any page at all: \
                 for data that everybody may read. A page of another origin is refused (403, 4302), and the log says which \
                 line lets it in. `--origin` adds one.",
            ),
            setting(
                "hosts",
                "[]",
                "Names that the server goes by, such as [\"push.example.com\"]; \"*\" is any. Addresses, localhost, \
                 names without a dot and the machine's own name need not be listed; a request for another name is \
                 refused (421), or a web page whose name points here could read all.",
            ),
            setting(
                "trusted_proxies",
                "[]",
                "Ranges of the addresses of your proxies, such as [\"10.0.0.0/8\"]. What is limited for each address counts \
                 for the client that they name in `X-Forwarded-For` (or `Forwarded`): the last one that is no such proxy.",
            ),
        ],
        example: r##"[[access.tokens]]
token = "a long random text"
name = "price-feed"
publish = ["prices/#"]
subscribe = []
class = "phones"             # one of [[classes]]; none unless set

[access]
anonymous_class = "phones"   # the class of clients without a token; none unless set
"##,
    },
    Section {
        name: "applications",
        meaning: "Applications whose devices attach (docs/devices.md), a list of tables, each with its keys. A \
                  key is replaced without a break by adding the new one beside it first; SIGHUP takes them over.",
        settings: &[],
        example: r##"[[applications]]
id = "meters"
presence = true              # each device's coming and going is told in devices/meters/ID/presence

[[applications.keys]]
id = "k1"                    # told in the open where a device proves that it has the key
key = "a long random text"
roles = ["device"]           # "device", "application", "admin"
"##,
    },
    Section {
        name: "webhooks",
        meaning: "Endpoints that publications are posted to (docs/webhooks.md), a list of tables. What is not \
                  commented out has to be there; of the rest the defaults are shown.",
        settings: &[],
        example: r##"[[webhooks]]
name = "erp"                 # dead letters go to the topic webhooks/erp/dead
url = "https://example.com/hooks"
topics = ["devices/meters/+/events"]
secret = "whsec_..."         # make one: echo whsec_$(openssl rand -base64 32)
# secrets = ["new", "old"]   # instead, while a secret is replaced: requests are signed with each
# ca_file = "ca.pem"         # certificates to trust instead of the usual ones
# timeout_ms = 15000         # an attempt may take
# attempts_max = 10          # then the publication becomes a dead letter
# pause_ms_min = 1000        # after the first attempt; each pause is twice the one before
# pause_ms_max = 300000
# concurrency = 8            # topics that are delivered at a time
"##,
    },
    Section {
        name: "classes",
        meaning: "Classes of sessions, a list of tables: how much each session of a class is sent at most. A \
                  client may ask for less in `hello`. Being throttled implies conflation, except in topics whose \
                  policy says `conflation = \"off\"`.",
        settings: &[],
        example: r##"[[classes]]
name = "phones"
bytes_per_second = 20000     # unlimited unless set
messages_per_second = 50     # unlimited unless set
"##,
    },
    Section {
        name: "topics",
        meaning: "Topic policies, a list of tables: the first whose `selector` selects a topic \
                  goes for it.",
        settings: &[],
        example: r##"[[topics]]
selector = "#"
retain = true                # the newest publication is kept as the topic's value
history_count = 100          # publications kept: in memory, or on disk with ack = "disk"
history_bytes = 1048576      # payload bytes kept; on disk unlimited unless set
history_age_ms = 3600000     # how old they grow; unlimited unless set
history_count_min = 1        # kept also where memory is short (memory_bytes_max)
conflation = "off"           # nothing is skipped; "lagging": a slow client gets only the newest; "always": each
                             # client gets only the newest of each interval; "unsubscribe": a client that lags
                             # for lag_unsubscribe_ms reads the topic no more. Unless set: "lagging" where
                             # history_count is 0 or 1, else "off"
conflation_key = "/symbol"   # where JSON says what it is about: only that is replaced; unset
interval_ms = 0              # the least time between two publications that readers are told of
compress = true              # whether [compression] goes for it
lagged = "gap"               # beyond the history: "gap" says what is missing, "snapshot" says it and goes on
                             # with the newest, "close" closes the connection
ack = "memory"               # or "disk": on disk before it is acknowledged or delivered
memory_count = 1000          # with "disk": publications of the history that memory holds too
memory_bytes = 1048576       # with "disk": payload bytes that memory holds too
payload_bytes_max = 1048576  # the limit below unless set
"##,
    },
    Section {
        name: "compression",
        meaning: "permessage-deflate for WebSockets that offer it. A message is compressed once for all \
                  clients that share it; worth its time where many read the same over slow networks, less \
                  where each client reads a topic of its own.",
        settings: &[
            setting("on", "false", "Whether it is agreed to where a client offers it."),
            setting("level", "3", "1 (fast) to 9 (small)."),
            setting(
                "bytes_min",
                "256",
                "Messages of fewer bytes are sent as they are. Say 0 where there are clients built on libwebsockets \
                 4.1.6: once compression is agreed to these loop on messages that are not compressed.",
            ),
        ],
        example: "",
    },
    Section {
        name: "diagnostics",
        meaning: "For those who test the server itself.",
        settings: &[
            setting(
                "echo",
                "false",
                "Serves /diagnostics/echo, a plain WebSocket echo for conformance suites.",
            ),
            setting(
                "hiccups",
                "false",
                "Meters how the process is kept from running, for /diagnostics/hiccups.",
            ),
            setting(
                "unknown_events",
                "false",
                "Sends sessions events, members and binary records that no client knows, as a later version may: \
                 clients pass over them.",
            ),
            optional(
                "features",
                "[\"batch\", \"history\"]",
                "Has no features but these, and names no others to clients, as a smaller server would.",
            ),
            optional(
                "fault",
                "\"panic shard-0\"",
                "What one thread does instead of its work, for tests of what becomes of the server then: \
                 `panic THREAD`, or `stall THREAD`, which never does anything again.",
            ),
        ],
        example: "",
    },
];

/// A complete configuration file; it means exactly the default.
pub fn default_text() -> String {
    let mut text = String::from("# Tidegate's configuration. Every value here is the default.\n");
    for section in &SECTIONS {
        text.push_str(&format!("\n# {}\n", section.meaning));
        if !section.settings.is_empty() {
            text.push_str(&format!("[{}]\n", section.name));
        }
        for Setting { name, default, shown, meaning } in section.settings {
            let mark = if default.is_some() { "" } else { "# " };
            text.push_str(&format!("# {meaning}\n{mark}{name} = {shown}\n"));
        }
        section.example.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
    }
    text.push_str("\n# Every bound. Nothing grows beyond one of these.\n[limits]\n");
    for (name, default, meaning) in Limits::catalogue() {
        text.push_str(&format!("# {meaning}\n{name} = {default}\n"));
    }
    text
}

/// The reference of all settings, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# Configuration\n\nOne TOML file, given with `tidegate serve --config FILE`. What it does \
         not say keeps its default;\nan unknown key is an error. `tidegate config check FILE` reads \
         a file without starting, `tidegate config\ndefault` prints a whole one. (This page is \
         `tidegate config doc`; a test keeps it so.)\n",
    );
    for section in &SECTIONS {
        text.push_str(&format!("\n## [{}]\n\n{}\n", section.name, section.meaning));
        let rows = section.settings.iter().map(|setting| {
            let default = setting.default.map_or("unset".into(), |value| format!("`{value}`"));
            (setting.name, default, setting.meaning)
        });
        push_table(rows, &mut text);
        if !section.example.is_empty() {
            text.push_str(&format!("\n```toml\n{}```\n", section.example));
        }
    }
    text.push_str("\n## [limits]\n\nEvery bound. Nothing grows beyond one of these.\n");
    let limits = Limits::catalogue().into_iter();
    push_table(
        limits.map(|(name, value, meaning)| (name, format!("`{value}`"), meaning)),
        &mut text,
    );
    text
}

fn push_table<'a, M: std::fmt::Display>(
    rows: impl Iterator<Item = (&'a str, String, M)>,
    text: &mut String,
) {
    for (at, (name, default, meaning)) in rows.enumerate() {
        if at == 0 {
            text.push_str("\n| setting | default | meaning |\n| --- | --- | --- |\n");
        }
        text.push_str(&format!("| `{name}` | {default} | {meaning} |\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_up_to_date() {
        let written = include_str!("../../../../docs/configuration.md");
        let is_current = written == reference();
        assert!(is_current, "write it anew: tidegate config doc > docs/configuration.md");
    }
}
