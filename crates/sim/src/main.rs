//! Runs many seeds, and says how often each kind of event came about: `cargo xtask sim --seeds N [--first SEED] [--digests]`.
//!
//! With `--digests` it prints for each seed a number that shows all that went over the network: a seed replays exactly.

use std::process::ExitCode;

use tidegate_sim::{Bug, Counts, Lie, run, run_mixture, run_with_kills};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let (first, count) = (value("--first").unwrap_or(0), value("--seeds").unwrap_or(1_000));
    let has_digests = arguments.iter().any(|argument| argument == "--digests");
    let (mut acknowledged, mut counts) = (0, Counts::default());
    for seed in first..first + count {
        let one = || {
            let kills = run_with_kills(seed, 1_500, Lie::None, Bug::None);
            (run(seed, 1_500), kills, run_mixture(seed, 1_500))
        };
        match std::panic::catch_unwind(one) {
            Ok((plain, kills, mixture)) => {
                counts.add(&mixture.counts);
                acknowledged += kills.acknowledged;
                if has_digests {
                    let digests = [plain.digest, kills.digest, mixture.digest];
                    println!("{seed} {digests:016x?}");
                }
            }
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
    println!("{counts}{count} seeds keep every promise");
    ExitCode::SUCCESS
}
