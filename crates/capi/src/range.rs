//! Ranges of records, forwards and backwards.
//!
//! A range of a table is the library's own. Ranges of transactions and snapshots borrow these in
//! Rust, which C cannot: they are read in chunks, and each chunk begins after the last record of
//! the one before.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ops::Bound;

use qpair::transaction::TransactionRange;
use qpair::{KeyBounds, Prefix, Range, Result as StoreResult, Snapshot, Table};

use crate::call::{Versioned, bytes_or_none, call, needed, read_sized_or_none, set};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::snapshot::{self, qpair_snapshot};
use crate::table::{self, qpair_table};
use crate::transaction::{self, qpair_transaction};

/// The number of records of the first chunk; later ones have [`CHUNK_RECORDS`].
const FIRST_RECORDS: usize = 16;
const CHUNK_RECORDS: usize = 256;

static RANGES: Handles<Open> = Handles::new(9, "qpair_range");

/// An iteration over the records of a range. It belongs to one thread at a time.
pub struct qpair_range {
    _opaque: [u8; 0],
}

/// A flag of a range: the record of the key `from` is not part of it.
pub const QPAIR_RANGE_AFTER_FROM: u32 = 1;
/// A flag of a range: the record of the key `to` is part of it.
pub const QPAIR_RANGE_WITH_TO: u32 = 2;
/// A flag of a range: the records come in descending order of their keys.
pub const QPAIR_RANGE_REVERSE: u32 = 4;

/// The bounds of a range of keys. Set `size` to `sizeof(struct qpair_range_options)` and all other
/// fields to 0 for all records in ascending order, and then what should differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_range_options {
    /// The size of this struct in bytes.
    pub size: usize,
    /// Flags: `QPAIR_RANGE_AFTER_FROM`, `QPAIR_RANGE_WITH_TO`, `QPAIR_RANGE_REVERSE`.
    pub flags: u64,
    /// The lower bound; null for none. The record with this key is part of the range.
    pub from: *const c_void,
    /// The length of `from` in bytes.
    pub from_len: usize,
    /// The upper bound; null for none. The record with this key is not part of the range.
    pub to: *const c_void,
    /// The length of `to` in bytes.
    pub to_len: usize,
    /// Instead of bounds: the range has the keys that begin with these bytes. Null for none.
    pub prefix: *const c_void,
    /// The length of `prefix` in bytes.
    pub prefix_len: usize,
    /// The number of records after which the range ends, and reads no further; 0 for no limit.
    pub limit: u64,
}

// SAFETY: `repr(C)`, begins with `size`, and has integers and pointers only.
unsafe impl Versioned for qpair_range_options {
    const SIZE_MIN: usize = 72;
    const NAME: &'static str = "qpair_range_options";
}

struct Bounds {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    is_reverse: bool,
    limit: usize,
}

impl KeyBounds for Bounds {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<Vec<u8>>) {
        (self.from.as_ref().map(Vec::as_slice), self.to.clone())
    }
}

type Record = (Vec<u8>, Vec<u8>);

struct Open {
    records: Records,
    /// The record that C sees until the next call.
    current: Record,
}

enum Records {
    Table(Box<Range>),
    Chunks(Chunks),
}

struct Chunks {
    view: View,
    table: Table,
    bounds: Bounds,
    chunk: VecDeque<Record>,
    records: usize,
    is_last: bool,
}

enum View {
    Snapshot(Snapshot),
    /// The handle of a transaction.
    Transaction(usize),
}

/// # Safety
/// `options` follows rule 1 of the crate.
unsafe fn bounds_at(options: *const qpair_range_options) -> Result<Bounds, Failure> {
    let all = |from, to| Bounds { from, to, is_reverse: false, limit: usize::MAX };
    // SAFETY: rule 1, by the caller.
    let Some(given) = (unsafe { read_sized_or_none(options) })? else {
        return Ok(all(Bound::Unbounded, Bound::Unbounded));
    };
    // SAFETY: rule 1, by the caller.
    let (from, to, prefix) = unsafe {
        (
            bytes_or_none(given.from, given.from_len, "from")?,
            bytes_or_none(given.to, given.to_len, "to")?,
            bytes_or_none(given.prefix, given.prefix_len, "prefix")?,
        )
    };
    let has = |flag: u32| given.flags & u64::from(flag) != 0;
    let known = QPAIR_RANGE_AFTER_FROM | QPAIR_RANGE_WITH_TO | QPAIR_RANGE_REVERSE;
    if given.flags & !u64::from(known) != 0 {
        return Err(Failure::invalid(format!("the range has unknown flags: {:#x}", given.flags)));
    }
    let bounds = match (prefix, from, to) {
        (Some(prefix), None, None) => {
            let prefix = Prefix(prefix);
            let (from, to) = prefix.key_bounds();
            all(from.map(<[u8]>::to_vec), to)
        }
        (Some(_), ..) => return Err(Failure::invalid("the range has a prefix and bounds too")),
        (None, from, to) => {
            let bound = |key: Option<&[u8]>, is_excluded| match key.map(<[u8]>::to_vec) {
                None => Bound::Unbounded,
                Some(key) if is_excluded => Bound::Excluded(key),
                Some(key) => Bound::Included(key),
            };
            let from = bound(from, has(QPAIR_RANGE_AFTER_FROM));
            all(from, bound(to, !has(QPAIR_RANGE_WITH_TO)))
        }
    };
    let limit = match given.limit {
        0 => usize::MAX,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    Ok(Bounds { is_reverse: has(QPAIR_RANGE_REVERSE), limit, ..bounds })
}

/// # Safety
/// `range` follows rule 2 of the crate.
unsafe fn insert(records: Records, range: *mut *mut qpair_range) -> Result<(), Failure> {
    let open = Open { records, current: Record::default() };
    // SAFETY: rule 2, by the caller.
    unsafe { set(range, RANGES.insert(open)?) };
    Ok(())
}

impl Chunks {
    fn new(view: View, table: Table, bounds: Bounds) -> Self {
        let (chunk, records) = (VecDeque::new(), FIRST_RECORDS);
        Self { view, table, bounds, chunk, records, is_last: false }
    }

    fn next(&mut self) -> Result<Option<Record>, Failure> {
        if self.chunk.is_empty() && !self.is_last {
            self.fetch()?;
        }
        Ok(self.chunk.pop_front())
    }

    fn fetch(&mut self) -> Result<(), Failure> {
        let bounds = &self.bounds;
        let wanted = self.records.min(bounds.limit);
        let take = |range: TransactionRange<'_>| -> StoreResult<VecDeque<Record>> {
            let range = range.limit(wanted);
            if bounds.is_reverse { range.reverse().collect() } else { range.collect() }
        };
        self.chunk = match &self.view {
            View::Snapshot(snapshot) => take(snapshot.range(&self.table, bounds)?)?,
            View::Transaction(handle) => {
                let handle: *mut qpair_transaction = std::ptr::without_provenance_mut(*handle);
                transaction::with(handle, |transaction| {
                    take(transaction.range(&self.table, bounds)?)
                })?
            }
        };
        self.records = CHUNK_RECORDS;
        let bounds = &mut self.bounds;
        bounds.limit = bounds.limit.saturating_sub(self.chunk.len());
        self.is_last = self.chunk.len() < wanted || bounds.limit == 0;
        if let Some((last, _)) = self.chunk.back() {
            let (near, far) = match bounds.is_reverse {
                false => (&mut bounds.from, &bounds.to),
                true => (&mut bounds.to, &bounds.from),
            };
            // A range from a key to itself, without that key, is refused.
            self.is_last |= matches!(far, Bound::Included(end) if end == last);
            *near = Bound::Excluded(last.clone());
        }
        Ok(())
    }
}

impl KeyBounds for &Bounds {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<Vec<u8>>) {
        (**self).key_bounds()
    }
}

/// Begins a range of a table: each leaf is read when the iteration gets there, in its state of that
/// moment. `options` may be null for all records. Close the range with `qpair_range_close`.
///
/// Errors: `QPAIR_INVALID` if the range ends before it begins, or has a prefix and bounds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_range_of_table(
    table: *mut qpair_table,
    options: *const qpair_range_options,
    range: *mut *mut qpair_range,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the options, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(range, "range")?;
            let bounds = bounds_at(options)?;
            let records = table::with(table, |table| Ok(table.range(&bounds)?))?;
            let records = if bounds.is_reverse { records.reverse() } else { records };
            let is_limited = bounds.limit < usize::MAX;
            let records = if is_limited { records.limit(bounds.limit) } else { records };
            insert(Records::Table(Box::new(records)), range)
        })
    }
}

/// Begins a range of a table as a transaction sees it. The range must not be used after the
/// transaction has ended. It may miss what the transaction writes while the range is open.
///
/// Errors: as `qpair_range_of_table`; `QPAIR_MISUSE` for the transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_range_of_transaction(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    options: *const qpair_range_options,
    range: *mut *mut qpair_range,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the options, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(range, "range")?;
            let bounds = bounds_at(options)?;
            let table = table::with(table, |table| Ok(table.clone()))?;
            transaction::with(transaction, |transaction| {
                transaction.range(&table, &bounds).map(drop)
            })?;
            let view = View::Transaction(transaction.addr());
            insert(Records::Chunks(Chunks::new(view, table, bounds)), range)
        })
    }
}

/// Begins a range of a table as a snapshot has it. The range keeps the snapshot.
///
/// Errors: as `qpair_range_of_table`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_range_of_snapshot(
    snapshot: *mut qpair_snapshot,
    table: *mut qpair_table,
    options: *const qpair_range_options,
    range: *mut *mut qpair_range,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the options, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(range, "range")?;
            let bounds = bounds_at(options)?;
            let table = table::with(table, |table| Ok(table.clone()))?;
            let snapshot = snapshot::get(snapshot)?;
            snapshot.range(&table, &bounds).map(drop)?;
            insert(Records::Chunks(Chunks::new(View::Snapshot(snapshot), table, bounds)), range)
        })
    }
}

/// Goes to the next record and lends its key and value, until the next call with the range. After
/// the last record `*key` and `*value` are null, and the lengths 0.
///
/// Errors: as `qpair_get`; `QPAIR_SNAPSHOT_LOST`. After an error the range has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_range_next(
    range: *mut qpair_range,
    key: *mut *const c_void,
    key_len: *mut usize,
    value: *mut *const c_void,
    value_len: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            for (place, name) in [(key, "key"), (value, "value")] {
                needed(place, name)?;
            }
            needed(key_len, "key_len")?;
            needed(value_len, "value_len")?;
            set(key, std::ptr::null());
            set(value, std::ptr::null());
            set(key_len, 0);
            set(value_len, 0);
            RANGES.with_mut(range, |open| {
                let next = match &mut open.records {
                    Records::Table(range) => range.next().transpose()?,
                    Records::Chunks(chunks) => {
                        chunks.next().inspect_err(|_| chunks.is_last = true)?
                    }
                };
                let Some(record) = next else { return Ok(()) };
                open.current = record;
                let at = |bytes: &Vec<u8>| match bytes.is_empty() {
                    true => c"".as_ptr().cast(),
                    false => bytes.as_ptr().cast(),
                };
                set(key, at(&open.current.0));
                set(key_len, open.current.0.len());
                set(value, at(&open.current.1));
                set(value_len, open.current.1.len());
                Ok(())
            })
        })
    }
}

/// Closes a range. Does nothing if `range` is null.
///
/// Errors: `QPAIR_MISUSE` if it was closed before; `QPAIR_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_range_close(
    range: *mut qpair_range,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match range.is_null() {
            true => Ok(()),
            false => RANGES.remove(range, |_| Ok(())).map(drop),
        })
    }
}

pub(crate) fn count() -> usize {
    RANGES.count()
}

/// Removes the records of a range of keys from a table, in transactions of up to 1,000 records
/// each. Flags and limits other than `QPAIR_RANGE_AFTER_FROM` and `QPAIR_RANGE_WITH_TO` are
/// refused. `deleted`, which may be null, receives the number of records.
///
/// Errors: as `qpair_range_of_table` and `qpair_delete`. After an error some of the records may be
/// gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_delete_range(
    table: *mut qpair_table,
    options: *const qpair_range_options,
    deleted: *mut u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the options, rule 2 for the results.
    unsafe {
        call(error, || {
            let bounds = bounds_at(options)?;
            if bounds.is_reverse || bounds.limit < usize::MAX {
                return Err(Failure::invalid("a removal has no direction and no limit"));
            }
            set(deleted, table::with(table, |table| Ok(table.delete_range(&bounds)?))?);
            Ok(())
        })
    }
}
