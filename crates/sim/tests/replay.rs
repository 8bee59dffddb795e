//! A seed replays exactly, in every process: whatever a run does follows from its seed.

use std::process::Command;

/// What went over the networks of the first seeds, as another process saw it.
fn digests() -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-sim"));
    let output = command.args(["--seeds", "20", "--digests"]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn two_processes_see_the_same_bytes_in_the_same_order() {
    let first = digests();
    let seeds = first.lines().filter(|line| line.contains('['));
    assert_eq!(seeds.count(), 20, "{first}");
    assert_eq!(first, digests());
}
