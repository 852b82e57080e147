//! The frame of each native method: errors and panics become exceptions of Java.

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null_mut, without_provenance_mut};

use jni_sys::{JNIEnv, jlong};
use qpair_capi::{
    QPAIR_INVALID, QPAIR_MISUSE, QPAIR_OK, QPAIR_PANICKED, qpair_error, qpair_error_free,
    qpair_error_message,
};

use crate::env::Env;

/// The reason why a native method has no result.
pub(crate) enum Failure {
    /// A function of JNI has failed, and an exception is pending.
    Pending,
    /// An argument that must not be null is null.
    Null(&'static str),
    /// A `QpairException` with a code of the C interface.
    Call { code: c_int, message: String },
}

impl Failure {
    #[cold]
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::Call { code: QPAIR_MISUSE, message: message.into() }
    }

    #[cold]
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Call { code: QPAIR_INVALID, message: message.into() }
    }
}

/// Runs the body of a native method. After a failure an exception is pending, and the machine
/// ignores the returned value.
///
/// # Safety
/// `env` follows rule 1 of the crate.
#[inline(always)]
pub(crate) unsafe fn call<R>(
    env: *mut JNIEnv,
    otherwise: R,
    run: impl FnOnce(&Env) -> Result<R, Failure>,
) -> R {
    // SAFETY: rule 1, by the caller.
    let env = unsafe { Env::new(env) };
    match catch_unwind(AssertUnwindSafe(|| run(&env))) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => throw(&env, failure),
        Err(panic) => {
            // Dropping the panic's value could panic again.
            std::mem::forget(panic);
            let message = "The native methods of qpair have panicked: report this bug".to_owned();
            throw(&env, Failure::Call { code: QPAIR_PANICKED, message });
        }
    }
    otherwise
}

#[cold]
fn throw(env: &Env, failure: Failure) {
    match failure {
        Failure::Pending => {}
        Failure::Null(name) => env.throw_null(name),
        Failure::Call { code, message } => env.throw(code, &message),
    }
}

/// Runs a function of the C interface, which gets the place for its error.
#[inline(always)]
pub(crate) fn of_c(run: impl FnOnce(*mut *mut qpair_error) -> c_int) -> Result<(), Failure> {
    let mut error = null_mut();
    match run(&raw mut error) {
        QPAIR_OK => Ok(()),
        code => Err(failed(code, error)),
    }
}

#[cold]
fn failed(code: c_int, error: *mut qpair_error) -> Failure {
    let text = qpair_error_message(error);
    let message = match text.is_null() {
        true => format!("qpair returned the code {code}"),
        // SAFETY: a text of the C interface, which is there until the error is freed below.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    };
    qpair_error_free(error);
    Failure::Call { code, message }
}

/// Returns a handle of the C interface, which Java has as a number.
#[inline(always)]
pub(crate) fn handle<T>(number: jlong) -> *mut T {
    without_provenance_mut(number as usize)
}

/// Returns the number of a handle.
#[inline(always)]
pub(crate) fn number<T>(handle: *mut T) -> jlong {
    handle.addr() as jlong
}
