//! Files of a crate import one another in no circle. A `mod.rs` or `lib.rs` stands above the
//! modules that it declares, so that no file imports from the `mod.rs` of its own folder or of one
//! around it.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates without circles.
const CRATES: [&str; 1] = ["bench"];

/// The path of a module below the crate's root, which has none.
type Module = Vec<String>;

/// Code without comments, and without what is compiled for tests alone.
fn code(text: &str) -> String {
    let (mut code, mut skipped) = (String::new(), None);
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim_end();
        let indent = line.len() - line.trim_start().len();
        if let Some(of_item) = skipped {
            // Its last line stands where its first one does.
            if indent == of_item && line.ends_with(['}', ';', ',']) {
                skipped = None;
            }
        } else if line.trim_start() == "#[cfg(test)]" {
            skipped = Some(indent);
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Adds the files of a folder.
fn read(folder: &Path, module: &Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_root = ["lib", "main", "mod"].contains(&name.as_str());
        let this = module.iter().cloned().chain((!is_root).then_some(name)).collect();
        if path.is_dir() {
            read(&path, &this, files);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            files.entry(this).or_default().push_str(&code(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Adds the paths of a tree of imports to `found`, and returns the text behind the tree.
fn paths<'a>(mut text: &'a str, mut path: Module, found: &mut Vec<Module>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(mut rest) = text.strip_prefix('{') {
            loop {
                rest = paths(rest, path.clone(), found).trim_start();
                match rest.strip_prefix(',') {
                    Some(next) if !next.trim_start().starts_with('}') => rest = next,
                    Some(next) => return &next.trim_start()[1..],
                    None => return rest.strip_prefix('}').unwrap_or(rest),
                }
            }
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        path.push(text[..end].to_owned());
        text = text[end..].strip_prefix('*').unwrap_or(&text[end..]);
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(path);
                // The name that an import is given.
                let renamed = text.strip_prefix(" as ");
                return renamed
                    .map_or(text, |it| it.trim_start_matches(|c: char| c != ',' && c != ';'));
            }
        }
    }
}

/// Returns the modules that each file imports from, itself aside, and those that it declares.
fn imports(files: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut imports = BTreeMap::new();
    for (module, code) in files {
        let mut named = Vec::new();
        for (start, prefix) in [("crate::", 0), ("super::", 1)] {
            for (at, _) in code.match_indices(start) {
                // `super::super::` is seen at its first word.
                let before = &code[..at];
                if before.ends_with("::") || before.ends_with(|c: char| c.is_alphanumeric()) {
                    continue;
                }
                let (mut rest, mut up) = (&code[at + start.len()..], prefix);
                while let Some(more) = rest.strip_prefix("super::") {
                    (rest, up) = (more, up + 1);
                }
                let base = if up == 0 { 0 } else { module.len().saturating_sub(up) };
                paths(rest, module[..base].to_vec(), &mut named);
            }
        }
        // The longest part of a path that is a module: the rest is an item of it.
        let of = |path: &Module| {
            (0..=path.len()).rev().map(|len| path[..len].to_vec()).find(|it| files.contains_key(it))
        };
        let mut targets: BTreeSet<Module> = named.iter().filter_map(of).collect();
        let declares = |it: &&Module| it.len() == module.len() + 1 && it.starts_with(module);
        targets.extend(files.keys().filter(declares).cloned());
        targets.remove(module);
        imports.insert(module.clone(), targets);
    }
    imports
}

/// Removes the modules that import from no other, then those that import from these alone, and so
/// on. What is left is in a circle, or above one.
fn circles(mut imports: BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    loop {
        let there: BTreeSet<Module> = imports.keys().cloned().collect();
        imports.values_mut().for_each(|targets| targets.retain(|it| there.contains(it)));
        imports.retain(|_, targets| !targets.is_empty());
        if imports.len() == there.len() {
            return imports;
        }
    }
}

fn tree(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
    let module = |path: &str| -> Module {
        path.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    files.iter().map(|(path, text)| (module(path), code(text))).collect()
}

#[test]
fn circles_are_seen() {
    let below = [("", "mod a;"), ("a", "mod b; mod c; pub use b::B;"), ("a::c", "")];
    for (text, is_circle) in [
        ("use super::c::C;", false),
        ("use crate::a::c::{C, D as E};\n#[cfg(test)]\nuse super::A;", false),
        ("// use super::A;", false),
        ("use super::{A, c::C};", true),
        ("use crate::{\n    other::{X, Y},\n    a::A,\n};", true),
        ("fn f() -> super::super::Root {}", true),
    ] {
        let files = tree(&[&below[..], &[("a::b", text)]].concat());
        assert_eq!(!circles(imports(&files)).is_empty(), is_circle, "{text}");
    }
}

#[test]
fn files_import_one_another_in_no_circle() {
    for name in CRATES {
        let mut files = BTreeMap::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name).join("src");
        read(&folder, &Vec::new(), &mut files);
        assert!(files.len() > 5, "{name} was not found");
        let left = circles(imports(&files));
        let names = |(from, to): (&Module, &BTreeSet<Module>)| {
            let to: Vec<String> = to.iter().map(|it| it.join("::")).collect();
            format!("{} imports {}", from.join("::"), to.join(", "))
        };
        let left: Vec<String> = left.iter().map(names).collect();
        assert!(left.is_empty(), "{name}: in a circle, or above one:\n{}", left.join("\n"));
    }
}
