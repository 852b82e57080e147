//! The report on how a store was opened.

use std::fmt;

use qpair_engine::Error;
use qpair_kernel::Interface;

/// How a store was opened: what [`crate::Options`] left to the machine.
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
    /// The interface in use: `io_uring`, `libaio`, `posix`, `ram`, ...; several joined by `+` if
    /// members differ.
    pub interface: String,
    /// Details of its mode.
    pub mode: String,
    /// Interfaces that [`Interface::Auto`] tried before, in order, and why each was left.
    pub passed_over: Vec<PassedOver>,
    /// A new store was made.
    pub created: bool,
    /// Why the store was opened for reading only though that was not asked.
    pub not_writable: Option<Error>,
    /// The memory that was given is more than a limit of the process leaves: which limit, and how
    /// much it leaves. The kernel may end the process once it uses all of that memory.
    pub memory_warning: Option<String>,
    /// Why the store is not published beside its first member though that was asked
    /// ([`crate::Options::publish_beside`]): it is of use without.
    pub not_published: Option<Error>,
}

/// An interface that does not work here.
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
    /// Which.
    pub interface: Interface,
    /// Why, and what would help.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.interface, self.reason)
    }
}
