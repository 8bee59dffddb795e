//! Configuration: TOML in, a checked [`Config`] out. Every error names file, line, key and cure.

mod parse;
mod reader;
mod said;
mod schema;
mod sections;
mod settings;
mod show;
mod sources;
mod text;
mod variables;
mod webhooks;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use listener::TlsFiles;
use model::{Features, Limits, PolicyRule, Rates};

use crate::surfaces::Surfaces;

pub use access::{AccessConfig, AddressRange, ApplicationConfig, KeyConfig, check_origin};
pub use parse::{ConfigError, load, parse};
pub use schema::Reload;
pub use sections::log_levels;
pub use settings::{Setting, settings};
pub use sources::{Reloaded, Sources};
pub use text::{default_text, reference};
pub use variables::variable_of;
pub use webhooks::{WebhookConfig, WebhookSecret};

/// Where to listen, by an address or a name of this machine, and a port. Of a name's addresses one of IPv4 goes first.
///
/// # Errors
/// It is no such thing; the text says what to write.
pub fn address_of(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let cure = "write such as \"127.0.0.1:8470\" or \"localhost:8470\"";
    if !text.contains(':') {
        return Err(format!("is not an address and port; {cure}"));
    }
    let found = text
        .to_socket_addrs()
        .map_err(|error| format!("is not an address and port: {error}; {cure}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or_else(|| found.first());
    first.copied().ok_or_else(|| format!("has no address; {cure}"))
}

/// Everything a server is told at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The node's name.
    pub name: String,
    /// Where it listens, unless there are `listeners`.
    pub listen: SocketAddr,
    /// Where it listens instead, and what it serves there.
    pub listeners: Vec<ListenerConfig>,
    /// The engine's settings.
    pub engine: EngineConfig,
    /// Where durable topics are kept; there can be none if `None`.
    pub store: Option<PathBuf>,
    /// Who may do what.
    pub access: AccessConfig,
    /// Applications whose devices attach.
    pub applications: Vec<ApplicationConfig>,
    /// Where publications are posted to.
    pub webhooks: Vec<WebhookConfig>,
    /// Classes of sessions: their names, and how much each session is sent at most.
    pub classes: Vec<(String, Rates)>,
    /// Topic policies, in order.
    pub policies: Vec<PolicyRule>,
    /// Whether and how messages are compressed.
    pub compression: CompressionConfig,
    /// Every bound.
    pub limits: Limits,
    /// What is logged: a level, or levels by part of the program.
    pub log_level: String,
    /// Whether `/diagnostics/echo` is served.
    pub echo: bool,
    /// Whether hiccups are metered, for `/diagnostics/hiccups`.
    pub hiccups: bool,
    /// Whether the sequences of topics in memory have holes, as in a broker's stream, for tests.
    pub sequence_holes: bool,
    /// Whether sessions are sent events and members that no client knows, for tests of clients.
    pub unknown_events: bool,
    /// What sessions are offered, for tests of clients: all there is unless it says otherwise.
    pub features: Features,
    /// What one thread does instead of its work, for tests of what becomes of the server then.
    pub fault: Option<engine::Fault>,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address.
    pub address: SocketAddr,
    /// What is served there.
    pub surfaces: Surfaces,
    /// Whether connections begin with a PROXY header of one of `access.trusted_proxies`.
    pub expects_proxy_header: bool,
    /// What TLS is made of there; without it bytes are plain.
    pub tls: Option<TlsFiles>,
}

impl ListenerConfig {
    /// One that serves everything at an address.
    pub fn on(address: SocketAddr) -> Self {
        Self { address, surfaces: Surfaces::ALL, expects_proxy_header: false, tls: None }
    }
}

impl Config {
    /// Where the server listens.
    pub fn all_listeners(&self) -> Vec<ListenerConfig> {
        match self.listeners.is_empty() {
            true => vec![ListenerConfig::on(self.listen)],
            false => self.listeners.clone(),
        }
    }

    /// What the listener at a place of `all_listeners` serves.
    pub(crate) fn surfaces_of(&self, listener: usize) -> Surfaces {
        self.listeners.get(listener).map_or(Surfaces::ALL, |it| it.surfaces)
    }
}

/// The engine's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Shards; as many as cores if `None`.
    pub shards: Option<u16>,
    /// Whether each shard has a descriptor table of its own.
    pub private_fd_tables: bool,
    /// Whether shards are pinned to cores.
    pub pin_cores: bool,
    /// Percent of a turn that accepting may take.
    pub accept_share_percent: u32,
    /// Connections accepted in one turn at most.
    pub accepts_per_turn_max: usize,
    /// Connections that wait to be accepted, per shard.
    pub backlog: u32,
    /// Bytes in a socket's send buffer; the kernel chooses if `None`.
    pub send_buffer_bytes: Option<usize>,
    /// Unsent bytes above which a socket counts as full.
    pub notsent_lowat_bytes: u32,
    /// Milliseconds that sent bytes may stay unacknowledged.
    pub user_timeout_ms: u32,
    /// Whether sessions share audiences; off only to measure what they are worth.
    pub audiences: bool,
}

/// Whether and how messages are compressed (permessage-deflate).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionConfig {
    /// Whether it is agreed to where a client offers it.
    pub is_on: bool,
    /// 1 (fast) to 9 (small).
    pub level: u32,
    /// Messages of fewer bytes are sent as they are.
    pub bytes_min: usize,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self { is_on: false, level: 3, bytes_min: 256 }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            shards: None,
            private_fd_tables: true,
            pin_cores: false,
            accept_share_percent: 25,
            accepts_per_turn_max: 64,
            backlog: 4096,
            send_buffer_bytes: None,
            notsent_lowat_bytes: 32 << 10,
            user_timeout_ms: 60_000,
            audiences: true,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "tidegate".into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8470)),
            listeners: Vec::new(),
            engine: EngineConfig::default(),
            store: None,
            compression: CompressionConfig::default(),
            access: AccessConfig::default(),
            applications: Vec::new(),
            webhooks: Vec::new(),
            classes: Vec::new(),
            policies: Vec::new(),
            limits: Limits::default(),
            log_level: "info".into(),
            echo: false,
            hiccups: false,
            sequence_holes: false,
            unknown_events: false,
            features: Features::ALL,
            fault: None,
        }
    }
}
