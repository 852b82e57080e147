//! The clients and duration of a run.

use qpair::{Error, ErrorKind, Result};

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The number of concurrent clients.
    pub(crate) clients: usize,
    /// The number of threads among which the clients are distributed, if the warm-up chooses how
    /// many of the clients run; `None`: all run. Nothing is chosen without a warm-up or at a given
    /// rate.
    pub(crate) choose_for: Option<usize>,
    /// The number of kinds of requests.
    pub(crate) kinds: usize,
    /// Seconds before the measurement.
    pub(crate) warm_up_s: f64,
    /// Seconds measured; `None`: until the clients have nothing left to do.
    pub(crate) seconds: Option<f64>,
    /// The mean number of requests that arrive a second, at random times; `None`: each client makes
    /// one request after the other.
    pub(crate) rate_per_s: Option<f64>,
    /// The weight of all requests, for the progress of a run without a time limit.
    pub(crate) total: u64,
    /// The name of the phase for progress messages.
    pub(crate) phase: String,
}

impl Plan {
    /// Returns an error if there are no clients or no time.
    pub(super) fn check(&self) -> Result<()> {
        if self.clients > 0 && self.seconds.is_none_or(|seconds| seconds > 0.0) {
            return Ok(());
        }
        let context = "a run needs at least one client, and more than 0 seconds";
        Err(Error::new(ErrorKind::Invalid, context))
    }
}
