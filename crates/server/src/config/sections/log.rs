//! `[log]`: what is logged.

use crate::Config;
use crate::config::schema::Kind::Text;
use crate::config::schema::Reload::Live;
use crate::config::schema::{Section, is, key};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What parts of the program a level may be said for.
const PARTS: [&str; 3] = ["server", "backbone", "webhooks"];

/// The levels that a text says: each for a part of the program, or for all of it.
///
/// # Errors
/// A word is no level, or there is no such part.
pub fn log_levels(text: &str) -> Result<Vec<(Option<&str>, &str)>, String> {
    let level_of = |word| {
        let (part, level) = match str::split_once(word, '=') {
            Some((part, level)) => (Some(part), level),
            None => (None, word),
        };
        if !LEVELS.contains(&level) {
            return Err(format!("`{level}` is not a level; say {}", LEVELS.join(", ")));
        }
        match part {
            Some(part) if !PARTS.contains(&part) => {
                Err(format!("there is no part `{part}`; say {}", PARTS.join(" or ")))
            }
            part => Ok((part, level)),
        }
    };
    text.split(',').map(level_of).collect()
}

pub(super) fn log() -> Section {
    let level = Text(|it: &mut Config, text| {
        log_levels(text)?;
        it.log_level = text.into();
        Ok(())
    });
    Section {
        name: "log",
        meaning: "What is logged (docs/logs.md).",
        keys: vec![key(
            "level",
            is("\"info\""),
            Live,
            level,
            "off, error, warn, info, debug or trace; also by part of the program, such as \"info,webhooks=debug\".",
        )],
    }
}
