//! The timeout policy of a driver: whether it should keep waiting for a silent device.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The grace period before the function is asked: short waits are never interrupted, even if the
/// program is about to end.
const GRACE: Duration = Duration::from_millis(250);

/// A wait for a device that has not answered for a while.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    pub name: &'a str,
    /// The expected event, as an infinitive: `to become ready`.
    pub to: &'a str,
    pub waited: Duration,
    pub at_most: Duration,
}

type Asked = dyn Fn(&Waiting<'_>) -> ControlFlow<()> + Send + Sync;

/// The function that drivers ask, from time to time, whether to keep waiting for a device. Without
/// a function, which is the default, drivers wait until their time-outs.
///
/// If the function answers `Break`, the wait ends with an error `Interrupted`, and the device is
/// not used any more.
#[derive(Clone, Default)]
pub struct TimeoutPolicy(Option<Arc<Asked>>);

impl TimeoutPolicy {
    /// Makes a policy that calls `asked` on the waiting thread, up to thousands of times per
    /// second. `asked` must not block.
    pub fn new(asked: impl Fn(&Waiting<'_>) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// Whether a wait that began at `start` should end.
    #[must_use]
    pub fn is_over(&self, name: &str, to: &str, start: Instant, at_most: Duration) -> bool {
        let Some(asked) = &self.0 else { return false };
        let waited = start.elapsed();
        waited >= GRACE && asked(&Waiting { name, to, waited, at_most }).is_break()
    }
}

/// Two policies are equal if they ask the same function.
impl PartialEq for TimeoutPolicy {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for TimeoutPolicy {}

impl fmt::Debug for TimeoutPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "TimeoutPolicy(..)" } else { "TimeoutPolicy" })
    }
}
