//! `tidegate bench`.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::bench::{
    Options, Progress, ProgressLook, TargetChoice, compare, find, html, list, run, table,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::args::BenchArgs;
use crate::usage::wrong;
use crate::{Failure, Outcome, print_line};

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    let other = |text: String| (Failure::Other, text);
    match args.scenario.as_str() {
        "list" => {
            for scenario in list() {
                let by = scenario.reference.map_or("", |reference| reference.by);
                print_line(&format!("{:<16} {}", scenario.name, scenario.what));
                if !by.is_empty() {
                    print_line(&format!("{:<16} reference: {by}", ""));
                }
            }
            return Ok(());
        }
        "compare" => return compare_files(args),
        _ => {}
    }
    let scenario = find(&args.scenario).map_err(wrong)?;
    let target = match (&args.target, &args.peer) {
        (Some(url), _) => TargetChoice::Running(url.clone()),
        (None, Some(program)) => TargetChoice::Peer(program.clone()),
        (None, None) => TargetChoice::Own,
    };
    let options = Options {
        scale: scale_of(&args.scale).map_err(wrong)?,
        clients: args.clients,
        topics: args.topics,
        rate: args.rate,
        payload_bytes: args.bytes,
        seconds: args.duration,
        own_topic: args.own_topic,
        no_audiences: args.no_audiences,
        command: command(),
        commit: env!("TIDEGATE_COMMIT"),
    };
    let shown = Shown::new();
    let report = run(&scenario, &target, &options, &shown).map_err(other)?;
    shown.bar.finish_and_clear();
    print_line(&match args.output.json {
        true => report.json.to_string(),
        false => table(&report.json),
    });
    if let Some(folder) = &args.out {
        write_files(folder, scenario.name, &report.json)?;
    }
    if report.is_valid {
        return Ok(());
    }
    Err(other("the run is not valid: something was lost, or the generator fell behind".into()))
}

/// This command as it can be typed again; what a shell would read as more than a word is quoted.
fn command() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    let quoted = |word: String| match word.is_empty() || !word.chars().all(is_plain) {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => word,
    };
    let words = std::env::args().skip(1).map(quoted);
    std::iter::once("tidegate".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn scale_of(text: &str) -> Result<Option<f64>, String> {
    match (text, text.parse::<f64>()) {
        ("auto", _) => Ok(None),
        (_, Ok(scale)) if scale > 0.0 => Ok(Some(scale)),
        _ => Err(format!("cannot scale by `{text}`: it is not a number above 0; say auto or 0.1")),
    }
}

fn write_files(folder: &Path, name: &str, report: &Value) -> Outcome {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let stem = format!("{name}-{}-{seconds}", report["target"].as_str().unwrap_or("server"))
        .replace([':', '/'], "-");
    let json = serde_json::to_string_pretty(report).unwrap_or_default();
    let write = |extension: &str, text: &str| {
        let path = folder.join(format!("{stem}.{extension}"));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
        let why = |error| format!("cannot write {}: {error}; choose another --out", path.display());
        written.map_err(|error| (Failure::Other, why(error)))?;
        eprintln!("written: {}", path.display());
        Ok(())
    };
    write("json", &json)?;
    write("html", &html(report))
}

fn compare_files(args: &BenchArgs) -> Outcome {
    let [a, b] = &args.reports[..] else {
        return Err(wrong("cannot compare: it takes two files; give A.json and B.json"));
    };
    let read = |path: &Path| -> Result<Value, (Failure, String)> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let parsed = text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
        let how = "give a file that `bench --out` wrote";
        parsed.map_err(|why| {
            (Failure::Other, format!("cannot read {}: {why}; {how}", path.display()))
        })
    };
    let text = compare(&read(a)?, &read(b)?).map_err(|text| (Failure::Other, text))?;
    print_line(&text);
    Ok(())
}

/// Progress: a moving line on a terminal, a plain line now and then in a pipe.
struct Shown {
    bar: ProgressBar,
    is_terminal: bool,
    is_interrupted: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    phase: String,
    seconds: Option<u64>,
    said_at: Option<Instant>,
}

const SAY_EVERY: Duration = Duration::from_secs(5);

impl Shown {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a valid template"));
        bar.enable_steady_tick(Duration::from_millis(100));
        let state = State { phase: String::new(), seconds: None, said_at: None };
        let is_terminal = std::io::stderr().is_terminal();
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let interrupt = Arc::clone(&is_interrupted);
        // Without it an interrupted run only leaves its namespace and its server behind.
        let _ = engine::on_shutdown_signal(move || interrupt.store(true, Ordering::Relaxed));
        Self { bar, is_terminal, is_interrupted, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

impl Progress for Shown {
    fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    fn phase(&self, name: &str, seconds: Option<u64>) {
        *self.state() = State { phase: name.into(), seconds, said_at: None };
        self.bar.set_message(name.to_owned());
        if !self.is_terminal {
            eprintln!("{name}");
        }
    }

    fn look(&self, look: ProgressLook) {
        let mut state = self.state();
        let left = state.seconds.map(|whole| whole.saturating_sub(look.seconds as u64));
        let left = left.map_or(String::new(), |left| format!(", {left} s left"));
        let ProgressLook { live, clients, messages_per_second: rate, .. } = look;
        let text = format!("{}: {live} of {clients} clients, {rate:.0} msg/s{left}", state.phase);
        if !self.is_terminal && state.said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            state.said_at = Some(Instant::now());
            eprintln!("{text}");
        }
        self.bar.set_message(text);
    }
}
