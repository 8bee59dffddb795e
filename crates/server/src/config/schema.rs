//! The table of all settings: name, type and range, default, what a reload does with it, and what it means. The parser,
//! `config default`, `config doc` and the names of environment variables are made of it.
//!
//! The rows stand by section in `sections`; here is what a row is.

use std::borrow::Cow;

use super::reader::{Reader, Table};
use super::{Config, ConfigError};

/// What SIGHUP does with a setting that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The new value goes from then on.
    Live,
    /// The new value goes for connections and sessions that come from then on.
    NewConnections,
    /// The old value goes on until the server is started again.
    Restart,
}

impl Reload {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::NewConnections => "new connections",
            Self::Restart => "restart",
        }
    }
}

/// A section of the file: keys, or a list of tables, which is one setting without a name of its own.
pub(super) struct Section {
    pub name: &'static str,
    pub meaning: &'static str,
    pub keys: Vec<Key<Config>>,
}

/// One setting, or one key of a table in a list. `T` is what it is read into.
pub(super) struct Key<T: 'static> {
    pub name: &'static str,
    pub default: Default,
    pub reload: Reload,
    pub kind: Kind<T>,
    pub meaning: Cow<'static, str>,
    /// Whether its value is shown to nobody.
    pub is_secret: bool,
}

/// What goes where nothing is said.
pub(super) enum Default {
    /// This, as TOML.
    Is(Cow<'static, str>),
    /// Nothing; here is an example.
    Unset(&'static str),
    /// It has to be said; here is an example.
    Needed(&'static str),
}

/// What a value looks like, and where it goes. What a setter answers with is what is wrong with the value, why, and
/// how to put it right.
pub(super) enum Kind<T: 'static> {
    Bool(fn(&mut T, bool)),
    /// From and up to.
    Number(u64, u64, fn(&mut T, u64)),
    /// From, and up to what was read before.
    NumberWithin(u64, fn(&T) -> u64, fn(&mut T, u64)),
    /// From and up to; the setter is told the key.
    Limit(u64, u64, fn(&mut T, &str, u64)),
    Text(fn(&mut T, &str) -> Result<(), String>),
    /// One of these.
    Word(Vec<Word<T>>),
    /// What forgets the default, and what adds one.
    Texts(fn(&mut T), fn(&mut T, &str) -> Result<(), String>),
    Tables(Tables<T>),
}

/// A word, and what it sets.
pub(super) type Word<T> = (&'static str, fn(&mut T));

/// A list of tables: their keys, and what reads one of them.
pub(super) struct Tables<T> {
    pub rows: fn() -> Vec<Row>,
    pub add: fn(&Reader<'_>, Entry<'_>, &mut T) -> Result<(), ConfigError>,
}

/// One of the tables of a list.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// The full name of the list.
    pub path: &'a str,
    pub table: &'a Table<'a>,
    /// Where it starts.
    pub at: usize,
}

/// A key as documents show it, whatever it is read into.
pub(super) struct Row {
    pub name: &'static str,
    pub value: String,
    pub default: Default,
    pub meaning: Cow<'static, str>,
    pub is_secret: bool,
    /// The keys of its tables, if it is a list of tables.
    pub rows: Vec<Row>,
}

/// A setting.
pub(super) fn key<T>(
    name: &'static str,
    default: Default,
    reload: Reload,
    kind: Kind<T>,
    meaning: impl Into<Cow<'static, str>>,
) -> Key<T> {
    Key { name, default, reload, kind, meaning: meaning.into(), is_secret: false }
}

/// A key of a table in a list: a reload does with it what it does with the list.
pub(super) fn field<T>(
    name: &'static str,
    default: Default,
    kind: Kind<T>,
    meaning: &'static str,
) -> Key<T> {
    key(name, default, Reload::Restart, kind, meaning)
}

/// The default is `text`, as TOML.
pub(super) fn is(text: impl Into<Cow<'static, str>>) -> Default {
    Default::Is(text.into())
}

impl<T> Key<T> {
    /// The same, shown to nobody.
    pub fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// A value as TOML, to be shown to who wrote another.
    pub fn example(&self) -> String {
        match &self.kind {
            Kind::Texts(..) => "[\"…\", \"…\"]".into(),
            Kind::Tables(tables) => {
                let rows = (tables.rows)();
                let needed = rows.iter().filter(|row| matches!(row.default, Default::Needed(_)));
                let keys: Vec<String> =
                    needed.map(|row| format!("{} = {}", row.name, row.default.shown())).collect();
                format!("[{{{}}}]", keys.join(", "))
            }
            _ => self.default.shown().into(),
        }
    }

    pub fn row(self) -> Row {
        let rows = match &self.kind {
            Kind::Tables(tables) => (tables.rows)(),
            _ => Vec::new(),
        };
        let Self { name, default, kind, meaning, is_secret, .. } = self;
        let value = if is_secret { format!("{}, secret", kind.words()) } else { kind.words() };
        Row { name, value, default, meaning, is_secret, rows }
    }
}

impl<T> Kind<T> {
    /// Its type and range, in words.
    pub fn words(&self) -> String {
        match self {
            Self::Bool(_) => "true or false".into(),
            Self::Number(min, max, _) | Self::Limit(min, max, _) => {
                format!("{min} to {}", written(*max))
            }
            Self::NumberWithin(min, ..) => format!("{min} or more"),
            Self::Text(_) => "text".into(),
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|it| format!("\"{}\"", it.0)).collect();
                words.join(", ")
            }
            Self::Texts(..) => "list of texts".into(),
            Self::Tables(_) => "list of tables".into(),
        }
    }

    /// Whether a value is written as it is where there are no quotes, as in an environment variable.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Word(_))
    }
}

/// A number as people write it.
fn written(number: u64) -> String {
    match number.trailing_zeros() {
        bits @ 17.. if number.is_power_of_two() => format!("2^{bits}"),
        _ => number.to_string(),
    }
}

impl Default {
    /// A value to show: the default, or an example.
    pub fn shown(&self) -> &str {
        match self {
            Self::Is(text) => text,
            Self::Unset(text) | Self::Needed(text) => text,
        }
    }
}

impl Section {
    /// The full name of a setting of it.
    pub fn path(&self, key: &Key<Config>) -> String {
        if key.name.is_empty() { self.name.into() } else { format!("{}.{}", self.name, key.name) }
    }

    /// Whether it is a list of tables.
    pub fn is_list(&self) -> bool {
        self.keys.iter().any(|key| key.name.is_empty())
    }
}
