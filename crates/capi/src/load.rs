//! Sorted loads.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use qpair::{Error, ErrorKind};

use crate::call::{Versioned, bytes, call, set};
use crate::error::{Failure, qpair_error};
use crate::store::function;
use crate::table::{self, qpair_table};

/// A record for `qpair_load`. Key and value are read before the function is called again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_record {
    /// The size of this struct in bytes, as the library knows it.
    pub size: usize,
    /// The key.
    pub key: *const c_void,
    /// The length of the key in bytes.
    pub key_len: usize,
    /// The value.
    pub value: *const c_void,
    /// The length of the value in bytes.
    pub value_len: usize,
}

// SAFETY: `repr(C)`, begins with `size`, and has integers and pointers only.
unsafe impl Versioned for qpair_record {
    const SIZE_MIN: usize = 40;
    const NAME: &'static str = "qpair_record";
}

/// A function that gives the records of a load one after the other: 1 after it has stored one, 0
/// after the last one, and any other number to give the load up.
pub type qpair_load_next =
    Option<unsafe extern "C" fn(context: *mut c_void, record: *mut qpair_record) -> c_int>;

/// Loads records, in the order of their keys, into an empty table: much faster than `qpair_put`.
/// `next` is called on this thread. `records`, which may be null, receives their number.
///
/// Errors: `QPAIR_INVALID` if the table is not empty or the keys do not ascend;
/// `QPAIR_INTERRUPTED` if `next` gave it up; as `qpair_put`. After an error the table is empty as
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_load(
    table: *mut qpair_table,
    next: qpair_load_next,
    context: *mut c_void,
    records: *mut u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 3 for `next`, rule 2 for the results; the records follow rule 1.
    unsafe {
        call(error, || {
            let next = function(next, "next")?;
            let all = std::iter::from_fn(|| {
                let size = size_of::<qpair_record>();
                let mut record =
                    qpair_record { size, key: null(), key_len: 0, value: null(), value_len: 0 };
                match next(context, &raw mut record) {
                    0 => None,
                    1 => Some(read(&record)),
                    other => Some(Err(Error::new(
                        ErrorKind::Interrupted,
                        format!("the function that gives the records has returned {other}"),
                    ))),
                }
            });
            set(records, table::with(table, |table| Ok(table.bulk_load(all)?))?);
            Ok(())
        })
    }
}

/// # Safety
/// The record's pointers follow rule 1 of the crate.
unsafe fn read(record: &qpair_record) -> Result<(Vec<u8>, Vec<u8>), Error> {
    // SAFETY: rule 1, by the caller.
    let read = unsafe {
        bytes(record.key, record.key_len, "key").and_then(|key| {
            Ok((key.to_vec(), bytes(record.value, record.value_len, "value")?.to_vec()))
        })
    };
    read.map_err(|failure| match failure {
        Failure::Store(error) => error,
        _ => Error::new(ErrorKind::Invalid, "a record of the load has a length and no bytes"),
    })
}
