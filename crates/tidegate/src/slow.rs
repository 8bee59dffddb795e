//! `tidegate slow`.

use serde_json::Value;

use crate::args::SlowArgs;
use crate::http::Api;
use crate::{Outcome, print_line};

pub(crate) fn slow(args: &SlowArgs) -> Outcome {
    let answer = Api::new(&args.remote).json(&format!("/v1/slow?limit={}", args.limit))?;
    let slow = answer["slow"].as_array().map_or(&[][..], Vec::as_slice);
    if args.output.json {
        slow.iter().for_each(|session| print_line(&session.to_string()));
        return Ok(());
    }
    if slow.is_empty() {
        eprintln!("nobody is behind");
        return Ok(());
    }
    lines_of(slow).iter().for_each(|line| print_line(line));
    Ok(())
}

/// A heading, and a line for each session.
pub(crate) fn lines_of(slow: &[Value]) -> Vec<String> {
    let heading = format!(
        "{:>10} {:>12} {:>13} {:<24} {:<16} {:<10} TOPIC",
        "BEHIND MS", "BYTES", "PUBLICATIONS", "SESSION", "PRINCIPAL", "WAITS FOR"
    );
    let text = |session: &Value, name: &str| session[name].as_str().unwrap_or("").to_owned();
    let line = |session: &Value| {
        format!(
            "{:>10} {:>12} {:>13} {:<24} {:<16} {:<10} {}",
            session["lag_ms"].to_string(),
            session["lag_bytes"].to_string(),
            session["lag_publications"].to_string(),
            text(session, "session"),
            text(session, "principal"),
            text(session, "waits_for"),
            text(session, "topic"),
        )
    };
    std::iter::once(heading).chain(slow.iter().map(line)).collect()
}
