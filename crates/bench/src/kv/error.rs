//! Errors of the operations of a key-value store.

use std::fmt;

/// The result of an operation of a key-value store.
pub type KvResult<T> = Result<T, KvError>;

/// The error of an operation.
#[derive(Clone, Debug)]
pub enum KvError {
    /// Another transaction was in the way. The transaction must be rolled back and may be tried
    /// again.
    Conflict,
    /// An error of a qpair store.
    Store(qpair::Error),
    /// Any other error, in words.
    Other(String),
}

impl KvError {
    /// Whether another attempt may succeed.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict)
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("the transaction conflicts with another one"),
            Self::Store(error) => error.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for KvError {}

impl From<qpair::Error> for KvError {
    fn from(error: qpair::Error) -> Self {
        match error.kind() {
            qpair::ErrorKind::Conflict => Self::Conflict,
            _ => Self::Store(error),
        }
    }
}

impl From<KvError> for qpair::Error {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Store(error) => error,
            other => Self::new(qpair::ErrorKind::Invalid, other.to_string()),
        }
    }
}
