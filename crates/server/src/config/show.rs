//! What goes and from where, as TOML that means the same: `tidegate config show`.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::said::{AllSaid, Said};
use super::schema::{Default, Key, Row, Section};
use super::{Config, sections};

const MASK: &str = "\"***\"";

/// Every setting, its value, and who said it. `origins` are added by the command line.
pub(super) fn text(all: &AllSaid<'_>, schema: &[Section], origins: &[String]) -> String {
    let mut text = String::new();
    for (section, shown) in schema.iter().zip(sections::all()) {
        if !section.is_list() {
            text.push_str(&format!("\n[{}]\n", section.name));
        }
        let paths: Vec<String> = section.keys.iter().map(|key| section.path(key)).collect();
        let rows = paths.into_iter().zip(shown.keys.into_iter().map(Key::<Config>::row));
        let (lists, plain): (Vec<_>, Vec<_>) = rows.partition(|(_, row)| !row.rows.is_empty());
        for (path, row) in plain {
            let mut line = setting(all.get(&path), &row);
            if path == "access.origins" && !origins.is_empty() {
                line = with_origins(all.get(&path), origins);
            }
            push(&mut text, &line.0, &line.1);
        }
        for (path, row) in lists {
            match all.get(&path) {
                Some(said) => list(&path, said, &row, &mut text),
                None => push(&mut text, &format!("# no [[{path}]]"), "default"),
            }
        }
    }
    text.trim_start().to_owned()
}

/// The value of each setting by its full name, secrets as they are: to be compared.
pub(super) fn values(all: &AllSaid<'_>, schema: &[Section]) -> BTreeMap<String, String> {
    let of = |section: &Section| {
        let value = |key: &Key<Config>| {
            let path = section.path(key);
            let value = match (all.get(&path), &key.default) {
                (Some(said), _) => plain(said.value.get_ref()),
                (None, Default::Is(text)) => text.to_string(),
                (None, _) => return None,
            };
            Some((path, value))
        };
        section.keys.iter().filter_map(value).collect::<Vec<_>>()
    };
    schema.iter().flat_map(of).collect()
}

/// A value as it is.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|it| plain(it.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let pairs = table
                .iter()
                .map(|(name, it)| format!("{} = {}", name.get_ref(), plain(it.get_ref())));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        DeValue::String(text) => written(text),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            u64::from_str_radix(&digits, number.radix()).unwrap_or_default().to_string()
        }
        DeValue::Boolean(yes) => yes.to_string(),
        // No setting is read from any other.
        _ => String::new(),
    }
}

fn push(text: &mut String, line: &str, source: &str) {
    text.push_str(&format!("{line:<40} # {source}\n"));
}

/// A line of TOML, and who said it.
fn setting(said: Option<&Said<'_>>, row: &Row) -> (String, String) {
    let name = row.name;
    match (said, &row.default) {
        (Some(said), _) => {
            let value = value(said.value.get_ref(), row);
            (format!("{name} = {value}"), said.document.place(said.at))
        }
        (None, Default::Is(text)) => (format!("{name} = {text}"), "default".into()),
        (None, _) => (format!("# {name} is unset"), "default".into()),
    }
}

fn with_origins(said: Option<&Said<'_>>, added: &[String]) -> (String, String) {
    let listed = said.and_then(|said| said.value.get_ref().as_array());
    let listed = listed.into_iter().flat_map(|items| items.iter());
    let listed = listed.filter_map(|item| item.get_ref().as_str());
    let all: Vec<String> = listed.chain(added.iter().map(String::as_str)).map(written).collect();
    let flag = "flag --origin";
    let source = said.map_or(flag.into(), |it| format!("{}, {flag}", it.document.place(it.at)));
    (format!("origins = [{}]", all.join(", ")), source)
}

/// The tables of a list, each with the place where it starts.
fn list(path: &str, said: &Said<'_>, row: &Row, text: &mut String) {
    let items = said.value.get_ref().as_array();
    let tables = items.into_iter().flat_map(|items| items.iter());
    let mut is_empty = true;
    for item in tables {
        is_empty = false;
        text.push('\n');
        push(text, &format!("[[{path}]]"), &said.document.place(item.span().start));
        table(path, item.get_ref(), row, text);
    }
    if is_empty {
        push(text, &format!("# no [[{path}]]"), &said.document.place(said.at));
    }
}

fn table(path: &str, table: &DeValue<'_>, list: &Row, text: &mut String) {
    let Some(table_of) = table.as_table() else { return };
    for row in &list.rows {
        let Some(it) = table_of.get(row.name) else { continue };
        if row.rows.is_empty() {
            text.push_str(&format!("{} = {}\n", row.name, value(it.get_ref(), row)));
        }
    }
    for row in list.rows.iter().filter(|row| !row.rows.is_empty()) {
        let inner = table_of.get(row.name).and_then(|it| it.get_ref().as_array());
        for item in inner.into_iter().flat_map(|items| items.iter()) {
            let path = format!("{path}.{}", row.name);
            text.push_str(&format!("[[{path}]]\n"));
            self::table(&path, item.get_ref(), row, text);
        }
    }
}

/// A value that was read, as TOML; a mask instead of a secret.
fn value(value: &DeValue<'_>, row: &Row) -> String {
    match value {
        DeValue::Array(items) => {
            let items: Vec<String> =
                items.iter().map(|it| self::value(it.get_ref(), row)).collect();
            format!("[{}]", items.join(", "))
        }
        _ if row.is_secret => MASK.into(),
        _ => plain(value),
    }
}

fn written(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{Sources, default_text};
    use super::*;

    const FILE: &str = "[server]\nname = \"n1\"\n[engine]\nshards = 0x2\n\n[[access.tokens]]\ntoken = \"geheim-1\"\n\
                        name = \"a\"\n[[applications]]\nid = \"m\"\n[[applications.keys]]\nid = \"k\"\n\
                        key = \"geheim-2-geheim-2\"\nroles = [\"device\"]\n";
    const HOOKS: &str = "[{name = \"w\", url = \"http://geheim-3\", topics = [\"#\"], \
                         secret = \"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"}]";

    fn sources() -> Sources {
        let variables = [("TIDEGATE__WEBHOOKS", HOOKS), ("TIDEGATE__ENGINE__SHARDS", "3")];
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let sources = Sources::of_text(FILE, "t.toml").with_variables(variables).expect("good");
        let listen = toml::Value::String("127.0.0.1:9".into());
        sources
            .with_flag("--listen", "server.listen", &listen)
            .with_origins(["loopback".to_owned()].into_iter())
    }

    #[test]
    fn each_setting_says_who_said_it() {
        let shown = sources().show().expect("good");
        for (line, source) in [
            ("name = \"n1\"", "t.toml:2"),
            ("listen = \"127.0.0.1:9\"", "flag --listen"),
            ("shards = 3", "environment TIDEGATE__ENGINE__SHARDS"),
            ("pin_cores = false", "default"),
            ("# send_buffer_bytes is unset", "default"),
            ("origins = [\"loopback\"]", "flag --origin"),
            ("[[access.tokens]]", "t.toml:6"),
            ("[[webhooks]]", "environment TIDEGATE__WEBHOOKS"),
            ("# no [[topics]]", "default"),
            ("poll_ms = 20000", "default"),
        ] {
            let wanted = format!("{line:<40} # {source}\n");
            assert!(shown.contains(&wanted), "{wanted}in {shown}");
        }
    }

    #[test]
    fn secrets_are_masked_wherever_they_were_said() {
        let shown = sources().show().expect("good");
        for secret in ["geheim", "whsec", "C2FVs"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert_eq!(shown.matches(MASK).count(), 4, "{shown}");
    }

    #[test]
    fn what_is_shown_means_the_same() {
        let shown = Sources::of_text("", "t.toml").show().expect("good");
        assert_eq!(super::super::parse(&shown, "shown.toml"), Ok(Config::default()));
        let whole = Sources::of_text(&default_text(), "t.toml");
        let lines = whole.show().expect("good");
        assert!(lines.contains("backlog = 4096"), "{lines}");
        let text = FILE.replace("geheim-2-geheim-2", "a key with 16 letters");
        let sources = Sources::of_text(&text, "t.toml");
        let shown = sources.show().expect("good");
        let shown = shown.replacen(MASK, "\"geheim-1\"", 1);
        let shown = shown.replacen(MASK, "\"a key with 16 letters\"", 1);
        assert_eq!(super::super::parse(&shown, "shown.toml"), sources.config());
    }
}
