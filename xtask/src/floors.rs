//! Crates stand on floors (ARCHITECTURE.md); each imports only from floors below its own.

use std::path::Path;

use crate::{Faults, read};

/// Every crate and its floor.
const FLOORS: [(&str, u8); 15] = [
    ("model", 0),
    ("engine", 0),
    ("protocol", 1),
    ("hub", 1),
    ("backbone", 1),
    ("payload", 1),
    ("access", 1),
    ("listener", 1),
    ("admin", 2),
    ("client", 2),
    ("server", 3),
    ("sim", 4),
    ("bench", 4),
    ("bridges", 4),
    ("tidegate", 5),
];

/// Crates that may import less than their floor allows.
const NARROW: [(&str, &[&str]); 8] = [
    ("client", &["model", "payload", "protocol"]),
    ("admin", &["model", "protocol"]),
    ("protocol", &["model"]),
    ("hub", &["model"]),
    ("backbone", &["model"]),
    ("payload", &["model"]),
    ("access", &["model"]),
    ("listener", &["engine", "model"]),
];

pub(crate) fn check(root: &Path) -> Faults {
    let mut faults = Vec::new();
    for (name, floor) in FLOORS {
        let text = read(&root.join("crates").join(name).join("Cargo.toml"));
        faults.extend(check_crate(name, floor, &text));
    }
    let folders = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    for folder in folders.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if floor_of(&folder).is_none() {
            faults
                .push(format!("crates/{folder} has no floor; give it one in xtask/src/floors.rs"));
        }
    }
    faults
}

fn check_crate(name: &str, floor: u8, manifest: &str) -> Faults {
    let Ok(manifest) = manifest.parse::<toml::Table>() else {
        return vec![format!("crates/{name}/Cargo.toml cannot be read")];
    };
    let mut faults = Vec::new();
    let narrow = NARROW.iter().find(|(narrow, _)| *narrow == name).map(|(_, allowed)| *allowed);
    let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
    for used in sections.map(|section| names_in(&manifest, section)).concat() {
        let Some(below) = floor_of(used) else { continue };
        if below >= floor {
            faults.push(format!(
                "{name} (floor {floor}) imports {used} (floor {below}); move the code, or pass a \
                 value instead"
            ));
        } else if narrow.is_some_and(|allowed| !allowed.contains(&used)) {
            faults.push(format!("{name} imports {used}; it may import only {narrow:?}"));
        }
    }
    faults
}

fn names_in<'m>(manifest: &'m toml::Table, section: &str) -> Vec<&'m str> {
    let table = manifest.get(section).and_then(toml::Value::as_table);
    table.into_iter().flat_map(|table| table.keys()).map(String::as_str).collect()
}

fn floor_of(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbing_is_found() {
        let uses = |used: &str| format!("[dependencies]\n{used}.workspace = true\nserde = \"1\"\n");
        assert_eq!(check_crate("hub", 1, &uses("model")), Faults::new());
        assert_eq!(check_crate("hub", 1, &uses("protocol")).len(), 1);
        assert_eq!(check_crate("client", 2, &uses("hub")).len(), 1);
        assert_eq!(check_crate("model", 0, &uses("engine")).len(), 1);
        assert_eq!(check_crate("hub", 1, "[dev-dependencies]\nserver = \"1\"\n").len(), 1);
    }
}
