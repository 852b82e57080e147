//! Tables whose values are compressed: see docs/design/compression.md.

use qpair_format::values::Compression;
use qpair_format::{Error, ErrorKind, Result};

use super::{Store, Table, TableOptions};
use crate::tree::Tree;

impl Store {
    /// Opens a table whose values are compressed, each by itself, and creates it if it does not
    /// exist. Callers put and get values as in other tables. A table keeps its compression for
    /// good.
    ///
    /// # Errors
    /// As [`Store::table`]; `Exists` if there is a table of this name with another compression;
    /// `Unsupported` if this build lacks the compression.
    pub fn compressed_table(&self, name: &str, compression: Compression) -> Result<Table> {
        compression.check()?;
        let table = match self.existing_table(name)? {
            Some(table) => table,
            None => self.make_table(name, &TableOptions::default().compression(compression))?,
        };
        match table.compression() {
            present if present == compression => Ok(table),
            present => Err(Error::with_hint(
                ErrorKind::Exists,
                format!("the table {name} exists already, with the compression {present}"),
                "load the records into a table of another name",
            )),
        }
    }
}

impl Table {
    /// Returns the way in which the table's values are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        Compression::of_tree(self.tree().id)
    }

    /// Returns a handle of the same table that reads and puts values as the table keeps them, and
    /// groups of records with long keys as they are. For copies into tables of the same
    /// compression, in a store of the same [`Store::whole_key_len_max`].
    #[doc(hidden)]
    #[must_use]
    pub fn stored(&self) -> Self {
        let tree = self.tree();
        Self::new(self.inner().clone(), Tree::new(tree.id, tree.root))
    }
}
