//! Errors: a small stable kind, context for people, the cause, and a remedy.

use std::fmt;

use rustix::io::Errno;

/// The result of control-plane calls.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something invalid: a bad specifier, an offset that is not aligned.
    Invalid,
    /// The file or device does not exist.
    NotFound,
    /// The file or device exists already.
    Exists,
    /// Permission denied.
    Denied,
    /// Another process or handle has the file or device open.
    Busy,
    /// No space left.
    NoSpace,
    /// The machine, file system or kernel does not support the request.
    Unsupported,
    /// A limit of the process or machine is too small.
    Limit,
    /// The device cannot be written.
    ReadOnly,
    /// The medium or the transport failed (EIO and similar errors).
    Io,
    /// The device is gone.
    Gone,
    /// The wait for a device that did not answer was interrupted.
    Interrupted,
}

impl ErrorKind {
    /// Returns the kind for an errno of the kernel.
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        // Values outside this range are not an errno, and would cause a panic there.
        if !(1..4096).contains(&errno) {
            return Self::Io;
        }
        match Errno::from_raw_os_error(errno) {
            Errno::INVAL | Errno::ISDIR => Self::Invalid,
            Errno::NOENT => Self::NotFound,
            Errno::EXIST => Self::Exists,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::BUSY | Errno::AGAIN | Errno::TXTBSY => Self::Busy,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            Errno::NOSYS | Errno::OPNOTSUPP => Self::Unsupported,
            Errno::NOMEM | Errno::MFILE | Errno::NFILE => Self::Limit,
            Errno::ROFS => Self::ReadOnly,
            Errno::NODEV | Errno::NXIO => Self::Gone,
            _ => Self::Io,
        }
    }
}

/// An error of the control plane.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    hint: Option<String>,
    of_direct_io: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error. `context` names the operation and its object.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), hint: None, of_direct_io: false, source: None }
    }

    /// Creates an error of the operating system, with kind and cause from `cause`.
    #[must_use]
    pub fn os(cause: std::io::Error, context: impl Into<String>) -> Self {
        let kind = cause.raw_os_error().map_or(ErrorKind::Io, ErrorKind::from_errno);
        Self::new(kind, context).caused_by(cause)
    }

    /// Creates the error for a thread that the system did not start.
    #[must_use]
    pub fn thread(cause: std::io::Error, doing: &str) -> Self {
        let error = Self::new(ErrorKind::Limit, format!("{doing}: starting a thread"));
        error.caused_by(cause).hint(IoError::RAISE_THREADS)
    }

    /// Adds advice on what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Marks the error as one of missing direct I/O: the request would work without direct I/O.
    #[must_use]
    pub fn of_direct_io(mut self) -> Self {
        self.of_direct_io = true;
        self
    }

    /// Whether the error says that direct I/O is missing, and the request would work without direct
    /// I/O.
    #[must_use]
    pub fn is_of_direct_io(&self) -> bool {
        let below = self.source.as_ref().and_then(|source| source.downcast_ref::<Self>());
        self.of_direct_io || below.is_some_and(Self::is_of_direct_io)
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Separates the advice from the error, for a layer above that shows both in its own words.
    #[must_use]
    pub fn take_way_out(mut self) -> (Self, Option<String>) {
        let hint = self.hint.take();
        (self, hint)
    }

    /// Returns the kind, for programs.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the advice on what to do, if there is any.
    #[must_use]
    pub fn way_out(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// An error of the data plane: small, and copied into completions. Layers above add context for
/// people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError {
    /// The kind of the error, for programs.
    pub kind: ErrorKind,
    /// The kernel's errno, or the nearest one for devices without a kernel.
    pub errno: i32,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (errno {})", self.kind, self.errno)
    }
}

impl std::error::Error for IoError {}

impl IoError {
    /// The medium or transport failed: EIO.
    pub const IO: Self = Self { kind: ErrorKind::Io, errno: 5 };
    /// No space left: ENOSPC.
    pub const NO_SPACE: Self = Self { kind: ErrorKind::NoSpace, errno: 28 };
    /// The request is not aligned, or past the end of the device: EINVAL.
    pub const INVALID: Self = Self { kind: ErrorKind::Invalid, errno: 22 };
    /// The device does not support the operation: EOPNOTSUPP.
    pub const UNSUPPORTED: Self = Self { kind: ErrorKind::Unsupported, errno: 95 };
    /// The device cannot be written: EROFS.
    pub const READ_ONLY: Self = Self { kind: ErrorKind::ReadOnly, errno: 30 };

    /// The device is gone: ENODEV.
    pub const GONE: Self = Self { kind: ErrorKind::Gone, errno: 19 };
    /// The bytes that were read may belong to something newer than what the reader looks at:
    /// ESTALE.
    pub const STALE: Self = Self { kind: ErrorKind::Gone, errno: 116 };
    /// The device did not answer in time, and the request was cancelled: ETIMEDOUT.
    pub const TIMED_OUT: Self = Self { kind: ErrorKind::Io, errno: 110 };
    /// The request was cancelled because the device was reset: ECANCELED.
    pub const CANCELED: Self = Self { kind: ErrorKind::Io, errno: 125 };

    /// The system could not start the thread that should make the call: EAGAIN.
    pub const NO_THREAD: Self = Self { kind: ErrorKind::Limit, errno: 11 };

    /// The advice if a thread cannot be started.
    pub const RAISE_THREADS: &str = "raise the limit on processes and threads (ulimit -u)";

    /// Returns what the user can do about the error, if that is known.
    #[must_use]
    pub fn way_out(self) -> Option<&'static str> {
        (self == Self::NO_THREAD).then_some(Self::RAISE_THREADS)
    }

    /// Whether the same request may succeed if it is sent again: it was cancelled or refused
    /// temporarily, without a known fault. After a failed write the content of its range on the
    /// device is undefined even so.
    #[must_use]
    pub fn can_be_retried(self) -> bool {
        matches!(
            Errno::from_raw_os_error(self.errno),
            Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::TIMEDOUT | Errno::CANCELED
        )
    }

    /// Creates the error for a (positive) errno.
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        Self { kind: ErrorKind::from_errno(errno), errno }
    }
}
