//! Finds options by name.

use qpair_block::{Error, ErrorKind};

use super::definition::Definition;
use super::table::OPTIONS;
use super::unsupported::{UNSUPPORTED, Unsupported};

#[derive(Clone, Copy, Debug)]
pub enum Known {
    Option(&'static Definition),
    Unsupported(&'static Unsupported),
}

#[must_use]
pub fn find(name: &str) -> Option<Known> {
    let option = OPTIONS.iter().find(|o| o.name == name || o.aliases.contains(&name));
    let unsupported = || UNSUPPORTED.iter().find(|option| option.name == name);
    option.map(Known::Option).or_else(|| unsupported().map(Known::Unsupported))
}

pub(super) fn unknown(name: &str, before: &str) -> Error {
    let error = Error::new(ErrorKind::Invalid, format!("{before}there is no option \"{name}\""));
    match nearest(name, names()) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint("qpair bench io --help lists all options"),
    }
}

pub(super) fn unsupported(option: &Unsupported, before: &str) -> Error {
    let what = format!("{before}fio's option {} is not supported", option.name);
    let error = Error::new(ErrorKind::Invalid, what);
    if !option.harmless.is_empty() {
        return error.hint(format!(
            "only {}={} is accepted, which changes nothing",
            option.name, option.harmless[0]
        ));
    }
    if option.instead.is_empty() {
        return error.hint("take the line out, if the job makes sense without it");
    }
    error.hint(option.instead)
}

fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS
        .iter()
        .flat_map(|option| std::iter::once(option.name).chain(option.aliases.iter().copied()))
}

/// Returns the known word nearest to a wrong one, if one is near.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words may have more mistakes; a long text is not a word.
    let limit = (wrong.chars().count() / 3).clamp(1, 3);
    if wrong.len() > 64 {
        return None;
    }
    known
        .map(|name| (distance(wrong, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the edit distance of two words: insertions, deletions, replacements and swaps of
/// neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once() {
        let mut all: Vec<&str> =
            names().chain(UNSUPPORTED.iter().map(|option| option.name)).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn mistakes_are_near() {
        let near = |wrong| nearest(wrong, names());
        assert_eq!(near("iodpeth"), Some("iodepth"));
        assert_eq!(near("runttime"), Some("runtime"));
        assert_eq!(near("blocksiz"), Some("blocksize"));
        assert_eq!(near("elephant_in_the_room"), None);
        assert_eq!(near(&"x".repeat(1000)), None);
    }
}
