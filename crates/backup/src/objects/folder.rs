//! Objects as files of a folder.
//!
//! An object is written to a file beside its place and linked or renamed there, so that it is there
//! as a whole or not at all. File and folder are synchronized before a call returns.

use std::fs::{self, File};
use std::io::{self, ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qpair_engine::{Error, ErrorKind, Result};

use super::{Object, Objects};

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".unfinished";
/// The age of an unfinished file whose writer has certainly ended.
const UNFINISHED_FOR: Duration = Duration::from_secs(3600);

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
        let (kind, hint) = match error.kind() {
            IoKind::PermissionDenied | IoKind::ReadOnlyFilesystem => (
                ErrorKind::Denied,
                "give this user the right to it; an open store is backed up by the process that has it open, with its rights",
            ),
            IoKind::StorageFull | IoKind::QuotaExceeded | IoKind::FileTooLarge => {
                (ErrorKind::NoSpace, "make room there, or name a place with more room")
            }
            _ => {
                (ErrorKind::Io, "look at the folder and its file system, and run the command again")
            }
        };
        let what = format!("{doing} {}: {error}", self.root.join(name).display());
        Error::with_hint(kind, what, hint)
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
            make_folder(folder)?;
            let mut file = File::create(&from)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            let placed = place(&from, &to)?;
            File::open(folder)?.sync_all()?;
            Ok(placed)
        };
        let outcome = written();
        // A rename has moved the file away; an error leaves one that nothing needs.
        let _ = fs::remove_file(&from);
        outcome.map_err(|error| self.failed("writing", name, &error))
    }

    /// Finds files whose names begin with `prefix`, unfinished ones too.
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
            } else if kind.is_file() && name.starts_with(prefix) {
                // A file that was removed meanwhile is not listed.
                if let Ok(metadata) = entry.metadata() {
                    found.push(Object { name: name.to_owned(), bytes: metadata.len() });
                }
            }
        }
        Ok(())
    }

    fn files(&self, prefix: &str) -> Result<Vec<Object>> {
        let mut found = Vec::new();
        self.collect(&self.root, prefix, &mut found)
            .map_err(|error| self.failed("listing", prefix, &error))?;
        Ok(found)
    }
}

/// Makes a folder and those above it, durably.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    make_folder(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == IoKind::AlreadyExists && folder.is_dir() => {}
        made => made?,
    }
    File::open(above)?.sync_all()
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
        let mut found = self.files(prefix)?;
        found.retain(|object| object.name.as_str() > after && !object.name.ends_with(UNFINISHED));
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() == IoKind::NotFound => Ok(()),
            removed => removed.map_err(|error| self.failed("removing", name, &error)),
        }
    }

    fn remove_unfinished(&self) -> Result<()> {
        for file in self.files("")? {
            let path = self.root.join(&file.name);
            let is_old = || path.metadata().ok()?.modified().ok()?.elapsed().ok();
            if file.name.ends_with(UNFINISHED) && is_old().is_some_and(|age| age > UNFINISHED_FOR) {
                self.delete(&file.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_writer_left_is_never_an_object_and_goes_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Folder::new(folder.path().join("a/b"));
        objects.put("parts/1", b"one").unwrap();
        let left = |name: &str, age: Duration| {
            let path = folder.path().join("a/b/parts").join(name);
            let file = File::create(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
            path
        };
        let new = left("2.a.unfinished", Duration::ZERO);
        let old = left("2.b.unfinished", 2 * UNFINISHED_FOR);
        let listed = objects.list("parts/", "").unwrap();
        assert_eq!(listed, [Object { name: "parts/1".to_owned(), bytes: 3 }]);
        objects.remove_unfinished().unwrap();
        assert!(new.exists() && !old.exists());
        assert_eq!(objects.get("parts/1").unwrap().unwrap(), b"one");
    }
}
