//! Logs of requests: fio's text formats, and the kernel's trace of a block device.
//!
//! - `text`: reads fio's versions 2 and 3; `blktrace`: reads the kernel's trace; `write`: writes
//!   version 3.
//!
//! Invariant: reading never panics. A malformed log is an error that names the file, and the line
//! or the byte.

mod blktrace;
mod text;
mod write;

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};

pub(crate) use write::Writer;

/// The maximum size of a log in bytes: its requests are held in memory.
const LOG_BYTES_MAX: u64 = 4 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read,
    Write,
    Trim,
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Duration,
    pub file: u32,
    pub action: Action,
    /// The first byte; 0 for a flush.
    pub offset_bytes: u64,
    /// The length in bytes; 0 for a flush.
    pub len_bytes: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Iolog {
    /// The names of files, or `MAJOR:MINOR` of devices if the log is a trace.
    pub(crate) files: Vec<String>,
    /// Whether the log is a trace, so that the names are numbers of devices.
    pub(crate) is_trace: bool,
    /// The requests, in the order of their times.
    pub(crate) entries: Vec<Entry>,
}

impl Iolog {
    /// Returns the number of a file, and adds the file if its name is new.
    fn file(&mut self, name: &str) -> u32 {
        let known = self.files.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.files.push(name.to_owned());
            self.files.len() - 1
        }) as u32
    }
}

/// Reads a log of either kind.
///
/// # Errors
/// Returns the file system's error, or `Invalid` with a line or byte position if the file is not a
/// log.
pub(crate) fn read(path: &Path) -> Result<Iolog> {
    let failed = |cause| Error::os(cause, format!("reading the I/O log {}", path.display()));
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LOG_BYTES_MAX {
        let what = format!("{} is not a regular file of at most 4 GiB", path.display());
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    parse(&bytes, path)
}

pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Iolog> {
    if blktrace::is_trace(bytes) {
        return blktrace::parse(bytes, path);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let what = format!(
            "{} is neither a log of fio nor a trace of the kernel: byte {} is not text",
            path.display(),
            error.valid_up_to()
        );
        Error::new(ErrorKind::Invalid, what).hint("blkparse -d FILE writes a trace in one file")
    })?;
    text::parse(text, path)
}
