//! Snapshots: the store as it was at one point.

use std::ffi::{c_int, c_void};

use qpair::Snapshot;

use crate::call::{bytes, call, needed, set};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::store::{self, qpair_store};
use crate::table::{self, qpair_table};
use crate::value::{NO_RECORD, check_buffer, copy, lend, qpair_value};

static SNAPSHOTS: Handles<Snapshot> = Handles::new(8, "qpair_snapshot");

/// The store as it was at one point, for reading. Any number of threads may use it at once.
pub struct qpair_snapshot {
    _opaque: [u8; 0],
}

/// Returns a clone of a snapshot, for a range.
pub(crate) fn get(snapshot: *mut qpair_snapshot) -> Result<Snapshot, Failure> {
    SNAPSHOTS.with(snapshot, |snapshot| Ok(snapshot.clone()))
}

/// Takes a snapshot of all that is committed. The store keeps the older values that it needs until
/// `qpair_snapshot_release`.
///
/// Errors: `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_snapshot_take(
    store: *mut qpair_store,
    snapshot: *mut *mut qpair_snapshot,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(snapshot, "snapshot")?;
            let taken = store::with(store, |store| Ok(store.snapshot()?))?;
            set(snapshot, SNAPSHOTS.insert(taken)?);
            Ok(())
        })
    }
}

/// Copies the value of a key, as the snapshot has it, into a buffer, like `qpair_get`.
///
/// Errors: as `qpair_get`; `QPAIR_SNAPSHOT_LOST` if the snapshot was given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_snapshot_get(
    snapshot: *mut qpair_snapshot,
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
            match read(snapshot, table, bytes(key, key_len, "key")?)? {
                Some(value) => copy(&value, buffer, capacity, value_len),
                None => set(value_len, NO_RECORD),
            }
            Ok(())
        })
    }
}

/// Lends the value of a key, as the snapshot has it, like `qpair_get_lent`.
///
/// Errors: as `qpair_snapshot_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_snapshot_get_lent(
    snapshot: *mut qpair_snapshot,
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
            let found = read(snapshot, table, bytes(key, key_len, "key")?)?;
            lend(found, value, data, value_len)
        })
    }
}

fn read(
    snapshot: *mut qpair_snapshot,
    table: *mut qpair_table,
    key: &[u8],
) -> Result<Option<Vec<u8>>, Failure> {
    table::with(table, |table| SNAPSHOTS.with(snapshot, |snapshot| Ok(snapshot.get(table, key)?)))
}

/// Releases a snapshot. Does nothing if `snapshot` is null.
///
/// Errors: `QPAIR_MISUSE` if it was released before; `QPAIR_BUSY` if another thread is in a call
/// with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_snapshot_release(
    snapshot: *mut qpair_snapshot,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match snapshot.is_null() {
            true => Ok(()),
            false => SNAPSHOTS.remove(snapshot, |_| Ok(())).map(drop),
        })
    }
}

pub(crate) fn count() -> usize {
    SNAPSHOTS.count()
}
