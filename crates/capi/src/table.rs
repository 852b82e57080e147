//! Tables: records by key.

use std::ffi::{c_int, c_void};

use qpair::Table;

use crate::call::{bytes, bytes_or_none, call, needed, set};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::value::{NO_RECORD, check_buffer, copy, lend, qpair_value};

static TABLES: Handles<Table> = Handles::new(5, "qpair_table");

/// A table of a store: an ordered map from keys to values, both byte strings. Any number of threads
/// may use a handle at once; threads that make very many calls are faster with a handle each.
pub struct qpair_table {
    _opaque: [u8; 0],
}

pub(crate) fn insert(table: Table) -> Result<*mut qpair_table, Failure> {
    TABLES.insert(table)
}

/// Runs a call with a table.
#[inline(always)]
pub(crate) fn with<R>(
    table: *mut qpair_table,
    run: impl FnOnce(&Table) -> Result<R, Failure>,
) -> Result<R, Failure> {
    TABLES.with(table, run)
}

/// Closes a table's handle. Does nothing if `table` is null.
///
/// Errors: `QPAIR_BUSY` if another thread is in a call with this handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_close(
    table: *mut qpair_table,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match table.is_null() {
            true => Ok(()),
            false => TABLES.remove(table, |_| Ok(())).map(drop),
        })
    }
}

/// Copies the value of a key into `buffer`, which has room for `capacity` bytes, and stores the
/// value's length in `*value_len`. A value longer than `capacity` is cut, and `*value_len` is
/// greater than `capacity`: call again with more room. Without a record `*value_len` is
/// `QPAIR_NO_RECORD`. `buffer` may be null if `capacity` is 0.
///
/// Errors: `QPAIR_IO`, `QPAIR_CORRUPT`, `QPAIR_CLOSED`; `QPAIR_READ_ONLY` if the value did not
/// become durable, because the log could not be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_get(
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_len: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for the buffer and the results.
    unsafe {
        call(error, || {
            check_buffer(buffer, capacity, value_len)?;
            let key = bytes(key, key_len, "key")?;
            let read = |value: &[u8]| copy(value, buffer, capacity, value_len);
            if with(table, |table| Ok(table.get_with(key, read)?))?.is_none() {
                set(value_len, NO_RECORD);
            }
            Ok(())
        })
    }
}

/// Lends the value of a key: `*data` is valid until `*value` is released. Without a record `*value`
/// and `*data` are null, and `*value_len` is `QPAIR_NO_RECORD`. `data` and `value_len` may be null.
///
/// Errors: as `qpair_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_get_lent(
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut qpair_value,
    data: *mut *const c_void,
    value_len: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(value, "value")?;
            let key = bytes(key, key_len, "key")?;
            let found = with(table, |table| Ok(table.get(key)?))?;
            lend(found, value, data, value_len)
        })
    }
}

/// Inserts or replaces a record. `replaced`, which may be null, receives whether there was one.
/// Waits while a transaction has the record locked.
///
/// Errors: `QPAIR_KEY_TOO_LONG`, `QPAIR_VALUE_TOO_LONG`, `QPAIR_NO_SPACE`, `QPAIR_READ_ONLY`,
/// `QPAIR_IO`, `QPAIR_TIMED_OUT`, `QPAIR_CLOSED`. After an error the record is unchanged, except
/// that after `QPAIR_READ_ONLY` the new value may be there when the store is opened again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_put(
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    replaced: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and value, rule 2 for the results.
    unsafe {
        call(error, || {
            let (key, value) = (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?);
            set(replaced, with(table, |table| Ok(table.put(key, value)?))?);
            Ok(())
        })
    }
}

/// Inserts a record if the key has none. `inserted`, which may be null, receives whether it was.
///
/// Errors: as `qpair_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_insert(
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    inserted: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and value, rule 2 for the results.
    unsafe {
        call(error, || {
            let (key, value) = (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?);
            set(inserted, with(table, |table| Ok(table.insert(key, value)?))?);
            Ok(())
        })
    }
}

/// Removes a record. `deleted`, which may be null, receives whether there was one.
///
/// Errors: as `qpair_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_delete(
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    deleted: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for the results.
    unsafe {
        call(error, || {
            let key = bytes(key, key_len, "key")?;
            set(deleted, with(table, |table| Ok(table.delete(key)?))?);
            Ok(())
        })
    }
}

/// Replaces a record if its value is the expected one. Null with a length of 0 stands for no
/// record, in both `expected` and `value`; an empty value has another pointer. `swapped` receives
/// whether it was replaced.
///
/// Errors: as `qpair_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_compare_and_swap(
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
    value: *const c_void,
    value_len: usize,
    swapped: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and values, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(swapped, "swapped")?;
            let key = bytes(key, key_len, "key")?;
            let expected = bytes_or_none(expected, expected_len, "expected")?;
            let value = bytes_or_none(value, value_len, "value")?;
            let swap = |table: &Table| Ok(table.compare_and_swap(key, expected, value)?);
            set(swapped, with(table, swap)?);
            Ok(())
        })
    }
}

/// Stores an estimate of the number of records in a table, from up to 64 of its leaves.
///
/// Errors: as `qpair_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_count_estimate(
    table: *mut qpair_table,
    records: *mut u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(records, "records")?;
            set(records, with(table, |table| Ok(table.len_estimate()?))?);
            Ok(())
        })
    }
}

pub(crate) fn count() -> usize {
    TABLES.count()
}
