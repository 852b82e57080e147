//! What can go wrong with a store.

use std::fmt;

use qpair_block as block;

/// Result of store operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for programs.
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
    /// The caller's words make no sense: an option out of range, a call in the wrong place.
    Invalid,
    /// A key is longer than the store takes.
    KeyTooLong,
    /// A value is longer than the store takes.
    ValueTooLong,
    /// No such store or table.
    NotFound,
    /// There is a store already.
    Exists,
    /// Permission denied.
    Denied,
    /// The store is open elsewhere.
    Busy,
    /// What is there is not a store of this software.
    NotAStore,
    /// A store of a version or with features that this software does not know.
    Version,
    /// The store was not closed, and has to be recovered before it can be read.
    Unclean,
    /// A member of the store is missing, or in another's place.
    Member,
    /// Bytes are not what was written.
    Corrupt,
    /// No space left on the device.
    NoSpace,
    /// The memory given is too small for what is asked of it.
    NoMemory,
    /// The machine does not offer what was asked.
    Unsupported,
    /// A limit of the process or machine is too small.
    Limit,
    /// The store was opened for reading only, or a failed write made it so.
    ReadOnly,
    /// The device failed.
    Io,
    /// The store is closed.
    Closed,
    /// Another transaction changed, or has locked, what this one needs. Roll back and try again.
    Conflict,
    /// A row was locked by another transaction for longer than this one waits. What was asked is not done; the transaction goes on.
    TimedOut,
    /// A transaction outgrew the memory it may have.
    TooLarge,
    /// A snapshot was given up, since the older values that it needed took too much memory.
    SnapshotLost,
    /// The caller asked for it to end early.
    Interrupted,
    /// The engine panicked, by a fault of its own: the store is of no use until it is opened again.
    Panicked,
}

/// What a program may offer people as the way out, which it has its own words for: a command, an option, a button.
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
    /// Saves what can be read of a damaged store: `qpair::repair`.
    Repair,
    /// Finds all damage, before a repair: `Store::check`.
    Check,
    /// Makes a store where there is none: only zeroes are there.
    Make,
    /// Says that what is on a device may be lost.
    Overwrite,
    /// Names the device that a store's log is on: `LogPlace`.
    NameLog,
    /// Names it, or another place for the log of a store that was closed.
    PlaceLog,
    /// Gives the store more memory.
    Memory,
    /// Opens files without direct I/O.
    Buffered,
    /// Copies the store into one with another page size.
    PageSize,
}

/// The way out of damage.
pub const SALVAGE: &str =
    "restore the store from a backup, or run a repair, which salvages the readable records";

/// An error: a kind for programs, context for people, the cause, and the way out.
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
    /// An error with what was being done, to what.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self::made(kind, context.into(), None, None)
    }

    /// An error with a way out.
    #[must_use]
    pub fn with_hint(kind: ErrorKind, context: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::made(kind, context.into(), Some(hint.into()), None)
    }

    /// An error with a way out that programs have words of their own for.
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

    /// The error of damage that nothing but a backup or a repair helps against.
    pub fn damaged(context: impl Into<String>) -> Self {
        Self::with_remedy(ErrorKind::Corrupt, context, SALVAGE, Remedy::Repair)
    }

    /// The error of a call after the close.
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the store is closed, or is being closed")
    }

    /// The error of a call on a dropped table.
    #[cold]
    pub fn table_dropped() -> Self {
        Self::new(ErrorKind::NotFound, "the table was dropped")
    }

    /// An error of the block layer on the way of doing `context`.
    #[must_use]
    pub fn block(source: block::Error, context: impl Into<String>) -> Self {
        let kind = kind_of(source.kind());
        let remedy = source.is_of_direct_io().then_some(Remedy::Buffered);
        let (source, hint) = source.take_way_out();
        let (context, source) = (context.into(), Some(Box::new(source) as _));
        Self(Inner { kind, context, hint, remedy, source }.into())
    }

    /// An error of one request on the way of doing `context`.
    #[must_use]
    pub fn io(source: block::IoError, context: impl Into<String>) -> Self {
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

    /// A thread that the system did not start.
    pub fn thread(error: &std::io::Error, doing: &str) -> Self {
        let context = format!("{doing}: starting a thread: {error}");
        Self::with_hint(ErrorKind::Limit, context, block::IoError::RAISE_THREADS)
    }

    /// The error with a further way out.
    #[must_use]
    pub fn or_hint(self, hint: impl std::fmt::Display) -> Self {
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
        Self(inner.into())
    }

    /// The kind, for programs.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done, to what, and what came of it: the message without cause and way out.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.0.context
    }

    /// The way out, if one is known.
    #[must_use]
    pub fn way_out(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// What a program may offer as the way out, if it is one of these.
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

/// As it is displayed: a `main` that returns it prints a sentence.
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
