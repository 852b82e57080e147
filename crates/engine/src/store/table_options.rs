//! How a table keeps its values: compressed, and for how long.

use std::time::Duration;

use qpair_format::codec::Codec;
use qpair_format::expiry::{TTL_MAX_MS, TTL_MIN_MS};
use qpair_format::values::Compression;
use qpair_format::{Error, ErrorKind, Result};

use super::{Store, Table};

/// How a table keeps its values. A table has its options for good.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// use std::time::Duration;
/// use qpair_engine::TableOptions;
///
/// let sessions = TableOptions::default().ttl(Duration::from_secs(3600));
/// let table = store.table_with("sessions", &sessions)?;
/// // An hour later the record is gone.
/// table.put(b"token", b"ada")?;
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    compression: Compression,
    ttl: Option<Duration>,
}

impl TableOptions {
    /// Sets the way in which values are compressed, each by itself. Default: none.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the time to live of records, from one second to a thousand years, in milliseconds. A
    /// record that is not put again for this long is removed. Default: without limit.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    pub(super) fn codec(&self) -> Codec {
        Codec::new(self.compression, self.ttl.is_some())
    }

    pub(super) fn ttl_ms(&self) -> Option<u64> {
        self.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    fn check(&self) -> Result<()> {
        match self.ttl_ms() {
            Some(ttl_ms) if !(TTL_MIN_MS..=TTL_MAX_MS).contains(&ttl_ms) => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a time to live of {ttl_ms} ms is not possible: it is from one second to 1,000 years"
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for TableOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ttl {
            Some(ttl) => write!(f, "compression {}, time to live {ttl:?}", self.compression),
            None => write!(f, "compression {}, no time to live", self.compression),
        }
    }
}

impl Store {
    /// Opens a table with these options, and creates it if it does not exist.
    ///
    /// # Errors
    /// As [`Store::table`]; `Exists` if there is a table of this name with other options;
    /// `Unsupported` if this build lacks the compression; `Invalid` for a time to live out of
    /// range.
    pub fn table_with(&self, name: &str, options: &TableOptions) -> Result<Table> {
        options.check()?;
        options.compression.check()?;
        let table = match self.existing_table(name)? {
            Some(table) => table,
            None => self.make_table(name, options)?,
        };
        match table.options() {
            present
                if present.ttl_ms() == options.ttl_ms()
                    && present.compression == options.compression =>
            {
                Ok(table)
            }
            present => Err(Error::with_hint(
                ErrorKind::Exists,
                format!("the table {name} exists already, with other options: {present}"),
                "load the records into a table of another name",
            )),
        }
    }

    /// Like [`Store::table_with`], for [`Table::stored`]: the table is made also if this build
    /// lacks the compression, and an existing table is taken as it is.
    #[doc(hidden)]
    pub fn table_of_stored(&self, name: &str, options: &TableOptions) -> Result<Table> {
        options.check()?;
        match self.existing_table(name)? {
            Some(table) => Ok(table.stored()),
            None => Ok(self.make_table(name, options)?.stored()),
        }
    }
}

impl Table {
    /// Returns the options of the table.
    #[must_use]
    pub fn options(&self) -> TableOptions {
        TableOptions { compression: self.compression(), ttl: self.ttl() }
    }

    /// Returns the time to live of the table's records; `None` if they do not expire.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.inner().shared.expiry.ttl_ms(self.tree().id).map(Duration::from_millis)
    }
}
