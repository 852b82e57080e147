//! A folder for the files of one process.

use std::io;
use std::path::{Path, PathBuf};

pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder `NAME-PID`, in `parent` or beside this program.
    pub(crate) fn new(parent: Option<&Path>, name: &str) -> io::Result<Self> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => std::env::current_exe()?.with_file_name("."),
        };
        std::fs::create_dir_all(&parent)?;
        // The path is short because a socket's name has at most 107 bytes.
        let folder = parent.canonicalize()?.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm; a person can remove it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
