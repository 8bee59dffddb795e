//! What a machine can check of this workspace: `cargo xtask check`.

mod floors;
mod links;
mod prose;
mod purity;
mod structure;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A check answers with what is wrong: where, and how to put it right.
type Faults = Vec<String>;

const USAGE: &str = "\
usage: cargo xtask TASK

  check        all of the following
  format       rustfmt finds nothing to change
  lint         clippy is content, warnings included
  floors       crates import only from floors below their own
  purity       no clock, socket, thread or unsafe code where there must be none
  structure    no import circle of more than three files, no struct of more than 20 fields
  licences     what of others is built in may be: licences, doubled versions, sources (deny.toml)
  links        documents link only to what exists
  prose        phrases that are not idiomatic English do not come back

  sim [--seeds N] [--first SEED]   whole nodes under simulation, with kills: not part of check";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    if task == "sim" {
        let mut arguments = vec!["run", "--quiet", "--release", "--package", "tidegate-sim", "--"];
        let rest: Vec<String> = std::env::args().skip(2).collect();
        arguments.extend(rest.iter().map(String::as_str));
        let faults = cargo(&root(), &arguments);
        return if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let all = ["format", "floors", "purity", "structure", "links", "prose", "licences", "lint"];
    let tasks: &[&str] = match all.iter().position(|known| *known == task) {
        Some(at) => &all[at..=at],
        None if task == "check" => &all,
        None => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut is_good = true;
    for task in tasks {
        let faults = run(task, &root());
        faults.iter().for_each(|fault| eprintln!("{task}: {fault}"));
        println!("{task}: {}", if faults.is_empty() { "good" } else { "not good" });
        is_good &= faults.is_empty();
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(task: &str, root: &Path) -> Faults {
    match task {
        "format" => cargo(root, &["fmt", "--all", "--check"]),
        "lint" => cargo(
            root,
            &["clippy", "--workspace", "--all-targets", "--profile", "ci", "--", "-D", "warnings"],
        ),
        "floors" => floors::check(root),
        "purity" => purity::check(root),
        "structure" => structure::check(root),
        "licences" => started(Command::new(root.join("tests/deny")), "tests/deny"),
        "prose" => prose::check(root),
        _ => links::check(root),
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_owned()
}

fn cargo(root: &Path, arguments: &[&str]) -> Faults {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    started(command, &format!("cargo {}", arguments.join(" ")))
}

/// What is wrong with how a program ends; it says itself what it found.
fn started(mut command: Command, name: &str) -> Faults {
    match command.status() {
        Ok(status) if status.success() => Vec::new(),
        Ok(status) => vec![format!("`{name}` ended with {status}")],
        Err(error) => vec![format!("cannot run {name}: {error}; install what it needs")],
    }
}

/// All files below `folder` that end with `.extension`, without build output and dependencies.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_made = ["target", "node_modules", "dist", "reference"].contains(&&*name);
        if path.is_dir() && !name.starts_with('.') && !is_made {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
