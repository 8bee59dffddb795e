//! Reading how much is logged.

use std::str::FromStr;

use server::config::log_levels;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The level of the log, or levels by part of the program.
#[derive(Clone, Debug)]
pub(crate) struct LogLevel {
    /// As it was written.
    pub text: String,
    /// The same, as the log takes it.
    pub targets: Targets,
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        for (part, level) in log_levels(text)? {
            let level = level.parse::<LevelFilter>().map_err(|error| error.to_string())?;
            targets = match part {
                None => targets.with_default(level),
                // A part of the bridges, named as long as it was a crate.
                Some("webhooks") => targets.with_target("tidegate_bridges::webhooks", level),
                Some(part) => targets.with_target(format!("tidegate_{part}"), level),
            };
        }
        Ok(Self { text: text.into(), targets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_for_all_or_for_a_part() {
        for text in ["info", "off", "warn,webhooks=debug", "server=trace"] {
            assert!(LogLevel::from_str(text).is_ok(), "{text}");
        }
        for (text, why) in [
            ("verbose", "`verbose` is not a level; say off, error"),
            ("", "`` is not a level"),
            ("info,hub=debug", "there is no part `hub`; say server or backbone or webhooks"),
            ("server=loud", "`loud` is not a level"),
        ] {
            let error = LogLevel::from_str(text).expect_err(text);
            assert!(error.starts_with(why), "{error}");
        }
    }
}
