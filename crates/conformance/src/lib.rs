//! One suite of tests that every block device passes.
//!
//! [`run`] makes a device for each check, runs it, and returns a [`Report`] that names every check and how it
//! ended. What a device cannot do is skipped, and the skip is reported with its reason: a suite
//! that silently shrinks proves nothing. Devices start with any bytes on them; the suite overwrites
//! the first
//! [`Options::region_bytes`], the last logical block, and whatever it grows.
//!
//! ```
//! # use std::sync::Arc;
//! # use qpair_block::{RamDevice, RamOptions};
//! let report = qpair_conformance::run(
//!     || Arc::new(RamDevice::new(RamOptions::default()).expect("a device")),
//!     qpair_conformance::Options::default(),
//! );
//! report.assert_passed();
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod answers;
mod content;
mod control;
mod lists;
mod queue;
mod report;
mod resets;
mod rig;
mod threads;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use qpair_block::BlockDevice;

pub use lists::copied_lists;
pub use report::{Outcome, Report};
use rig::Rig;

#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all random choices. `None`: a new one, printed in the report.
    pub seed: Option<u64>,
    /// The number of bytes at the start of the device that the suite may overwrite; less if the
    /// device is smaller.
    pub region_bytes: u64,
    /// The number of random steps of each random check.
    pub rounds: u32,
    /// The maximum number of requests in flight; less if the device allows less.
    pub depth: u32,
    /// Whether the device keeps what is written to it; the null device does not.
    pub keeps_content: bool,
    /// The number of bytes by which a growable device is grown. 0 skips the check.
    pub grow_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: None,
            region_bytes: 2 << 20,
            rounds: 200,
            depth: 16,
            keeps_content: true,
            grow_bytes: 1 << 20,
        }
    }
}

/// The result of a check that did not fail.
pub(crate) enum Pass {
    Passed,
    Skipped(String),
}

pub(crate) type CheckResult = Result<Pass, String>;
type Check = fn(&mut Rig) -> CheckResult;

/// All checks, by name.
const CHECKS: &[(&str, Check)] = &[
    ("limits_are_sane", control::limits_are_sane),
    ("depth_limits_are_kept", control::depth_limits_are_kept),
    ("grow", control::grow),
    ("read_back_random", content::read_back_random),
    ("read_back_in_flight", content::read_back_in_flight),
    ("largest_transfer", content::largest_transfer),
    ("last_block", content::last_block),
    ("buffer_offset", content::buffer_offset),
    ("unregistered_arena", content::unregistered_arena),
    ("lists_of_segments", lists::lists_of_segments),
    ("lists_that_are_wrong", lists::lists_that_are_wrong),
    ("memory_that_shrinks", lists::memory_that_shrinks),
    ("force_unit_access", content::force_unit_access),
    ("atomic_write", content::atomic_write),
    ("flush", content::flush),
    ("discard", content::discard),
    ("write_zeroes", content::write_zeroes),
    ("busy_gives_the_request_back", queue::busy_gives_the_request_back),
    ("every_tag_once", queue::every_tag_once),
    ("statistics_add_up", queue::statistics_add_up),
    ("drop_in_flight", queue::drop_in_flight),
    ("invalid_requests", answers::invalid_requests),
    ("read_only_refuses_writes", answers::read_only_refuses_writes),
    ("wait_times_out_idle", waiting::wait_times_out_idle),
    ("wait_returns_completions", waiting::wait_returns_completions),
    ("wait_wants_and_lingers", waiting::wait_wants_and_lingers),
    ("wait_ends_on_wake", waiting::wait_ends_on_wake),
    ("wake_loses_no_completion", waiting::wake_loses_no_completion),
    ("completion_fd", waiting::completion_fd),
    ("two_threads", threads::two_threads),
    ("busy_threads", threads::busy_threads),
    ("reset", resets::reset),
];

/// Runs every check, each on its own device from `make`, which may open the same medium again.
pub fn run(make: impl Fn() -> Arc<dyn BlockDevice>, options: Options) -> Report {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut report = Report::new(seed);
    for (number, (name, check)) in CHECKS.iter().enumerate() {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let rng = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
            let mut rig = Rig::new(make(), options.clone(), rng);
            report.device.clone_from(&rig.device.info().name);
            check(&mut rig)
        }));
        report.outcomes.push((
            name,
            match outcome {
                Ok(Ok(Pass::Passed)) => Outcome::Passed,
                Ok(Ok(Pass::Skipped(reason))) => Outcome::Skipped(reason),
                Ok(Err(why)) => Outcome::Failed(why),
                Err(panic) => Outcome::Failed(report::panic_text(panic.as_ref())),
            },
        ));
    }
    report
}
