//! Checks that errors are sentences. The literal texts that sources give to constructors of errors
//! must have a subject and a verb, in words of the field. A hint must be advice or a fact.
//!
//! The test finds the texts by reading the sources. A new constructor belongs in `CONSTRUCTORS`,
//! and a missing verb in `FINITE` or `ADVICE`.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::fs;
use std::path::{Path, PathBuf};

use collect::{Role, Text, collect};
use sources::{crates, sources};

#[path = "error_texts/collect.rs"]
mod collect;
#[path = "error_texts/rules.rs"]
mod rules;
#[path = "error_texts/source.rs"]
mod source;
mod sources;

/// Crates whose texts users do not see: they simulate, judge, attack, or run competing engines.
const OF_TESTS: [&str; 6] = ["conformance", "hostile", "isolation", "peers", "sim", "xtask"];

/// Whether a path from the workspace's root is that of a file of tests.
fn is_of_tests(place: &Path) -> bool {
    place.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// Returns the texts of all crates, each with the path of its file.
fn all_texts() -> Vec<(PathBuf, Text)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.join("src").is_dir() && !OF_TESTS.contains(&name) {
            files.extend(sources(&path.join("src")));
        }
    }
    let mut found = Vec::new();
    for file in files {
        let place = file.strip_prefix(crates().parent().unwrap()).unwrap();
        if is_of_tests(place) {
            continue;
        }
        let tokens = source::tokens(&fs::read_to_string(&file).unwrap());
        let texts = collect(&source::without_tests(tokens));
        found.extend(texts.into_iter().map(|text| (place.to_owned(), text)));
    }
    found
}

#[test]
fn errors_are_sentences() {
    let texts = all_texts();
    let count = |role| texts.iter().filter(|(_, text)| text.role == role).count();
    let counts = [Role::Sentence, Role::Operation, Role::Hint].map(count);
    let least = [900, 180, 400];
    assert!(
        counts.iter().zip(least).all(|(count, least)| *count >= least),
        "found only {counts:?} sentences, operations and hints: the collector has gone blind"
    );
    let mut wrong: Vec<String> = Vec::new();
    for (file, text) in &texts {
        let rules = rules::broken(text);
        let told =
            rules.map(|rule| format!("{}:{}: {:?}: {rule}", file.display(), text.line, text.text));
        wrong.extend(told);
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{} texts:\n{}", wrong.len(), wrong.join("\n"));
}

/// The collector finds texts that reach a constructor indirectly, and the rules find the faults in
/// them.
#[test]
fn rules_find_what_is_wrong() {
    let source = r#"
        fn open() -> Result<()> {
            let what = format!("a batch of {count} requests");
            let (kind, why) = (ErrorKind::Io, "epoll_ctl of a queue");
            if wrong { return Err(Error::new(kind, why)); }
            let text = map.get("no text").ok_or_else(|| Error::new(ErrorKind::Invalid, what))?;
            match text {
                "no text" => Err(Failure::usage("is no time")),
                _ => Err(Error::new(ErrorKind::Io, "reading").caused_by(error).hint("a retry")),
            }
        }
        #[cfg(test)]
        mod tests { const NONE: Error = Error::other("no text"); }
    "#;
    let texts = collect(&source::without_tests(source::tokens(source)));
    let found = texts.iter().map(|text| (text.text.as_str(), rules::broken(text).next()));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    let wanted = [
        ("a batch of {count} requests", Some("has no verb")),
        ("a retry", Some("has no verb")),
        ("epoll_ctl of a queue", Some("has no verb")),
        ("is no time", Some("has no subject before its verb")),
        ("reading", None),
    ];
    assert_eq!(found, wanted);
}
