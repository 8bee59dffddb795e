//! `tidegate bench`.

use ::bench::{Scenario, ScenarioOptions, run};

use crate::args::BenchArgs;
use crate::{Failure, Outcome, print_line};

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    if args.scenario == "list" {
        for (name, _, what) in Scenario::ALL {
            print_line(&format!("{name:<16} {what}"));
        }
        return Ok(());
    }
    let scenario: Scenario = args.scenario.parse().map_err(|text| (Failure::Other, text))?;
    let base = ScenarioOptions::of(scenario);
    let options = ScenarioOptions {
        clients: args.clients.unwrap_or(base.clients),
        topics: args.topics.unwrap_or(base.topics),
        rate: args.rate.unwrap_or(base.rate),
        payload_bytes: args.bytes.unwrap_or(base.payload_bytes),
        seconds: args.seconds.unwrap_or(base.seconds),
        own_topic: args.own_topic,
        audiences: !args.no_audiences,
    };
    let report = run(&args.scenario, scenario, &options).map_err(|text| (Failure::Other, text))?;
    let text = serde_json::to_string_pretty(&report.json).unwrap_or_default();
    print_line(&text);
    if report.is_valid {
        return Ok(());
    }
    let text = "the run is not valid: something was lost, or the generator fell behind";
    Err((Failure::Other, text.into()))
}
