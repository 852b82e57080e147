//! The output of every format: records, or the errors of a line.

use std::io;
use std::ops::Range;

/// A record of the input; the vectors are used again for the next.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Why there is no next record.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// These lines are no good; reading can go on behind them.
    Bad { lines: Range<u64>, why: String },
    /// From this line on nothing can be read.
    Lost { line: u64, why: String },
    /// No line is any good: the columns asked for are not there.
    Layout { why: String, hint: String },
    /// The input itself failed.
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(crate) trait ReadRecord: Send {
    /// Reads what comes before the first record, and finds the columns asked for. Once, before all
    /// else.
    fn begin(&mut self) -> Result<(), ReadError> {
        Ok(())
    }

    /// Reads the next record; the lines it was on, from 1, or none at the end.
    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError>;
}

/// A record on a line of its own.
pub(super) fn only(line: u64) -> Range<u64> {
    line..line + 1
}
