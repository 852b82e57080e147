//! How long people let a driver wait.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No question is asked before: what a device does at once is let be, also when the program is to end.
const GRACE: Duration = Duration::from_millis(250);

/// A wait for a device that has not answered for a while.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// The function's name.
    pub name: &'a str,
    /// What it is to do: `to become ready`.
    pub to: &'a str,
    /// How long it has been waited for.
    pub waited: Duration,
    /// How long it is going to be waited for at most.
    pub at_most: Duration,
}

type Asked = dyn Fn(&Waiting<'_>) -> ControlFlow<()> + Send + Sync;

/// The function that is asked, now and then, whether to go on waiting for a device. By default there is none: drivers wait until their time-outs.
///
/// A function that answers `Break` ends the wait with an error `Interrupted`, and the device is not used any more.
#[derive(Clone, Default)]
pub struct Patience(Option<Arc<Asked>>);

impl Patience {
    /// Asks `asked`, up to thousands of times a second, on the thread that waits. It does not block.
    pub fn new(asked: impl Fn(&Waiting<'_>) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// Whether a wait that began at `start` is to end.
    #[must_use]
    pub fn is_over(&self, name: &str, to: &str, start: Instant, at_most: Duration) -> bool {
        let Some(asked) = &self.0 else { return false };
        let waited = start.elapsed();
        waited >= GRACE && asked(&Waiting { name, to, waited, at_most }).is_break()
    }
}

/// The same are those that ask the same.
impl PartialEq for Patience {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Patience {}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Patience of somebody" } else { "Patience" })
    }
}
