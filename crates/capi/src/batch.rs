//! Batches: changes of any tables of a store that are made all at once.

use std::ffi::{c_int, c_void};

use qpair::WriteBatch;

use crate::call::{bytes, call, needed, set};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::table::{self, qpair_table};

static BATCHES: Handles<WriteBatch> = Handles::new(6, "qpair_batch");

/// Changes that `qpair_write` makes all at once. A batch belongs to one thread at a time.
pub struct qpair_batch {
    _opaque: [u8; 0],
}

/// Returns a copy of the changes, which the store takes to a worker.
pub(crate) fn copy(batch: *mut qpair_batch) -> Result<WriteBatch, Failure> {
    BATCHES.with(batch, |batch| Ok(batch.clone()))
}

/// Creates a batch without changes. Free it with `qpair_batch_free`.
///
/// Errors: `QPAIR_LIMIT` if there are too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_batch_new(
    batch: *mut *mut qpair_batch,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(batch, "batch")?;
            set(batch, BATCHES.insert(WriteBatch::default())?);
            Ok(())
        })
    }
}

/// Adds a change that inserts or replaces a record.
///
/// Errors: `QPAIR_BUSY` if another thread is in a call with the batch. Sizes are checked when the
/// batch is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_batch_put(
    batch: *mut qpair_batch,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and value, rule 2 for `error`.
    unsafe {
        call(error, || {
            let (key, value) = (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?);
            BATCHES.with_mut(batch, |batch| {
                table::with(table, |table| {
                    batch.put(table, key, value);
                    Ok(())
                })
            })
        })
    }
}

/// Adds a change that removes a record, if there is one.
///
/// Errors: as `qpair_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_batch_delete(
    batch: *mut qpair_batch,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for `error`.
    unsafe {
        call(error, || {
            let key = bytes(key, key_len, "key")?;
            BATCHES.with_mut(batch, |batch| {
                table::with(table, |table| {
                    batch.delete(table, key);
                    Ok(())
                })
            })
        })
    }
}

/// Removes all changes from a batch.
///
/// Errors: as `qpair_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_batch_clear(
    batch: *mut qpair_batch,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            BATCHES.with_mut(batch, |batch| {
                batch.clear();
                Ok(())
            })
        })
    }
}

/// Frees a batch. Does nothing if `batch` is null.
///
/// Errors: `QPAIR_MISUSE` if it was freed before, `QPAIR_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_batch_free(
    batch: *mut qpair_batch,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match batch.is_null() {
            true => Ok(()),
            false => BATCHES.remove(batch, |_| Ok(())).map(drop),
        })
    }
}

pub(crate) fn count() -> usize {
    BATCHES.count()
}
