//! Why an operation of a key-value store failed.

use std::fmt;

/// What the operations of a key-value store answer.
pub type KvResult<T> = Result<T, KvError>;

/// Why an operation failed.
#[derive(Clone, Debug)]
pub enum KvError {
    /// Another transaction was in the way: to be rolled back and tried again.
    Conflict,
    /// An error of a qpair store.
    Store(qpair::Error),
    /// Any other error, in words.
    Other(String),
}

impl KvError {
    /// Whether trying again makes sense.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict)
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("a conflict with another transaction"),
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
