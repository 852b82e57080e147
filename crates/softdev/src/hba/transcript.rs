//! A transcript of what a driver does, in the order in which the controller sees it: what the rules
//! of strict mode are held against.
//!
//! ```text
//! map IOVA BYTES | unmap IOVA BYTES    memory
//! read OFFSET VALUE                    a register; what is read again and again with the same value is written once
//! write OFFSET VALUE
//! post WORD                            a request descriptor
//! frame SMID IOVA BYTES                the frame of it, when it is run; zeroes at its end are left out
//! free IOVA LOW                        an entry of the queue of free reply frames, when it is used
//! reset                                the function is reset
//! ```
//!
//! All numbers are hexadecimal.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use qpair_block::{Error, Result};

#[derive(Debug, Default)]
pub(crate) struct Transcript(Option<Mutex<Page>>);

#[derive(Debug)]
struct Page {
    file: BufWriter<File>,
    last: String,
}

impl Transcript {
    /// Into a new file, or none.
    pub(crate) fn new(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let file = File::create(path).map_err(|cause| {
            Error::os(cause, format!("creating the transcript {}", path.display()))
        })?;
        Ok(Self(Some(Mutex::new(Page { file: BufWriter::new(file), last: String::new() }))))
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes a line down, unless the last one was the same.
    pub(crate) fn write(&self, line: fmt::Arguments<'_>) {
        let Some(page) = &self.0 else { return };
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line.to_string();
        if line == page.last {
            return;
        }
        // A file that cannot be written has no transcript, and the controller goes on without.
        let _ = writeln!(page.file, "{line}");
        page.last = line;
    }

    /// Bytes as the transcript has them.
    pub(crate) fn hex(bytes: &[u8]) -> String {
        let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut text = String::with_capacity(2 * len);
        for byte in &bytes[..len] {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}
