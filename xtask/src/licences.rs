//! Dependencies are under licences that go with Apache-2.0; versions that are there twice are listed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Faults;

/// Licences that ask for no more than ours. Of `A OR B` one is enough, of `A AND B` both count.
const ALLOWED: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
];
/// Crates that may be there in more than one version: neighbours have not moved yet.
const DOUBLES_MAX: usize = 12;

pub(crate) fn check(root: &Path) -> Faults {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--locked", "--all-features"];
    let output = Command::new(program).args(arguments).current_dir(root).output();
    let parsed =
        output.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    let Some(metadata) = parsed else {
        return vec![
            "`cargo metadata --locked` failed; run `cargo check` and commit Cargo.lock".into(),
        ];
    };
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or("none given");
        if !is_allowed(licence) {
            faults.push(format!(
                "{name} is under `{licence}`; replace it, or allow the licence here"
            ));
        }
        versions.entry(name).or_default().push(package["version"].as_str().unwrap_or_default());
    }
    versions.retain(|_, versions| versions.len() > 1);
    for (name, versions) in &versions {
        println!("licences: {name} is there as {}", versions.join(" and "));
    }
    if versions.len() > DOUBLES_MAX {
        faults.push(format!(
            "{} crates are there in several versions, more than {DOUBLES_MAX}; align some",
            versions.len()
        ));
    }
    faults
}

fn is_allowed(licence: &str) -> bool {
    let text = licence.replace('/', " OR ").replace(['(', ')'], "");
    text.split(" AND ").all(|part| part.split(" OR ").any(|one| ALLOWED.contains(&one.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        assert!(is_allowed("MIT OR GPL-3.0"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
        assert!(!is_allowed("none given"));
    }
}
