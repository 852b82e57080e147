//! The errors of a store.

use std::fmt;

use qpair_block as block;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, for programs.
///
/// ```
/// use qpair_format::{Error, ErrorKind};
///
/// fn may_try_again(error: &Error) -> bool {
///     matches!(error.kind(), ErrorKind::Conflict | ErrorKind::TimedOut | ErrorKind::NoSpace)
/// }
/// assert!(may_try_again(&Error::new(ErrorKind::Conflict, "another transaction was first")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something invalid: an option out of range, a call in the wrong place.
    Invalid,
    /// A key is longer than the store takes.
    KeyTooLong,
    /// A value is longer than the store takes.
    ValueTooLong,
    /// There is no such store or table.
    NotFound,
    /// Something exists already: a table of this name, or other content on a device.
    Exists,
    /// Permission denied.
    Denied,
    /// The store is open elsewhere.
    Busy,
    /// The devices do not hold a store of this software.
    NotAStore,
    /// A store of a version or with features that this software does not know.
    Version,
    /// The devices do not hold a store of this software.
    Unclean,
    /// A member of the store is missing, or is in the place of another one.
    Member,
    /// The bytes read differ from those that were written.
    Corrupt,
    /// No space left on the device.
    NoSpace,
    /// The configured memory is too small for the request.
    NoMemory,
    /// The machine does not support the request.
    Unsupported,
    /// A limit of the process or machine is too small.
    Limit,
    /// The store was opened read-only, or became read-only by a failed write.
    ReadOnly,
    /// The device failed.
    Io,
    /// The store is closed.
    Closed,
    /// Another transaction has changed or locked a row that this one needs. Roll back and try
    /// again.
    Conflict,
    /// A row was locked by another transaction for longer than the lock time-out. The call had no
    /// effect, and the transaction continues.
    TimedOut,
    /// A transaction needs more memory than it may have.
    TooLarge,
    /// A snapshot was given up, because the older values that it needed took too much memory; or
    /// the checkpoint that a reader beside another process sees, because its pages took too much
    /// space.
    SnapshotLost,
    /// The caller asked for the operation to end early.
    Interrupted,
    /// The engine panicked because of a bug. The store cannot be used until it is opened again.
    Panicked,
}

/// A remedy that a program can offer to its user in its own words: a command, an option, a button.
///
/// ```
/// use qpair_format::{Error, Remedy};
///
/// /// What a program with a user interface of its own offers.
/// fn button(error: &Error) -> Option<&'static str> {
///     match error.remedy()? {
///         Remedy::Repair => Some("Repair the store"),
///         Remedy::Check => Some("Check the store"),
///         _ => None,
///     }
/// }
/// # assert_eq!(button(&Error::new(qpair_format::ErrorKind::Closed, "closed")), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// Save the readable part of a damaged store: `qpair::repair`.
    Repair,
    /// Find all damage, before a repair: `Store::check`.
    Check,
    /// Create a store on devices that hold only zeroes.
    Make,
    /// Allow the content of a device to be lost.
    Overwrite,
    /// Name the device that the store's log is on: `LogPlace`.
    NameLog,
    /// Name the log device, or another place for the log of a closed store.
    PlaceLog,
    /// Give the store more memory.
    Memory,
    /// Open files without direct I/O.
    Buffered,
    /// Copy the store into one with another page size.
    PageSize,
    /// Open the store with fewer workers.
    FewerWorkers,
}

/// The advice for a damaged store.
pub const SALVAGE: &str =
    "restore the store from a backup, or run a repair, which salvages the readable records";

/// An error: a kind for programs, context for people, the cause, and the remedy.
#[derive(Clone)]
pub struct Error(std::sync::Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    context: String,
    hint: Option<String>,
    remedy: Option<Remedy>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error. `context` names the operation and its object.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self::made(kind, context.into(), None, None)
    }

    /// Creates an error with advice for people.
    #[must_use]
    pub fn with_hint(kind: ErrorKind, context: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::made(kind, context.into(), Some(hint.into()), None)
    }

    /// Creates an error with a remedy that programs have their own words for.
    #[must_use]
    pub fn with_remedy(
        kind: ErrorKind,
        context: impl Into<String>,
        hint: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        Self::made(kind, context.into(), Some(hint.into()), Some(remedy))
    }

    fn made(
        kind: ErrorKind,
        context: String,
        hint: Option<String>,
        remedy: Option<Remedy>,
    ) -> Self {
        Self(Inner { kind, context, hint, remedy, source: None }.into())
    }

    /// Creates the error for damage, for which only a backup or a repair helps.
    #[doc(hidden)]
    pub fn damaged(context: impl Into<String>) -> Self {
        Self::with_remedy(ErrorKind::Corrupt, context, SALVAGE, Remedy::Repair)
    }

    /// Creates the error for a call after the close.
    #[doc(hidden)]
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the store is closed, or is being closed")
    }

    /// Creates the error of a reader whose checkpoint the store's writer no longer keeps.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub fn reader_lost() -> Self {
        Self::with_hint(
            ErrorKind::SnapshotLost,
            "the process that writes the store no longer keeps the checkpoint that this reader sees",
            "open the store again: it shows the newest checkpoint",
        )
    }

    /// Creates the error for a call on a dropped table.
    #[doc(hidden)]
    #[cold]
    pub fn table_dropped() -> Self {
        Self::new(ErrorKind::NotFound, "the table was dropped")
    }

    /// Creates an error from an error of the block layer that occurred during `context`.
    #[doc(hidden)]
    #[must_use]
    pub fn block(source: block::Error, context: impl Into<String>) -> Self {
        let kind = kind_of(source.kind());
        let remedy = source.is_of_direct_io().then_some(Remedy::Buffered);
        let (source, hint) = source.take_way_out();
        let (context, source) = (context.into(), Some(Box::new(source) as _));
        Self(Inner { kind, context, hint, remedy, source }.into())
    }

    /// Creates an error from an error of a request that occurred during `context`.
    #[doc(hidden)]
    #[must_use]
    pub fn io(source: block::IoError, context: impl Into<String>) -> Self {
        if source == block::IoError::STALE {
            return Self::reader_lost();
        }
        let cause = std::io::Error::from_raw_os_error(source.errno);
        Self(
            Inner {
                kind: kind_of(source.kind),
                context: context.into(),
                hint: source.way_out().map(str::to_owned),
                remedy: None,
                source: Some(Box::new(cause)),
            }
            .into(),
        )
    }

    /// Creates the error for a thread that the system did not start.
    #[doc(hidden)]
    pub fn thread(error: &std::io::Error, doing: &str) -> Self {
        let context = format!("{doing}: starting a thread: {error}");
        Self::with_hint(ErrorKind::Limit, context, block::IoError::RAISE_THREADS)
    }

    /// Adds an alternative remedy. The remedy of an earlier one stays.
    #[doc(hidden)]
    #[must_use]
    pub fn or_remedy(self, hint: impl fmt::Display, remedy: Remedy) -> Self {
        let mut inner = std::sync::Arc::try_unwrap(self.0).unwrap_or_else(|shared| Inner {
            kind: shared.kind,
            context: match &shared.source {
                Some(source) => format!("{}: {source}", shared.context),
                None => shared.context.clone(),
            },
            hint: shared.hint.clone(),
            remedy: shared.remedy,
            source: None,
        });
        inner.hint = Some(match inner.hint {
            Some(first) => format!("{first}; {hint}"),
            None => hint.to_string(),
        });
        inner.remedy.get_or_insert(remedy);
        Self(inner.into())
    }

    /// Returns the kind, for programs.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the operation, its object and the outcome: the message without the cause and the
    /// remedy.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.0.context
    }

    /// Returns the advice, if there is any.
    #[must_use]
    pub fn way_out(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns the remedy that a program can offer, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        self.0.remedy
    }
}

fn kind_of(kind: block::ErrorKind) -> ErrorKind {
    match kind {
        block::ErrorKind::Invalid => ErrorKind::Invalid,
        block::ErrorKind::NotFound => ErrorKind::NotFound,
        block::ErrorKind::Exists => ErrorKind::Exists,
        block::ErrorKind::Denied => ErrorKind::Denied,
        block::ErrorKind::Busy => ErrorKind::Busy,
        block::ErrorKind::NoSpace => ErrorKind::NoSpace,
        block::ErrorKind::Unsupported => ErrorKind::Unsupported,
        block::ErrorKind::Limit => ErrorKind::Limit,
        block::ErrorKind::ReadOnly => ErrorKind::ReadOnly,
        block::ErrorKind::Interrupted => ErrorKind::Interrupted,
        _ => ErrorKind::Io,
    }
}

/// The same text as `Display`, so that a `main` that returns the error prints a sentence.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
