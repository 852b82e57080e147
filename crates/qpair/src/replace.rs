//! Replaces a backup in files: the new backup is written beside the old one, and takes its name
//! once it is complete.
//!
//! - The old backup is not changed before that. Its files are open, so that no other process uses
//!   them.
//! - A name changes in one step. The names of several files change one after the other: members of
//!   two backups do not open together.
//! - The next backup removes the files of a killed one, unless they are complete.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use qpair_block::DeviceSpec;
use qpair_engine::{Error, ErrorKind, Result};

use crate::members::Members;
use crate::open::with_devices;
use crate::options::Options;
use crate::tools::holds_store;

/// The suffix of the file's name until the backup in the file is complete.
const BESIDE: &str = ".qpair-backup";

/// The files of an old backup, and the new files that replace them.
pub(crate) struct Replacement {
    /// The options of the new backup: the original ones with other files.
    options: Options,
    /// Each new file, and the old one whose name it takes.
    files: Vec<(PathBuf, PathBuf)>,
}

impl Replacement {
    /// Returns the replacement for a target that may be overwritten; `None` unless all members of
    /// the target are existing files.
    ///
    /// # Errors
    /// `Exists` if a complete backup lies beside one of the files; and the errors of the system.
    pub(crate) fn of(options: &Options) -> Result<Option<Self>> {
        let members = Members::of(options)?;
        let mut files = Vec::new();
        for spec in &members.specs {
            let DeviceSpec::File(path) = spec else { return Ok(None) };
            // A symbolic link keeps its target path.
            let Ok(old) = path.canonicalize() else { return Ok(None) };
            if !old.metadata().is_ok_and(|metadata| metadata.is_file()) {
                return Ok(None);
            }
            files.push((beside(&old), old));
        }
        if !options.force || files.is_empty() {
            return Ok(None);
        }
        for (new, _) in &files {
            remove_incomplete(new)?;
        }
        let new_members = files.iter().map(|(new, _)| Ok(DeviceSpec::File(new.clone())));
        let mut new_members: Vec<Result<DeviceSpec>> = new_members.collect();
        if let Some(unit_bytes) = members.unit_bytes {
            let members = new_members.into_iter().collect::<Result<_>>()?;
            new_members = vec![Ok(DeviceSpec::Stripe { unit_bytes, members })];
        }
        let options = Options { members: new_members, force: false, ..options.clone() };
        Ok(Some(Self { options, files }))
    }

    /// Makes the new backup with `make`, and renames it to the old one. The old backup stays open
    /// meanwhile, through the options `old`.
    ///
    /// # Errors
    /// Errors of `make` and of the system. The old backup is then unchanged, unless the error came
    /// while the files were being renamed.
    pub(crate) fn run<T>(&self, old: &Options, make: &dyn Fn(&Options) -> Result<T>) -> Result<T> {
        with_devices(old, &|_locked| {
            let made = make(&self.options).map_err(told_of_old)?;
            let renamed = self.files.iter().try_for_each(|(new, old)| take_place(new, old));
            renamed.inspect_err(|_| {
                for (new, _) in &self.files {
                    // Report the earlier error, not this one.
                    let _ = std::fs::remove_file(new);
                }
            })?;
            Ok(made)
        })
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(BESIDE);
    name.into()
}

/// Removes the file that a killed backup has left.
fn remove_incomplete(new: &Path) -> Result<()> {
    match holds_store(new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("reading the state of", new, &error)),
        Ok(true) => Err(Error::with_hint(
            ErrorKind::Exists,
            format!("{} holds a whole backup that was meant to replace another one", new.display()),
            "rename it, or remove it, and make the backup again",
        )),
        Ok(false) => std::fs::remove_file(new).map_err(|error| failed("removing", new, &error)),
    }
}

/// Gives a file the name, owner and permissions of another one, which it replaces.
fn take_place(new: &Path, old: &Path) -> Result<()> {
    let renamed = || -> io::Result<()> {
        let before = old.metadata()?;
        std::fs::set_permissions(new, before.permissions())?;
        if new.metadata()?.uid() != before.uid() {
            // Only root may do this. Otherwise the file belongs to its creator, as every new file.
            let _ = std::os::unix::fs::chown(new, Some(before.uid()), Some(before.gid()));
        }
        std::fs::rename(new, old)?;
        let directory = old.parent().unwrap_or(Path::new("/"));
        File::open(directory)?.sync_all()
    };
    renamed().map_err(|error| failed("renaming the new backup to", old, &error))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{doing} {}: {error}", path.display()))
}

/// Adds to an error that the old backup is unchanged.
fn told_of_old(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Interrupted => Error::new(
            ErrorKind::Interrupted,
            "the backup was interrupted; the old backup is as it was",
        ),
        // There is room for one backup, but not for two.
        ErrorKind::NoSpace => Error::with_hint(
            ErrorKind::NoSpace,
            format!("{error}; the old backup is as it was"),
            "the new backup needs room beside the old one: free some, or remove the old one first",
        ),
        _ => error,
    }
}
