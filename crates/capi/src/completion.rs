//! Completions: how asynchronous calls end.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use qpair::unstable::block::Buffer;

use crate::call::Versioned;
use crate::code::QPAIR_OK;
use crate::error::{Failure, qpair_error};
use crate::value::{lend, qpair_value};

/// An operation of a completion: none, since the call has not ended yet.
pub const QPAIR_OPERATION_NONE: u32 = 0;
/// An operation of a completion: `qpair_get_async`.
pub const QPAIR_OPERATION_GET: u32 = 1;
/// An operation of a completion: `qpair_put_async`; `result` says whether a record was replaced.
pub const QPAIR_OPERATION_PUT: u32 = 2;
/// An operation of a completion: `qpair_delete_async`; `result` says whether there was a record.
pub const QPAIR_OPERATION_DELETE: u32 = 3;
/// An operation of a completion: `qpair_commit_async`; `result` is the commit's timestamp.
pub const QPAIR_OPERATION_COMMIT: u32 = 4;
/// An operation of a completion: `qpair_write_async`.
pub const QPAIR_OPERATION_WRITE: u32 = 5;
/// An operation of a completion: `qpair_device_read`; the caller's buffer is filled.
pub const QPAIR_OPERATION_DEVICE_READ: u32 = 16;
/// An operation of a completion: `qpair_device_write`.
pub const QPAIR_OPERATION_DEVICE_WRITE: u32 = 17;
/// An operation of a completion: `qpair_device_flush`.
pub const QPAIR_OPERATION_DEVICE_FLUSH: u32 = 18;
/// An operation of a completion: `qpair_device_discard`.
pub const QPAIR_OPERATION_DEVICE_DISCARD: u32 = 19;
/// An operation of a completion: `qpair_device_write_zeroes`.
pub const QPAIR_OPERATION_DEVICE_WRITE_ZEROES: u32 = 20;

/// The end of an asynchronous call. Set `size` to `sizeof(struct qpair_completion)` before a call
/// that stores completions; of an array, in the first one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_completion {
    /// The size of this struct in bytes, which is also the distance to the next one.
    pub size: usize,
    /// The number that the caller has given to the call.
    pub user_data: u64,
    /// The call that ended: `QPAIR_OPERATION_GET` and so on.
    pub operation: u32,
    /// `QPAIR_OK`, or the code of the error.
    pub code: c_int,
    /// The error, which the caller frees with `qpair_error_free`; null after a success.
    pub error: *mut qpair_error,
    /// The value of a get, which the caller releases with `qpair_value_release`; null if the key
    /// has no record.
    pub value: *mut qpair_value,
    /// The bytes of the value, until it is released.
    pub data: *const c_void,
    /// The length of the value in bytes; `QPAIR_NO_RECORD` if the key has no record.
    pub data_len: usize,
    /// The result that the operation describes.
    pub result: u64,
}

// SAFETY: `repr(C)`, begins with `size`, and has integers and pointers only.
unsafe impl Versioned for qpair_completion {
    const SIZE_MIN: usize = 64;
    const NAME: &'static str = "qpair_completion";
}

/// A call that ended, before C sees it.
pub(crate) struct Finished {
    pub(crate) user_data: u64,
    pub(crate) operation: u32,
    pub(crate) outcome: Result<Outcome, Failure>,
}

pub(crate) enum Outcome {
    Nothing,
    Value(Option<Vec<u8>>),
    Flag(bool),
    Number(u64),
    /// A read of a device, and where C wants its bytes.
    Read(Buffer, Target),
}

/// The buffer of the caller of an asynchronous read.
pub(crate) struct Target {
    pub(crate) data: *mut c_void,
    pub(crate) len: usize,
}

// SAFETY: an address, which is used only by the thread that takes the completion, while rule 4 of
// the crate makes the buffer writable.
unsafe impl Send for Target {}

impl Finished {
    /// Makes the completion that C sees. Copies the bytes of a read to the caller's buffer.
    ///
    /// # Safety
    /// The caller of the operation follows rule 4 of the crate.
    pub(crate) unsafe fn into_completion(self, size: usize) -> qpair_completion {
        let mut completion = qpair_completion {
            size,
            user_data: self.user_data,
            operation: self.operation,
            code: QPAIR_OK,
            error: null_mut(),
            value: null_mut(),
            data: null(),
            data_len: 0,
            result: 0,
        };
        let told = self.outcome.and_then(|outcome| {
            match outcome {
                Outcome::Nothing => {}
                Outcome::Flag(flag) => completion.result = flag.into(),
                Outcome::Number(number) => completion.result = number,
                Outcome::Read(buffer, target) => {
                    // SAFETY: rule 4: the buffer is writable until this completion was taken.
                    let to = unsafe {
                        std::slice::from_raw_parts_mut(target.data.cast::<u8>(), target.len)
                    };
                    buffer.copy_to(0, to);
                }
                // SAFETY: the places are fields of a variable.
                Outcome::Value(value) => unsafe {
                    lend(
                        value,
                        &raw mut completion.value,
                        &raw mut completion.data,
                        &raw mut completion.data_len,
                    )?;
                },
            }
            Ok(())
        });
        if let Err(failure) = told {
            completion.code = failure.code();
            completion.error = failure.into_handle();
        }
        completion
    }
}
