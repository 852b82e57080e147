//! Native methods that read a record: of a table, a transaction or a snapshot.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use jni_sys::{JNIEnv, jbyteArray, jclass, jint, jlong, jobject};
use qpair_capi::{qpair_get, qpair_snapshot_get, qpair_transaction_get};

use crate::bytes::{Part, with_array};
use crate::call::{Failure, call, handle, of_c};

/// Where a record is read or written, as `Binding` has it in Java: a table.
pub(crate) const TABLE: jint = 0;
/// A transaction.
pub(crate) const TRANSACTION: jint = 1;
const SNAPSHOT: jint = 2;
/// A batch.
pub(crate) const BATCH: jint = 3;

/// The length up to which a value is read into the stack.
const SHORT_LEN: usize = 4096;

/// The length that a key without a record has, in C and in Java.
const NO_RECORD: jlong = -1;

#[cold]
pub(crate) fn not_there(place: jint) -> Failure {
    Failure::misuse(format!("The place {place} has no such call"))
}

/// Copies a value as far as there is room, and returns its length, or [`NO_RECORD`].
///
/// # Safety
/// `key` is readable, and `capacity` bytes at `into` are writable, during the call.
#[inline(always)]
unsafe fn read(
    (place, within, table): (jint, jlong, jlong),
    key: (*const c_void, usize),
    into: *mut c_void,
    capacity: usize,
) -> Result<jlong, Failure> {
    let mut len = 0;
    let (at, size, to) = (key.0, key.1, &raw mut len);
    // SAFETY: rule 4, and by the caller; the length is a variable.
    unsafe {
        match place {
            TABLE => of_c(|error| qpair_get(handle(table), at, size, into, capacity, to, error)),
            TRANSACTION => of_c(|error| {
                let (within, table) = (handle(within), handle(table));
                qpair_transaction_get(within, table, at, size, into, capacity, to, error)
            }),
            SNAPSHOT => of_c(|error| {
                let (within, table) = (handle(within), handle(table));
                qpair_snapshot_get(within, table, at, size, into, capacity, to, error)
            }),
            _ => Err(not_there(place)),
        }?;
    }
    Ok(len as jlong)
}

/// Returns the value of a key as a new array, or null without a record.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_read(
    env: *mut JNIEnv,
    _class: jclass,
    place: jint,
    within: jlong,
    table: jlong,
    key: jbyteArray,
) -> jbyteArray {
    let of = (place, within, table);
    let get = |env: &_, key: &[u8]| {
        let key = (key.as_ptr().cast(), key.len());
        let mut short = [MaybeUninit::<u8>::uninit(); SHORT_LEN];
        let mut long = Vec::<u8>::new();
        let (mut room, mut capacity) = (short.as_mut_ptr().cast::<u8>(), SHORT_LEN);
        loop {
            // SAFETY: the key is a copy, and the room has the capacity.
            let len = unsafe { read(of, key, room.cast(), capacity)? };
            if len == NO_RECORD {
                return Ok(null_mut());
            }
            if len as usize <= capacity {
                // SAFETY: the call has written so many bytes.
                let value = unsafe { std::slice::from_raw_parts(room, len as usize) };
                return crate::env::Env::array(env, value);
            }
            long.reserve_exact(len as usize);
            (room, capacity) = (long.as_mut_ptr(), long.capacity());
        }
    };
    // SAFETY: rules 1 and 2.
    unsafe { call(env, null_mut(), |env| with_array(env, key, "key", |key| get(env, key))) }
}

/// Copies the value of a key into a direct buffer, as far as there is room, and returns the length
/// of the value, or -1 without a record.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_readInto(
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
) -> jlong {
    let of = (place, within, table);
    // SAFETY: rules 1 to 3: the parts are inside of buffers that live during the call. A key that
    // would change with the value is copied first.
    unsafe {
        call(env, 0, |env| {
            let key = Part::of(env, key, key_at, key_len, "key")?;
            let into = Part::of(env, value, value_at, value_len, "value")?;
            let to = into.at.cast();
            if key.overlaps(into) {
                let copy = std::slice::from_raw_parts(key.at, key.len).to_vec();
                return read(of, (copy.as_ptr().cast(), copy.len()), to, into.len);
            }
            read(of, (key.at.cast_const().cast(), key.len), to, into.len)
        })
    }
}
