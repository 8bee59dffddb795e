//! Where settings are said.

use std::path::Path;

use super::parse::{AllSaid, config_of, note_file, table_of};
use super::reader::Reader;
use super::{Config, ConfigError, sections};

/// All that says something of settings.
#[derive(Clone, Debug)]
pub struct Sources {
    documents: Vec<Document>,
}

/// One of them, as TOML.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// As errors say it.
    pub name: String,
    pub text: String,
}

impl Document {
    pub fn reader(&self) -> Reader<'_> {
        Reader { text: &self.text, name: &self.name, has_lines: true }
    }

    /// The full name of the one setting that it is about, if it is no file.
    pub fn setting(&self) -> Option<&str> {
        None
    }
}

impl Sources {
    /// A file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_file(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            file: file.clone(),
            line: 0,
            key: String::new(),
            text: format!("cannot read the file: {error}; check the path and its permissions"),
        })?;
        Ok(Self::of_text(&text, &file))
    }

    /// The text of a file, which errors call `name`.
    pub fn of_text(text: &str, name: &str) -> Self {
        Self { documents: vec![Document { name: name.into(), text: text.into() }] }
    }

    /// What they say together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let schema = sections::all();
        let tables = self.documents.iter().map(table_of).collect::<Result<Vec<_>, _>>()?;
        let mut all = AllSaid::new();
        for (document, table) in self.documents.iter().zip(&tables) {
            note_file(document, table, &schema, &mut all)?;
        }
        config_of(&all, &schema)
    }
}
