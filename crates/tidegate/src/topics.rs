//! `tidegate topics`.

use serde_json::Value;

use crate::args::TopicsArgs;
use crate::http::{Api, encoded};
use crate::usage::{selector_of, topic_of};
use crate::{Outcome, print_line};

/// Topics that are asked for at a time.
const PAGE_LEN: usize = 1_000;

pub(crate) fn topics(args: &TopicsArgs) -> Outcome {
    let selector = selector_of(&args.selector)?;
    let mut after = args.after.as_deref().map(topic_of).transpose()?.map(|it| it.to_string());
    let api = Api::new(&args.remote);
    let mut left = args.limit;
    while left > 0 {
        let (wanted, limit) = (encoded(selector.as_str()), left.min(PAGE_LEN));
        let from = after.map_or(String::new(), |after| format!("&after={}", encoded(&after)));
        let values = if args.values { "&values=true" } else { "" };
        let page =
            api.json(&format!("/v1/topics?selector={wanted}&limit={limit}{values}{from}"))?;
        let found = page["topics"].as_array().map_or(&[][..], Vec::as_slice);
        for topic in found {
            print_line(&if args.output.json { topic.to_string() } else { line_of(topic) });
        }
        if found.is_empty() && left == args.limit && !args.output.json {
            eprintln!("nothing is published to `{selector}`");
        }
        left -= found.len().min(left);
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || found.is_empty() {
            return Ok(());
        }
    }
    if let (Some(after), false) = (&after, args.output.json) {
        eprintln!("there are more: --after '{after}', or a larger --limit");
    }
    Ok(())
}

fn line_of(topic: &Value) -> String {
    let (name, sequence) = (topic["topic"].as_str().unwrap_or(""), &topic["sequence"]);
    let value = ["data", "text", "base64"].into_iter().find_map(|member| topic.get(member));
    let value = value.map_or(String::new(), |value| format!(" {value}"));
    format!("{name} {sequence}{value}")
}
