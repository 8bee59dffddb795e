//! Runs many seeds: `cargo xtask sim --seeds N [--first SEED]`.

use std::process::ExitCode;

use tidegate_sim::{Bug, Lie, run, run_with_kills};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let (first, count) = (value("--first").unwrap_or(0), value("--seeds").unwrap_or(1_000));
    let mut acknowledged = 0;
    for seed in first..first + count {
        let one = || (run(seed, 1_500), run_with_kills(seed, 1_500, Lie::None, Bug::None));
        match std::panic::catch_unwind(one) {
            Ok((_, kills)) => acknowledged += kills.acknowledged,
            Err(_) => {
                eprintln!(
                    "seed {seed} breaks a promise; again: cargo xtask sim --first {seed} --seeds 1"
                );
                return ExitCode::FAILURE;
            }
        }
        if (seed + 1 - first).is_multiple_of(1_000) {
            println!("{} seeds, {acknowledged} acknowledged publications", seed + 1 - first);
        }
    }
    println!("{count} seeds keep every promise");
    ExitCode::SUCCESS
}
