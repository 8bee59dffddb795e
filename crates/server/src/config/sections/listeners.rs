//! `[[listeners]]`: where the server listens, and what it serves there.

use std::net::SocketAddr;

use crate::config::reader::{Reader, no_word};
use crate::config::schema::Default::Needed;
use crate::config::schema::Kind::{Bool, Text, Texts};
use crate::config::schema::Reload::Restart;
use crate::config::schema::{Entry, Key, Kind, Row, Section, Tables, field, is, key};
use crate::config::{Config, ConfigError, ListenerConfig, address_of};
use crate::surfaces::{Surface, Surfaces};

/// A shard notes the listener of a connection in a byte, and there is a descriptor for each on every shard.
const LISTENERS_MAX: usize = 32;

pub(super) fn listeners() -> Section {
    let listeners = Kind::Tables(Tables { rows, add });
    Section {
        name: "listeners",
        meaning: "Where the server listens, a list of tables, instead of `server.listen`: one address for each, and \
                  what it serves.",
        keys: vec![key("", is("[]"), Restart, listeners, "Where the server listens.")],
    }
}

/// A listener that is being read.
struct Draft {
    address: Option<SocketAddr>,
    it: ListenerConfig,
}

fn keys() -> Vec<Key<Draft>> {
    vec![
        field(
            "address",
            Needed("\"0.0.0.0:8470\""),
            Text(|draft: &mut Draft, text| {
                let address = address_of(text).map_err(|why| format!("`{text}` {why}"))?;
                draft.address = Some(address);
                Ok(())
            }),
            "An address or a name of this machine, and a port.",
        ),
        field(
            "surfaces",
            is("[\"clients\", \"publish\", \"devices\", \"operators\"]"),
            Texts(|draft| draft.it.surfaces = Surfaces::NONE, add_surface),
            "What is served there: \"clients\" (sessions over WebSocket, SSE, streams and polls, values, histories, \
             requests), \"publish\" (publishing over HTTP, values, histories, requests), \"devices\" (devices and \
             applications), \"operators\" (metrics, slow clients, sessions, the page). Other paths are answered 404 \
             there. It is about paths: whether a session may publish is a matter of its rights. `/health` and \
             `/ready` are served everywhere.",
        ),
        field(
            "proxy_protocol",
            is("false"),
            Bool(|draft, yes| draft.it.expects_proxy_header = yes),
            "Whether every connection begins with a PROXY header (version 1 or 2), which says where the client is. It is \
             believed of `access.trusted_proxies` only; connections of others are closed.",
        ),
    ]
}

fn add_surface(draft: &mut Draft, text: &str) -> Result<(), String> {
    let found = Surface::ALL.into_iter().find(|surface| surface.name() == text);
    draft.it.surfaces.insert(found.ok_or_else(|| no_word(text, &Surface::ALL.map(Surface::name)))?);
    Ok(())
}

fn rows() -> Vec<Row> {
    keys().into_iter().map(Key::row).collect()
}

fn add(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let it = ListenerConfig::on(config.listen);
    let mut draft = Draft { address: None, it };
    reader.table(path, &keys(), table, &mut draft)?;
    let Draft { address, mut it } = draft;
    let wrong = |text: String| Err(reader.error(at, path, text));
    let Some(address) = address else {
        return wrong("a listener needs an `address`; add one such as \"0.0.0.0:8470\"".into());
    };
    it.address = address;
    if it.surfaces.is_empty() {
        let text = "a listener that serves nothing is of no use; name some `surfaces`, or leave them out for all";
        return wrong(text.into());
    }
    let is_same = |other: &ListenerConfig| other.address == address && address.port() != 0;
    if config.listeners.iter().any(is_same) {
        return wrong(format!("two listeners have the address {address}; change one"));
    }
    if config.listeners.len() == LISTENERS_MAX {
        return wrong(format!("there are more than {LISTENERS_MAX} listeners; leave some out"));
    }
    config.listeners.push(it);
    Ok(())
}
