//! Reading configuration text.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use engine::Fault;
use model::{
    AckLevel, Anonymous, Conflation, Features, Lagged, Limits, PolicyRule, Principal, Rates,
    Selector, TopicPolicy,
};
use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use super::webhooks::dead_letters_rule;
use super::{AddressRange, ApplicationConfig, Config, EngineConfig, KeyConfig, address_of};
use crate::devices::Role;
use crate::origins::check_origin;
use crate::subscribers::positions_rule;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name.
    pub file: String,
    /// The line, from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// The key, such as `engine.shards`, where one is meant.
    pub key: String,
    /// What is wrong, why, and how to put it right.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, key, text } = self;
        match (line, key.is_empty()) {
            (0, _) => write!(f, "{file}: {text}"),
            (_, true) => write!(f, "{file}:{line}: {text}"),
            (_, false) => write!(f, "{file}:{line}: `{key}`: {text}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a configuration file.
///
/// # Errors
/// The file cannot be read, or [`parse`] refuses it.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        file: file.clone(),
        line: 0,
        key: String::new(),
        text: format!("cannot read the file: {error}; check the path and its permissions"),
    })?;
    parse(&text, &file)
}

/// Reads configuration text; `file` is named in errors.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(text: &str, file: &str) -> Result<Config, ConfigError> {
    let reader = Reader { text, file };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.error(at, "", format!("{}; mend the TOML", error.message()))
    })?;
    reader.config(table.get_ref())
}

/// Whether a text may name an application or a device: it is a level of topics.
pub(crate) fn is_device_name(text: &str) -> bool {
    const LEN_MAX: usize = 64;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    (1..=LEN_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

pub(super) struct Reader<'a> {
    text: &'a str,
    file: &'a str,
}

pub(super) type Table<'a> = DeTable<'a>;
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

const SECTIONS: &[&str] = &[
    "server",
    "engine",
    "access",
    "applications",
    "webhooks",
    "classes",
    "topics",
    "limits",
    "compression",
    "diagnostics",
    "store",
];
const ENGINE_KEYS: &[&str] = &[
    "shards",
    "private_fd_tables",
    "pin_cores",
    "accept_share_percent",
    "accepts_per_turn_max",
    "backlog",
    "send_buffer_bytes",
    "notsent_lowat_bytes",
    "user_timeout_ms",
    "audiences",
];
const TOPIC_KEYS: &[&str] = &[
    "selector",
    "retain",
    "history_count",
    "history_age_ms",
    "history_bytes",
    "memory_count",
    "memory_bytes",
    "history_count_min",
    "conflation",
    "conflation_key",
    "interval_ms",
    "compress",
    "lagged",
    "ack",
    "payload_bytes_max",
];

impl Reader<'_> {
    pub(super) fn error(&self, at: usize, key: &str, text: String) -> ConfigError {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        ConfigError { file: self.file.into(), line, key: key.into(), text }
    }

    fn unknown(&self, at: usize, section: &str, key: &str, known: &[&str]) -> ConfigError {
        let near = known
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
        let path = if section.is_empty() { key.into() } else { format!("{section}.{key}") };
        let text = match near {
            Some(near) if strsim::jaro_winkler(near, key) > 0.7 => {
                format!("there is no such key; did you mean `{near}`?")
            }
            _ => format!("there is no such key; known are {}", known.join(", ")),
        };
        self.error(at, &path, text)
    }

    /// Hands each key of a table to `take`, which answers false for those that it does not know.
    pub(super) fn each(
        &self,
        table: &Table<'_>,
        section: &str,
        known: &[&str],
        mut take: impl FnMut(&str, &str, &Value<'_>) -> Result<bool, ConfigError>,
    ) -> Result<(), ConfigError> {
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let path = if section.is_empty() { name.into() } else { format!("{section}.{name}") };
            if !take(name, &path, value)? {
                return Err(self.unknown(key.span().start, section, name, known));
            }
        }
        Ok(())
    }

    fn config(&self, table: &Table<'_>) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut classes = Vec::new();
        if let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == "classes") {
            for class in self.tables("classes", value)? {
                classes.push(self.class(class)?);
            }
        }
        // Limits first: selectors and names obey them.
        if let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == "limits") {
            self.limits(value, &mut config.limits)?;
        }
        self.each(table, "", SECTIONS, |name, path, value| {
            match name {
                "server" => self.server(value, &mut config)?,
                "engine" => self.engine(value, &mut config.engine)?,
                "access" => self.access(value, &classes, &mut config)?,
                "classes" => {}
                "applications" => {
                    for (table, at) in self.tables(path, value)? {
                        let new = self.application((table, at))?;
                        self.check_application(&config.applications, &new, at)?;
                        config.applications.push(new);
                    }
                }
                "webhooks" => {
                    for table in self.tables(path, value)? {
                        let new = self.webhook(table, &config.webhooks, &config.limits)?;
                        config.webhooks.push(new);
                    }
                }
                "topics" => {
                    for rule in self.tables(path, value)? {
                        config.policies.push(self.rule(rule, &config.limits)?);
                    }
                }
                "store" => {
                    let table = self.table(path, value)?;
                    self.each(table, "store", &["path"], |name, path, value| {
                        config.store = Some(self.text(path, value)?.into());
                        Ok(name == "path")
                    })?;
                }
                "compression" => {
                    let table = self.table(path, value)?;
                    let (keys, it) = (["on", "level", "bytes_min"], &mut config.compression);
                    self.each(table, "compression", &keys, |name, path, value| {
                        match name {
                            "on" => it.is_on = self.bool(path, value)?,
                            "level" => it.level = self.number(path, value, 1, 9)?,
                            "bytes_min" => it.bytes_min = self.number(path, value, 0, 1 << 30)?,
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })?;
                }
                "limits" => {}
                "diagnostics" => {
                    let table = self.table(path, value)?;
                    let keys = ["echo", "hiccups", "unknown_events", "features", "fault"];
                    self.each(table, "diagnostics", &keys, |name, path, value| {
                        match name {
                            "echo" => config.echo = self.bool(path, value)?,
                            "hiccups" => config.hiccups = self.bool(path, value)?,
                            "unknown_events" => config.unknown_events = self.bool(path, value)?,
                            "features" => config.features = self.features(path, value)?,
                            "fault" => config.fault = Some(self.fault(path, value)?),
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let is_durable = config.policies.iter().any(|rule| rule.policy.ack == AckLevel::Disk);
        if is_durable && config.store.is_none() {
            let text = "a topic policy says `ack = \"disk\"` and there is no store; add [store] with \
                        path = \"data\"";
            return Err(self.error(0, "store.path", text.into()));
        }
        if !config.webhooks.is_empty() {
            config.policies.push(dead_letters_rule(config.store.is_some(), &config.limits));
        }
        if config.store.is_some() {
            config.policies.push(positions_rule(&config.limits));
        }
        Ok(config)
    }

    fn server(&self, value: &Value<'_>, config: &mut Config) -> Result<(), ConfigError> {
        let table = self.table("server", value)?;
        self.each(table, "server", &["name", "listen"], |name, path, value| {
            match name {
                "name" => config.name = self.text(path, value)?.into(),
                "listen" => {
                    let text = self.text(path, value)?;
                    config.listen = address_of(text).map_err(|why| {
                        self.error(value.span().start, path, format!("`{text}` {why}"))
                    })?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    fn engine(&self, value: &Value<'_>, engine: &mut EngineConfig) -> Result<(), ConfigError> {
        let table = self.table("engine", value)?;
        self.each(table, "engine", ENGINE_KEYS, |name, path, value| {
            match name {
                "shards" => engine.shards = Some(self.number(path, value, 1, 4096)?),
                "private_fd_tables" => engine.private_fd_tables = self.bool(path, value)?,
                "pin_cores" => engine.pin_cores = self.bool(path, value)?,
                "accept_share_percent" => {
                    engine.accept_share_percent = self.number(path, value, 1, 100)?;
                }
                "accepts_per_turn_max" => {
                    engine.accepts_per_turn_max = self.number(path, value, 1, 65_536)?;
                }
                "backlog" => engine.backlog = self.number(path, value, 1, 65_535)?,
                "send_buffer_bytes" => {
                    engine.send_buffer_bytes = Some(self.number(path, value, 4096, 1 << 30)?);
                }
                "notsent_lowat_bytes" => {
                    engine.notsent_lowat_bytes = self.number(path, value, 4096, 1 << 30)?;
                }
                "user_timeout_ms" => {
                    engine.user_timeout_ms = self.number(path, value, 1000, 1 << 30)?;
                }
                "audiences" => engine.audiences = self.bool(path, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    /// A class of sessions: its name, and how much each is sent at most.
    fn class(&self, (table, at): (&Table<'_>, usize)) -> Result<(String, Rates), ConfigError> {
        const KEYS: &[&str] = &["name", "bytes_per_second", "messages_per_second"];
        let (mut class, mut rates) = (String::new(), Rates::default());
        let rate = |path: &str, value: &Value<'_>| {
            self.number(path, value, 1, u32::MAX.into()).map(NonZeroU32::new)
        };
        self.each(table, "classes", KEYS, |name, path, value| {
            match name {
                "name" => class = self.text(path, value)?.into(),
                "bytes_per_second" => rates.bytes = rate(path, value)?,
                "messages_per_second" => rates.messages = rate(path, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if class.is_empty() {
            let text = "an entry needs a `name`; add one such as name = \"phones\"";
            return Err(self.error(at, "classes", text.into()));
        }
        Ok((class, rates))
    }

    fn rates_of(
        &self,
        path: &str,
        value: &Value<'_>,
        classes: &[(String, Rates)],
    ) -> Result<Rates, ConfigError> {
        let words: Vec<(&str, Rates)> =
            classes.iter().map(|(name, rates)| (name.as_str(), *rates)).collect();
        self.word(path, value, &words)
    }

    fn access(
        &self,
        value: &Value<'_>,
        classes: &[(String, Rates)],
        config: &mut Config,
    ) -> Result<(), ConfigError> {
        const KEYS: &[&str] =
            &["anonymous", "anonymous_class", "origins", "hosts", "trusted_proxies", "tokens"];
        let table = self.table("access", value)?;
        self.each(table, "access", KEYS, |name, path, value| {
            match name {
                "anonymous" => {
                    let words = [
                        ("all", Anonymous::All),
                        ("read", Anonymous::Read),
                        ("none", Anonymous::None),
                    ];
                    config.access.anonymous = self.word(path, value, &words)?;
                }
                "anonymous_class" => {
                    config.access.anonymous_rates = self.rates_of(path, value, classes)?;
                }
                "origins" => {
                    for (text, at) in self.texts(path, value)? {
                        check_origin(text)
                            .map_err(|why| self.error(at, path, format!("`{text}` {why}")))?;
                        config.access.origins.push(text.into());
                    }
                }
                "hosts" => {
                    config.access.hosts =
                        self.texts(path, value)?.into_iter().map(|(text, _)| text.into()).collect();
                }
                "trusted_proxies" => {
                    for (text, at) in self.texts(path, value)? {
                        let why = "is no range of addresses; write such as \"10.0.0.0/8\"";
                        let range = AddressRange::parse(text);
                        let wrong = || self.error(at, path, format!("`{text}` {why}"));
                        config.access.trusted_proxies.push(range.ok_or_else(wrong)?);
                    }
                }
                "tokens" => {
                    for (table, at) in self.tables(path, value)? {
                        let new = self.token((table, at), classes, &config.limits)?;
                        self.check_token(&config.access.tokens, &new, at)?;
                        config.access.tokens.push(new);
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    fn application(
        &self,
        (table, at): (&Table<'_>, usize),
    ) -> Result<ApplicationConfig, ConfigError> {
        let mut it = ApplicationConfig { id: String::new(), keys: Vec::new(), presence: true };
        self.each(table, "applications", &["id", "keys", "presence"], |name, path, value| {
            match name {
                "id" => it.id = self.text(path, value)?.into(),
                "presence" => it.presence = self.bool(path, value)?,
                "keys" => {
                    for key in self.tables(path, value)? {
                        it.keys.push(self.application_key(key)?);
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if !is_device_name(&it.id) {
            let text =
                "an application needs an `id` of 1 to 64 of A-Z a-z 0-9 . _ - :; give it one";
            return Err(self.error(at, "applications", text.into()));
        }
        Ok(it)
    }

    /// Whether an application can be told from those before it.
    fn check_application(
        &self,
        known: &[ApplicationConfig],
        new: &ApplicationConfig,
        at: usize,
    ) -> Result<(), ConfigError> {
        let ids: Vec<&str> = new.keys.iter().map(|key| key.id.as_str()).collect();
        let has_twice = |at: usize| ids[at + 1..].contains(&ids[at]);
        let others = known.iter().flat_map(|other| &other.keys).map(|key| &key.key);
        let mut keys: Vec<&String> = others.chain(new.keys.iter().map(|key| &key.key)).collect();
        keys.sort_unstable();
        let text = if known.iter().any(|other| other.id == new.id) {
            "two applications have the same `id`; rename one"
        } else if (0..ids.len()).any(has_twice) {
            "two keys of the application have the same `id`; rename one"
        } else if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            "the same `key` stands twice: nobody could tell whose it is; make another one"
        } else {
            return Ok(());
        };
        Err(self.error(at, "applications", text.into()))
    }

    fn application_key(&self, (table, at): (&Table<'_>, usize)) -> Result<KeyConfig, ConfigError> {
        let mut it = KeyConfig { id: String::new(), key: String::new(), roles: Vec::new() };
        self.each(table, "applications.keys", &["id", "key", "roles"], |name, path, value| {
            match name {
                "id" => it.id = self.text(path, value)?.into(),
                "key" => it.key = self.text(path, value)?.into(),
                "roles" => {
                    for (text, at) in self.texts(path, value)? {
                        let known = [Role::Device, Role::Application, Role::Admin];
                        let role = known.into_iter().find(|role| role.name() == text);
                        it.roles.push(role.ok_or_else(|| {
                            let why = "is no role; say \"device\", \"application\" or \"admin\"";
                            self.error(at, path, format!("`{text}` {why}"))
                        })?);
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        const KEY_LEN_MIN: usize = 16;
        if it.id.is_empty() || it.key.len() < KEY_LEN_MIN || it.roles.is_empty() {
            let text = "a key needs an `id`, a `key` of 16 characters or more, and `roles`; add what is missing";
            return Err(self.error(at, "applications.keys", text.into()));
        }
        Ok(it)
    }

    fn token(
        &self,
        (table, at): (&Table<'_>, usize),
        classes: &[(String, Rates)],
        limits: &Limits,
    ) -> Result<(String, Principal), ConfigError> {
        const KEYS: &[&str] = &["token", "name", "class", "publish", "subscribe", "handle"];
        let mut token = String::new();
        let mut principal = Principal { everything: false, ..Principal::unlimited("") };
        self.each(table, "access.tokens", KEYS, |name, path, value| {
            match name {
                "token" => token = self.text(path, value)?.into(),
                "name" => principal.name = self.text(path, value)?.into(),
                "class" => principal.rates = self.rates_of(path, value, classes)?,
                "publish" => principal.publish = self.selectors(path, value, limits)?,
                "subscribe" => principal.subscribe = self.selectors(path, value, limits)?,
                "handle" => principal.handle = self.selectors(path, value, limits)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if token.is_empty() || principal.name.is_empty() {
            let text = "an entry needs both `token` and `name`; add what is missing";
            return Err(self.error(at, "access.tokens", text.into()));
        }
        Ok((token, principal))
    }

    /// Whether a token and its owner can be told from others.
    fn check_token(
        &self,
        known: &[(String, Principal)],
        (token, principal): &(String, Principal),
        at: usize,
    ) -> Result<(), ConfigError> {
        if known.iter().any(|(other, _)| other == token) {
            let text =
                "the same `token` stands twice: nobody could tell whose it is; make another one";
            return Err(self.error(at, "access.tokens", text.into()));
        }
        if ["anonymous", "nobody"].contains(&principal.name.as_str()) {
            let text = format!(
                "`{}` is the name of clients without a token; choose another `name`",
                principal.name
            );
            return Err(self.error(at, "access.tokens", text));
        }
        Ok(())
    }

    /// Whether a rule lets the server keep what it remembers of named subscribers.
    fn check_rule(&self, rule: &PolicyRule, limits: &Limits, at: usize) -> Result<(), ConfigError> {
        let PolicyRule { selector, policy } = rule;
        let forgets = policy.ack != AckLevel::Disk || !policy.retain || policy.history_count == 0;
        if forgets && selector.overlaps(&positions_rule(limits).selector) {
            let text = format!(
                "`{selector}` selects where positions of named subscribers are kept, and its policy forgets them; \
                 leave $subscribers out, or say ack = \"disk\" and retain = true with a history_count of 1 or more"
            );
            return Err(self.error(at, "topics", text));
        }
        Ok(())
    }

    fn rule(
        &self,
        (table, at): (&Table<'_>, usize),
        limits: &Limits,
    ) -> Result<PolicyRule, ConfigError> {
        let (mut selector, mut policy) = (None, TopicPolicy::default());
        self.each(table, "topics", TOPIC_KEYS, |name, path, value| {
            match name {
                "selector" => selector = Some(self.selector(path, value, limits)?),
                "retain" => policy.retain = self.bool(path, value)?,
                "history_count" => policy.history_count = self.number(path, value, 0, 1 << 30)?,
                "history_bytes" => {
                    policy.history_bytes = Some(self.number(path, value, 0, 1 << 40)?);
                }
                "history_age_ms" => {
                    let ms = self.number(path, value, 1, 1 << 50)?;
                    policy.history_age = Some(Duration::from_millis(ms));
                }
                "payload_bytes_max" => {
                    policy.payload_bytes_max = Some(self.number(path, value, 1, 1 << 30)?);
                }
                "conflation" => {
                    let modes = [
                        Conflation::Off,
                        Conflation::Lagging,
                        Conflation::Always,
                        Conflation::Unsubscribe,
                    ];
                    let words = modes.map(|mode| (mode.name(), mode));
                    policy.conflation = Some(self.word(path, value, &words)?);
                }
                "conflation_key" => {
                    let text = self.text(path, value)?;
                    if !text.starts_with('/') {
                        let why = "is no JSON pointer; write such as \"/symbol\"";
                        return Err(self.error(
                            value.span().start,
                            path,
                            format!("`{text}` {why}"),
                        ));
                    }
                    policy.conflation_key = Some(text.into());
                }
                "interval_ms" => {
                    let most = limits.interval_ms_max.as_millis() as u64;
                    policy.interval = Duration::from_millis(self.number(path, value, 0, most)?);
                }
                "compress" => policy.compress = self.bool(path, value)?,
                "history_count_min" => {
                    policy.history_count_min = self.number(path, value, 0, 1 << 30)?;
                }
                "lagged" => {
                    let words = [
                        ("gap", Lagged::Gap),
                        ("snapshot", Lagged::Snapshot),
                        ("close", Lagged::Close),
                    ];
                    policy.lagged = self.word(path, value, &words)?;
                }
                "memory_count" => policy.memory_count = self.number(path, value, 1, 1 << 30)?,
                "memory_bytes" => policy.memory_bytes = self.number(path, value, 1, 1 << 40)?,
                "ack" => {
                    let words = [("memory", AckLevel::Memory), ("disk", AckLevel::Disk)];
                    policy.ack = self.word(path, value, &words)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let missing = || {
            let text = "an entry needs a `selector`; add one such as selector = \"prices/#\"";
            self.error(at, "topics", text.into())
        };
        let rule = PolicyRule { selector: selector.ok_or_else(missing)?, policy };
        self.check_rule(&rule, limits, at)?;
        Ok(rule)
    }

    fn limits(&self, value: &Value<'_>, limits: &mut Limits) -> Result<(), ConfigError> {
        let names: Vec<&str> = Limits::catalogue().iter().map(|entry| entry.0).collect();
        let table = self.table("limits", value)?;
        self.each(table, "limits", &names, |name, path, value| {
            let min = u64::from(name != "memory_bytes_max");
            Ok(limits.set(name, self.number(path, value, min, 1 << 53)?))
        })
    }

    fn table<'v, 't>(
        &self,
        path: &str,
        value: &'v Value<'t>,
    ) -> Result<&'v Table<'t>, ConfigError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.wrong(path, value, "a section; write it as [section]")),
        }
    }

    /// The entries of a list of sections, each with the place where it starts.
    fn tables<'v, 't>(
        &self,
        path: &str,
        value: &'v Value<'t>,
    ) -> Result<Vec<(&'v Table<'t>, usize)>, ConfigError> {
        let wrong = || self.wrong(path, value, &format!("a list; write entries as [[{path}]]"));
        let items = value.get_ref().as_array().ok_or_else(wrong)?;
        let entry = |item: &'v Value<'t>| {
            item.get_ref().as_table().map(|table| (table, item.span().start)).ok_or_else(wrong)
        };
        items.iter().map(entry).collect()
    }

    fn wrong(&self, path: &str, value: &Value<'_>, wanted: &str) -> ConfigError {
        self.error(value.span().start, path, format!("its value is not {wanted}"))
    }

    pub(super) fn text<'v>(
        &self,
        path: &str,
        value: &'v Value<'_>,
    ) -> Result<&'v str, ConfigError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong(path, value, "a text; put it in quotes")),
        }
    }

    fn bool(&self, path: &str, value: &Value<'_>) -> Result<bool, ConfigError> {
        match value.get_ref() {
            DeValue::Boolean(yes) => Ok(*yes),
            _ => Err(self.wrong(path, value, "true or false; write one of them, without quotes")),
        }
    }

    fn features(&self, path: &str, value: &Value<'_>) -> Result<Features, ConfigError> {
        let mut features = Features::default();
        for (name, at) in self.texts(path, value)? {
            let known: Vec<&str> = Features::ALL.names().collect();
            let unknown = || format!("`{name}` is no feature; write some of {}", known.join(", "));
            let feature =
                Features::from_name(name).ok_or_else(|| self.error(at, path, unknown()))?;
            features = features.with(feature);
        }
        Ok(features)
    }

    fn fault(&self, path: &str, value: &Value<'_>) -> Result<Fault, ConfigError> {
        let how = "`panic THREAD` or `stall THREAD`; write it so, with quotes";
        let text = value.get_ref().as_str();
        text.and_then(Fault::parse).ok_or_else(|| self.wrong(path, value, how))
    }

    pub(super) fn number<N: TryFrom<u64>>(
        &self,
        path: &str,
        value: &Value<'_>,
        min: u64,
        max: u64,
    ) -> Result<N, ConfigError> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => {
                u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
            }
            _ => None,
        };
        number
            .filter(|number| (min..=max).contains(number))
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| self.wrong(path, value, &format!("a whole number from {min} to {max}")))
    }

    fn word<T: Copy>(
        &self,
        path: &str,
        value: &Value<'_>,
        words: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        let given = self.text(path, value)?;
        let found = words.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning);
        found.ok_or_else(|| {
            let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            let text = format!("`{given}` means nothing here; write {}", known.join(" or "));
            self.error(value.span().start, path, text)
        })
    }

    pub(super) fn texts<'v>(
        &self,
        path: &str,
        value: &'v Value<'_>,
    ) -> Result<Vec<(&'v str, usize)>, ConfigError> {
        match value.get_ref() {
            DeValue::Array(items) => {
                items.iter().map(|item| Ok((self.text(path, item)?, item.span().start))).collect()
            }
            _ => Err(self.wrong(path, value, "a list of texts; write it as [\"…\", \"…\"]")),
        }
    }

    fn selector(
        &self,
        path: &str,
        value: &Value<'_>,
        limits: &Limits,
    ) -> Result<Selector, ConfigError> {
        Selector::parse(self.text(path, value)?, limits)
            .map_err(|error| self.error(value.span().start, path, error.to_string()))
    }

    pub(super) fn selectors(
        &self,
        path: &str,
        value: &Value<'_>,
        limits: &Limits,
    ) -> Result<Vec<Selector>, ConfigError> {
        self.texts(path, value)?
            .into_iter()
            .map(|(text, at)| {
                Selector::parse(text, limits)
                    .map_err(|error| self.error(at, path, error.to_string()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::default_text;
    use super::*;

    #[test]
    fn the_default_text_is_the_default() {
        assert_eq!(parse(&default_text(), "default.toml"), Ok(Config::default()));
    }

    #[test]
    fn every_section_is_read() {
        let text = r##"
            [server]
            name = "n1"
            listen = "0.0.0.0:9000"
            [engine]
            shards = 4
            private_fd_tables = false
            [access]
            anonymous = "read"
            origins = ["https://a.example"]
            [[access.tokens]]
            token = "t"
            name = "feeder"
            publish = ["prices/#"]
            subscribe = []
            [[topics]]
            selector = "prices/#"
            history_count = 5
            conflation = "lagging"
            [limits]
            payload_bytes_max = 1_000
            silence_ms = 5000
            [diagnostics]
            echo = true
        "##;
        let config = parse(text, "t.toml").expect("valid");
        assert_eq!((config.name.as_str(), config.engine.shards), ("n1", Some(4)));
        assert_eq!(config.limits.payload_bytes_max, 1000);
        assert_eq!(config.limits.silence_ms, Duration::from_secs(5));
        assert_eq!(config.policies[0].policy.conflation, Some(Conflation::Lagging));
        assert_eq!(config.access.tokens[0].1.name, "feeder");
        assert!(config.echo && !config.engine.private_fd_tables);
    }

    #[test]
    fn errors_name_line_key_and_cure() {
        let twice = |one: &str, other: &str, id: &str, key: &str| {
            let application = |name: &str, key: &str| {
                format!(
                    "[[applications]]\nid = \"{name}\"\n[[applications.keys]]\nid = \"{id}\"\n\
                     key = \"{key}\"\nroles = [\"device\"]\n"
                )
            };
            application(one, "one key, 16 letters") + &application(other, key)
        };
        let cases = [
            (
                "[engine]\nshard = 2",
                "t.toml:2: `engine.shard`: there is no such key; did you mean `shards`?",
            ),
            ("[enginge]", "t.toml:1: `enginge`: there is no such key; did you mean `engine`?"),
            (
                "[engine]\n\nshards = \"x\"",
                "t.toml:3: `engine.shards`: its value is not a whole number from 1 to 4096",
            ),
            ("[server]\nlisten = \"x\"", "t.toml:2: `server.listen`: `x` is no address"),
            ("[access]\nanonymous = \"some\"", "write \"all\" or \"read\" or \"none\""),
            ("[[topics]]\nretain = true", "`topics`: an entry needs a `selector`"),
            ("[[topics]]\nselector = \"a//b\"", "the level at byte 2 is empty"),
            ("[limits]\npayload_byte_max = 1", "did you mean `payload_bytes_max`?"),
            ("[server", "t.toml:1: "),
            (
                "[[access.tokens]]\ntoken = \"t\"\nname = \"a\"\n[[access.tokens]]\ntoken = \"t\"\nname = \"b\"",
                "t.toml:4: `access.tokens`: the same `token` stands twice",
            ),
            (
                "[[access.tokens]]\ntoken = \"t\"\nname = \"anonymous\"",
                "t.toml:1: `access.tokens`: `anonymous` is the name of clients without a token; choose",
            ),
            (
                "\n[[topics]]\nselector = \"$subscribers/+/x\"",
                "t.toml:2: `topics`: `$subscribers/+/x` selects where positions",
            ),
            (
                "[access]\ntrusted_proxies = [\"10.0.0.0/33\"]",
                "t.toml:2: `access.trusted_proxies`: `10.0.0.0/33` is no range",
            ),
            (&twice("a", "b", "k", "one key, 16 letters"), "stands twice"),
            (&twice("a", "a", "k", "another, 16 letters"), "the same `id`"),
        ];
        for (text, part) in cases {
            let error = parse(text, "t.toml").expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
