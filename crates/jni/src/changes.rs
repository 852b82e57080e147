//! Native methods that change records: of a table, a transaction or a batch; and those of batches,
//! transactions and snapshots as a whole.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use jni_sys::{JNIEnv, jboolean, jbyteArray, jclass, jint, jlong, jobject};
use qpair_capi::{
    qpair_batch_clear, qpair_batch_delete, qpair_batch_new, qpair_batch_put, qpair_begin,
    qpair_commit, qpair_delete, qpair_error, qpair_put, qpair_snapshot_take,
    qpair_transaction_delete, qpair_transaction_put, qpair_write,
};

use crate::bytes::{Part, with_array};
use crate::call::{Failure, call, handle, number, of_c};
use crate::records::{BATCH, TABLE, TRANSACTION, not_there};

type Bytes = (*const c_void, usize);

fn of(bytes: &[u8]) -> Bytes {
    (bytes.as_ptr().cast(), bytes.len())
}

fn of_part(part: Part) -> Bytes {
    (part.at.cast_const().cast(), part.len)
}

/// Puts a record, and returns whether a table had one.
///
/// # Safety
/// Key and value are readable during the call, and nobody changes them.
#[inline(always)]
unsafe fn put(
    (place, within, table): (jint, jlong, jlong),
    (key, key_len): Bytes,
    (value, value_len): Bytes,
) -> Result<jboolean, Failure> {
    let mut replaced = false;
    let (of, to) = (handle(table), &raw mut replaced);
    // SAFETY: rule 4, and by the caller; the result is a variable.
    unsafe {
        match place {
            TABLE => of_c(|error| qpair_put(of, key, key_len, value, value_len, to, error)),
            TRANSACTION => of_c(|error| {
                let within = handle(within);
                qpair_transaction_put(within, of, key, key_len, value, value_len, error)
            }),
            BATCH => of_c(|error| {
                qpair_batch_put(handle(within), of, key, key_len, value, value_len, error)
            }),
            _ => Err(not_there(place)),
        }?;
    }
    Ok(replaced)
}

/// Removes a record, and returns whether a table or transaction had one.
///
/// # Safety
/// The key is readable during the call, and nobody changes it.
#[inline(always)]
unsafe fn delete(
    (place, within, table): (jint, jlong, jlong),
    (key, key_len): Bytes,
) -> Result<jboolean, Failure> {
    let mut deleted = false;
    let (of, to) = (handle(table), &raw mut deleted);
    // SAFETY: rule 4, and by the caller; the result is a variable.
    unsafe {
        match place {
            TABLE => of_c(|error| qpair_delete(of, key, key_len, to, error)),
            TRANSACTION => {
                of_c(|error| qpair_transaction_delete(handle(within), of, key, key_len, to, error))
            }
            BATCH => of_c(|error| qpair_batch_delete(handle(within), of, key, key_len, error)),
            _ => Err(not_there(place)),
        }?;
    }
    Ok(deleted)
}

/// Puts a record from arrays.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_write(
    env: *mut JNIEnv,
    _class: jclass,
    place: jint,
    within: jlong,
    table: jlong,
    key: jbyteArray,
    value: jbyteArray,
) -> jboolean {
    let to = (place, within, table);
    // SAFETY: rules 1 and 2; key and value are copies.
    unsafe {
        call(env, false, |env| {
            with_array(env, key, "key", |key| {
                with_array(env, value, "value", |value| put(to, of(key), of(value)))
            })
        })
    }
}

/// Puts a record from direct buffers.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_writeFrom(
    env: *mut JNIEnv,
    _class: jclass,
    place: jint,
    within: jlong,
    table: jlong,
    key: jobject,
    key_at: jint,
    key_len: jint,
    value: jobject,
    value_at: jint,
    value_len: jint,
) -> jboolean {
    // SAFETY: rules 1 to 3: the parts are inside of buffers that live during the call.
    unsafe {
        call(env, false, |env| {
            let key = Part::of(env, key, key_at, key_len, "key")?;
            let value = Part::of(env, value, value_at, value_len, "value")?;
            put((place, within, table), of_part(key), of_part(value))
        })
    }
}

/// Removes the record of a key in an array.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_remove(
    env: *mut JNIEnv,
    _class: jclass,
    place: jint,
    within: jlong,
    table: jlong,
    key: jbyteArray,
) -> jboolean {
    let from = (place, within, table);
    // SAFETY: rules 1 and 2; the key is a copy.
    unsafe { call(env, false, |env| with_array(env, key, "key", |key| delete(from, of(key)))) }
}

/// Removes the record of a key in a direct buffer.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_removeFrom(
    env: *mut JNIEnv,
    _class: jclass,
    place: jint,
    within: jlong,
    table: jlong,
    key: jobject,
    key_at: jint,
    key_len: jint,
) -> jboolean {
    // SAFETY: rules 1 to 3: the part is inside of a buffer that lives during the call.
    unsafe {
        call(env, false, |env| {
            let key = Part::of(env, key, key_at, key_len, "key")?;
            delete((place, within, table), of_part(key))
        })
    }
}

/// Returns the number of a new handle.
fn made<T>(
    make: impl FnOnce(*mut *mut T, *mut *mut qpair_error) -> c_int,
) -> Result<jlong, Failure> {
    let mut new = null_mut();
    of_c(|error| make(&raw mut new, error))?;
    Ok(number(new))
}

/// Returns a new batch.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_batchNew(
    env: *mut JNIEnv,
    _class: jclass,
) -> jlong {
    // SAFETY: rule 1; the result is a variable.
    unsafe { call(env, 0, |_| made(|batch, error| qpair_batch_new(batch, error))) }
}

/// Removes all changes from a batch.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_batchClear(
    env: *mut JNIEnv,
    _class: jclass,
    batch: jlong,
) {
    // SAFETY: rules 1 and 4.
    unsafe { call(env, (), |_| of_c(|error| qpair_batch_clear(handle(batch), error))) }
}

/// Makes the changes of a batch.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_batchWrite(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
    batch: jlong,
) {
    // SAFETY: rules 1 and 4.
    unsafe { call(env, (), |_| of_c(|error| qpair_write(handle(store), handle(batch), error))) }
}

/// Begins a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_begin(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
) -> jlong {
    // SAFETY: rules 1 and 4; the result is a variable.
    unsafe {
        call(env, 0, |_| made(|begun, error| qpair_begin(handle(store), null(), begun, error)))
    }
}

/// Commits a transaction, and returns its timestamp.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_commit(
    env: *mut JNIEnv,
    _class: jclass,
    transaction: jlong,
) -> jlong {
    let mut timestamp = 0;
    // SAFETY: rules 1 and 4; the result is a variable.
    unsafe {
        call(env, 0, |_| {
            of_c(|error| qpair_commit(handle(transaction), &raw mut timestamp, error))?;
            Ok(timestamp as jlong)
        })
    }
}

/// Takes a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_snapshotTake(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
) -> jlong {
    // SAFETY: rules 1 and 4; the result is a variable.
    unsafe {
        call(env, 0, |_| made(|taken, error| qpair_snapshot_take(handle(store), taken, error)))
    }
}
