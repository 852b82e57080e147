//! Errors of a peer.

use std::fmt;

/// An error of a peer. A transaction that met one is over and rolled back.
#[derive(Debug)]
pub enum Error {
    /// The transaction lost a conflict; the same transaction may succeed if it is run again.
    Conflict(String),
    /// Any other error, in the peer's words.
    Failed(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(why) => write!(f, "conflict with another transaction: {why}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

/// An error with what was being done.
pub(crate) fn failed(doing: &str, why: impl fmt::Display) -> Error {
    Error::Failed(format!("{doing}: {why}"))
}

/// A path or name as C takes it.
pub(crate) fn c_string(bytes: &[u8]) -> Result<std::ffi::CString> {
    std::ffi::CString::new(bytes).map_err(|error| failed("a name with a zero byte in it", error))
}

/// Returns the error for an operation without an open transaction.
pub(crate) fn not_open() -> Error {
    Error::Failed("no transaction is open".to_owned())
}
