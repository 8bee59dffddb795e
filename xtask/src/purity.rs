//! No clock, socket, thread or random source in the pure crates; no lock where a shard runs; no unsafe code but in the engine.

use std::path::Path;

use crate::{Faults, files, read};

const PURE: [&str; 5] = ["model", "protocol", "hub", "payload", "access"];
/// The engine's files with system calls that no safe wrapper offers.
const MAY_BE_UNSAFE: [&str; 3] =
    ["engine/src/allocator.rs", "engine/src/sys.rs", "engine/src/tun.rs"];
/// What only their tests may use, which clippy cannot tell apart. The rest is in the `clippy.toml` of each.
const OUTSIDE: [&str; 3] = ["std::thread", "std::fs", "std::env"];

/// What runs on shards waits for no other thread.
const ON_SHARDS: [&str; 9] =
    ["model", "protocol", "hub", "payload", "access", "backbone", "engine", "listener", "server"];
const LOCKS: [&str; 3] = ["Mutex", "RwLock", "Condvar"];
/// The main thread's own, the supervisor's, the clock's where the wall clock goes back, and that of the broker made up for tests.
const MAY_LOCK: [&str; 4] = [
    "server/src/server.rs",
    "engine/src/supervisor.rs",
    "engine/src/clock.rs",
    "backbone/src/contract/stream.rs",
];

pub(crate) fn check(root: &Path) -> Faults {
    let mut faults = Vec::new();
    for path in
        files(&root.join("crates"), "rs").into_iter().chain(files(&root.join("xtask"), "rs"))
    {
        let text = read(&path);
        let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let krate = place.split('/').nth(1).unwrap_or_default();
        if PURE.contains(&krate) && place.contains("/src/") {
            faults.extend(check_pure(&place, &text));
        }
        if place.ends_with("src/lib.rs") {
            faults.extend(check_head(&place, krate, &text));
        }
        if ON_SHARDS.contains(&krate) && place.contains("/src/") {
            faults.extend(check_locks(&place, &text));
        }
        if krate != "engine" {
            continue;
        }
        if MAY_BE_UNSAFE.iter().any(|file| place.ends_with(file)) {
            faults.extend(check_reasons(&place, &text));
        } else if text.lines().any(is_unsafe) {
            faults.push(format!("{place} has unsafe code; it belongs in sys.rs"));
        }
    }
    for krate in PURE {
        faults
            .extend(check_bans(krate, &read(&root.join("crates").join(krate).join("clippy.toml"))));
    }
    for place in ["Cargo.toml", ".cargo/config.toml"] {
        faults.extend(check_profiles(&read(&root.join(place))));
    }
    faults
}

/// Faults can be planted where there are debug assertions: programs for use are built without.
fn check_profiles(manifest: &str) -> Faults {
    let mut faults = Faults::new();
    if manifest.contains("-Cdebug-assertions") || manifest.contains("-C debug-assertions") {
        faults.push("flags turn debug assertions on, and with them planted faults".into());
    }
    for section in manifest.split("\n[").filter(|section| section.starts_with("profile.")) {
        let name = section.split(']').next().unwrap_or_default();
        let for_tests = ["profile.dev", "profile.test", "profile.ci"].contains(&name);
        let inherits = ["\"dev\"", "\"ci\"", "\"test\""];
        let has_them = section.lines().any(|line| {
            line.replace(' ', "").starts_with("debug-assertions=true")
                || (line.starts_with("inherits") && inherits.iter().any(|it| line.ends_with(it)))
        });
        if has_them && !for_tests {
            faults.push(format!(
                "{name} has debug assertions, and with them planted faults; leave them out"
            ));
        }
    }
    faults
}

/// Clippy bans what is named in the file nearest to a crate: without one it would ban nothing.
fn check_bans(krate: &str, bans: &str) -> Faults {
    let mut needed = vec!["std::time::Instant", "std::time::SystemTime", "std::hash::RandomState"];
    if krate != "model" {
        needed.extend(["std::collections::HashMap", "std::collections::HashSet"]);
    }
    needed.retain(|path| !bans.contains(&format!("\"{path}\"")));
    let missing =
        needed.iter().map(|path| format!("crates/{krate}/clippy.toml does not ban {path}"));
    missing.collect()
}

fn check_locks(place: &str, text: &str) -> Faults {
    if MAY_LOCK.iter().any(|file| place.ends_with(file)) {
        return Faults::new();
    }
    let found = LOCKS.iter().filter(|word| without_tests(text).contains(*word));
    found.map(|word| format!("{place} uses a {word}: a shard waits for no other thread")).collect()
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

fn check_pure(place: &str, text: &str) -> Faults {
    let code = without_tests(text);
    let found = OUTSIDE.iter().filter(|word| code.contains(*word));
    found.map(|word| format!("{place} uses {word}; take it as a parameter")).collect()
}

fn check_head(place: &str, krate: &str, text: &str) -> Faults {
    let head = match krate {
        "engine" => "#![deny(unsafe_code)]",
        _ => "#![forbid(unsafe_code)]",
    };
    let is_there = text.contains(head);
    (!is_there).then(|| format!("{place} lacks `{head}`")).into_iter().collect()
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word))
}

/// Every unsafe block is preceded by its reason.
fn check_reasons(place: &str, text: &str) -> Faults {
    let lines: Vec<&str> = text.lines().collect();
    let is_explained = |at: usize| {
        lines[..at].iter().rev().take(6).any(|line| line.trim_start().starts_with("// SAFETY:"))
    };
    let unexplained = (0..lines.len()).filter(|at| is_unsafe(lines[*at]) && !is_explained(*at));
    unexplained.map(|at| format!("{place}:{} lacks its `// SAFETY:` line", at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_belong_is_found() {
        assert_eq!(check_profiles("\n[profile.ci]\ninherits = \"dev\"\n"), Faults::new());
        assert_eq!(check_profiles("\n[profile.release]\ndebug-assertions = true\n").len(), 1);
        assert_eq!(check_profiles("\n[profile.dist]\ninherits = \"ci\"\n").len(), 1);
        assert_eq!(check_profiles("rustflags = [\"-Cdebug-assertions\"]").len(), 1);

        assert_eq!(check_pure("hub", "let seed = std::env::var(\"SEED\");").len(), 1);
        assert_eq!(check_bans("hub", "{ path = \"std::time::Instant\" }").len(), 4);
        assert_eq!(
            check_bans("model", include_str!("../../crates/model/clippy.toml")),
            Faults::new()
        );
        let tests = "fn a() {}\n#[cfg(test)]\nmod tests { use std::thread; }";
        assert_eq!(check_pure("hub", tests), Faults::new());
        let lock = "use std::sync::Mutex;";
        assert_eq!(check_locks("crates/server/src/devices/once.rs", lock).len(), 1);
        assert_eq!(check_locks("crates/server/src/server.rs", lock), Faults::new());
        assert_eq!(check_head("lib.rs", "hub", "#![deny(unsafe_code)]").len(), 1);
        assert_eq!(check_reasons("sys", "// SAFETY: fine\nunsafe { x() }"), Faults::new());
        assert_eq!(check_reasons("sys", "let a = 1;\nunsafe { x() }").len(), 1);
    }
}
