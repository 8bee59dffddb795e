//! Settings in environment variables: `TIDEGATE__SECTION__KEY`. Two underscores, because Kubernetes sets
//! `TIDEGATE_PORT` and others for a service of that name.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::reader::nearest;
use super::said::{Document, Form};
use super::schema::{Key, Section};
use super::{Config, ConfigError, sections};

const PREFIX: &str = "TIDEGATE__";
/// What ends the name of a variable that says in which file the value is.
const FILE: &str = "__FILE";

/// The variable that says a setting.
pub fn variable_of(setting: &str) -> String {
    format!("{PREFIX}{}", rest_of(setting))
}

/// Whether a variable names a file. No setting's own name ends like that.
pub(super) fn names_file(variable: &str) -> bool {
    variable.ends_with(FILE)
}

fn rest_of(setting: &str) -> String {
    setting.to_uppercase().replace('.', "__")
}

/// What the variables say, by name.
pub(super) fn documents(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Document>, ConfigError> {
    let ours = variables.filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX))?;
        Some((name, value))
    });
    let ours: BTreeMap<String, OsString> = ours.collect();
    let schema = sections::all();
    let document = |(name, value): (&String, &OsString)| document(name, value, &ours, &schema);
    ours.iter().map(document).collect()
}

fn document(
    name: &str,
    value: &OsString,
    all: &BTreeMap<String, OsString>,
    schema: &[Section],
) -> Result<Document, ConfigError> {
    let wrong =
        |key: &str, text: String| ConfigError { file: name.into(), line: 0, key: key.into(), text };
    let (setting, key, is_file) = setting_of(name, schema).map_err(|text| wrong("", text))?;
    let value = value
        .to_str()
        .ok_or_else(|| wrong(&setting, "its value is not UTF-8; write it as plain text".into()))?;
    let value = match is_file {
        false => value.to_owned(),
        true => {
            let twin = name.trim_end_matches(FILE);
            if all.contains_key(twin) {
                let text = format!("{twin} says the same setting; unset one of them");
                return Err(wrong(&setting, text));
            }
            let text = std::fs::read_to_string(value).map_err(|error| {
                let cure = "name a file that can be read";
                wrong(&setting, format!("cannot read the file `{value}`: {error}; {cure}"))
            })?;
            let line = text.strip_suffix('\n').unwrap_or(&text);
            line.strip_suffix('\r').unwrap_or(line).to_owned()
        }
    };
    let text = match key.kind.is_text() {
        true => format!("value = {}", toml::Value::String(value)),
        false => format!("value = {value}"),
    };
    let document = Document { name: name.into(), text, form: Form::Variable(setting.clone()) };
    // What is wrong with it is said with an example, and without the value, which may be a secret.
    let is_one = toml::de::DeTable::parse(&document.text).is_ok_and(|it| it.get_ref().len() == 1);
    match is_one {
        true => Ok(document),
        false => {
            let (kind, shown) = (key.kind.words(), key.example());
            Err(wrong(
                &setting,
                format!("its value is not valid TOML ({kind}); write such as {shown}"),
            ))
        }
    }
}

/// The setting that a variable says, and whether it names a file.
fn setting_of<'s>(
    name: &str,
    schema: &'s [Section],
) -> Result<(String, &'s Key<Config>, bool), String> {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let settings = || {
        let of = |section: &'s Section| section.keys.iter().map(|key| (section.path(key), key));
        schema.iter().flat_map(of)
    };
    let find = |rest: &str| settings().find(|(setting, _)| rest_of(setting) == rest);
    if let Some((setting, key)) = find(rest) {
        return Ok((setting, key, false));
    }
    if let Some((setting, key)) = rest.strip_suffix(FILE).and_then(find) {
        return Ok((setting, key, true));
    }
    let names: Vec<String> = settings().map(|(setting, _)| rest_of(&setting)).collect();
    if let Some(section) = schema.iter().find(|section| rest_of(section.name) == rest) {
        let example = variable_of(&section.path(&section.keys[0]));
        return Err(format!("it is a section; set its keys, such as {example}"));
    }
    let bare = rest.strip_suffix(FILE).unwrap_or(rest).to_uppercase();
    let suffix = if rest.ends_with(FILE) { FILE } else { "" };
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(match nearest(&bare, &known) {
        Some(near) => format!("there is no such setting; did you mean `{PREFIX}{near}{suffix}`?"),
        None => "there is no such setting; `tidegate config doc` lists them, or unset it".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::schema::Default;
    use super::super::{Sources, default_text, parse};
    use super::*;

    fn read(file: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Sources::of_text(file, "t.toml").with_variables(variables)?.config()
    }

    /// A value of a setting that is not the default, and what a file needs beside it.
    fn other_value(setting: &str, key: &Key<Config>) -> (String, &'static str) {
        const CLASS: &str = "[[classes]]\nname = \"phones\"\nbytes_per_second = 5\n";
        let value = match setting {
            "server.listen" => "\"127.0.0.1:9\"",
            "listeners" => "[{address = \"127.0.0.1:9\", surfaces = [\"clients\"]}]",
            "access.anonymous" => "\"none\"",
            "access.origins" => "[\"https://a.example\"]",
            "access.hosts" => "[\"push.example\"]",
            "access.trusted_proxies" => "[\"10.0.0.0/8\"]",
            "access.tokens" => "[{token = \"t\", name = \"a\", publish = [\"a/#\"]}]",
            "applications" => {
                "[{id = \"m\", keys = [{id = \"k\", key = \"0123456789abcdef\", roles = [\"device\"]}]}]"
            }
            "webhooks" => {
                "[{name = \"w\", url = \"http://x\", topics = [\"#\"], secret = \"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"}]"
            }
            "classes" => "[{name = \"tablets\", bytes_per_second = 5}]",
            "topics" => "[{selector = \"a/#\", history_count = 3}]",
            "log.level" => "\"debug\"",
            "compression.level" => "4",
            _ => match &key.default {
                Default::Is(text) if text.starts_with('"') => "\"another\"",
                Default::Is(text) if *text == "true" => "false",
                Default::Is(text) if *text == "false" => "true",
                Default::Is(text) => {
                    let number: u64 = text.parse().expect("a number");
                    return ((number + 1).to_string(), "");
                }
                Default::Unset(text) | Default::Needed(text) => text,
            },
        };
        (value.into(), if setting == "access.anonymous_class" { CLASS } else { "" })
    }

    /// As a variable says it: a text without quotes.
    fn bare(value: &str) -> &str {
        value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(value)
    }

    #[test]
    fn every_setting_has_a_variable_that_goes_before_the_file() {
        let folder =
            std::env::temp_dir().join(format!("tidegate-variables-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for section in sections::all() {
            for key in &section.keys {
                let setting = section.path(key);
                let name = variable_of(&setting);
                let (value, beside) = other_value(&setting, key);
                let said = match section.is_list() {
                    true => format!("{setting} = {value}\n"),
                    false => format!("{beside}[{}]\n{} = {value}\n", section.name, key.name),
                };
                let by_file = parse(&said, "t.toml").unwrap_or_else(|error| panic!("{error}"));
                assert_ne!(by_file, Config::default(), "{setting}: {value} is the default");
                // The file says the default, where there is one to be said.
                let file = format!("{}{beside}", default_text());
                let by_variable = read(&file, &[(&name, bare(&value))]);
                assert_eq!(by_variable.as_ref(), Ok(&by_file), "{name}={value}");
                let path = folder.join(&name);
                std::fs::write(&path, format!("{}\n", bare(&value))).expect("written");
                let path = path.to_str().expect("plain");
                assert_eq!(read(&file, &[(&format!("{name}{FILE}"), path)]), Ok(by_file), "{name}");
                let twice = read("", &[(&name, "x"), (&format!("{name}{FILE}"), path)]);
                assert!(twice.is_err(), "{name} and {name}{FILE}");
            }
        }
        std::fs::remove_dir_all(folder).expect("was made");
    }

    #[test]
    fn errors_name_the_variable_and_the_cure() {
        let cases = [
            ("TIDEGATE__ENGINE__SHARD", "2", "did you mean `TIDEGATE__ENGINE__SHARDS`?"),
            ("TIDEGATE__ENGINE_SHARDS", "2", "did you mean `TIDEGATE__ENGINE__SHARDS`?"),
            ("TIDEGATE__engine__shards", "2", "did you mean `TIDEGATE__ENGINE__SHARDS`?"),
            ("TIDEGATE__SERVER__NAM__FILE", "2", "did you mean `TIDEGATE__SERVER__NAME__FILE`?"),
            (
                "TIDEGATE__ENGINE",
                "{}",
                "it is a section; set its keys, such as TIDEGATE__ENGINE__SHARDS",
            ),
            ("TIDEGATE__", "", "there is no such setting"),
            (
                "TIDEGATE__ENGINE__SHARDS",
                "many",
                "TIDEGATE__ENGINE__SHARDS: `engine.shards`: its value is not valid TOML (1 to 4096); write such as 2",
            ),
            ("TIDEGATE__ENGINE__SHARDS", "2\nother = 3", "its value is not valid TOML"),
            (
                "TIDEGATE__ENGINE__SHARDS",
                "0",
                "`engine.shards`: its value is not a whole number from 1 to",
            ),
            (
                "TIDEGATE__SERVER__LISTEN",
                "x",
                "TIDEGATE__SERVER__LISTEN: `server.listen`: `x` is not an address",
            ),
            ("TIDEGATE__ACCESS__ANONYMOUS", "some", "write \"all\" or \"read\" or \"none\""),
            (
                "TIDEGATE__ACCESS__ORIGINS",
                "https://a",
                "(list of texts); write such as [\"…\", \"…\"]",
            ),
            (
                "TIDEGATE__TOPICS",
                "[{selectr = 1}]",
                "TIDEGATE__TOPICS: `topics.selectr`: there is no such key; did",
            ),
            ("TIDEGATE__TOPICS", "3", "its value is not a list; write entries as [[topics]]"),
            ("TIDEGATE__STORE__PATH__FILE", "/nowhere/x", "cannot read the file `/nowhere/x`"),
        ];
        for (name, value, part) in cases {
            let error = read("", &[(name, value)]).expect_err(name).to_string();
            assert!(error.starts_with(&format!("{name}: ")), "{error}");
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let others = [("TIDEGATE_PORT", "tcp://10.0.0.1:80"), ("TIDEGATE_LOG", "x"), ("PATH", "/")];
        assert_eq!(read("", &others), Ok(Config::default()));
    }
}
