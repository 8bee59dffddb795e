//! Reads the user's arguments into terms of the protocol; everything else is wrong usage.

use model::{Limits, Selector, TopicName};
use payload::filter;

use crate::Failure;

type Wrong = (Failure, String);

pub(crate) fn wrong(text: impl Into<String>) -> Wrong {
    (Failure::Usage, text.into())
}

pub(crate) fn topic_of(text: &str) -> Result<TopicName, Wrong> {
    TopicName::parse(text, &Limits::default()).map_err(|error| wrong(error.to_string()))
}

pub(crate) fn selector_of(text: &str) -> Result<Selector, Wrong> {
    Selector::parse(text, &Limits::default()).map_err(|error| wrong(error.to_string()))
}

/// Checks a filter before it is sent, and shows where it is wrong.
pub(crate) fn check_filter(text: Option<&str>) -> Result<(), Wrong> {
    let Some(text) = text else { return Ok(()) };
    filter::check(text).map_err(|error| {
        let marked = error.marked(text).map_or(String::new(), |marked| format!("\n{marked}"));
        wrong(format!("{error}{marked}"))
    })
}
