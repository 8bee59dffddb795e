//! `tidegate sessions`.

use serde_json::Value;

use crate::args::SessionsArgs;
use crate::http::{Api, encoded};
use crate::{Outcome, print_line};

/// Sessions that are asked for at a time.
const PAGE_LEN: usize = 1_000;

pub(crate) fn sessions(args: &SessionsArgs) -> Outcome {
    let api = Api::new(&args.remote);
    let (mut left, mut after) = (args.limit, args.after.clone());
    let mut is_first = true;
    while left > 0 {
        let from = after.map_or(String::new(), |after| format!("&after={}", encoded(&after)));
        let page = api.json(&format!("/v1/sessions?limit={}{from}", left.min(PAGE_LEN)))?;
        let found = page["sessions"].as_array().map_or(&[][..], Vec::as_slice);
        if std::mem::take(&mut is_first) && !args.output.json {
            match found.is_empty() {
                true => eprintln!("nobody is connected"),
                false => print_line(HEADING),
            }
        }
        for session in found {
            print_line(&if args.output.json { session.to_string() } else { line_of(session) });
        }
        left -= found.len().min(left);
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            return Ok(());
        }
    }
    if let (Some(after), false) = (&after, args.output.json) {
        eprintln!("there are more: --after {after}, or a larger --limit");
    }
    Ok(())
}

const HEADING: &str = "SESSION                  PRINCIPAL        CLIENT           PEER             TRANSPORT SUBS STATE  HEARD";

fn line_of(session: &Value) -> String {
    let text = |name: &str| session[name].as_str().unwrap_or("-");
    let state = if session["in_step"] == true { "" } else { "behind" };
    format!(
        "{:<24} {:<16} {:<16} {:<16} {:<9} {:>4} {state:<6} {} s ago",
        text("session"),
        text("principal"),
        text("client"),
        text("peer"),
        text("transport"),
        session["subscriptions"].to_string(),
        session["heard_s"],
    )
}
