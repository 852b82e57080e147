//! The root below which `/proc`, `/sys` and `/dev` are read.
//!
//! A file that cannot be read gives `None`, and a directory that cannot be read gives no names.
//! Callers do not distinguish absent, forbidden and empty ones.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The root of the tree that describes the machine: `/`, or a directory with the same paths below
/// it.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self::system()
    }
}

impl Root {
    #[must_use]
    pub fn system() -> Self {
        Self::at("/")
    }

    /// Uses a directory that has `proc`, `sys` and `dev` below it.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Returns the location of an absolute path of the machine.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the content of a file without surrounding white space; `None` if there is none.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        // The content is read as bytes: a drive may put anything into its model's name.
        let bytes = std::fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the number in the first word of a file.
    pub fn number<T: FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    /// Returns the number that a file contains in the form `0x010802`.
    pub fn hex(&self, path: impl AsRef<Path>) -> Option<u32> {
        u32::from_str_radix(self.text(path)?.trim_start_matches("0x"), 16).ok()
    }

    /// Whether a file contains 1 or Y, and not 0 or N; `None` for any other content.
    pub fn flag(&self, path: impl AsRef<Path>) -> Option<bool> {
        match self.text(path)?.as_str() {
            "0" | "N" => Some(false),
            "1" | "Y" => Some(true),
            _ => None,
        }
    }

    /// Returns the names in a directory, sorted by their words and numbers.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// Returns the number of names in a directory; `None` if it does not exist.
    pub fn count(&self, path: impl AsRef<Path>) -> Option<u32> {
        let path = path.as_ref();
        self.exists(path).then(|| self.names(path).len() as u32)
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// Returns the target of a symbolic link as it is written.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        std::fs::read_link(self.path(path)).ok()
    }

    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.link(path)?.file_name()?.to_str()?.to_owned())
    }

    /// Returns the path on the machine, without links.
    pub fn canonical(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = self.0.canonicalize().ok()?;
        let path = self.path(path).canonicalize().ok()?;
        Some(Path::new("/").join(path.strip_prefix(root).ok()?))
    }

    /// Writes a word into a file that exists.
    ///
    /// # Errors
    /// The error of the operating system; `NotFound` if the file is missing, since it is never
    /// created.
    pub fn write(&self, path: &str, word: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path(path))?.write_all(word.as_bytes())
    }
}

/// Splits a name into words and numbers, so that nvme10 sorts after nvme9.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(word);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        parts.push((text.to_owned(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn numbers_count() {
        let mut names = ["nvme10n1", "sda", "nvme9n1", "nvme9n1p2"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["nvme9n1", "nvme9n1p2", "nvme10n1", "sda"]);
    }
}
