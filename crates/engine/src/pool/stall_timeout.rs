//! The time-out of commits that may not fail and wait for a frame.

use std::time::{Duration, Instant};

/// The time without any eviction after which no page will leave memory. It is longer than a kernel
/// retries a drive that does not answer. Only the roots of tables have frames for good.
const HOPELESS_AFTER: Duration = Duration::from_secs(300);

/// The progress of the pool as one waiting task has seen it.
#[derive(Debug, Default)]
pub(crate) struct StallTimeout {
    /// The time at which the pool was first seen to stand still, and the number of pages that had
    /// left it by then.
    since: Option<(Instant, u64)>,
}

impl StallTimeout {
    /// Notes that there was no frame again. Returns whether to keep waiting. `evictions` is the
    /// number of pages that have left the pool so far; `may_move` says that pages wait for
    /// something that ends by itself, a checkpoint.
    pub(crate) fn waits_on(&mut self, now: Instant, evictions: u64, may_move: bool) -> bool {
        match self.since {
            Some((since, then)) if then == evictions && !may_move => {
                now.duration_since(since) < HOPELESS_AFTER
            }
            _ => {
                self.since = Some((now, evictions));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_nothing_moves_any_more() {
        let (begun, long) = (Instant::now(), HOPELESS_AFTER);
        let mut stall_timeout = StallTimeout::default();
        assert!(stall_timeout.waits_on(begun, 7, false));
        assert!(stall_timeout.waits_on(begun + long / 2, 7, false));
        // A page has left, or a checkpoint is in progress: the time restarts.
        assert!(stall_timeout.waits_on(begun + long, 8, false));
        assert!(stall_timeout.waits_on(begun + long * 3 / 2, 8, false));
        assert!(stall_timeout.waits_on(begun + long * 5, 8, true));
        assert!(stall_timeout.waits_on(begun + long * 11 / 2, 8, false));
        assert!(!stall_timeout.waits_on(begun + long * 6, 8, false));
    }
}
