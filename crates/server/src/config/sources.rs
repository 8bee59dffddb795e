//! Where settings are said: on the command line, in environment variables, in a file. The first of these that says a
//! setting goes; where none does, the default.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use super::parse::{config_of, note_file, note_setting, table_of};
use super::said::{AllSaid, Document, Form};
use super::schema::{Reload, Section};
use super::settings::{Setting, settings};
use super::{Config, ConfigError, sections, show, variables};

/// All that says something of settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// What comes later goes before.
    documents: Vec<Document>,
    /// Origins that the command line adds to those that are said.
    origins: Vec<String>,
}

/// What a reload comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Reloaded {
    /// What goes now.
    pub config: Config,
    /// Settings that were changed and go.
    pub taken: Vec<String>,
    /// Settings that were changed and wait for a restart.
    pub waiting: Vec<String>,
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
        let file = Document { name: name.into(), text: text.into(), form: Form::File };
        Self { documents: vec![file], origins: Vec::new() }
    }

    /// The same with environment variables: `TIDEGATE__SECTION__KEY`, and `TIDEGATE__SECTION__KEY__FILE`, which names a
    /// file that holds the value. Others are none of ours.
    ///
    /// # Errors
    /// There is no such setting, or a value cannot be read.
    pub fn with_variables(
        mut self,
        variables: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<Self, ConfigError> {
        self.documents.extend(variables::documents(variables)?);
        Ok(self)
    }

    /// The same with what a flag says of a setting whose value is a text or a number.
    pub fn with_flag(mut self, flag: &str, setting: &str, value: &toml::Value) -> Self {
        let form = Form::Flag(setting.into());
        let text = format!("value = {value}");
        self.documents.push(Document { name: flag.into(), text, form });
        self
    }

    /// The same with origins beside those that `access.origins` says, which are known to be some.
    pub fn with_origins(mut self, origins: impl Iterator<Item = String>) -> Self {
        self.origins.extend(origins);
        self
    }

    /// Whether any of them is a file, which may say something else later.
    pub fn has_files(&self) -> bool {
        self.documents.iter().any(|document| match document.form {
            Form::File => true,
            Form::Variable(_) => variables::names_file(&document.name),
            Form::Flag(_) => false,
        })
    }

    /// What they say together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.read(|_, _, config| config)
    }

    /// What goes in a server that was started with `started` and went by `before` until now: settings that wait for a
    /// restart as they were said then, all others as they are said here.
    ///
    /// # Errors
    /// The first thing that is wrong with it as a whole: nothing of it goes then.
    pub fn reloaded(&self, started: &Self, before: &Self) -> Result<Reloaded, ConfigError> {
        // First by itself: what is wrong with it would be wrong at the next start.
        let told = self.told()?;
        let (at_start, until_now) = (started.told()?, before.told()?);
        let mut waiting: Vec<String> = Vec::new();
        let mut taken: Vec<String> = Vec::new();
        for Setting { name: setting, reload, .. } in settings() {
            let is_changed =
                |other: &BTreeMap<String, String>| other.get(&setting) != told.get(&setting);
            match reload {
                Reload::Restart if is_changed(&at_start) => waiting.push(setting),
                Reload::Live | Reload::NewConnections if is_changed(&until_now) => {
                    taken.push(setting);
                }
                _ => {}
            }
        }
        let config = self.config_beside(started)?;
        Ok(Reloaded { config, taken, waiting })
    }

    /// The value of each setting, as TOML.
    fn told(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        self.read(|all, schema, _| show::values(all, schema))
    }

    /// What they say together, but of settings that wait for a restart what `started` says.
    fn config_beside(&self, started: &Self) -> Result<Config, ConfigError> {
        let schema = sections::all();
        let (then, now) = (started.tables()?, self.tables()?);
        let mut all = self.all_said(&now, &schema)?;
        let at_start = started.all_said(&then, &schema)?;
        for Setting { name: setting, reload, .. } in settings() {
            if reload == Reload::Restart {
                match at_start.get(&setting) {
                    Some(said) => all.insert(setting, *said),
                    None => all.remove(&setting),
                };
            }
        }
        Ok(self.with_own_origins(config_of(&all, &schema)?))
    }

    /// Every setting that goes, and from where, as TOML; secrets are masked.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn show(&self) -> Result<String, ConfigError> {
        self.read(|all, schema, _| show::text(all, schema, &self.origins))
    }

    fn read<T>(
        &self,
        use_it: impl FnOnce(&AllSaid<'_>, &[Section], Config) -> T,
    ) -> Result<T, ConfigError> {
        let schema = sections::all();
        let tables = self.tables()?;
        let all = self.all_said(&tables, &schema)?;
        let config = self.with_own_origins(config_of(&all, &schema)?);
        Ok(use_it(&all, &schema, config))
    }

    fn tables(&self) -> Result<Vec<DeTable<'_>>, ConfigError> {
        self.documents.iter().map(table_of).collect()
    }

    fn all_said<'a>(
        &'a self,
        tables: &'a [DeTable<'a>],
        schema: &[Section],
    ) -> Result<AllSaid<'a>, ConfigError> {
        let mut all = AllSaid::new();
        for (document, table) in self.documents.iter().zip(tables) {
            match document.setting() {
                None => note_file(document, table, schema, &mut all)?,
                Some(setting) => note_setting(document, table, setting, &mut all)?,
            }
        }
        Ok(all)
    }

    fn with_own_origins(&self, mut config: Config) -> Config {
        config.access.origins.extend(self.origins.iter().cloned());
        config
    }
}
