//! The default configuration as commented text.

use model::Limits;

/// A complete configuration file; it means exactly the default.
pub fn default_text() -> String {
    let mut text = String::from(HEAD);
    for (name, default, description) in Limits::catalogue() {
        text.push_str(&format!("# {description}\n{name} = {default}\n"));
    }
    text
}

const HEAD: &str = r##"# Tidegate's configuration. Every value here is the default.

[server]
# The node's name, told to clients.
name = "tidegate"
# Where it listens. Everything is served there: WebSocket, HTTP, metrics, the page.
listen = "127.0.0.1:8470"

[engine]
# Shards (threads). As many as cores unless set; may exceed them to hold more connections.
# shards = 2
# Whether each shard has a descriptor table of its own: descriptor limits count per table.
private_fd_tables = true
# Whether shards are pinned to cores.
pin_cores = false
# Percent of a turn that accepting connections may take, and how many at most.
accept_share_percent = 25
accepts_per_turn_max = 64
# Connections that wait to be accepted, per shard.
backlog = 4096
# Bytes in a socket's send buffer; the kernel chooses unless set.
# send_buffer_bytes = 65536
# Unsent bytes above which a client counts as slow.
notsent_lowat_bytes = 32768
# Milliseconds that sent bytes may stay unacknowledged before a connection is given up.
user_timeout_ms = 60000
# Whether sessions that see the same stream share one batch. Off only to measure.
audiences = true

[access]
# What clients without a token may do: "all", "read" or "none".
anonymous = "all"
# Origins of web pages that may connect, besides the server's own.
origins = []
# [[access.tokens]]
# token = "a long random text"
# name = "price-feed"
# publish = ["prices/#"]
# subscribe = []

# Topic policies: the first whose selector selects a topic goes for it. The default is:
# [[topics]]
# selector = "#"
# retain = true
# history_count = 100
# history_bytes = 1048576
# history_age_ms = 3600000     # unlimited unless set
# conflation = "off"           # or "lagging": a slow client gets only the newest of each topic
# lagged = "gap"               # or "close": what happens beyond the history
# ack = "memory"
# payload_bytes_max = 1048576  # the limit below unless set

[diagnostics]
# Serves /diagnostics/echo, a plain WebSocket echo for conformance suites.
echo = false

[limits]
"##;
