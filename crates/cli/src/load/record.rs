//! The output of every reader: records, or the errors of lines.

use std::io;
use std::ops::Range;

/// A record of the input. The vectors are reused for the next record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// The reason why there is no next record.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// These lines are malformed. Reading can continue after them.
    Bad { lines: Range<u64>, why: String },
    /// Nothing can be read from this line on.
    Lost { line: u64, why: String },
    /// No line can be used, because the requested columns do not exist.
    Layout { why: String, hint: String },
    /// The input is damaged or ends too early, at no line of its own.
    Damaged(String),
    /// Reading the input failed.
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(crate) trait ReadRecord: Send {
    /// Reads the input up to the first record, and finds the requested columns. Called once, before
    /// all else.
    fn begin(&mut self) -> Result<(), ReadError> {
        Ok(())
    }

    /// Reads the next record. Returns its line numbers, from 1, or `None` at the end.
    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError>;

    /// Returns the word for the place of a record.
    fn unit(&self) -> &'static str {
        "line"
    }
}

/// Returns the range of a record on one line.
pub(crate) fn only(line: u64) -> Range<u64> {
    line..line + 1
}
