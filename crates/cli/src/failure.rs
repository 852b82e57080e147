//! Errors for people, and exit codes.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use qpair::{ErrorKind, Remedy};
use qpair_block as block;

const RESTORE: &str = "if it was one, restore it from a backup, or salvage it with `qpair repair`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// The key does not exist, or damage was found.
    Negative = 1,
    Usage = 2,
    Failed = 3,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An error to be printed on standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
    /// The kind of the error, if it is an error of a store.
    kind: Option<ErrorKind>,
    /// The remedy, if the command has its own words for it.
    remedy: Option<Remedy>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, kind: None, remedy: None }
    }

    /// Creates an error of wrong usage that is found only when the command reads its input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn io(error: &io::Error, doing: impl std::fmt::Display) -> Self {
        Self::new(Exit::Failed, format!("{doing}: {error}"))
    }

    /// Returns what makes a failure of an error with a file: `DOING PATH: ERROR`.
    pub(crate) fn at<'a>(doing: &'a str, path: &'a Path) -> impl Fn(io::Error) -> Self + Copy + 'a {
        move |error| Self::io(&error, format_args!("{doing} {}", path.display()))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn or_hint(mut self, hint: impl std::fmt::Display) -> Self {
        self.hint = Some(match self.hint {
            Some(first) => format!("{first}; {hint}"),
            None => hint.to_string(),
        });
        self
    }

    /// Adds to a refused change how to get space, if the store at `store` has none.
    pub(crate) fn with_room(self, store: &Path) -> Self {
        if self.kind != Some(ErrorKind::NoSpace) {
            return self;
        }
        let store = store.display();
        let delete = format!(
            "delete records, which needs no free space and makes room for later changes: `qpair delete {store} KEY`, or --prefix"
        );
        match self.hint.as_deref() {
            Some(free) if free.contains("file system") => self.or_hint(format!(
                "or {delete}; `qpair compact {store}` then gives the space back to the file system"
            )),
            _ => self.hint(delete),
        }
    }

    /// Adds to a failed backup that a larger target helps, if the target has no space.
    pub(crate) fn with_larger_target(self) -> Self {
        if self.kind != Some(ErrorKind::NoSpace) {
            return self;
        }
        match self.hint.as_deref() {
            Some(hint) if hint.contains("file system") || hint.contains("old backup") => {
                self.or_hint("or give a target with more room")
            }
            _ => self.hint("give a larger target"),
        }
    }

    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        self.kind
    }

    /// Whether only zeroes were found where a store should be opened.
    pub(crate) fn is_of_blank(&self) -> bool {
        self.remedy == Some(Remedy::Make)
    }

    pub(crate) fn context(mut self, doing: impl std::fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    pub(crate) fn and(mut self, more: impl std::fmt::Display) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// Creates an error without a message, because the reader of the output has gone.
    pub(crate) fn closed_pipe() -> Self {
        Self::new(Exit::Done, String::new())
    }

    /// Tells people; the exit code. Where a request to stop came before, that is what made it fail.
    pub(crate) fn report(self, was_interrupted: bool) -> ExitCode {
        if !self.message.is_empty() {
            eprintln!("qpair: error: {}", self.message);
        }
        if let Some(hint) = self.hint {
            eprintln!("  hint: {hint}");
        }
        match self.exit {
            // Most likely a device that was not released in time.
            Exit::Failed if was_interrupted => Exit::Interrupted.into(),
            exit => exit.into(),
        }
    }
}

/// Takes the advice of all causes out of a message, and returns it, the nearest to the error first.
fn take_advice(error: &dyn std::error::Error, message: &mut String) -> Vec<String> {
    let (mut found, mut source) = (Vec::new(), error.source());
    while let Some(cause) = source {
        let advice = cause.downcast_ref::<block::Error>().and_then(block::Error::way_out);
        if let Some(advice) = advice {
            *message = message.replace(&format!(" ({advice})"), "");
            found.push(advice.to_owned());
        }
        source = cause.source();
    }
    found
}

impl From<qpair::Error> for Failure {
    fn from(error: qpair::Error) -> Self {
        let mut message = error.to_string();
        let below = take_advice(&error, &mut message);
        if let Some(own) = error.way_out() {
            message = message.replace(&format!(" ({own})"), "");
        }
        let exit = match error.kind() {
            ErrorKind::Invalid => Exit::Usage,
            ErrorKind::Interrupted => Exit::Interrupted,
            _ => Exit::Failed,
        };
        let mut failure = Self::new(exit, message);
        (failure.kind, failure.remedy) = (Some(error.kind()), error.remedy());
        let hint = error.way_out().map(str::to_owned).or(below.into_iter().next());
        failure.hint = hint.map(|hint| in_words_of_the_command(hint, error.remedy()));
        failure
    }
}

impl From<block::Error> for Failure {
    fn from(error: block::Error) -> Self {
        let exit = match error.kind() {
            block::ErrorKind::Invalid => Exit::Usage,
            block::ErrorKind::Interrupted => Exit::Interrupted,
            _ => Exit::Failed,
        };
        let (error, own) = error.take_way_out();
        let mut message = error.to_string();
        // The advice nearest to the cause is the most exact. It is printed once, at the end.
        let below = take_advice(&error, &mut message);
        let mut failure = Self::new(exit, message);
        failure.hint = own.or(below.into_iter().last());
        failure
    }
}

/// Returns the library's advice, with the command or option to follow it.
fn in_words_of_the_command(hint: String, remedy: Option<Remedy>) -> String {
    let words = match remedy {
        Some(Remedy::Make) => return RESTORE.to_owned(),
        Some(Remedy::Repair) => "`qpair repair`",
        Some(Remedy::Check) => "`qpair check`, `qpair repair`",
        Some(Remedy::NameLog) => "--log-device DEVICE",
        Some(Remedy::PlaceLog) => "--log-device DEVICE, --log-device none",
        Some(Remedy::Overwrite) => "--init-force",
        Some(Remedy::Memory) => "--memory",
        Some(Remedy::Buffered) => "--buffered",
        Some(Remedy::FewerWorkers) => "--workers",
        Some(Remedy::PageSize) => "--buffered, `qpair copy --page-size`",
        _ => return hint,
    };
    format!("{hint} ({words})")
}
