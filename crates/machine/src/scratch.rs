//! A small file to try interfaces on, removed when dropped.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct ScratchFile(PathBuf);

impl ScratchFile {
    pub(crate) fn new(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!(".qpair-doctor-{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let scratch = Self(path);
        // The file is written, not only reserved, because reads of unwritten blocks never reach the
        // drive.
        file.write_all(&[0xd0; 64 << 10])?;
        file.sync_all()?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // There is no caller to report an error to. The file's name says what it was for.
        let _ = std::fs::remove_file(&self.0);
    }
}
