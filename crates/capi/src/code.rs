//! The codes that calls return. Their numbers never change.

use std::ffi::{CStr, c_char, c_int};

use qpair::ErrorKind;

/// The call succeeded.
pub const QPAIR_OK: c_int = 0;
/// An argument or option is out of range, or the call is not allowed here.
pub const QPAIR_INVALID: c_int = 1;
/// A key is longer than 65,535 bytes, or too long for a table with a time to live.
pub const QPAIR_KEY_TOO_LONG: c_int = 2;
/// A value is longer than 16 MiB.
pub const QPAIR_VALUE_TOO_LONG: c_int = 3;
/// The store, table, file or device does not exist. (A key without a record is no error.)
pub const QPAIR_NOT_FOUND: c_int = 4;
/// A table has this name already, or a device has other content.
pub const QPAIR_EXISTS: c_int = 5;
/// The permission is missing.
pub const QPAIR_DENIED: c_int = 6;
/// The store or device is open elsewhere, another call uses the handle, or too many requests are
/// in flight.
pub const QPAIR_BUSY: c_int = 7;
/// The devices do not hold a store of this software.
pub const QPAIR_NOT_A_STORE: c_int = 8;
/// The store has a version or features that this library does not know.
pub const QPAIR_VERSION: c_int = 9;
/// The store was not closed, and cannot be recovered as it is to be opened.
pub const QPAIR_UNCLEAN: c_int = 10;
/// A member of the store is missing, or is in the place of another one.
pub const QPAIR_MEMBER: c_int = 11;
/// The bytes read differ from those that were written.
pub const QPAIR_CORRUPT: c_int = 12;
/// The device has no space left.
pub const QPAIR_NO_SPACE: c_int = 13;
/// The memory that the store was given is too small.
pub const QPAIR_NO_MEMORY: c_int = 14;
/// The machine does not support the request.
pub const QPAIR_UNSUPPORTED: c_int = 15;
/// A limit of the process or machine is too small.
pub const QPAIR_LIMIT: c_int = 16;
/// The store or device was opened read-only, or the store became read-only by a failed write.
pub const QPAIR_READ_ONLY: c_int = 17;
/// The device failed.
pub const QPAIR_IO: c_int = 18;
/// The store is closed.
pub const QPAIR_CLOSED: c_int = 19;
/// Another transaction has changed or locked a row that this one needs: run it again.
pub const QPAIR_CONFLICT: c_int = 20;
/// A row was locked for longer than the lock timeout. The call had no effect.
pub const QPAIR_TIMED_OUT: c_int = 21;
/// The transaction needs more memory than it may have.
pub const QPAIR_TOO_LARGE: c_int = 22;
/// The snapshot was given up, because the older values that it needed took too much memory.
pub const QPAIR_SNAPSHOT_LOST: c_int = 23;
/// A function of the caller stopped the operation.
pub const QPAIR_INTERRUPTED: c_int = 24;
/// The library has a bug, and panicked. A store that says so must be opened again.
pub const QPAIR_PANICKED: c_int = 25;
/// The call has a null pointer where none is allowed, a handle that was closed or is of another
/// kind, or a struct without its size.
pub const QPAIR_MISUSE: c_int = 26;
/// The handle was made by a process of which this one is a fork. Nothing was done.
pub const QPAIR_FORKED: c_int = 27;
/// The error is of a kind that this version of the interface has no number for.
pub const QPAIR_OTHER: c_int = 28;

/// The code, name and kind of each error.
const CODES: [(c_int, &CStr, Option<ErrorKind>); 29] = [
    (QPAIR_OK, c"QPAIR_OK", None),
    (QPAIR_INVALID, c"QPAIR_INVALID", Some(ErrorKind::Invalid)),
    (QPAIR_KEY_TOO_LONG, c"QPAIR_KEY_TOO_LONG", Some(ErrorKind::KeyTooLong)),
    (QPAIR_VALUE_TOO_LONG, c"QPAIR_VALUE_TOO_LONG", Some(ErrorKind::ValueTooLong)),
    (QPAIR_NOT_FOUND, c"QPAIR_NOT_FOUND", Some(ErrorKind::NotFound)),
    (QPAIR_EXISTS, c"QPAIR_EXISTS", Some(ErrorKind::Exists)),
    (QPAIR_DENIED, c"QPAIR_DENIED", Some(ErrorKind::Denied)),
    (QPAIR_BUSY, c"QPAIR_BUSY", Some(ErrorKind::Busy)),
    (QPAIR_NOT_A_STORE, c"QPAIR_NOT_A_STORE", Some(ErrorKind::NotAStore)),
    (QPAIR_VERSION, c"QPAIR_VERSION", Some(ErrorKind::Version)),
    (QPAIR_UNCLEAN, c"QPAIR_UNCLEAN", Some(ErrorKind::Unclean)),
    (QPAIR_MEMBER, c"QPAIR_MEMBER", Some(ErrorKind::Member)),
    (QPAIR_CORRUPT, c"QPAIR_CORRUPT", Some(ErrorKind::Corrupt)),
    (QPAIR_NO_SPACE, c"QPAIR_NO_SPACE", Some(ErrorKind::NoSpace)),
    (QPAIR_NO_MEMORY, c"QPAIR_NO_MEMORY", Some(ErrorKind::NoMemory)),
    (QPAIR_UNSUPPORTED, c"QPAIR_UNSUPPORTED", Some(ErrorKind::Unsupported)),
    (QPAIR_LIMIT, c"QPAIR_LIMIT", Some(ErrorKind::Limit)),
    (QPAIR_READ_ONLY, c"QPAIR_READ_ONLY", Some(ErrorKind::ReadOnly)),
    (QPAIR_IO, c"QPAIR_IO", Some(ErrorKind::Io)),
    (QPAIR_CLOSED, c"QPAIR_CLOSED", Some(ErrorKind::Closed)),
    (QPAIR_CONFLICT, c"QPAIR_CONFLICT", Some(ErrorKind::Conflict)),
    (QPAIR_TIMED_OUT, c"QPAIR_TIMED_OUT", Some(ErrorKind::TimedOut)),
    (QPAIR_TOO_LARGE, c"QPAIR_TOO_LARGE", Some(ErrorKind::TooLarge)),
    (QPAIR_SNAPSHOT_LOST, c"QPAIR_SNAPSHOT_LOST", Some(ErrorKind::SnapshotLost)),
    (QPAIR_INTERRUPTED, c"QPAIR_INTERRUPTED", Some(ErrorKind::Interrupted)),
    (QPAIR_PANICKED, c"QPAIR_PANICKED", Some(ErrorKind::Panicked)),
    (QPAIR_MISUSE, c"QPAIR_MISUSE", None),
    (QPAIR_FORKED, c"QPAIR_FORKED", None),
    (QPAIR_OTHER, c"QPAIR_OTHER", None),
];

pub(crate) fn code_of(kind: ErrorKind) -> c_int {
    let of = CODES.iter().find(|(_, _, its)| *its == Some(kind));
    of.map_or(QPAIR_OTHER, |(code, _, _)| *code)
}

/// Returns the kind of an error of the store with this code.
pub(crate) fn kind_of(code: c_int) -> Option<ErrorKind> {
    CODES.iter().find(|(its, _, _)| *its == code).and_then(|(_, _, kind)| *kind)
}

/// Returns the name of a code, such as "QPAIR_NOT_FOUND". The text is constant. Returns
/// "unknown code" for a number that is no code.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_code_name(code: c_int) -> *const c_char {
    let of = CODES.iter().find(|(its, _, _)| *its == code);
    of.map_or(c"unknown code", |(_, name, _)| name).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_their_places_and_kinds_come_back() {
        for (at, (code, name, kind)) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, at, "{name:?}");
            if let Some(kind) = kind {
                assert_eq!((code_of(*kind), kind_of(*code)), (*code, Some(*kind)));
            }
        }
        assert_eq!(kind_of(QPAIR_MISUSE), None);
    }
}
