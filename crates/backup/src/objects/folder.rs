//! Objects as files of a folder.
//!
//! An object is written to a file beside its place and linked or renamed there, so that it is there
//! as a whole or not at all. File and folder are synchronized before a call returns.

use std::fs::{self, File};
use std::io::{self, ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_engine::{Error, ErrorKind, Result};

use super::{Object, Objects};

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".unfinished";

/// A folder on a file system with hard links.
pub struct Folder {
    root: PathBuf,
    /// Distinguishes files that are being written by concurrent callers.
    next: AtomicU64,
}

impl Folder {
    /// Returns the objects of this folder, which the first put makes.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root, next: AtomicU64::new(fastrand::u64(..) >> 1) }
    }

    fn failed(&self, doing: &str, name: &str, error: &io::Error) -> Error {
        let kind = match error.kind() {
            IoKind::PermissionDenied | IoKind::ReadOnlyFilesystem => ErrorKind::Denied,
            IoKind::StorageFull | IoKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("{doing} {}: {error}", self.root.join(name).display()))
    }

    /// Writes a file with these bytes, durably, and moves it to its place by `place`.
    fn write(
        &self,
        name: &str,
        bytes: &[u8],
        place: impl FnOnce(&Path, &Path) -> io::Result<bool>,
    ) -> Result<bool> {
        let to = self.root.join(name);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let from = self.root.join(format!("{name}.{number:x}{UNFINISHED}"));
        let written = || -> io::Result<bool> {
            let folder = to.parent().unwrap_or(&self.root);
            fs::create_dir_all(folder)?;
            let mut file = File::create(&from)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            let placed = place(&from, &to)?;
            File::open(folder)?.sync_all()?;
            Ok(placed)
        };
        let outcome = written();
        // After a rename the file is not there; after an error it is of no use.
        let _ = fs::remove_file(&from);
        outcome.map_err(|error| self.failed("writing", name, &error))
    }

    fn collect(&self, folder: &Path, prefix: &str, found: &mut Vec<Object>) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == IoKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let Some(name) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) else {
                continue;
            };
            let kind = entry.file_type()?;
            if kind.is_dir() && (name.starts_with(prefix) || prefix.starts_with(name)) {
                self.collect(&path, prefix, found)?;
            } else if kind.is_file() && name.starts_with(prefix) && !name.ends_with(UNFINISHED) {
                // A file that was removed meanwhile is not listed.
                if let Ok(metadata) = entry.metadata() {
                    found.push(Object { name: name.to_owned(), bytes: metadata.len() });
                }
            }
        }
        Ok(())
    }
}

impl Objects for Folder {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.write(name, bytes, |from, to| fs::rename(from, to).map(|()| true)).map(drop)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.write(name, bytes, |from, to| match fs::hard_link(from, to) {
            Err(error) if error.kind() == IoKind::AlreadyExists => Ok(false),
            linked => linked.map(|()| true),
        })
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match fs::read(self.root.join(name)) {
            Err(error) if error.kind() == IoKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| self.failed("reading", name, &error)),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Object>> {
        let mut found = Vec::new();
        self.collect(&self.root, prefix, &mut found)
            .map_err(|error| self.failed("listing", prefix, &error))?;
        found.retain(|object| object.name.as_str() > after);
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() == IoKind::NotFound => Ok(()),
            removed => removed.map_err(|error| self.failed("removing", name, &error)),
        }
    }
}
