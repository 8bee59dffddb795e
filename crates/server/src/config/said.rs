//! What is said of settings, and by what.

use std::collections::BTreeMap;

use super::reader::{Reader, Value};

/// Something that says settings, as TOML.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// As errors say it.
    pub name: String,
    pub text: String,
    pub form: Form,
}

/// What a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A whole file.
    File,
    /// `value = …`, of the setting with this full name.
    Variable(String),
    /// The same.
    Flag(String),
}

impl Document {
    pub fn reader(&self) -> Reader<'_> {
        Reader { text: &self.text, name: &self.name, has_lines: self.form == Form::File }
    }

    /// The full name of the one setting that it is about, if it is not a file.
    pub fn setting(&self) -> Option<&str> {
        match &self.form {
            Form::File => None,
            Form::Variable(setting) | Form::Flag(setting) => Some(setting),
        }
    }

    /// It, and the line of a byte of it.
    pub fn place(&self, at: usize) -> String {
        match self.form {
            Form::File => format!("{}:{}", self.name, self.reader().line(at)),
            Form::Variable(_) => format!("environment {}", self.name),
            Form::Flag(_) => format!("flag {}", self.name),
        }
    }
}

/// What one source says of a setting.
#[derive(Clone, Copy)]
pub(super) struct Said<'a> {
    pub document: &'a Document,
    pub reader: Reader<'a>,
    pub value: &'a Value<'a>,
    /// Where the key stands.
    pub at: usize,
}

/// What is said of each setting, by its full name.
pub(super) type AllSaid<'a> = BTreeMap<String, Said<'a>>;
