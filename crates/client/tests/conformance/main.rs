//! Runs the scenarios that all SDKs share against the real server; sdk/conformance/README.md describes them.

extern crate tidegate_client as client;

mod cable;
mod matching;
mod peer;
mod runner;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

/// Scenarios that cannot apply here, and why. They are run all the same, and must not pass.
const NOT_APPLYING: &[(&str, &str)] =
    &[("fallback", "there is nothing to fall back to: this SDK speaks over WebSocket only")];

/// Scenarios under way at a time.
const THREADS: usize = 4;

fn scenarios() -> BTreeMap<String, Value> {
    let directory = server::root().join("sdk/conformance/scenarios");
    let files = std::fs::read_dir(directory).expect("the scenarios are there");
    let paths = files.flatten().map(|file| file.path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem()?.to_str()?.to_owned();
        let text = std::fs::read_to_string(&path).ok()?;
        Some((name, serde_json::from_str(&text).expect("a scenario is JSON")))
    };
    paths.filter(|path| path.extension().is_some_and(|it| it == "json")).filter_map(read).collect()
}

fn run_all(scenarios: BTreeMap<String, Value>) -> BTreeMap<String, runner::Result> {
    let (left, results) = (Mutex::new(scenarios), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some((name, scenario)) = left.lock().expect("nobody panics with it").pop_first() {
            let result = runner::run(&scenario);
            results.lock().expect("nobody panics with it").insert(name, result);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    results.into_inner().expect("nobody panics with it")
}

#[test]
fn every_scenario_passes_but_those_that_cannot_apply() {
    let scenarios = scenarios();
    let count = scenarios.len();
    assert!(count >= 40, "only {count} scenarios were found");
    let mut faults = Vec::new();
    let mut listed: BTreeMap<&str, &str> = NOT_APPLYING.iter().copied().collect();
    for (name, result) in run_all(scenarios) {
        match (listed.remove(&*name), result) {
            (None, Ok(())) => {}
            (None, Err(error)) => faults.push(format!("{name}: {error}")),
            (Some(why), Ok(())) => faults.push(format!("{name} passes, and is listed: {why}")),
            (Some(why), Err(_)) => println!("{name} does not apply: {why}"),
        }
    }
    faults.extend(listed.keys().map(|name| format!("{name} is listed, and not there")));
    assert!(faults.is_empty(), "{} scenarios:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn there_is_a_verb_for_every_step_and_a_step_for_every_verb() {
    let scenarios = scenarios();
    let steps = scenarios.values().flat_map(|scenario| scenario["steps"].as_array()).flatten();
    let used: BTreeSet<&str> = steps.filter_map(|step| step["do"].as_str()).collect();
    let known: BTreeSet<&str> = runner::VERBS.iter().map(|(name, _)| *name).collect();
    assert_eq!(used, known);
}
