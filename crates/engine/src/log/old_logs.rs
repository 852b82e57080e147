//! The logs of earlier incarnations of a store, from the recovery that reads them to the first
//! checkpoint that needs none of them.

use qpair_memory::locks::Mutex;

/// A run of pages: the first page, and the number of pages.
pub(crate) type Run = (u64, u64);

/// The logs of earlier incarnations that are still needed, and their pages.
#[derive(Debug, Default)]
pub(crate) struct OldLogs {
    /// The positions in the old logs at which a recovery begins, for checkpoints to name.
    places: Mutex<Vec<Vec<u8>>>,
    /// The pages of the old logs, set once the next checkpoint needs none of them.
    obsolete: Mutex<Option<Vec<Run>>>,
}

impl OldLogs {
    /// Makes checkpoints name these positions until [`OldLogs::end`].
    pub(crate) fn begin(&self, places: Vec<Vec<u8>>) {
        *self.places.lock() = places;
    }

    /// Notes that everything in the old logs is in the trees. Checkpoints from here on do not name
    /// the old logs; once the next one is durable, `runs` are free.
    pub(crate) fn end(&self, runs: Vec<Run>) {
        self.places.lock().clear();
        *self.obsolete.lock() = Some(runs);
    }

    /// Returns the positions that checkpoints name instead of those in the logs of this
    /// incarnation.
    pub(crate) fn places(&self) -> Vec<Vec<u8>> {
        self.places.lock().clone()
    }

    /// Takes the pages that can be freed now, if any.
    pub(crate) fn take_obsolete(&self) -> Option<Vec<Run>> {
        self.obsolete.lock().take()
    }
}
