//! Files that import each other in circles, and structs of many fields: neither can be read, or tested, in parts.
//!
//! A circle has three files at most, a struct 20 fields. What does not hold yet is listed with how far it is off, exactly, and may only
//! shrink; tables of settings and records of the wire, where each field stands for itself, may be as wide as they are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{Faults, files, read};

const CIRCLE_MAX: usize = 3;
const FIELDS_MAX: usize = 20;

/// Crates with greater circles, and how many files those have, the greatest first.
const CIRCLES: [(&str, &[usize]); 3] = [("bench", &[4]), ("protocol", &[8, 5]), ("server", &[13])];
/// Structs that are wider, and how many fields they have.
const WIDE: [(&str, usize); 0] = [];
/// Settings, records of the wire, counters.
const TABLES: [&str; 1] = ["hub::Counters"];

/// A file as a path of modules.
type Module = Vec<String>;

pub(crate) fn check(root: &Path) -> Faults {
    let (mut faults, mut known) = (Faults::new(), BTreeSet::new());
    let mut folders: Vec<_> =
        std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    for folder in folders {
        let krate = folder.file_name().to_string_lossy().into_owned();
        let source = folder.path().join("src");
        let texts: BTreeMap<Module, String> = files(&source, "rs")
            .iter()
            .map(|path| (module(path.strip_prefix(&source).unwrap_or(path)), read(path)))
            .map(|(module, text)| (module, without_tests_and_comments(&text)))
            .collect();
        faults.extend(check_circles(&krate, listed(&CIRCLES, &krate).unwrap_or(&[]), &texts));
        for text in texts.values() {
            faults.extend(check_structs(&krate, &WIDE, text));
            known.extend(structs(text).into_iter().map(|(name, _)| format!("{krate}::{name}")));
        }
        known.insert(krate);
    }
    let circles = CIRCLES.iter().map(|(name, _)| *name);
    let wide = WIDE.iter().map(|(name, _)| *name);
    faults.extend(check_listed(circles.chain(wide).chain(TABLES), &known));
    faults
}

/// Names that are listed and no longer there: whatever has such a name next would be let through.
fn check_listed<'a>(
    listed: impl Iterator<Item = &'a str>,
    known: &BTreeSet<String>,
) -> Vec<String> {
    let gone = listed.filter(|name| !known.contains(*name));
    gone.map(|name| format!("{name} is there no longer: take it off the list in xtask")).collect()
}

/// The modules of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module(path: &Path) -> Module {
    let mut names: Module =
        path.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    names
}

fn without_tests_and_comments(text: &str) -> String {
    let code = text.split("mod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The number that a list has for a name.
fn listed<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

fn check_circles(krate: &str, listed: &[usize], texts: &BTreeMap<Module, String>) -> Faults {
    let imports: BTreeMap<&Module, BTreeSet<&Module>> =
        texts.iter().map(|(module, text)| (module, imports_of(module, text, texts))).collect();
    let mut circles = circles(&imports);
    circles.sort_by_key(|circle| Reverse(circle.len()));
    let maxima = listed.iter().copied().chain(std::iter::repeat(CIRCLE_MAX));
    let mut faults = Faults::new();
    for (circle, _) in circles.iter().zip(maxima).filter(|(circle, max)| circle.len() > *max) {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        faults.push(format!(
            "{krate}: {} files import each other in a circle ({}); {CIRCLE_MAX} may: put the types that two need into a \
             file of their own",
            names.len(),
            names.join(", ")
        ));
    }
    let found = circles.iter().map(Vec::len).chain(std::iter::repeat(0));
    for (listed, found) in listed.iter().zip(found) {
        if found <= CIRCLE_MAX {
            faults.push(format!(
                "{krate} has no circle of {listed} files any more: take it off the list in xtask"
            ));
        } else if found < *listed {
            faults.push(format!(
                "{krate}: a circle has {found} files, and {listed} are listed: say {found} in xtask"
            ));
        }
    }
    faults
}

/// The files that a file names after `crate`, `super` or `self`, and those of its own modules that a `use` begins with.
fn imports_of<'a>(
    module: &Module,
    text: &str,
    texts: &'a BTreeMap<Module, String>,
) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    for (start, above) in [("crate::", None), ("super::", Some(1)), ("self::", Some(0))] {
        for (at, _) in text.match_indices(start) {
            let is_word = |it: char| it.is_alphanumeric() || it == '_' || it == ':';
            if text[..at].ends_with(is_word) {
                continue;
            }
            let kept = above.map_or(0, |above: usize| module.len().saturating_sub(above));
            found.extend(files_of(&text[at + start.len()..], &module[..kept], texts));
        }
    }
    for line in text.lines() {
        let line = line.trim_start();
        let public = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "));
        if let Some(path) = public.unwrap_or(line).strip_prefix("use ") {
            let at = path.as_ptr().addr() - text.as_ptr().addr();
            found.extend(files_of(&text[at..], module, texts));
        }
    }
    found.remove(module);
    found
}

/// The files that the paths at the beginning of a text name, which begin in a module.
fn files_of<'a>(
    text: &str,
    module: &[String],
    texts: &'a BTreeMap<Module, String>,
) -> Vec<&'a Module> {
    let mut paths = Vec::new();
    expand(text, module.to_vec(), &mut paths);
    let known = |path: &Module| {
        (1..=path.len()).rev().find_map(|len| texts.get_key_value(&path[..len])).map(|it| it.0)
    };
    paths.iter().filter_map(known).collect()
}

/// The paths that a `use` names, with what is in its braces; answers what follows them.
fn expand<'a>(text: &'a str, mut path: Module, paths: &mut Vec<Module>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest, path.clone(), paths).trim_start();
            match rest.strip_prefix(',') {
                Some(next) if !next.trim_start().starts_with('}') => rest = next,
                Some(next) => return next.trim_start().strip_prefix('}').unwrap_or_default(),
                None => return rest.strip_prefix('}').unwrap_or_default(),
            }
        }
    }
    let end = text.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(text.len());
    if end == 0 {
        paths.push(path);
        return text;
    }
    let (name, rest) = text.split_at(end);
    if name != "self" {
        path.push(name.to_owned());
    }
    match rest.strip_prefix("::") {
        Some(rest) => expand(rest, path, paths),
        None => {
            paths.push(path);
            let renamed = rest
                .strip_prefix(" as ")
                .map(|rest| rest.trim_start_matches(|it: char| it.is_alphanumeric() || it == '_'));
            renamed.unwrap_or(rest)
        }
    }
}

/// The files of which each can be come to from each of the others.
fn circles<'a>(imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> Vec<Vec<&'a Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|from| (*from, reached_from(from, imports))).collect();
    let mut circles: Vec<Vec<&Module>> = Vec::new();
    for from in imports.keys() {
        if circles.iter().any(|circle| circle.contains(from)) {
            continue;
        }
        let there = &reached[from];
        let both = imports.keys().filter(|to| there.contains(*to) && reached[*to].contains(from));
        let circle: Vec<&Module> = both.copied().collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

fn reached_from<'a>(
    from: &'a Module,
    imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> BTreeSet<&'a Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for to in imports.get(module).into_iter().flatten() {
            if reached.insert(*to) {
                open.push(to);
            }
        }
    }
    reached
}

fn check_structs(krate: &str, wide: &[(&str, usize)], text: &str) -> Faults {
    let mut faults = Faults::new();
    for (name, fields) in structs(text) {
        let name = format!("{krate}::{name}");
        if TABLES.contains(&name.as_str()) {
            continue;
        }
        match listed(wide, &name) {
            listed if fields > listed.unwrap_or(FIELDS_MAX) => faults.push(format!(
                "{name} has {fields} fields; {FIELDS_MAX} may: give parts of it an owner of their own"
            )),
            Some(_) if fields <= FIELDS_MAX => faults
                .push(format!("{name} is not wide any more: take it off the list in xtask")),
            Some(listed) if fields < listed => faults.push(format!(
                "{name} has {fields} fields, and {listed} are listed: say {fields} in xtask"
            )),
            _ => {}
        }
    }
    faults
}

/// The structs of a formatted file, and how many fields each has.
fn structs(text: &str) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let words = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "));
        let name = words.unwrap_or(line).strip_prefix("struct ");
        if let Some(name) = name.filter(|_| line.ends_with('{')) {
            let end = name.find(|it: char| !it.is_alphanumeric()).unwrap_or(name.len());
            found.push((&name[..end], 0));
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if is_inside
            && line.starts_with("    ")
            && !line.starts_with("     ")
            && line.contains(": ")
            && let Some((_, fields)) = found.last_mut()
        {
            *fields += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
        let of = |(path, text): &(&str, &str)| (module(Path::new(path)), (*text).to_owned());
        files.iter().map(of).collect()
    }

    #[test]
    fn a_circle_of_four_is_found() {
        let mut files = vec![
            ("lib.rs", "mod a;"),
            ("a.rs", "use crate::b::{C, D};"),
            ("b/mod.rs", "use self::c::E;"),
            ("b/c.rs", "use crate::{a as other, d::F};"),
            ("d.rs", "use crate::a::G;"),
        ];
        assert_eq!(check_circles("any", &[], &texts(&files)).len(), 1);
        files.pop();
        assert_eq!(check_circles("any", &[], &texts(&files)), Faults::new());
    }

    #[test]
    fn the_listed_size_of_a_circle_is_exact() {
        let mut files: Vec<(String, String)> = Vec::new();
        for (ring, len) in [("a", 5), ("b", 3)] {
            let next = |at| (at + 1) % len;
            files.extend((0..len).map(|at| {
                (format!("{ring}{at}.rs"), format!("use crate::{ring}{}::It;", next(at)))
            }));
        }
        let faults = |files: &[(String, String)], listed: &[usize]| {
            let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
            check_circles("any", listed, &texts(&files))
        };
        assert_eq!(faults(&files, &[5]), Faults::new());
        assert!(faults(&files, &[4])[0].contains("5 files import each other"));
        assert!(faults(&files, &[6])[0].ends_with("say 5 in xtask"));
        assert!(faults(&files[5..], &[5])[0].ends_with("take it off the list in xtask"));
        // What is not listed is held to the bound of all.
        files[7].1 = "use crate::b3::It;".into();
        files.push(("b3.rs".into(), "use crate::b0::It;".into()));
        let found = faults(&files, &[5]);
        assert!(found.len() == 1 && found[0].contains("4 files import each other"), "{found:?}");
        assert_eq!(faults(&files, &[5, 4]), Faults::new());
    }

    #[test]
    fn the_listed_width_of_a_struct_is_exact() {
        let faults = |count: usize, listed| {
            let fields: String = (0..count).map(|at| format!("    f{at}: u8,\n")).collect();
            check_structs("any", &[("any::Wide", listed)], &format!("struct Wide {{\n{fields}}}\n"))
        };
        assert_eq!(faults(22, 22), Faults::new());
        assert!(faults(22, 21)[0].contains("has 22 fields"));
        assert!(faults(22, 23)[0].ends_with("say 22 in xtask"));
        assert!(faults(20, 23)[0].ends_with("take it off the list in xtask"));
    }

    #[test]
    fn paths_in_braces_are_found() {
        let files = texts(&[("a.rs", ""), ("b.rs", ""), ("c/d.rs", ""), ("e.rs", "")]);
        let text = "use crate::{a, b::{self, X as Y}, c::{d::Z,},}; fn f() { crate::e::g() }";
        let found = imports_of(&module(Path::new("x.rs")), text, &files);
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn a_module_of_the_file_s_own_is_found_without_self() {
        let files = texts(&[("a/mod.rs", ""), ("a/b.rs", ""), ("a/c.rs", ""), ("d.rs", "")]);
        let text =
            "mod b;\nmod c;\npub use b::X;\n    pub(crate) use {c::Y, d::Z};\nuse std::fmt;\n";
        let found = imports_of(&module(Path::new("a/mod.rs")), text, &files);
        let names: Vec<String> = found.iter().map(|module| module.join("::")).collect();
        // `d` is not a module of `a`: it would be a crate of that name.
        assert_eq!(names, ["a::b", "a::c"]);
    }

    #[test]
    fn a_listed_name_that_is_gone_is_found() {
        let known = BTreeSet::from(["any".to_owned(), "any::Wide".to_owned()]);
        let faults = check_listed(["any", "any::Wide", "any::Gone"].into_iter(), &known);
        assert!(faults.len() == 1 && faults[0].starts_with("any::Gone is there no longer"));
    }

    #[test]
    fn a_wide_struct_is_found() {
        let fields: String = (0..21).map(|at| format!("    pub f{at}: u8,\n")).collect();
        assert_eq!(
            check_structs("any", &[], &format!("pub struct Wide<E> {{\n{fields}}}\n")).len(),
            1
        );
        let fields: String = (0..20).map(|at| format!("    f{at}: Vec<[u8; 4]>,\n")).collect();
        assert_eq!(
            check_structs("any", &[], &format!("struct Wide {{\n{fields}}}\n")),
            Faults::new()
        );
    }
}
