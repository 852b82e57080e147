//! Native methods of stores and tables, and the close of handles.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use jni_sys::{JNIEnv, jbyteArray, jclass, jint, jlong};
use qpair_capi::{
    qpair_batch_free, qpair_checkpoint, qpair_close, qpair_count_estimate, qpair_error, qpair_open,
    qpair_open_handles, qpair_options, qpair_options_free, qpair_options_new, qpair_options_set,
    qpair_range_close, qpair_rollback, qpair_snapshot_release, qpair_statistics, qpair_table_close,
    qpair_table_drop, qpair_table_names, qpair_table_open, qpair_value, qpair_value_release,
    qpair_value_text,
};

use crate::bytes::with_array;
use crate::call::{Failure, call, handle, number, of_c};
use crate::env::Env;

/// Runs a call with a text, which Java passes with a zero byte behind it.
unsafe fn with_text<R>(
    env: &Env,
    text: jbyteArray,
    run: impl FnOnce(*const c_char) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let run = |bytes: &[u8]| match CStr::from_bytes_with_nul(bytes) {
        Ok(text) => run(text.as_ptr()),
        Err(_) => Err(Failure::invalid("A text with a zero character cannot be passed to qpair")),
    };
    // SAFETY: rule 2, by the caller.
    unsafe { with_array(env, text, "text", run) }
}

/// Returns a new array with a text that C lends, which is released.
fn taken(
    env: &Env,
    lend: impl FnOnce(*mut *mut qpair_value, *mut *mut qpair_error) -> c_int,
) -> Result<jbyteArray, Failure> {
    let mut value = null_mut();
    of_c(|error| lend(&raw mut value, error))?;
    let text = qpair_value_text(value);
    let array = match text.is_null() {
        true => Ok(null_mut()),
        // SAFETY: rule 4: lent until the release below.
        false => env.array(unsafe { CStr::from_ptr(text) }.to_bytes()),
    };
    // SAFETY: a null error is allowed.
    unsafe { qpair_value_release(value, null_mut()) };
    array
}

/// Frees options at the end of a call.
struct Free(*mut qpair_options);

impl Drop for Free {
    fn drop(&mut self) {
        // SAFETY: a null error is allowed.
        unsafe { qpair_options_free(self.0, null_mut()) };
    }
}

/// Opens a store. The texts are its specifier, and the names and values of options, a zero byte
/// behind each.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_open(
    env: *mut JNIEnv,
    _class: jclass,
    texts: jbyteArray,
) -> jlong {
    let open = |texts: &[u8]| -> Result<jlong, Failure> {
        let mut texts = texts.split_inclusive(|byte| *byte == 0).map(CStr::from_bytes_with_nul);
        let mut next = || texts.next().and_then(Result::ok);
        let specifier = next().ok_or_else(|| Failure::invalid("The store has no specifier"))?;
        let mut options = null_mut();
        // SAFETY: rule 4; texts end with their zero byte, and results are variables.
        unsafe {
            of_c(|error| qpair_options_new(&raw mut options, error))?;
            let options = Free(options);
            while let (Some(name), Some(value)) = (next(), next()) {
                of_c(|error| qpair_options_set(options.0, name.as_ptr(), value.as_ptr(), error))?;
            }
            let mut store = null_mut();
            of_c(|error| qpair_open(specifier.as_ptr(), options.0, &raw mut store, error))?;
            Ok(number(store))
        }
    };
    // SAFETY: rules 1 and 2.
    unsafe { call(env, 0, |env| with_array(env, texts, "specifier", open)) }
}

/// Closes a handle, whose kind is the ordinal of `Binding.Kind`.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_close(
    env: *mut JNIEnv,
    _class: jclass,
    kind: jint,
    closing: jlong,
) {
    // SAFETY: rules 1 and 4.
    unsafe {
        call(env, (), |_| match kind {
            0 => of_c(|error| qpair_close(handle(closing), error)),
            1 => of_c(|error| qpair_table_close(handle(closing), error)),
            2 => of_c(|error| qpair_batch_free(handle(closing), error)),
            3 => of_c(|error| qpair_rollback(handle(closing), error)),
            4 => of_c(|error| qpair_snapshot_release(handle(closing), error)),
            5 => of_c(|error| qpair_range_close(handle(closing), error)),
            _ => Err(Failure::misuse(format!("The kind {kind} of a handle is not known"))),
        });
    }
}

/// Returns the number of open handles.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_openHandles(
    env: *mut JNIEnv,
    _class: jclass,
) -> jlong {
    // SAFETY: rule 1.
    unsafe { call(env, 0, |_| Ok(qpair_open_handles() as jlong)) }
}

/// Opens a table, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_tableOpen(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
    name: jbyteArray,
) -> jlong {
    let open = |name| {
        let mut table = null_mut();
        // SAFETY: rule 4; the text ends with a zero byte, and the result is a variable.
        of_c(|error| unsafe { qpair_table_open(handle(store), name, &raw mut table, error) })?;
        Ok(number(table))
    };
    // SAFETY: rules 1 and 2.
    unsafe { call(env, 0, |env| with_text(env, name, open)) }
}

/// Removes a table.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_tableDrop(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
    name: jbyteArray,
) {
    // SAFETY: rule 4; the text ends with a zero byte.
    let drop = |name| of_c(|error| unsafe { qpair_table_drop(handle(store), name, error) });
    // SAFETY: rules 1 and 2.
    unsafe { call(env, (), |env| with_text(env, name, drop)) }
}

/// Returns the names of tables, as JSON in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_tableNames(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
) -> jbyteArray {
    // SAFETY: rule 4.
    let names = |value, error| unsafe { qpair_table_names(handle(store), value, error) };
    // SAFETY: rule 1.
    unsafe { call(env, null_mut(), |env| taken(env, names)) }
}

/// Returns statistics in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_statistics(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
    form: jint,
) -> jbyteArray {
    // SAFETY: rule 4.
    let text = |value, error| unsafe { qpair_statistics(handle(store), form as u32, value, error) };
    // SAFETY: rule 1.
    unsafe { call(env, null_mut(), |env| taken(env, text)) }
}

/// Makes a checkpoint.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_checkpoint(
    env: *mut JNIEnv,
    _class: jclass,
    store: jlong,
) {
    // SAFETY: rules 1 and 4.
    unsafe { call(env, (), |_| of_c(|error| qpair_checkpoint(handle(store), error))) }
}

/// Returns an estimate of the number of records of a table.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_qpair_Native_countEstimate(
    env: *mut JNIEnv,
    _class: jclass,
    table: jlong,
) -> jlong {
    let mut records = 0;
    // SAFETY: rules 1 and 4; the result is a variable.
    unsafe {
        call(env, 0, |_| {
            of_c(|error| qpair_count_estimate(handle(table), &raw mut records, error))?;
            Ok(records as jlong)
        })
    }
}
