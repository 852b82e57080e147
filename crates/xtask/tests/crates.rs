//! Checks that crates import as ARCHITECTURE.md says: its table has a row for each crate, and a
//! crate imports only crates of rows further down.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::de::DeTable;

const PAGE: &str = include_str!("../../../ARCHITECTURE.md");

/// Returns a crate's short name, as in the table.
fn short(name: &str) -> Option<&str> {
    match name.strip_prefix("qpair") {
        Some("") => Some("qpair"),
        Some(rest) => rest.strip_prefix('-'),
        None => (name == "xtask").then_some(name),
    }
}

/// Returns the rows of the table: a crate, and the crates that it may import.
fn table() -> Vec<(&'static str, BTreeSet<&'static str>)> {
    let rows = PAGE.lines().skip_while(|line| *line != "| crate | imports |").skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (name, imports) = (cells.next().unwrap(), cells.next().unwrap());
        (name, imports.split_whitespace().collect())
    })
    .collect()
}

/// Returns the dependencies of each crate within the workspace, from its `Cargo.toml`, without
/// those for tests.
fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(crates).unwrap() {
        let Ok(text) = fs::read_to_string(entry.unwrap().path().join("Cargo.toml")) else {
            continue;
        };
        let manifest = DeTable::parse(&text).unwrap();
        let manifest = manifest.get_ref();
        let name = manifest["package"].get_ref()["name"].get_ref().as_str().unwrap();
        let dependencies = manifest.get("dependencies").and_then(|it| it.get_ref().as_table());
        let names = dependencies.into_iter().flat_map(|it| it.keys());
        let ours = names.filter_map(|name| short(name.get_ref())).map(str::to_owned).collect();
        found.insert(short(name).unwrap().to_owned(), ours);
    }
    found
}

#[test]
fn the_table_has_what_each_crate_imports() {
    let manifests = manifests();
    let rows: BTreeMap<_, _> = table().into_iter().collect();
    assert!(rows.len() > 30, "the table was not found");
    let with_row: BTreeSet<_> = rows.keys().copied().collect();
    let there: BTreeSet<_> = manifests.keys().map(String::as_str).collect();
    assert_eq!(with_row, there, "a row for each crate");
    for (name, imports) in &manifests {
        let imports: BTreeSet<_> = imports.iter().map(String::as_str).collect();
        assert_eq!(rows[name.as_str()], imports, "the row of {name}, and its Cargo.toml");
    }
}

#[test]
fn crates_import_downward() {
    let mut above = BTreeSet::new();
    for (name, imports) in table() {
        above.insert(name);
        let upward: Vec<_> = imports.intersection(&above).collect();
        assert!(upward.is_empty(), "{name} imports {upward:?}, which the table has above it");
    }
}

/// No program for users contains simulation code. Soft drives, which can inject faults, exist only
/// where a user asks for one by name, and never in the daemon that serves guests.
#[test]
fn what_serves_users_imports_no_simulation() {
    const SIMULATES: [&str; 5] = ["conformance", "hostile", "isolation", "sim", "xtask"];
    for (name, imports) in table() {
        if SIMULATES.contains(&name) {
            continue;
        }
        let simulates: Vec<_> = SIMULATES.iter().filter(|it| imports.contains(**it)).collect();
        assert!(simulates.is_empty(), "{name} imports {simulates:?}");
    }
    let imports_of = |name| table().into_iter().find(|(row, _)| *row == name).unwrap().1;
    let [engine, kernel, serve] = ["engine", "kernel", "serve"].map(imports_of);
    assert!(!serve.contains("softdev"), "{serve:?}");
    // The crates that store data and the crates that drive devices import the block layer, and not
    // each other.
    assert!(engine.is_subset(&["block", "format", "members", "memory"].into()), "{engine:?}");
    assert!(kernel.is_subset(&["block", "memory", "nvme-wire"].into()), "{kernel:?}");
}
