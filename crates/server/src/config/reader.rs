//! Reading values of a TOML text into what they mean, with errors that say where.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::schema::{Entry, Key, Kind};

pub(super) type Table<'a> = DeTable<'a>;
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// A text that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub text: &'a str,
    /// Its name, as errors say it.
    pub name: &'a str,
    /// Whether a line of it means something to whoever wrote it.
    pub has_lines: bool,
}

impl<'a> Reader<'a> {
    /// The line of a byte, from 1; 0 where there are none.
    pub fn line(&self, at: usize) -> usize {
        match self.has_lines {
            true => self.text[..at.min(self.text.len())].matches('\n').count() + 1,
            false => 0,
        }
    }

    pub fn error(&self, at: usize, key: &str, text: String) -> ConfigError {
        ConfigError { file: self.name.into(), line: self.line(at), key: key.into(), text }
    }

    /// There is no such key.
    pub fn unknown(&self, at: usize, path: &str, key: &str, known: &[&str]) -> ConfigError {
        self.error(at, path, unknown(key, known))
    }

    /// Reads a table of a list into `it`.
    pub fn table<T>(
        &self,
        path: &str,
        keys: &[Key<T>],
        table: &Table<'_>,
        it: &mut T,
    ) -> Result<(), ConfigError> {
        for (name, value) in table.iter() {
            let (at, name): (usize, &str) = (name.span().start, name.get_ref());
            let path = format!("{path}.{name}");
            let Some(key) = keys.iter().find(|key| key.name == name) else {
                let known: Vec<&str> = keys.iter().map(|key| key.name).collect();
                return Err(self.unknown(at, &path, name, &known));
            };
            self.read(key, &path, value, it)?;
        }
        Ok(())
    }

    /// Reads the value of a key into `it`.
    pub fn read<T>(
        &self,
        key: &Key<T>,
        path: &str,
        value: &Value<'_>,
        it: &mut T,
    ) -> Result<(), ConfigError> {
        let at = value.span().start;
        match &key.kind {
            Kind::Bool(set) => set(it, self.bool(path, value)?),
            Kind::Number(min, max, set) => set(it, self.number(path, value, *min, *max)?),
            Kind::NumberWithin(min, max, set) => {
                let number = self.number(path, value, *min, max(it))?;
                set(it, number);
            }
            Kind::Limit(min, max, set) => set(it, key.name, self.number(path, value, *min, *max)?),
            Kind::Text(set) => {
                set(it, self.text(path, value)?).map_err(|wrong| self.error(at, path, wrong))?
            }
            Kind::Word(words) => {
                let given = self.text(path, value)?;
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let found = words.iter().find(|(word, _)| *word == given);
                let (_, set) = found.ok_or_else(|| self.error(at, path, no_word(given, &known)))?;
                set(it);
            }
            Kind::Texts(clear, add) => {
                clear(it);
                for item in
                    self.items(path, value, "a list of texts; write it as [\"…\", \"…\"]")?
                {
                    let at = item.span().start;
                    add(it, self.text(path, item)?).map_err(|wrong| self.error(at, path, wrong))?;
                }
            }
            Kind::Tables(tables) => {
                let wanted = format!("a list; write entries as [[{path}]]");
                for item in self.items(path, value, &wanted)? {
                    let table = item.get_ref().as_table();
                    let table = table.ok_or_else(|| self.wrong(path, value, &wanted))?;
                    let at = item.span().start;
                    (tables.add)(self, Entry { path, table, at }, it)?;
                }
            }
        }
        Ok(())
    }

    fn items<'v>(
        &self,
        path: &str,
        value: &'v Value<'a>,
        wanted: &str,
    ) -> Result<&'v [Value<'a>], ConfigError> {
        match value.get_ref() {
            DeValue::Array(items) => Ok(items),
            _ => Err(self.wrong(path, value, wanted)),
        }
    }

    pub fn wrong(&self, path: &str, value: &Value<'_>, wanted: &str) -> ConfigError {
        self.error(value.span().start, path, format!("its value is not {wanted}"))
    }

    fn text<'v>(&self, path: &str, value: &'v Value<'_>) -> Result<&'v str, ConfigError> {
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

    fn number(
        &self,
        path: &str,
        value: &Value<'_>,
        min: u64,
        max: u64,
    ) -> Result<u64, ConfigError> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => {
                u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
            }
            _ => None,
        };
        number
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| self.wrong(path, value, &format!("a whole number from {min} to {max}")))
    }
}

/// What is said of a key that there is not.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(near) => format!("there is no such key; did you mean `{near}`?"),
        None => format!("there is no such key; known are {}", known.join(", ")),
    }
}

/// What was meant, if it is clear enough.
pub(super) fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |other: &str| strsim::jaro_winkler(other, key);
    let near = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(near) > 0.7).then_some(*near)
}

/// What is said of a text that is none of some words.
pub(super) fn no_word(given: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
    format!("`{given}` means nothing here; write {}", known.join(" or "))
}
