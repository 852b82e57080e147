//! Compares `include/qpair.h` with the sources: each function with its parameters and comment, each
//! constant, and each field. cbindgen makes the header, which takes minutes to build, and this test
//! tells in a moment that it has to run again.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::fs;
use std::path::{Path, PathBuf};

const HEADER: &str = include_str!("../include/qpair.h");

/// Returns a type in the words of C, with a name.
fn in_c(rust: &str, name: &str) -> String {
    let rust = rust.trim();
    if let Some(inner) = rust.strip_prefix("*mut ") {
        return in_c(inner, &format!("*{name}"));
    }
    if let Some(inner) = rust.strip_prefix("*const ") {
        let of = in_c(inner, &format!("*{name}"));
        // The pointer itself is never constant: `*mut *const T` is `const T **`.
        return if inner.starts_with('*') { of } else { format!("const {of}") };
    }
    let plain = match rust.rsplit("::").next().unwrap() {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        other => other,
    };
    format!("{plain} {name}")
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => vec![fs::read_to_string(path).unwrap()],
    };
    entries.flat_map(read).collect()
}

/// Returns the text between a position and the next place with `end`.
fn until<'a>(text: &'a str, end: &str) -> &'a str {
    &text[..text.find(end).unwrap()]
}

#[test]
fn the_header_is_that_of_the_sources() {
    let without_star = |line: &'static str| match line.trim() {
        "*" => "",
        line => line.strip_prefix("* ").unwrap_or(line),
    };
    let header = words(&HEADER.lines().map(without_star).collect::<Vec<_>>().join("\n"));
    // Structs have both names, that of C and that of C++.
    let header = header.replace("struct qpair_", "qpair_");
    let mut compared = [0; 3];
    let mut missing = Vec::new();
    let mut look = |declared: String, kind: usize| {
        compared[kind] += 1;
        if !header.contains(&words(&declared).replace("struct qpair_", "qpair_")) {
            missing.push(declared);
        }
    };
    for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let mut comment = String::new();
        for (at, line) in source.match_indices('\n').map(|(at, _)| (at + 1, &source[at + 1..])) {
            let line = line.lines().next().unwrap_or_default().trim();
            if let Some(text) = line.strip_prefix("///") {
                comment += &format!("{text}\n");
                continue;
            }
            if line.starts_with("#[") {
                continue;
            }
            let rest = &source[at..];
            if line.contains("extern \"C\" fn qpair_") && line.starts_with("pub ") {
                let declaration = until(rest, "{");
                let (name, parameters) =
                    declaration.split_once("fn ").unwrap().1.split_once('(').unwrap();
                let (parameters, result) = parameters
                    .rsplit_once(") -> ")
                    .unwrap_or((parameters.trim_end().trim_end_matches(')'), "c_void"));
                let parameters: Vec<_> = parameters
                    .split(',')
                    .filter_map(|parameter| parameter.split_once(':'))
                    .map(|(name, of)| words(&in_c(of, name.trim())).replace("* ", "*"))
                    .collect();
                let parameters =
                    if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
                let declared = in_c(result, &format!("{name}({parameters});")).replace("* ", "*");
                look(format!("{comment} */ {declared}"), 0);
            } else if let Some(constant) = line.strip_prefix("pub const QPAIR_") {
                let (name, value) = constant.split_once(" = ").unwrap();
                let (name, value) = (until(name, ":"), value.trim_end_matches(';'));
                look(format!("{comment} */ #define QPAIR_{name} {value}"), 1);
            } else if line.starts_with("pub ") && line.ends_with(',') && !comment.is_empty() {
                let (name, of) = line["pub ".len()..line.len() - 1].split_once(": ").unwrap();
                look(format!("{comment} */ {};", in_c(of, name)), 2);
            }
            comment.clear();
        }
    }
    let [functions, constants, fields] = compared;
    assert!(
        functions > 80 && constants > 50 && fields > 40,
        "the sources were not understood: {compared:?}"
    );
    assert!(missing.is_empty(), "run crates/capi/header: {}", missing.join("\n"));
}
