//! Why a server did not start.

use std::fmt;

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    text: String,
}

impl StartError {
    pub(crate) fn new(text: String) -> Self {
        Self { text }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}

/// What could not be done, why, and how to put it right.
pub(crate) fn cannot(what: &str, why: impl fmt::Display, how: &str) -> StartError {
    StartError { text: format!("cannot {what}: {why}; {how}") }
}
