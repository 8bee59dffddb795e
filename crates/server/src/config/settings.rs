//! The settings by name, from the table of settings.

use super::schema::{Key, Reload, Section};
use super::{Config, sections};

/// A setting, as others than the parser need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its full name, such as `engine.shards`.
    pub name: String,
    /// What a reload does with it.
    pub reload: Reload,
    /// Its default as TOML, or an example where it has none.
    pub shown: String,
}

/// Every setting there is.
pub fn settings() -> Vec<Setting> {
    let of = |section: &Section| {
        let setting = |key: &Key<Config>| Setting {
            name: section.path(key),
            reload: key.reload,
            shown: key.default.shown().into(),
        };
        section.keys.iter().map(setting).collect::<Vec<_>>()
    };
    sections::all().iter().flat_map(of).collect()
}
