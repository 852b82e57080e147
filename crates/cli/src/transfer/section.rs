//! One table of a dump as a reader of records.

use std::ops::Range;
use std::sync::Arc;

use qpair_block::locks::Mutex;

use crate::load::{ReadError, ReadRecord, Record};

/// The beginning of a table in a dump.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// `None` if the dump does not name the table.
    pub(crate) name: Option<String>,
    /// Whether the keys are in the order of their bytes.
    pub(crate) is_sorted: bool,
    /// A remark for people about the table.
    pub(crate) note: Option<String>,
}

pub(crate) trait ReadDump: Send {
    /// Returns the page size of the store that was exported, if the dump says it. Known after the
    /// first call of [`next_table`](Self::next_table).
    fn page_size(&self) -> Option<u64> {
        None
    }

    /// Moves to the next table. Returns `None` after the last one. All records of the table before
    /// must have been read.
    fn next_table(&mut self) -> Result<Option<Head>, ReadError>;

    /// Reads the next record of the table. Returns its place, or `None` at the end of the table.
    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError>;

    /// Returns the word for the place of a record.
    fn unit(&self) -> &'static str {
        "line"
    }
}

pub(crate) type Shared = Arc<Mutex<Box<dyn ReadDump>>>;

/// The records of the table that the dump has come to.
pub(crate) struct Section {
    dump: Shared,
    unit: &'static str,
}

impl Section {
    pub(crate) fn new(dump: &Shared) -> Self {
        Self { dump: dump.clone(), unit: dump.lock().unit() }
    }
}

impl ReadRecord for Section {
    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        self.dump.lock().read(record)
    }

    fn unit(&self) -> &'static str {
        self.unit
    }
}
