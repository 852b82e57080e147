//! Writes the requests of a job as fio's log of version 3.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use qpair_block::{Error, Result};

pub(crate) struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
    /// The first error, after which nothing is written.
    failed: Option<std::io::Error>,
}

impl Writer {
    /// Creates a log, replacing a file of this name.
    ///
    /// # Errors
    /// Returns the file system's error.
    pub(crate) fn create(path: &Path, files: &[&str], at_ns: u64) -> Result<Self> {
        let file = File::create(path)
            .map_err(|cause| Error::os(cause, format!("writing the I/O log {}", path.display())))?;
        let out = BufWriter::with_capacity(1 << 16, file);
        let mut writer = Self { path: path.to_owned(), out, failed: None };
        writer.line(format_args!("fio version 3 iolog"));
        for action in ["add", "open"] {
            for file in files {
                writer.line(format_args!("{} {file} {action}", at_ns / 1000));
            }
        }
        Ok(writer)
    }

    /// Adds a request. `action` is fio's word for it.
    pub(crate) fn request(&mut self, at_ns: u64, file: &str, action: &str, offset: u64, len: u32) {
        self.line(format_args!("{} {file} {action} {offset} {len}", at_ns / 1000));
    }

    /// Ends the log.
    ///
    /// # Errors
    /// Returns the first error of any write.
    pub(crate) fn end(mut self, files: &[&str], at_ns: u64) -> Result<()> {
        for file in files {
            self.line(format_args!("{} {file} close", at_ns / 1000));
        }
        let flushed = self.failed.map_or_else(|| self.out.flush(), Err);
        flushed.map_err(|cause| {
            Error::os(cause, format!("writing the I/O log {}", self.path.display()))
        })
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if self.failed.is_none() {
            self.failed = writeln!(self.out, "{line}").err();
        }
    }
}
