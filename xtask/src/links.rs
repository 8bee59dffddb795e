//! Documents link only to files and headings that exist, and so does the source code where it names a document:
//! `docs/protocol.md#codes`. A section is named by its heading, never by a number.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::{Faults, files, read};

/// Files whose text may name a document of the repository by its path from the root.
const SOURCES: [&str; 9] = ["c", "html", "js", "mjs", "py", "rs", "sh", "toml", "ts"];

/// Its tests name documents that do not exist.
const ITSELF: &str = "xtask/src/links.rs";

pub(crate) fn check(root: &Path) -> Faults {
    let mut known = Anchors::default();
    let mut faults = Faults::new();
    for document in files(root, "md") {
        check_document(root, &document, &mut known, &mut faults);
    }
    let sources = SOURCES.iter().flat_map(|extension| files(root, extension));
    for source in sources.filter(|source| place(root, source) != ITSELF) {
        check_source(root, &source, &mut known, &mut faults);
    }
    faults
}

fn check_document(root: &Path, document: &Path, known: &mut Anchors, faults: &mut Faults) {
    let text = read(document);
    let place = place(root, document);
    let folder = document.parent().unwrap_or(root);
    for target in targets(&text).into_iter().filter(|target| !is_elsewhere(target)) {
        let (path, anchor) = split(target);
        let file = if path.is_empty() { document.to_owned() } else { folder.join(path) };
        if !known.has(&file, anchor) {
            faults.push(format!("{place} links to `{target}`, which does not exist"));
        }
    }
    faults.extend(numbers(&place, &text));
}

fn check_source(root: &Path, source: &Path, known: &mut Anchors, faults: &mut Faults) {
    let text = read(source);
    let place = place(root, source);
    for mention in mentions(&text) {
        let (path, anchor) = split(mention);
        if !known.has(&root.join(path), anchor) {
            faults.push(format!("{place} mentions `{mention}`, which does not exist"));
        }
    }
    faults.extend(numbers(&place, &text));
}

/// References to a section of a document by its number.
fn numbers(place: &str, text: &str) -> Vec<String> {
    let is_number = |(at, before): (usize, &str)| {
        text[at + before.len()..].starts_with(|next: char| next.is_ascii_digit())
    };
    let found = [".md, section ", ".md, sections ", ".md), section ", "[section ", "(section "];
    let found = found.into_iter().filter(|before| text.match_indices(before).any(is_number));
    found
        .map(|before| format!("{place} has `{before}` and a number; name the heading: `#codes`"))
        .collect()
}

fn place(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

fn split(target: &str) -> (&str, &str) {
    target.split_once('#').unwrap_or((target, ""))
}

/// What stands in `[…](here)`, outside of code.
fn targets(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|part| part.split("](").skip(1));
    links.filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains(' ')).collect()
}

/// What source code names: `docs/….md`, with an anchor or without.
fn mentions(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.' | '#');
    let starts = text.match_indices("docs/").map(|(at, _)| at);
    let starts = starts.filter(|&at| !text[..at].ends_with(is_part));
    let words = starts.map(|at| {
        let rest = &text[at..];
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        word.trim_end_matches('.')
    });
    words.filter(|word| split(word).0.ends_with(".md")).collect()
}

/// The anchors of the files that were asked for so far.
#[derive(Default)]
struct Anchors {
    by_file: HashMap<PathBuf, Vec<String>>,
}

impl Anchors {
    fn has(&mut self, file: &Path, anchor: &str) -> bool {
        if anchor.is_empty() {
            return file.exists();
        }
        let known = self.by_file.entry(file.to_owned()).or_insert_with(|| anchors(&read(file)));
        known.iter().any(|known| known == anchor)
    }
}

/// The anchors of a document's headings, as the usual renderers make them: the second of a name ends with `-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    let prose = text.split("```").step_by(2).flat_map(str::lines);
    for heading in prose.filter(|line| line.starts_with('#')) {
        let slug = slug(heading.trim_start_matches('#').trim());
        let count = counts.entry(slug.clone()).or_default();
        found.push(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_are_found() {
        let text = "# The `first` one\nsee [a](b.md#c), [d](#the-first-one)\n```\n[x](y)\n# z\n```\n# The first one\n";
        assert_eq!(targets(text), ["b.md#c", "#the-first-one"]);
        assert_eq!(anchors(text), ["the-first-one", "the-first-one-1"]);
    }

    #[test]
    fn mentions_in_code_are_found() {
        let text =
            "//! A. docs/a.md#b; docs/c.md.\n\"see docs/d-e.md#f-g\" x/docs/y.md, docs/ docs/z.rs";
        assert_eq!(mentions(text), ["docs/a.md#b", "docs/c.md", "docs/d-e.md#f-g"]);
    }

    #[test]
    fn sections_by_number_are_found() {
        assert_eq!(
            numbers("here", "docs/a.md, section of b (section b) RFC 1, section 2"),
            [""; 0]
        );
        assert_eq!(numbers("here", "docs/a.md, section 7a").len(), 1);
        assert_eq!(numbers("here", "as told (section 3)").len(), 1);
    }
}
