//! `[[applications]]` and their keys.

use access::Role;
use model::is_device_name;

use crate::config::reader::Reader;
use crate::config::schema::Default::Needed;
use crate::config::schema::Kind::{Bool, Text, Texts};
use crate::config::schema::Reload::NewConnections;
use crate::config::schema::{Entry, Key, Kind, Row, Section, Tables, field, is, key};
use crate::config::{ApplicationConfig, Config, ConfigError, KeyConfig};

pub(super) fn applications() -> Section {
    let applications = Kind::Tables(Tables { rows: application_rows, add: add_application });
    Section {
        name: "applications",
        meaning: "Applications whose devices attach (docs/devices.md), a list of tables, each with its keys. A key is \
                  replaced without a break by adding the new one beside it first.",
        keys: vec![key(
            "",
            is("[]"),
            NewConnections,
            applications,
            "Applications whose devices attach. Devices that are attached stay so.",
        )],
    }
}

fn application_keys() -> Vec<Key<ApplicationConfig>> {
    let keys = Kind::Tables(Tables { rows: key_rows, add: add_key });
    vec![
        field(
            "id",
            Needed("\"meters\""),
            Text(|it: &mut ApplicationConfig, text| {
                it.id = text.into();
                Ok(())
            }),
            "Its name.",
        ),
        field(
            "presence",
            is("true"),
            Bool(|it, yes| it.presence = yes),
            "Whether each device's coming and going is told in devices/meters/ID/presence.",
        ),
        field("keys", is("[]"), keys, "Its keys."),
    ]
}

fn application_rows() -> Vec<Row> {
    application_keys().into_iter().map(Key::row).collect()
}

fn add_application(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let mut it = ApplicationConfig { id: String::new(), keys: Vec::new(), presence: true };
    reader.table(path, &application_keys(), table, &mut it)?;
    match fault_of(&it, &config.applications) {
        Some(fault) => Err(reader.error(at, path, fault.into())),
        None => {
            config.applications.push(it);
            Ok(())
        }
    }
}

/// Why an application has no name, or cannot be told from those before it.
fn fault_of(new: &ApplicationConfig, known: &[ApplicationConfig]) -> Option<&'static str> {
    if !is_device_name(&new.id) {
        return Some("an application needs an `id` of 1 to 64 of A-Z a-z 0-9 . _ - :; give it one");
    }
    let ids: Vec<&str> = new.keys.iter().map(|key| key.id.as_str()).collect();
    let has_twice = |at: usize| ids[at + 1..].contains(&ids[at]);
    let others = known.iter().flat_map(|other| &other.keys).map(|key| &key.key);
    let mut keys: Vec<&String> = others.chain(new.keys.iter().map(|key| &key.key)).collect();
    keys.sort_unstable();
    if known.iter().any(|other| other.id == new.id) {
        return Some("two applications have the same `id`; rename one");
    }
    if (0..ids.len()).any(has_twice) {
        return Some("two keys of the application have the same `id`; rename one");
    }
    let is_twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
    is_twice
        .then_some("the same `key` stands twice: nobody could tell whose it is; make another one")
}

fn key_keys() -> Vec<Key<KeyConfig>> {
    vec![
        field(
            "id",
            Needed("\"k1\""),
            Text(|it: &mut KeyConfig, text| {
                it.id = text.into();
                Ok(())
            }),
            "Its public name, told in the open where a device proves that it has the key.",
        ),
        field(
            "key",
            Needed("\"a long random text\""),
            Text(|it: &mut KeyConfig, text| {
                it.key = text.into();
                Ok(())
            }),
            "The secret, of 16 characters or more.",
        )
        .secret(),
        field(
            "roles",
            Needed("[\"device\"]"),
            Texts(|it| it.roles.clear(), add_role),
            "What it may be used for: some of \"device\", \"application\", \"admin\".",
        ),
    ]
}

fn add_role(it: &mut KeyConfig, text: &str) -> Result<(), String> {
    let known = [Role::Device, Role::Application, Role::Admin];
    let why = "is no role; say \"device\", \"application\" or \"admin\"";
    let role = known.into_iter().find(|role| role.name() == text);
    it.roles.push(role.ok_or_else(|| format!("`{text}` {why}"))?);
    Ok(())
}

fn key_rows() -> Vec<Row> {
    key_keys().into_iter().map(Key::row).collect()
}

fn add_key(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    application: &mut ApplicationConfig,
) -> Result<(), ConfigError> {
    const KEY_LEN_MIN: usize = 16;
    let mut it = KeyConfig { id: String::new(), key: String::new(), roles: Vec::new() };
    reader.table(path, &key_keys(), table, &mut it)?;
    if it.id.is_empty() || it.key.len() < KEY_LEN_MIN || it.roles.is_empty() {
        let text = "a key needs an `id`, a `key` of 16 characters or more, and `roles`; add what is missing";
        return Err(reader.error(at, path, text.into()));
    }
    application.keys.push(it);
    Ok(())
}
