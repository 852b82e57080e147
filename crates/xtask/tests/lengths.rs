//! Checks that no Rust file has more than 500 lines without a reason at its head: a sentence that
//! begins with "Long, because".

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::fs;

use sources::{crates, sources};

mod sources;

const LINES_MAX: usize = 500;

#[test]
fn long_files_say_why() {
    let mut found = sources(crates());
    assert!(found.len() > 1000, "the sources were not found");
    found.retain(|path| {
        let text = fs::read_to_string(path).unwrap();
        let mut head = text.lines().take_while(|line| line.starts_with("//!"));
        text.lines().count() > LINES_MAX && !head.any(|line| line.contains("Long, because "))
    });
    assert!(found.is_empty(), "split these files by nouns, or say why at their heads: {found:#?}");
}
