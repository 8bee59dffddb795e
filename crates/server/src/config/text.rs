//! The configuration in words, from the table of settings: the default file and the reference.

use super::schema::{Default, Key, Row, Section};
use super::{Config, sections};

/// A complete configuration file; it means exactly the default.
pub fn default_text() -> String {
    let mut text = String::from("# Tidegate's configuration. Every value here is the default.\n");
    for section in sections::all() {
        text.push_str(&format!("\n# {}\n", section.meaning));
        if !section.is_list() {
            text.push_str(&format!("[{}]\n", section.name));
        }
        let mut lists = String::new();
        for (path, row) in rows_of(section) {
            if !row.rows.is_empty() {
                push_example(&path, &row, &mut lists);
                continue;
            }
            let mark = if matches!(row.default, Default::Is(_)) { "" } else { "# " };
            let (name, shown) = (row.name, row.default.shown());
            text.push_str(&format!("# {}\n{mark}{name} = {shown}\n", row.meaning));
        }
        for line in lists.lines() {
            text.push_str(format!("# {line}").trim_end());
            text.push('\n');
        }
    }
    text
}

/// The settings of a section, each with its full name.
fn rows_of(section: Section) -> Vec<(String, Row)> {
    let paths: Vec<String> = section.keys.iter().map(|key| section.path(key)).collect();
    paths.into_iter().zip(section.keys.into_iter().map(Key::<Config>::row)).collect()
}

/// One table of a list, with every key.
fn push_example(path: &str, list: &Row, text: &mut String) {
    text.push_str(&format!("[[{path}]]\n"));
    let (tables, plain): (Vec<&Row>, Vec<&Row>) =
        list.rows.iter().partition(|row| !row.rows.is_empty());
    for row in plain {
        let mark = if matches!(row.default, Default::Unset(_)) { "# " } else { "" };
        let line = format!("{mark}{} = {}", row.name, row.default.shown());
        text.push_str(&format!("{line:<32} # {}\n", row.meaning));
    }
    for row in tables {
        text.push('\n');
        push_example(&format!("{path}.{}", row.name), row, text);
    }
}

/// The reference of all settings, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    for section in sections::all() {
        let is_list = section.is_list();
        let brackets = if is_list { ["[[", "]]"] } else { ["[", "]"] };
        let [open, close] = brackets;
        text.push_str(&format!("\n## {open}{}{close}\n\n{}\n", section.name, section.meaning));
        let reloads: Vec<&str> = section.keys.iter().map(|key| key.reload.name()).collect();
        let rows = rows_of(section);
        if is_list {
            text.push_str(&format!("\nReload: {}. {}\n", reloads[0], rows[0].1.meaning));
        } else {
            text.push_str("\n| setting | value | default | reload | meaning |\n");
            text.push_str("| --- | --- | --- | --- | --- |\n");
            for ((_, row), reload) in rows.iter().zip(reloads) {
                let (name, value, default) = (row.name, &row.value, written(&row.default));
                let meaning = &row.meaning;
                text.push_str(&format!(
                    "| `{name}` | {value} | {default} | {reload} | {meaning} |\n"
                ));
            }
        }
        for (path, row) in rows.iter().filter(|(_, row)| !row.rows.is_empty()) {
            push_list(path, row, &mut text);
        }
    }
    text
}

const INTRODUCTION: &str = r##"# Configuration

Settings come from one TOML file, given with `tidegate serve --config FILE`, from environment variables, and from flags. **Order:** a
flag goes before a variable, a variable before the file, the file before the default. An unknown key or variable is an error that says
what was probably meant.

`tidegate config show --config FILE` prints every setting that goes and who says it, secrets masked; give it the flags and the
environment of the server. `tidegate config check FILE` reads a file without starting, `tidegate config default` prints a whole one. (This
page is `tidegate config doc`; a test keeps it so.)

## In environment variables

Every setting has a variable: `TIDEGATE__`, section and key in capitals, two underscores between them (Kubernetes sets `TIDEGATE_PORT`
and others for a service called `tidegate`: those are left alone, as all that does not begin with `TIDEGATE__`).

    TIDEGATE__SERVER__LISTEN=0.0.0.0:8470
    TIDEGATE__ACCESS__ANONYMOUS=read
    TIDEGATE__LIMITS__PAYLOAD_BYTES_MAX=65536
    TIDEGATE__ACCESS__ORIGINS='["https://app.example.com"]'
    TIDEGATE__TOPICS='[{selector = "prices/#", history_count = 1}, {selector = "#", history_count = 100}]'
    TIDEGATE__ACCESS__TOKENS__FILE=/run/secrets/tokens

A text is written as it is, without quotes; a list, or a list of tables, is one TOML value, and replaces the whole list of the file. With
`__FILE` behind it the variable names a file that holds the value, for secrets; a line break at its end does not count, and it is read
anew by SIGHUP. Variables of the command line's own (`TIDEGATE_SERVER`, `TIDEGATE_TOKEN`, `TIDEGATE_CA`, `TIDEGATE_KEY`, `TIDEGATE_LOG`,
`TIDEGATE_LOG_FORMAT`) have one underscore.

## What a reload does

SIGHUP (`systemctl reload tidegate`) reads the file anew, and the files that variables name. The column *reload* says what becomes of a
setting that was changed:

- *live*: the new value goes from then on, for all.
- *new connections*: it goes for connections, sessions and requests that come from then on. Who is in stays in, with the rights and rates
  that it came with, also where its token is gone: to take them away at once, restart the server.
- *restart*: the old value goes on until the server is started again. The log names each such setting (`not taken over: …`).

What is wrong is refused whole, with an error in the log, and the old configuration goes on.
"##;

/// The keys of a list of tables.
fn push_list(path: &str, list: &Row, text: &mut String) {
    text.push_str(&format!("\n`[[{path}]]`:\n\n| key | value | default | meaning |\n"));
    text.push_str("| --- | --- | --- | --- |\n");
    for row in &list.rows {
        let (name, value, default) = (row.name, &row.value, written(&row.default));
        text.push_str(&format!("| `{name}` | {value} | {default} | {} |\n", row.meaning));
    }
    for row in list.rows.iter().filter(|row| !row.rows.is_empty()) {
        push_list(&format!("{path}.{}", row.name), row, text);
    }
}

fn written(default: &Default) -> String {
    match default {
        Default::Is(text) => format!("`{text}`"),
        Default::Unset(example) => format!("unset, such as `{example}`"),
        Default::Needed(example) => format!("needed, such as `{example}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    #[test]
    fn every_example_can_be_read() {
        let examples = default_text();
        let is_toml = |line: &&str| {
            let name = line.split(" = ").next().filter(|_| line.contains(" = "));
            let is_name = |name: &str| !name.contains([' ', '`']);
            line.starts_with('[') || name.is_some_and(is_name)
        };
        let lines = examples.lines().map(|line| line.trim_start_matches("# ")).filter(is_toml);
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replace("whsec_new...", SECRET).replace("whsec_old...", SECRET);
        let text = text.replace("whsec_...", SECRET);
        let config =
            parse(&text, "examples.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!((config.webhooks.len(), config.applications[0].keys.len()), (1, 1));
        assert_eq!((config.access.tokens.len(), config.policies[0].policy.memory_count), (1, 1000));
    }

    #[test]
    fn the_reference_is_up_to_date() {
        let written = include_str!("../../../../docs/configuration.md");
        let is_current = written == reference();
        assert!(is_current, "write it anew: tidegate config doc > docs/configuration.md");
    }
}
