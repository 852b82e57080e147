//! The report on how a store was opened.

use std::fmt;

use qpair_engine::Error;
use qpair_kernel::Interface;

/// Report on how a store was opened: the decisions that [`crate::Options`] left to the library.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("qpair-open-{}.qpair", std::process::id()));
/// # let _ = std::fs::remove_file(&path);
/// let (store, report) = qpair::Options::new(&path).memory("64MiB")?.buffered(true).open_with_report()?;
/// assert!(report.created);
/// println!("by {}", report.interface);
/// # store.close()?;
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), qpair::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// The interface in use: `io_uring`, `libaio`, `posix`, `ram`, ... If members use different
    /// ones, their names are joined by `+`.
    pub interface: String,
    /// Details of the interface's mode.
    pub mode: String,
    /// The interfaces that [`Interface::Auto`] tried first, in order, and why each was not used.
    pub passed_over: Vec<PassedOver>,
    /// The reason to begin with this interface, and the ones to which it may change while the store
    /// is open, if [`Interface::Auto`] may change it.
    pub why: Option<String>,
    /// Whether a new store was created.
    pub created: bool,
    /// The reason why the store was opened for reading only, although the options did not ask for
    /// that.
    pub not_writable: Option<Error>,
    /// A warning that the chosen memory is more than a limit of the process leaves: which limit,
    /// and how much it leaves. The kernel may end the process once it uses all of that memory.
    pub memory_warning: Option<String>,
    /// The reason why the store is not published beside its first member, although
    /// [`crate::Options::publish_beside`] asked for that. The store can be used all the same.
    pub not_published: Option<Error>,
    /// Whether the store is read beside a process that has it open, as of a checkpoint
    /// ([`crate::Options::read_only`], [`crate::Options::follow`]).
    pub beside_writer: bool,
}

/// An interface that was tried and does not work here.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("qpair-passed-{}.qpair", std::process::id()));
/// # let _ = std::fs::remove_file(&path);
/// let (store, report) = qpair::Options::new(&path).memory("64MiB")?.buffered(true).open_with_report()?;
/// for other in &report.passed_over {
///     println!("not {}: {}", other.interface, other.reason);
/// }
/// # store.close()?;
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), qpair::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PassedOver {
    /// The interface.
    pub interface: Interface,
    /// The reason, and how to make the interface work.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.interface, self.reason)
    }
}
