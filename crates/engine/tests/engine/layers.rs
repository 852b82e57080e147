//! The engine's modules import downward only. The table that holds them to it is the drawing in docs/design/layers.md, and the debt beside it is
//! each upward import that is left: it may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/design/layers.md");

/// From a module to another, and the number of places in which it is named there.
type Imports = BTreeMap<(String, String), usize>;

/// The lines of a fenced block of the page.
fn block(name: &str) -> impl Iterator<Item = &'static str> {
    let fence = format!("```{name}");
    PAGE.lines().skip_while(move |line| *line != fence).skip(1).take_while(|line| *line != "```")
}

/// The height of each module: a line of the drawing is a layer, the last one is the lowest.
fn heights() -> BTreeMap<String, usize> {
    let lines: Vec<&str> = block("layers").collect();
    let modules = |line: &'static str| line.split('│').next().unwrap().split_whitespace();
    let layers = lines.into_iter().rev().enumerate();
    layers.flat_map(|(height, line)| modules(line).map(move |of| (of.to_owned(), height))).collect()
}

/// The debt that the page owns up to.
fn debt() -> Imports {
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [from, "->", to, count] = words[..] else { panic!("no debt: {line}") };
        ((from.to_owned(), to.to_owned()), count.parse().unwrap())
    };
    block("debt").map(entry).collect()
}

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

/// Adds what the files of a folder import. `module`: the one that they are parts of; none in the root folder.
fn read(folder: &Path, module: Option<&str>, depth: usize, imports: &mut Imports) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let of = module.unwrap_or(name);
        if path.is_dir() && name != "tests" {
            read(&path, Some(of), depth + 1, imports);
        } else if path.is_file() && name != "tests" && of != "lib" {
            let code = code(&fs::read_to_string(&path).unwrap());
            let above = "super::".repeat(depth + usize::from(name != "mod"));
            let escapes = !above.is_empty() && code.contains(&above);
            assert!(!escapes, "{path:?}: `{above}` hides an import; say `crate::`");
            for (at, path) in code.match_indices("crate::") {
                let rest = &code[at + path.len()..];
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let to = &rest[..end.unwrap_or(rest.len())];
                if to != of {
                    *imports.entry((of.to_owned(), to.to_owned())).or_default() += 1;
                }
            }
        }
    }
}

#[test]
fn modules_import_downward_only() {
    let mut imports = Imports::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, 0, &mut imports);
    let heights = heights();
    let named: BTreeSet<&String> = imports.keys().flat_map(|(from, to)| [from, to]).collect();
    let unknown: Vec<_> = named.iter().filter(|of| !heights.contains_key(**of)).collect();
    assert!(unknown.is_empty(), "not in the drawing, or not named by their module: {unknown:?}");
    let gone: Vec<_> = heights.keys().filter(|of| !named.contains(of)).collect();
    assert!(gone.is_empty(), "in the drawing, and no module: {gone:?}");
    imports.retain(|(from, to), _| heights[to] >= heights[from]);
    let debt = debt();
    for (edge, count) in &imports {
        let allowed = debt.get(edge).copied().unwrap_or(0);
        assert!(*count <= allowed, "{edge:?}: {count} imports go upward, {allowed} are allowed");
    }
    for (edge, allowed) in &debt {
        let count = imports.get(edge).copied().unwrap_or(0);
        assert!(*allowed == count, "{edge:?}: the debt of {allowed} imports has shrunk to {count}");
    }
}
