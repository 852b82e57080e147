//! Native methods of ranges of keys.

use std::ptr::{null, null_mut};

use jni_sys::{JNIEnv, jboolean, jbyteArray, jclass, jint, jlong, jobjectArray};
use qpair_capi::{
    qpair_delete_range, qpair_range_next, qpair_range_of_snapshot, qpair_range_of_table,
    qpair_range_options,
};

use crate::bytes::array_or_none;
use crate::call::{Failure, call, handle, number, of_c};
use crate::env::Env;

/// Runs a call with the bounds of a range. Null is no bound.
///
/// # Safety
/// Both arrays follow rule 2 of the crate.
unsafe fn with_bounds<R>(
    env: &Env,
    from: jbyteArray,
    to: jbyteArray,
    flags: jint,
    limit: jlong,
    run: impl FnOnce(*const qpair_range_options) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: rule 2, by the caller.
    let (from, to) = unsafe { (array_or_none(env, from)?, array_or_none(env, to)?) };
    // An empty vector has an address too, which is not null: that is a bound without bytes.
    let part = |bound: &Option<Vec<u8>>| match bound {
        Some(key) => (key.as_ptr().cast(), key.len()),
        None => (null(), 0),
    };
    let ((from, from_len), (to, to_len)) = (part(&from), part(&to));
    let (size, flags, limit) = (size_of::<qpair_range_options>(), flags as u64, limit as u64);
    let (prefix, prefix_len) = (null(), 0);
    run(&qpair_range_options { size, flags, from, from_len, to, to_len, prefix, prefix_len, limit })
}

/// Begins a range of a table, or as a snapshot has it if `snapshot` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_range(
    env: *mut JNIEnv,
    _class: jclass,
    snapshot: jlong,
    table: jlong,
    from: jbyteArray,
    to: jbyteArray,
    flags: jint,
    limit: jlong,
) -> jlong {
    // SAFETY: rules 1, 2 and 4; the bounds are copies, and the result is a variable.
    unsafe {
        call(env, 0, |env| {
            with_bounds(env, from, to, flags, limit, |options| {
                let mut range = null_mut();
                of_c(|error| match snapshot {
                    0 => qpair_range_of_table(handle(table), options, &raw mut range, error),
                    _ => {
                        let snapshot = handle(snapshot);
                        let table = handle(table);
                        qpair_range_of_snapshot(snapshot, table, options, &raw mut range, error)
                    }
                })?;
                Ok(number(range))
            })
        })
    }
}

/// Puts the next key and value of a range into the two elements of an array. Returns false after
/// the last record.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_rangeNext(
    env: *mut JNIEnv,
    _class: jclass,
    range: jlong,
    record: jobjectArray,
) -> jboolean {
    let next = |env: &Env| {
        if record.is_null() {
            return Err(Failure::Null("record"));
        }
        let (mut key, mut key_len, mut value, mut value_len) = (null(), 0, null(), 0);
        // SAFETY: rule 4: what the range lends is there until its next call, which the caller
        // makes after this one. The results are variables; rule 2 for the array.
        unsafe {
            let (key_at, key_size) = (&raw mut key, &raw mut key_len);
            let (value_at, value_size) = (&raw mut value, &raw mut value_len);
            of_c(|error| {
                qpair_range_next(handle(range), key_at, key_size, value_at, value_size, error)
            })?;
            if key.is_null() {
                return Ok(false);
            }
            let key = env.array(std::slice::from_raw_parts(key.cast(), key_len))?;
            env.set(record, 0, key)?;
            let value = env.array(std::slice::from_raw_parts(value.cast(), value_len))?;
            env.set(record, 1, value)?;
        }
        Ok(true)
    };
    // SAFETY: rule 1.
    unsafe { call(env, false, next) }
}

/// Removes the records of a range, and returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_deleteRange(
    env: *mut JNIEnv,
    _class: jclass,
    table: jlong,
    from: jbyteArray,
    to: jbyteArray,
) -> jlong {
    // SAFETY: rules 1, 2 and 4; the bounds are copies, and the result is a variable.
    unsafe {
        call(env, 0, |env| {
            with_bounds(env, from, to, 0, 0, |options| {
                let mut deleted = 0;
                of_c(|error| qpair_delete_range(handle(table), options, &raw mut deleted, error))?;
                Ok(deleted as jlong)
            })
        })
    }
}
