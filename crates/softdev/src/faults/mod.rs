//! Faults on demand: chooses which commands fail, and how.
//!
//! The outcome of a command follows from the plan, the command's number, and the command itself. It
//! does not depend on the time or the thread. Queues that several threads run share the numbering,
//! so the numbers then follow the order in which the threads run.

mod plan;

use std::sync::atomic::{AtomicU64, Ordering};

use qpair_nvme_wire::Status;

pub use qpair_block::Op;

pub use self::plan::{BlockRange, Plan};

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command proceeds without a fault.
    Proceed,
    /// The command completes with this status, without any other effect.
    Fail(Status),
    /// The command is not executed, and not completed until the driver aborts it or deletes its
    /// queue.
    Never,
    /// The command is executed, but its completion is never posted, and an abort does not find it.
    Drop,
    /// The command completes this many nanoseconds later than without the fault.
    Delay(u64),
    /// The read succeeds with one flipped bit, which this number selects.
    Corrupt(u64),
    /// The command is not executed. The controller sets its fatal status and does nothing more
    /// until it is reset.
    Fatal,
    /// The command is not executed, and the drive is removed. Its registers read as all ones.
    Remove,
    /// The command is not executed, and the drive loses power. The drive loses the data in volatile
    /// caches, and is removed.
    PowerCut,
}

/// A plan in execution: counts commands and decides the outcome of each.
#[derive(Debug)]
pub struct Faults {
    plan: Plan,
    is_empty: bool,
    commands: AtomicU64,
}

impl Faults {
    /// Starts executing a plan, with no commands counted yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { is_empty: plan.is_empty(), plan, commands: AtomicU64::new(0) }
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of commands so far, or 0 if the plan has no faults: commands are not
    /// counted then.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Returns the outcome of the next command, on `blocks` logical blocks from `first_block` on (0
    /// blocks for a flush). A compare counts as a read.
    #[inline]
    pub fn next(&self, op: Op, first_block: u64, blocks: u64) -> Outcome {
        if self.is_empty { Outcome::Proceed } else { self.decide(op, first_block, blocks) }
    }

    fn decide(&self, op: Op, first_block: u64, blocks: u64) -> Outcome {
        let plan = &self.plan;
        let number = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
        let is = |after: Option<u64>| after == Some(number);
        // The order is from the most severe fault to the mildest: a read error must not hide a
        // fault that ends the drive.
        if is(plan.power_cut_after) {
            return Outcome::PowerCut;
        }
        if is(plan.remove_after) {
            return Outcome::Remove;
        }
        if is(plan.fatal_after) {
            return Outcome::Fatal;
        }
        let mut rng = fastrand::Rng::with_seed(mix(plan.seed, number));
        let mut happens = |rate: f64| rate > 0.0 && rng.f64() < rate;
        if is(plan.timeout_after) || happens(plan.timeout_rate) {
            return Outcome::Never;
        }
        if is(plan.drop_after) || happens(plan.drop_rate) {
            return Outcome::Drop;
        }
        let on =
            |ranges: &[BlockRange]| ranges.iter().any(|range| range.meets(first_block, blocks));
        match op {
            Op::Read => {
                if on(&plan.read_error_blocks) || happens(plan.read_error_rate) {
                    return Outcome::Fail(Status::UNRECOVERED_READ_ERROR);
                }
                if happens(plan.corrupt_rate) {
                    return Outcome::Corrupt(rng.u64(..));
                }
            }
            Op::Write | Op::WriteZeroes | Op::Discard => {
                if on(&plan.write_error_blocks) || happens(plan.write_error_rate) {
                    return Outcome::Fail(Status::WRITE_FAULT);
                }
            }
            Op::Flush => {
                if happens(plan.flush_error_rate) {
                    return Outcome::Fail(Status::INTERNAL_ERROR);
                }
            }
        }
        if happens(plan.delay_rate) {
            return Outcome::Delay(plan.delay_ns);
        }
        Outcome::Proceed
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::new(Plan::default())
    }
}

/// Mixes the seed and the number of a command, so that neighbouring commands get unrelated seeds.
fn mix(seed: u64, number: u64) -> u64 {
    let mut word = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
