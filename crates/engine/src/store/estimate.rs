//! Estimates of a table's size from a few of its leaves.

use qpair_format::Result;

use super::table::{Table, TaskTable};
use crate::task::run;
use crate::tree::Sample;

/// The size of a table. All fields but `depth` are estimates: see [`Table::statistics`].
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"k", b"v")?;
/// let statistics = table.statistics()?;
/// assert_eq!((statistics.records, statistics.leaves), (1, 1));
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStatistics {
    /// The number of records.
    pub records: u64,
    /// The size of their keys and values, in bytes.
    pub value_bytes: u64,
    /// The number of leaf pages. The pages of large values are not counted.
    pub leaves: u64,
    /// The number of pages on the path from the root to a leaf, both included.
    pub depth: u32,
}

impl Table {
    /// Estimates the table's size from up to 64 of its leaves, which are read if they are not in
    /// memory. The figures are exact for a table of up to 64 leaves below one page, and mostly
    /// within 20 % for a larger one. They are less accurate if the sizes of its records differ
    /// much, or its pages are small. Use them to plan a query, not for billing. For the same state
    /// of the table the figures are always the same.
    ///
    /// ```
    /// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
    /// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
    /// # let store = qpair_engine::Store::open(vec![device], &options)?;
    /// let table = store.table("users")?;
    /// table.put(b"1", b"ada")?;
    /// table.put(b"2", b"alan")?;
    /// let statistics = table.statistics()?;
    /// assert_eq!((statistics.records, statistics.value_bytes), (2, 9));
    /// assert_eq!((statistics.leaves, statistics.depth), (1, 1));
    /// # store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn statistics(&self) -> Result<TableStatistics> {
        let table = self.task();
        self.inner().block_on(move || async move { table.statistics().await })
    }

    /// Estimates the number of records, as [`Table::statistics`] does. [`Table::count`] is exact,
    /// but reads all leaves.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn len_estimate(&self) -> Result<u64> {
        Ok(self.statistics()?.records)
    }

    /// Whether the table has no records. This is exact.
    ///
    /// ```
    /// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
    /// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
    /// # let store = qpair_engine::Store::open(vec![device], &options)?;
    /// let table = store.table("users")?;
    /// assert!(table.is_empty()?);
    /// table.put(b"1", b"ada")?;
    /// assert!(!table.is_empty()?);
    /// # store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }
}

impl TaskTable {
    /// Like [`Table::statistics`], in a task.
    ///
    /// # Errors
    /// As [`Table::statistics`]; `Invalid` if awaited outside of the store's workers.
    pub async fn statistics(&self) -> Result<TableStatistics> {
        let (shared, tree) = (self.shared(), self.table().tree());
        shared.check_table(tree)?;
        let (mut sum, mut number, mut samples) = ([0.0; 3], 0, None);
        let depth = loop {
            let sampled = run(shared, Sample::new(tree, number, samples)).await?;
            number += 1;
            samples = Some(sampled.samples);
            sum[0] += sampled.records;
            sum[1] += sampled.value_bytes;
            sum[2] += sampled.leaves;
            if number >= sampled.samples {
                break sampled.levels;
            }
        };
        shared.check_table(tree)?;
        let [records, value_bytes, leaves] = sum.map(|sum| (sum / number as f64).round() as u64);
        Ok(TableStatistics { records, value_bytes, leaves, depth: depth.into() })
    }
}
