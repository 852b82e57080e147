//! Checks that the modules of a crate do not import one another in a cycle, so that each can be
//! read after the modules it imports. A module is a file here.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use sources::{crates, sources};

mod sources;

/// The crates whose modules have an order.
const CRATES: &[&str] = &["bench", "cli"];

/// A module's path in its crate, without `crate`.
type Module = Vec<String>;

/// Each module of a crate, with its file and the modules it imports.
struct Crate(BTreeMap<Module, (String, BTreeSet<Module>)>);

impl Crate {
    fn read(name: &str) -> Self {
        let folder = crates().join(name).join("src");
        let text = |path: PathBuf| {
            let file = path.strip_prefix(&folder).unwrap().to_str().unwrap();
            (file.to_owned(), fs::read_to_string(&path).unwrap())
        };
        let texts: BTreeMap<_, _> = sources(&folder).into_iter().map(text).collect();
        assert!(texts.len() > 1, "crate {name} has no modules");
        Self::of(&texts)
    }

    fn of(texts: &BTreeMap<String, String>) -> Self {
        let module = |file: &str| -> Module {
            let names = file.trim_end_matches(".rs").split('/');
            names.filter(|name| !["mod", "main", "lib"].contains(name)).map(str::to_owned).collect()
        };
        let known: BTreeSet<Module> = texts.keys().map(|file| module(file)).collect();
        let imports = |file: &String, text: &String| {
            let own = module(file);
            let paths = paths(&words(text), &own);
            let file_of = |path: Module| {
                (0..=path.len()).rev().map(|len| path[..len].to_vec()).find(|it| known.contains(it))
            };
            let imports = paths.into_iter().filter_map(file_of).filter(|it| *it != own).collect();
            (own, (file.clone(), imports))
        };
        Self(texts.iter().map(|(file, text)| imports(file, text)).collect())
    }

    /// Returns the files of a cycle. The first one is repeated at the end.
    fn circle(&self) -> Option<Vec<&str>> {
        let (mut done, mut way) = (BTreeSet::new(), Vec::new());
        self.0.keys().find_map(|module| self.circle_from(module, &mut done, &mut way))
    }

    fn circle_from<'a>(
        &'a self,
        module: &'a Module,
        done: &mut BTreeSet<&'a Module>,
        way: &mut Vec<&'a Module>,
    ) -> Option<Vec<&'a str>> {
        if let Some(start) = way.iter().position(|it| *it == module) {
            let files = way[start..].iter().copied().chain([module]);
            return Some(files.map(|module| self.0[module].0.as_str()).collect());
        }
        if !done.insert(module) {
            return None;
        }
        way.push(module);
        let found = self.0[module].1.iter().find_map(|next| self.circle_from(next, done, way));
        way.pop();
        found
    }
}

/// Returns the names, `::` and other marks of a text, without comments and unit tests.
fn words(text: &str) -> Vec<&str> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    for line in text.lines() {
        let mut rest = line.split("//").next().unwrap();
        while let Some(first) = rest.chars().next() {
            let len = match first {
                ':' if rest.starts_with("::") => 2,
                _ if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let (word, after) = rest.split_at(len);
            words.extend((!first.is_whitespace()).then_some(word));
            rest = after;
        }
    }
    words
}

/// Returns the paths that begin with `crate`, `self`, `super` or a submodule, relative to the
/// crate's root.
fn paths(words: &[&str], own: &Module) -> Vec<Module> {
    let declared = words.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
    let submodules: BTreeSet<&str> = declared.map(|three| three[1]).collect();
    let mut found = Vec::new();
    for at in 1..words.len().saturating_sub(1) {
        if words[at - 1] == "::" || words[at + 1] != "::" {
            continue;
        }
        let (base, start) = match words[at] {
            "crate" => (Module::new(), at + 2),
            "self" => (own.clone(), at + 2),
            "super" => {
                let levels = words[at..].chunks(2).take_while(|two| *two == ["super", "::"]);
                let levels = levels.count();
                (own[..own.len().saturating_sub(levels)].to_vec(), at + 2 * levels)
            }
            name if submodules.contains(name) => (own.clone(), at),
            _ => continue,
        };
        tree(words, start, base, &mut found);
    }
    found
}

/// Adds the paths of a tree in a `use` declaration, and returns the position after it.
fn tree(words: &[&str], mut at: usize, mut path: Module, found: &mut Vec<Module>) -> usize {
    while let Some(&word) = words.get(at) {
        if word == "{" {
            at += 1;
            while !matches!(words.get(at), Some(&"}") | None) {
                at = match words[at] {
                    "," => at + 1,
                    "as" => at + 2,
                    _ => tree(words, at, path.clone(), found),
                };
            }
            return at + 1;
        }
        path.push(word.to_owned());
        if words.get(at + 1) != Some(&"::") {
            found.push(path);
            return at + 1;
        }
        at += 2;
    }
    at
}

#[test]
fn modules_import_one_another_in_no_circle() {
    for name in CRATES {
        if let Some(files) = Crate::read(name).circle() {
            panic!("crate {name}: {}", files.join(" -> "));
        }
    }
}

#[test]
fn a_command_imports_no_other() {
    let cli = Crate::read("cli");
    let command = |module: &Module| match &module[..] {
        [folder, name, ..] if folder == "command" => Some(name.clone()),
        _ => None,
    };
    let mut commands = BTreeSet::new();
    for (module, (file, imports)) in &cli.0 {
        let Some(own) = command(module) else { continue };
        let others: Vec<_> = imports.iter().filter_map(command).filter(|it| *it != own).collect();
        assert!(others.is_empty(), "{file} imports {others:?}");
        commands.insert(own);
    }
    assert!(commands.len() > 20, "the commands were not found");
}

#[test]
fn a_circle_is_found_whatever_form_its_imports_have() {
    let of = |b: &str| {
        let files = [
            ("main.rs", "mod a;\nmod b;\nmod c;\nuse a::A;\nfn f() { b::f() }\n"),
            ("a.rs", "//! crate::b\nuse std::{x, y};\nuse crate::c::{d::{E as F, G}, h};\n"),
            ("b.rs", b),
            ("c/mod.rs", "mod d;\n"),
            ("c/d.rs", "fn f() {\n    super::super::b::f();\n}\n"),
        ];
        let texts = files.map(|(file, text)| (file.to_owned(), text.to_owned()));
        Crate::of(&texts.into()).circle().map(|files| files.join(" "))
    };
    assert_eq!(of("fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"), None);
    for b in ["use crate::{a::A};\n", "fn f(it: super::a::A) {}\n", "use crate::{a::{x,\n y}};"] {
        assert_eq!(of(b).as_deref(), Some("a.rs c/d.rs b.rs a.rs"), "{b}");
    }
    assert_eq!(of("use crate::{x as a};\n").as_deref(), Some("main.rs a.rs c/d.rs b.rs main.rs"));
}
