//! The root directory of `/sys`, `/proc` and `/dev`.

use std::io;
use std::path::{Path, PathBuf};

/// The root of the tree that describes the machine: `/`, or a directory with the same paths below
/// it.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    #[must_use]
    pub fn system() -> Self {
        Self::at("/")
    }

    /// Makes a root of a directory that contains `sys`, `proc` and `dev`.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Returns the path below this root for an absolute path of the machine.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// Reads a file without surrounding white space; `None` if it is empty or unreadable.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = std::fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Reads a number written as `0x010802`.
    pub(crate) fn hex(&self, path: impl AsRef<Path>) -> Option<u32> {
        u32::from_str_radix(self.text(path)?.trim_start_matches("0x"), 16).ok()
    }

    /// Reads the target of a symbolic link, unresolved.
    pub(crate) fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        std::fs::read_link(self.path(path)).ok()
    }

    pub(crate) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.link(path)?.file_name()?.to_str()?.to_owned())
    }

    /// Returns the names in a directory, sorted; empty if the directory does not exist.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    pub(crate) fn write(&self, path: &str, word: &str) -> io::Result<()> {
        use std::io::Write;
        // Without creating the file: if a file of sysfs is missing, the caller has to know.
        std::fs::OpenOptions::new().write(true).open(self.path(path))?.write_all(word.as_bytes())
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::system()
    }
}
