//! `[[listeners]]`: where the server listens, and what it serves there.

use std::net::SocketAddr;
use std::path::PathBuf;

use listener::{ClientCertificates, TlsFiles, Versions};

use crate::config::reader::{Reader, no_word};
use crate::config::schema::Default::{Needed, Unset};
use crate::config::schema::Kind::{Bool, Text, Texts, Word};
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
    tls: TlsFiles,
}

fn keys() -> Vec<Key<Draft>> {
    let mut all = keys_of_address();
    all.extend(keys_of_tls());
    all
}

fn keys_of_tls() -> Vec<Key<Draft>> {
    let certificates = Kind::Tables(Tables { rows: pair_rows, add: add_pair });
    vec![
        field(
            "certificates",
            is("[]"),
            certificates,
            "Certificates and their keys: with at least one the listener speaks TLS, and HTTP/1.1 in it. A client is \
             shown the one for the name that it asks for, else the first. The files are read again when they change, and \
             by SIGHUP; connections that are open go on.",
        ),
        field(
            "tls_min",
            is("\"1.2\""),
            Word(vec![
                ("1.2", |draft: &mut Draft| draft.tls.versions = Versions::Both),
                ("1.3", |draft| draft.tls.versions = Versions::Newest),
            ]),
            "The oldest version of TLS that is spoken.",
        ),
        field(
            "client_certificates",
            is("\"off\""),
            Word(vec![
                ("off", |draft| draft.tls.clients = ClientCertificates::Off),
                ("optional", |draft| draft.tls.clients = ClientCertificates::Optional),
                ("required", |draft| draft.tls.clients = ClientCertificates::Required),
            ]),
            "Whether clients show certificates. The name in one is a principal if `access.tokens` has it as \
             `certificate`.",
        ),
        field(
            "client_ca",
            Unset("\"clients-ca.pem\""),
            Text(|draft, text| {
                draft.tls.client_ca = Some(text.into());
                Ok(())
            }),
            "The authorities of clients' certificates.",
        ),
    ]
}

fn pair_keys() -> Vec<Key<(PathBuf, PathBuf)>> {
    vec![
        field(
            "certificate",
            Needed("\"push.example.com.pem\""),
            Text(|pair: &mut (PathBuf, PathBuf), text| {
                pair.0 = text.into();
                Ok(())
            }),
            "A file in PEM: the certificate, and those between it and its authority.",
        ),
        field(
            "key",
            Needed("\"push.example.com.key\""),
            Text(|pair, text| {
                pair.1 = text.into();
                Ok(())
            }),
            "A file in PEM: its key.",
        ),
    ]
}

fn pair_rows() -> Vec<Row> {
    pair_keys().into_iter().map(Key::row).collect()
}

fn add_pair(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    draft: &mut Draft,
) -> Result<(), ConfigError> {
    let mut pair = (PathBuf::new(), PathBuf::new());
    reader.table(path, &pair_keys(), table, &mut pair)?;
    if pair.0.as_os_str().is_empty() || pair.1.as_os_str().is_empty() {
        let text = "an entry needs both a `certificate` and its `key`; add what is missing";
        return Err(reader.error(at, path, text.into()));
    }
    draft.tls.certificates.push(pair);
    Ok(())
}

fn keys_of_address() -> Vec<Key<Draft>> {
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
    let tls = TlsFiles {
        certificates: Vec::new(),
        clients: ClientCertificates::Off,
        client_ca: None,
        versions: Versions::Both,
    };
    let mut draft = Draft { address: None, it, tls };
    reader.table(path, &keys(), table, &mut draft)?;
    let Draft { address, mut it, tls } = draft;
    let wrong = |text: String| Err(reader.error(at, path, text));
    let Some(address) = address else {
        return wrong("a listener needs an `address`; add one such as \"0.0.0.0:8470\"".into());
    };
    it.address = address;
    let asks_clients = tls.clients != ClientCertificates::Off;
    if asks_clients && tls.client_ca.is_none() {
        let text = "clients' certificates need an authority; add one such as client_ca = \"clients-ca.pem\"";
        return wrong(text.into());
    }
    if tls.certificates.is_empty() && (asks_clients || tls.versions != Versions::Both) {
        let text = "a listener without `certificates` speaks no TLS; add one such as certificates = [{certificate = \
                    \"push.pem\", key = \"push.key\"}]";
        return wrong(text.into());
    }
    it.tls = Some(tls).filter(|tls| !tls.certificates.is_empty());
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
