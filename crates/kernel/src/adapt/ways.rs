//! The ways to one device, and what opens channels in them.

use std::fmt;
use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use super::adaptation::Adaptation;
use super::channel;
use super::way::{Family, Way};

/// Opens a channel of a device in a way.
type Open = dyn Fn(Way, &ChannelOptions) -> Result<Box<dyn IoChannel>> + Send + Sync;

/// The ways to one device, among which its channels change as the load and the machine do.
///
/// A driver outside this crate that can wait in two manners makes a value for each of its devices,
/// and opens its channels by [`Ways::open_channel`]. `docs/design/auto.md` has the rule.
pub struct Ways {
    pub(crate) family: &'static Family,
    /// The way to begin with.
    pub(crate) start: Way,
    /// The number of cores that the process may use.
    pub(crate) cores: f64,
    /// The other ways, in the order of trials; without those that need a submission thread.
    pub(crate) others: Vec<Way>,
    /// Whether submission threads are among the ways, as far as there are cores for them.
    pub(crate) has_threads: bool,
    /// The reason to begin so, as a sentence without a full stop.
    pub(crate) why: String,
    pub(crate) adaptation: Arc<Adaptation>,
    pub(crate) open: Box<Open>,
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ways")
            .field("family", &self.family.name)
            .field("start", &self.start)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

impl Ways {
    /// Describes a device that begins with interrupts, and may be polled. `open` opens its channels
    /// in either way, and `why` is the reason to begin so, as a sentence without a full stop.
    #[must_use]
    pub fn polled_or_not(
        family: &'static Family,
        why: String,
        open: impl Fn(Way, &ChannelOptions) -> Result<Box<dyn IoChannel>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            family,
            start: Way::Interrupts,
            cores: cores(),
            others: vec![Way::Polling],
            has_threads: false,
            adaptation: Arc::new(Adaptation::new(family, why.clone())),
            why,
            open: Box::new(open),
        }
    }

    /// Returns the present ways of the channels, for reports.
    #[must_use]
    pub fn adaptation(&self) -> Arc<Adaptation> {
        self.adaptation.clone()
    }

    /// Opens a channel that changes its way with the other channels of this thread to devices of
    /// the family.
    ///
    /// # Errors
    /// The errors of a channel with interrupts. A way that cannot be opened later is given up, and
    /// the reason says why.
    pub fn open_channel(self: &Arc<Self>, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        channel::open(self, options)
    }
}

/// Returns the number of cores that the process may use.
pub(crate) fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
}
