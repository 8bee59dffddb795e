//! Reading configuration: from what its sources say to a checked [`Config`].

use std::fmt;
use std::path::Path;

use model::BackboneIndex;
use toml::de::DeTable;

use super::Config;
use super::reader::{Table, unknown};
use super::said::{AllSaid, Document, Form, Said};
use super::schema::Section;
use super::sources::Sources;
use super::webhooks::dead_letters_rule;
use crate::desks::positions_rule;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name, or the environment variable's.
    pub file: String,
    /// The line, from 1; 0 where the file as a whole is meant, or a variable.
    pub line: usize,
    /// The key, such as `engine.shards`, where one is meant.
    pub key: String,
    /// What is wrong, why, and how to put it right.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, key, text } = self;
        f.write_str(file)?;
        if *line > 0 {
            write!(f, ":{line}")?;
        }
        if !key.is_empty() {
            write!(f, ": `{key}`")?;
        }
        write!(f, ": {text}")
    }
}

impl std::error::Error for ConfigError {}

/// Reads a configuration file.
///
/// # Errors
/// The file cannot be read, or [`parse`] refuses it.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    Sources::of_file(path)?.config()
}

/// Reads configuration text; `file` is named in errors.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(text: &str, file: &str) -> Result<Config, ConfigError> {
    Sources::of_text(text, file).config()
}

/// Parses a document as TOML.
pub(super) fn table_of(document: &Document) -> Result<DeTable<'_>, ConfigError> {
    DeTable::parse(&document.text).map(toml::Spanned::into_inner).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let key = document.setting().unwrap_or_default();
        document.reader().error(at, key, format!("{}; mend the TOML", error.message()))
    })
}

/// Notes what a file says of each setting.
pub(super) fn note_file<'a>(
    document: &'a Document,
    table: &'a Table<'a>,
    schema: &[Section],
    all: &mut AllSaid<'a>,
) -> Result<(), ConfigError> {
    let reader = document.reader();
    for (name, value) in table.iter() {
        let (at, name): (usize, &str) = (name.span().start, name.get_ref());
        let Some(section) = schema.iter().find(|section| section.name == name) else {
            let known: Vec<&str> = schema.iter().map(|section| section.name).collect();
            return Err(reader.error(at, name, unknown(name, &known)));
        };
        if section.is_list() {
            all.insert(name.into(), Said { document, reader, value, at });
            continue;
        }
        let keys = value.get_ref().as_table();
        let keys =
            keys.ok_or_else(|| reader.wrong(name, value, "a section; write it as [section]"))?;
        for (key, value) in keys.iter() {
            let (at, key): (usize, &str) = (key.span().start, key.get_ref());
            let path = format!("{name}.{key}");
            if !section.keys.iter().any(|known| known.name == key) {
                let known: Vec<&str> = section.keys.iter().map(|known| known.name).collect();
                return Err(reader.error(at, &path, unknown(key, &known)));
            }
            all.insert(path, Said { document, reader, value, at });
        }
    }
    Ok(())
}

/// Notes what a document that is about one setting says of it.
pub(super) fn note_setting<'a>(
    document: &'a Document,
    table: &'a Table<'a>,
    setting: &str,
    all: &mut AllSaid<'a>,
) -> Result<(), ConfigError> {
    let reader = document.reader();
    let (_, value) = table
        .iter()
        .next()
        .ok_or_else(|| reader.error(0, setting, "it says nothing; give it a value".into()))?;
    all.insert(setting.into(), Said { document, reader, value, at: 0 });
    Ok(())
}

/// The configuration that is said.
pub(super) fn config_of(all: &AllSaid<'_>, schema: &[Section]) -> Result<Config, ConfigError> {
    // Selectors and names obey limits; tokens name classes.
    const FIRST: [&str; 2] = ["limits", "classes"];
    let is_first = |section: &&Section| FIRST.contains(&section.name);
    let others = schema.iter().filter(|section| !is_first(section));
    let mut config = Config::default();
    for section in schema.iter().filter(is_first).chain(others) {
        for key in &section.keys {
            let path = section.path(key);
            if let Some(said) = all.get(&path) {
                said.reader.read(key, &path, said.value, &mut config)?;
            }
        }
    }
    finish(&mut config, all)?;
    Ok(config)
}

/// Checks what goes for several settings, and adds the policies that follow from them.
fn finish(config: &mut Config, all: &AllSaid<'_>) -> Result<(), ConfigError> {
    let is_durable =
        config.policies.iter().any(|rule| rule.policy.backbone() == BackboneIndex::DISK);
    if is_durable
        && config.store.is_none()
        && let Some(said) = all.get("topics")
    {
        let text = "a topic policy says `ack = \"disk\"` or `backbone = \"disk\"` and there is no store; add [store] with \
                    path = \"data\"";
        return Err(said.reader.error(said.at, "store.path", text.into()));
    }
    if let (Some(said), Some(other)) = (all.get("listeners"), all.get("server.listen"))
        && !config.listeners.is_empty()
        // A file that was made by `config default` says it, too.
        && (config.listen != Config::default().listen || !matches!(other.document.form, Form::File))
    {
        let text = format!(
            "`[[listeners]]` and `server.listen` ({}) exclude each other; remove one of them",
            other.document.place(other.at)
        );
        return Err(said.reader.error(said.at, "listeners", text));
    }
    if config.listeners.iter().any(|it| it.expects_proxy_header)
        && config.access.trusted_proxies.is_empty()
        && let Some(said) = all.get("listeners")
    {
        let text = "a listener expects PROXY headers, and there is nobody whose headers would be believed; name your \
                    proxies, such as trusted_proxies = [\"10.0.0.0/8\"] under [access]";
        return Err(said.reader.error(said.at, "access.trusted_proxies", text.into()));
    }
    if !config.webhooks.is_empty() {
        config.policies.push(dead_letters_rule(config.store.is_some(), &config.limits));
    }
    if config.store.is_some() {
        config.policies.push(positions_rule(&config.limits));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Conflation;

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
    fn a_policy_names_its_backbone_or_has_the_one_of_its_level() {
        let parsed = |said: &str| {
            let text = format!("[store]\npath = \"x\"\n[[topics]]\nselector = \"a\"\n{said}");
            parse(&text, "t.toml").map(|config| {
                let policy = &config.policies[0].policy;
                (policy.backbone(), policy.ack)
            })
        };
        let (memory, disk) = (
            (BackboneIndex::MEMORY, model::AckLevel::Memory),
            (BackboneIndex::DISK, model::AckLevel::Disk),
        );
        let cases = [
            ("", memory),
            ("ack = \"disk\"", disk),
            ("backbone = \"disk\"", disk),
            ("backbone = \"memory\"", memory),
            ("backbone = \"disk\"\nack = \"disk\"", disk),
        ];
        for (said, expected) in cases {
            assert_eq!(parsed(said), Ok(expected), "{said}");
        }
        for (backbone, ack) in [("disk", "memory"), ("memory", "disk")] {
            let said = format!("backbone = \"{backbone}\"\nack = \"{ack}\"");
            let text = parsed(&said).expect_err("they disagree").to_string();
            assert!(text.contains("leave one of them out"), "{text}");
        }
        let text = "[[topics]]\nselector = \"a\"\nbackbone = \"disk\"";
        let text = parse(text, "t.toml").expect_err("there is no store").to_string();
        assert!(text.contains("there is no store"), "{text}");
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
            (
                "[server]\nlisten = \"127.0.0.1:1\"\n[[listeners]]\naddress = \"127.0.0.1:2\"",
                "t.toml:3: `listeners`: `[[listeners]]` and `server.listen` (t.toml:2) exclude each other",
            ),
            (
                "[[listeners]]\nsurfaces = [\"clients\"]",
                "t.toml:1: `listeners`: a listener needs an `address`",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\nsurfaces = [\"client\"]",
                "t.toml:3: `listeners.surfaces`: `client` means nothing here; write \"clients\" or",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\nsurfaces = []",
                "t.toml:1: `listeners`: a listener that serves nothing is of no use",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\n[[listeners]]\naddress = \"127.0.0.1:1\"",
                "t.toml:3: `listeners`: two listeners have the address 127.0.0.1:1",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\nproxy_protocol = true",
                "t.toml:1: `access.trusted_proxies`: a listener expects PROXY headers, and there is nobody",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\ncertificates = [{certificate = \"a.pem\"}]",
                "t.toml:3: `listeners.certificates`: an entry needs both a `certificate` and its `key`",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\nclient_certificates = \"required\"",
                "t.toml:1: `listeners`: clients' certificates need an authority",
            ),
            (
                "[[listeners]]\naddress = \"127.0.0.1:1\"\ntls_min = \"1.3\"",
                "t.toml:1: `listeners`: a listener without `certificates` speaks no TLS",
            ),
            ("[server]\nlisten = \"x\"", "t.toml:2: `server.listen`: `x` is not an address"),
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
                "t.toml:2: `access.trusted_proxies`: `10.0.0.0/33` is not a range",
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
