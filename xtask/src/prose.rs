//! Phrases that a reader stumbles over, as far as a machine can see them.
//!
//! A text negates with "is not a", not with "is no". A sentence begins with its subject, a noun: not with "Who" or
//! "What" for the person or thing that does something.

use std::path::Path;

use crate::{Faults, files, read};

/// Its tests contain the phrases.
const ITSELF: &str = "xtask/src/prose.rs";
/// Crates of which each sentence of documentation begins with its subject. The others are still to be rewritten.
const REWRITTEN: [&str; 12] = [
    "admin", "backbone", "bench", "bridges", "client", "engine", "listener", "model", "payload",
    "protocol", "sim", "tidegate",
];
/// Documents for users, likewise.
const DOCUMENTS: [&str; 15] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/concepts.md",
    "docs/devices.md",
    "docs/guarantees.md",
    "docs/install.md",
    "docs/logs.md",
    "docs/metrics.md",
    "docs/protocol.md",
    "docs/threat-model.md",
    "docs/webhooks.md",
    "sdk/python/README.md",
    "sdk/typescript/README.md",
];
/// A phrase, what follows it where it is right, and the remedy.
const PHRASES: [(&str, &[&str], &str); 4] = [
    ("it is no ", &["more", "less", "longer", "snapshot"], "write `it is not a …`"),
    ("is no JSON", &[], "write `is not JSON`"),
    ("The same, to be changed.", &[], "name the noun: `Mutable access to …`"),
    ("/// They.", &[], "name the noun"),
];

pub(crate) fn check(root: &Path) -> Faults {
    let mut faults = Faults::new();
    let sources = ["js", "py", "rs", "ts"].iter().flat_map(|extension| files(root, extension));
    for source in sources.filter(|source| !is_left_out(root, source)) {
        faults.extend(phrases(&place(root, &source), &read(&source)));
    }
    for name in REWRITTEN {
        for source in files(&root.join("crates").join(name).join("src"), "rs") {
            faults.extend(headless(&place(root, &source), &documentation(&read(&source))));
        }
    }
    for name in DOCUMENTS {
        let text = read(&root.join(name));
        faults.extend(phrases(name, &text));
        faults.extend(headless(name, &prose(&text)));
    }
    faults
}

fn place(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// What was made by a build, and this file.
fn is_left_out(root: &Path, source: &Path) -> bool {
    let place = place(root, source);
    place == ITSELF || place.contains("/vendor/") || place.contains("/dist/")
}

fn phrases(place: &str, text: &str) -> Faults {
    let mut faults = Faults::new();
    for (phrase, exceptions, remedy) in PHRASES {
        for (at, _) in text.match_indices(phrase) {
            let rest = &text[at + phrase.len()..];
            if !exceptions.iter().any(|exception| rest.starts_with(exception)) {
                let line = text[..at].matches('\n').count() + 1;
                faults.push(format!("{place}:{line} has `{}`: {remedy}", phrase.trim()));
            }
        }
    }
    faults
}

/// Sentences that begin with "Who" or "What" and are not questions.
fn headless(place: &str, paragraphs: &[String]) -> Faults {
    let sentences =
        paragraphs.iter().flat_map(|paragraph| paragraph.split_inclusive(['.', '?', '!']));
    let sentences =
        sentences.map(|sentence| sentence.trim_start_matches([' ', '*', '|', '(', '-'].as_slice()));
    let headless = sentences.filter(|sentence| {
        (sentence.starts_with("Who ") || sentence.starts_with("What ")) && !sentence.ends_with('?')
    });
    headless.map(|sentence| format!("{place} has `{sentence}`: begin with a noun")).collect()
}

/// The paragraphs of a source's documentation.
fn documentation(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            Some(words) if !words.trim().is_empty() => {
                let paragraph = paragraphs.last_mut().expect("there is one");
                paragraph.push(' ');
                paragraph.push_str(words.trim());
            }
            _ => paragraphs.push(String::new()),
        }
    }
    paragraphs
}

/// The paragraphs of a document, and the rows of its tables; without code and headings.
fn prose(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.split("```").step_by(2).flat_map(str::lines) {
        match line {
            _ if line.is_empty()
                || line.starts_with(['#', '|', '-'])
                || line.starts_with("    ") =>
            {
                let cells = if line.starts_with('#') { "" } else { line };
                paragraphs.extend(cells.split(" | ").map(str::to_owned));
            }
            _ => {
                let paragraph = paragraphs.last_mut().expect("there is one");
                paragraph.push(' ');
                paragraph.push_str(line.trim());
            }
        }
    }
    paragraphs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_with_their_line() {
        let text = "fine\nit is no address\nit is no more\n";
        assert_eq!(phrases("here", text), ["here:2 has `it is no`: write `it is not a …`"]);
        assert_eq!(phrases("here", "it is no JSON").len(), 2);
    }

    #[test]
    fn sentences_without_a_noun_are_found() {
        let source = "/// What it is\n/// about. Fine.\nfn f() {}\n/// A sentence\n/// What follows is in it. What now?\n";
        assert_eq!(headless("a", &documentation(source)).len(), 1);
        let document = "# What is here\n\nText. Who polls\nlives.\n\n| a | What b |\n\n```\nWhat code\n```\n- What c.\n";
        assert_eq!(headless("a", &prose(document)).len(), 3);
    }
}
