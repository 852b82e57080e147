//! Errors: a code, a message, and advice, which the caller frees.

use std::any::Any;
use std::ffi::{CString, c_char, c_int};
use std::ptr::null;

use qpair::{Error, ErrorKind};

use crate::call::guarded;
use crate::code::{
    QPAIR_BUSY, QPAIR_FORKED, QPAIR_LIMIT, QPAIR_MISUSE, QPAIR_OK, QPAIR_PANICKED, code_of,
};
use crate::handle::Handles;

static ERRORS: Handles<Told> = Handles::new(1, "qpair_error");

/// An error that a call has returned: a code, a message for people, and perhaps advice. The caller
/// owns it, and frees it with `qpair_error_free`.
pub struct qpair_error {
    _opaque: [u8; 0],
}

/// The error of a call, before C sees it.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(Error),
    /// An error that only the interface to C has.
    Call {
        code: c_int,
        message: String,
        hint: &'static str,
    },
    /// A code that a function of the caller returned, for the caller alone.
    Callers(c_int),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    #[cold]
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::Call { code: QPAIR_MISUSE, message: message.into(), hint: "" }
    }

    #[cold]
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Store(Error::new(ErrorKind::Invalid, message))
    }

    #[cold]
    pub(crate) fn limit(message: impl Into<String>) -> Self {
        let hint = "close handles that are no longer used";
        Self::Call { code: QPAIR_LIMIT, message: message.into(), hint }
    }

    #[cold]
    pub(crate) fn forked(name: &str) -> Self {
        Self::Call {
            code: QPAIR_FORKED,
            message: format!(
                "the handle of the kind {name} belongs to a process of which this one is a fork"
            ),
            hint: "open stores and devices after the fork, in the process that uses them",
        }
    }

    #[cold]
    pub(crate) fn in_use(name: &str) -> Self {
        Self::Call {
            code: QPAIR_BUSY,
            message: format!("another call uses the handle of the kind {name}"),
            hint: "use the handle in one thread at a time, and close it when its calls have returned",
        }
    }

    #[cold]
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::Call {
            code: QPAIR_PANICKED,
            message: format!("the library has panicked: {}", text.unwrap_or("it said no more")),
            hint: "this is a bug of qpair: close what the call has used, and report the bug",
        }
    }

    pub(crate) fn code(&self) -> c_int {
        match self {
            Self::Store(error) => code_of(error.kind()),
            Self::Call { code, .. } | Self::Callers(code) => *code,
        }
    }

    /// Gives the error a handle. Returns null for a code of the caller's own, and if there is no
    /// room for another handle.
    #[cold]
    pub(crate) fn into_handle(self) -> *mut qpair_error {
        let code = self.code();
        let (message, hint) = match self {
            Self::Store(error) => (error.to_string(), error.way_out().unwrap_or("").to_owned()),
            Self::Call { message, hint: "", .. } => (message, String::new()),
            Self::Call { message, hint, .. } => (format!("{message} ({hint})"), hint.to_owned()),
            Self::Callers(_) => return std::ptr::null_mut(),
        };
        let [message, hint] = [message, hint].map(text);
        ERRORS.insert(Told { code, message, hint }).unwrap_or(std::ptr::null_mut())
    }
}

/// An error that C has a handle of.
struct Told {
    code: c_int,
    message: CString,
    hint: CString,
}

fn text(text: String) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn read<R>(error: *const qpair_error, otherwise: R, read: impl FnOnce(&Told) -> R) -> R {
    let told = || ERRORS.with(error.cast_mut(), |told| Ok(read(told)));
    guarded(told).unwrap_or(otherwise)
}

/// Returns the code of an error; `QPAIR_OK` if `error` is null, and `QPAIR_MISUSE` if it was freed.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_error_code(error: *const qpair_error) -> c_int {
    read(error, if error.is_null() { QPAIR_OK } else { QPAIR_MISUSE }, |told| told.code)
}

/// Returns the message of an error, with the advice in parentheses at its end: a sentence in UTF-8,
/// which may change from release to release. The text is there until the error is freed. Returns
/// null if `error` is null or was freed.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_error_message(error: *const qpair_error) -> *const c_char {
    read(error, null(), |told| told.message.as_ptr())
}

/// Returns the advice of an error alone, or an empty text if it has none. The text is there until
/// the error is freed. Returns null if `error` is null or was freed.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_error_hint(error: *const qpair_error) -> *const c_char {
    read(error, null(), |told| told.hint.as_ptr())
}

/// Frees an error. Does nothing if `error` is null or was freed before.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_error_free(error: *mut qpair_error) {
    // A second call finds no object, which is what it wants.
    let _ = guarded(|| ERRORS.remove(error, |_| Ok(())));
}

/// Returns the number of errors, for `qpair_open_handles`.
pub(crate) fn count() -> usize {
    ERRORS.count()
}
