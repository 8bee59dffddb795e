//! Documents link only to files and headings that exist.

use std::path::Path;

use crate::{Faults, files, read};

pub(crate) fn check(root: &Path) -> Faults {
    let documents = files(root, "md");
    documents.iter().flat_map(|document| check_document(root, document)).collect()
}

fn check_document(root: &Path, document: &Path) -> Faults {
    let text = read(document);
    let place = document.strip_prefix(root).unwrap_or(document).display();
    let folder = document.parent().unwrap_or(root);
    let dead = targets(&text).into_iter().filter(|target| !exists(folder, document, target));
    dead.map(|target| format!("{place} links to `{target}`, which is not there")).collect()
}

fn exists(folder: &Path, document: &Path, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { document.to_owned() } else { folder.join(path) };
    file.exists()
        && (anchor.is_empty() || anchors(&read(&file)).iter().any(|known| known == anchor))
}

/// What stands in `[…](here)`, outside of code.
fn targets(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|part| part.split("](").skip(1));
    links.filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains(' ')).collect()
}

/// The anchors of a document's headings, as the usual renderers make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| slug(line.trim_start_matches('#').trim())).collect()
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
        let text = "# The `first` one\nsee [a](b.md#c), [d](#the-first-one)\n```\n[x](y)\n```\n";
        assert_eq!(targets(text), ["b.md#c", "#the-first-one"]);
        assert_eq!(anchors(text), ["the-first-one"]);
    }
}
