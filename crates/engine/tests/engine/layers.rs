//! The engine's modules import downward only, and so do the rooms of `tx`. The tables that hold
//! them to it are the drawings in docs/design/layers.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../../docs/design/layers.md");

/// For each pair of modules, the number of places in which the first names the second.
type Imports = BTreeMap<(String, String), usize>;

/// Returns the lines of a fenced block of the page.
fn block(name: &str) -> impl Iterator<Item = &'static str> {
    let fence = format!("```{name}");
    PAGE.lines().skip_while(move |line| *line != fence).skip(1).take_while(|line| *line != "```")
}

/// Returns the height of each module: each line of the drawing is a layer, and the last line is the
/// lowest.
fn heights(drawing: &str) -> BTreeMap<String, usize> {
    let lines: Vec<&str> = block(drawing).collect();
    let modules = |line: &'static str| line.split('│').next().unwrap().split_whitespace();
    let layers = lines.into_iter().rev().enumerate();
    layers.flat_map(|(height, line)| modules(line).map(move |of| (of.to_owned(), height))).collect()
}

/// Returns the code without comments, and without parts that are compiled for tests only.
fn code(text: &str) -> String {
    let (mut code, mut skipped) = (String::new(), None);
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim_end();
        let indent = line.len() - line.trim_start().len();
        if let Some(of_item) = skipped {
            // The item's last line has the indentation of its first line.
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

struct Source {
    path: PathBuf,
    /// The top-level module that the file is, or is part of.
    module: String,
    /// The `super::` path from the file to the crate's root.
    root: String,
    code: String,
}

/// Adds the files of a folder, `depth` below the root. `module` is the module that the files are
/// part of.
fn read(folder: &Path, module: Option<&str>, depth: usize, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let module = module.unwrap_or(name).to_owned();
        if name == "tests" || module == "lib" {
            continue;
        }
        if path.is_dir() {
            read(&path, Some(&module), depth + 1, sources);
        } else {
            let root = "super::".repeat(depth + usize::from(name != "mod"));
            let code = code(&fs::read_to_string(&path).unwrap());
            sources.push(Source { path, module, root, code });
        }
    }
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, 0, &mut sources);
    sources
}

/// The names that follow a path in code.
fn named_after<'a>(code: &'a str, path: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(path).map(move |(at, _)| {
        let rest = &code[at + path.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

fn imports() -> Imports {
    let mut imports = Imports::new();
    for Source { path, module, root, code } in sources() {
        assert!(!code.contains(&root), "{path:?}: `{root}` hides an import; say `crate::`");
        for to in named_after(&code, "crate::").filter(|to| *to != module) {
            *imports.entry((module.clone(), to.to_owned())).or_default() += 1;
        }
    }
    imports
}

/// The imports of the rooms of `tx` from each other, and of what `tx` itself has.
fn imports_of_rooms(rooms: &BTreeMap<String, usize>) -> Imports {
    let sources: Vec<_> = sources().into_iter().filter(|source| source.module == "tx").collect();
    let is_root = |source: &&Source| source.path.ends_with("tx/mod.rs");
    let root = &sources.iter().find(is_root).unwrap().code;
    let mut imports = Imports::new();
    for Source { path, root: to_crate, code, .. } in sources.iter().filter(|of| !is_root(of)) {
        let below =
            path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tx")).unwrap();
        let room = below.iter().next().unwrap().to_str().unwrap();
        let to_root = to_crate.strip_prefix("super::").unwrap();
        assert!(
            !code.contains(to_root),
            "{path:?}: `{to_root}` hides an import; say `crate::tx::`"
        );
        let code = code.replace("pub(in crate::tx", "");
        let named = || named_after(&code, "crate::tx::").filter(|name| !name.is_empty());
        for to in named().filter(|to| *to != room && rooms.contains_key(*to)) {
            *imports.entry((room.to_owned(), to.to_owned())).or_default() += 1;
        }
        // A name that the root has from a room would hide an import of that room.
        let listed = code.match_indices("crate::tx::{").flat_map(|(at, path)| {
            let list = code[at + path.len()..].split('}').next().unwrap_or_default();
            list.split(',').map(str::trim).filter(|name| !name.is_empty())
        });
        for name in named().chain(listed) {
            let own = [format!("struct {name} "), format!("fn {name}(")];
            assert!(
                rooms.contains_key(name) || own.iter().any(|own| root.contains(own)),
                "{path:?}: `{name}` is of a room; name that"
            );
        }
    }
    imports
}

#[test]
fn rooms_of_transactions_import_downward_only() {
    let heights = heights("tx");
    let mut imports = imports_of_rooms(&heights);
    let named: BTreeSet<&String> = imports.keys().flat_map(|(from, to)| [from, to]).collect();
    assert_eq!(named, heights.keys().collect(), "the rooms, and those of the drawing");
    imports.retain(|(from, to), _| heights[to] >= heights[from]);
    assert!(imports.is_empty(), "these go upward: {imports:?}");
}

#[test]
fn modules_import_downward_only() {
    let mut imports = imports();
    let heights = heights("layers");
    let named: BTreeSet<&String> = imports.keys().flat_map(|(from, to)| [from, to]).collect();
    let unknown: Vec<_> = named.iter().filter(|of| !heights.contains_key(**of)).collect();
    assert!(unknown.is_empty(), "not in the drawing, or not named by their module: {unknown:?}");
    let gone: Vec<_> = heights.keys().filter(|of| !named.contains(of)).collect();
    assert!(gone.is_empty(), "in the drawing, and no module: {gone:?}");
    imports.retain(|(from, to), _| heights[to] >= heights[from]);
    assert!(imports.is_empty(), "these go upward: {imports:?}");
}

/// Programs have their own words for the remedy ([`Remedy`](qpair_engine::Remedy)), because the
/// engine has other users than the command.
#[test]
fn no_text_of_the_engine_names_a_command_or_an_option() {
    let mut sources = sources();
    for of in ["format", "members", "inspect"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src");
        read(&folder, None, 0, &mut sources);
    }
    for Source { path, code, .. } in sources {
        let option = code
            .match_indices("--")
            .find(|(at, _)| code[at + 2..].starts_with(|next: char| next.is_ascii_lowercase()));
        let command = code.match_indices("qpair ").find(|(at, _)| {
            let rest = &code[at + 6..];
            ["backup", "check", "log", "repair", "stat"].iter().any(|name| rest.starts_with(name))
        });
        let named = option.or(command).and_then(|(at, _)| code[at..].lines().next());
        assert_eq!(named, None, "{path:?}");
    }
}
