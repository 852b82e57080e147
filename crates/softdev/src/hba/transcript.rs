//! A transcript of a driver's accesses, in the order in which the controller sees them. The rules
//! of strict mode were checked against such transcripts.
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

use qpair_memory::locks::Mutex;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use qpair_block::{Error, Result};

#[derive(Debug, Default)]
pub(crate) struct Transcript(Option<Mutex<Page>>);

#[derive(Debug)]
struct Page {
    file: BufWriter<File>,
    last: String,
}

impl Transcript {
    /// Creates a transcript in a new file at `path`, or a transcript that is off without a path.
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

    /// Writes a line, unless it equals the last one.
    pub(crate) fn write(&self, line: fmt::Arguments<'_>) {
        let Some(page) = &self.0 else { return };
        let mut page = page.lock();
        let line = line.to_string();
        if line == page.last {
            return;
        }
        // If the file cannot be written, the transcript is incomplete, and the controller
        // continues.
        let _ = writeln!(page.file, "{line}");
        page.last = line;
    }

    /// Formats bytes as in the transcript.
    pub(crate) fn hex(bytes: &[u8]) -> String {
        let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut text = String::with_capacity(2 * len);
        for byte in &bytes[..len] {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}
