//! `[server]`, `[engine]`, `[store]`, `[compression]` and `[diagnostics]`.

use engine::Fault;
use model::Features;

use crate::config::schema::Default::Unset;
use crate::config::schema::Kind::{Bool, Number, Text, Texts};
use crate::config::schema::Reload::Restart;
use crate::config::schema::{Key, Section, is, key};
use crate::config::{Config, address_of};

pub(super) fn server() -> Section {
    let name = Text(|it: &mut Config, text| {
        it.name = text.into();
        Ok(())
    });
    let listen = Text(|it: &mut Config, text| {
        it.listen = address_of(text).map_err(|why| format!("`{text}` {why}"))?;
        Ok(())
    });
    Section {
        name: "server",
        meaning: "The node and its address.",
        keys: vec![
            key("name", is("\"tidegate\""), Restart, name, "The node's name, told to clients."),
            key(
                "listen",
                is("\"127.0.0.1:8470\""),
                Restart,
                listen,
                "Where it listens: an address or a name of this machine, and a port. Everything is served there: \
                 WebSocket, HTTP, metrics, the page. For several addresses there is `[[listeners]]`; one excludes \
                 the other.",
            ),
        ],
    }
}

pub(super) fn engine() -> Section {
    let mut keys = keys_of_threads();
    keys.extend(keys_of_sockets());
    Section { name: "engine", meaning: "How the machine is used.", keys }
}

fn keys_of_threads() -> Vec<Key<Config>> {
    vec![
        key(
            "shards",
            Unset("2"),
            Restart,
            Number(1, 4096, |it: &mut Config, count| it.engine.shards = Some(count as u16)),
            "Shards (threads). As many as cores unless set; may exceed them to hold more connections.",
        ),
        key(
            "private_fd_tables",
            is("true"),
            Restart,
            Bool(|it: &mut Config, yes| it.engine.private_fd_tables = yes),
            "Whether each shard has a descriptor table of its own: descriptor limits count per table.",
        ),
        key(
            "pin_cores",
            is("false"),
            Restart,
            Bool(|it, yes| it.engine.pin_cores = yes),
            "Whether shards are pinned to cores.",
        ),
    ]
}

fn keys_of_sockets() -> Vec<Key<Config>> {
    vec![
        key(
            "accept_share_percent",
            is("25"),
            Restart,
            Number(1, 100, |it: &mut Config, percent| {
                it.engine.accept_share_percent = percent as u32
            }),
            "Percent of a turn that accepting connections may take.",
        ),
        key(
            "accepts_per_turn_max",
            is("64"),
            Restart,
            Number(1, 65_536, |it, count| it.engine.accepts_per_turn_max = count as usize),
            "Connections accepted in one turn at most.",
        ),
        key(
            "backlog",
            is("4096"),
            Restart,
            Number(1, 65_535, |it, count| it.engine.backlog = count as u32),
            "Connections that wait to be accepted, per shard.",
        ),
        key(
            "send_buffer_bytes",
            Unset("65536"),
            Restart,
            Number(4096, 1 << 30, |it, bytes| it.engine.send_buffer_bytes = Some(bytes as usize)),
            "Bytes in a socket's send buffer; the kernel chooses unless set.",
        ),
        key(
            "notsent_lowat_bytes",
            is("32768"),
            Restart,
            Number(4096, 1 << 30, |it, bytes| it.engine.notsent_lowat_bytes = bytes as u32),
            "Unsent bytes above which a client counts as slow.",
        ),
        key(
            "user_timeout_ms",
            is("60000"),
            Restart,
            Number(1000, 1 << 30, |it, ms| it.engine.user_timeout_ms = ms as u32),
            "Milliseconds that sent bytes may stay unacknowledged before a connection is given up.",
        ),
        key(
            "audiences",
            is("true"),
            Restart,
            Bool(|it, yes| it.engine.audiences = yes),
            "Whether sessions that see the same stream share one batch. Off only to measure.",
        ),
    ]
}

pub(super) fn store() -> Section {
    let path = Text(|it: &mut Config, text| {
        it.store = Some(text.into());
        Ok(())
    });
    Section {
        name: "store",
        meaning: "The disk, for topics whose policy says `ack = \"disk\"`.",
        keys: vec![key(
            "path",
            Unset("\"data\""),
            Restart,
            path,
            "The directory of the durable log; made if it is not there. One server at a time.",
        )],
    }
}

pub(super) fn compression() -> Section {
    Section {
        name: "compression",
        meaning: "permessage-deflate for WebSockets that offer it. A message is compressed once for all clients that \
                  share it; worth its time where many read the same over slow networks, less where each client reads \
                  a topic of its own.",
        keys: vec![
            key(
                "on",
                is("false"),
                Restart,
                Bool(|it: &mut Config, yes| it.compression.is_on = yes),
                "Whether it is agreed to where a client offers it.",
            ),
            key(
                "level",
                is("3"),
                Restart,
                Number(1, 9, |it, level| it.compression.level = level as u32),
                "1 (fast) to 9 (small).",
            ),
            key(
                "bytes_min",
                is("256"),
                Restart,
                Number(0, 1 << 30, |it, bytes| it.compression.bytes_min = bytes as usize),
                "Messages of fewer bytes are sent as they are. Say 0 where there are clients built on libwebsockets \
                 4.1.6: once compression is agreed to these loop on messages that are not compressed.",
            ),
        ],
    }
}

pub(super) fn diagnostics() -> Section {
    Section {
        name: "diagnostics",
        meaning: "For those who test the server itself.",
        keys: vec![
            key(
                "echo",
                is("false"),
                Restart,
                Bool(|it: &mut Config, yes| it.echo = yes),
                "Serves /diagnostics/echo, a plain WebSocket echo for conformance suites.",
            ),
            key(
                "hiccups",
                is("false"),
                Restart,
                Bool(|it, yes| it.hiccups = yes),
                "Meters how the process is kept from running, for /diagnostics/hiccups.",
            ),
            key(
                "sequence_holes",
                is("false"),
                Restart,
                Bool(|it, yes| it.sequence_holes = yes),
                "Numbers the topics in memory as a broker's stream would: sequences grow, and have holes. For tests of what reads \
                 them.",
            ),
            key(
                "unknown_events",
                is("false"),
                Restart,
                Bool(|it, yes| it.unknown_events = yes),
                "Sends sessions events, members and binary records that no client knows, as a later version may: \
                 clients pass over them.",
            ),
            key(
                "features",
                Unset("[\"batch\", \"history\"]"),
                Restart,
                Texts(|it| it.features = Features::default(), add_feature),
                "Has no features but these, and names no others to clients, as a smaller server would.",
            ),
            key(
                "fault",
                Unset("\"panic shard-0\""),
                Restart,
                Text(set_fault),
                "What one thread does instead of its work, for tests of what becomes of the server then: \
                 `panic THREAD`, or `stall THREAD`, which never does anything again.",
            ),
        ],
    }
}

fn add_feature(it: &mut Config, name: &str) -> Result<(), String> {
    let feature = Features::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Features::ALL.names().collect();
        format!("`{name}` is no feature; write some of {}", known.join(", "))
    })?;
    it.features = it.features.with(feature);
    Ok(())
}

fn set_fault(it: &mut Config, text: &str) -> Result<(), String> {
    let wrong = "its value is not `panic THREAD` or `stall THREAD`; write it so, with quotes";
    it.fault = Some(Fault::parse(text).ok_or(wrong)?);
    Ok(())
}
