//! The plan of faults, as options and as text.

use std::fmt;
use std::str::FromStr;

use qpair_block::keys::{Key, Keys, Slot, key, list, maybe, plain, rate, us};
use qpair_block::{Error, Result};

/// A range of blocks whose reads or writes fail, including the last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first logical block.
    pub first: u64,
    /// The last logical block.
    pub last: u64,
}

impl BlockRange {
    pub(super) fn meets(&self, first: u64, blocks: u64) -> bool {
        blocks > 0 && first <= self.last && self.first <= first.saturating_add(blocks - 1)
    }
}

/// Faults to inject, and how often. A `_rate` is the probability of the fault for each command to
/// which it applies. An `_after` is the number of the one command that has the fault; commands of
/// I/O queues are counted from 1 since the plan began.
///
/// The text form is `seed=7,read_error_rate=0.001,read_error_blocks=100-200,remove_after=5000`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The seed of all random decisions.
    pub seed: u64,
    /// The rate of reads that fail with an unrecovered read error.
    pub read_error_rate: f64,
    /// Blocks that cannot be read, in any namespace.
    pub read_error_blocks: Vec<BlockRange>,
    /// The rate of writes (including write-zeroes and deallocations) that fail with a write fault,
    /// and write nothing.
    pub write_error_rate: f64,
    /// Blocks that cannot be written.
    pub write_error_blocks: Vec<BlockRange>,
    /// The rate of flushes that fail with an internal error.
    pub flush_error_rate: f64,
    /// The rate of commands that are never executed, and complete only when they are aborted.
    pub timeout_rate: f64,
    /// The rate of commands that are executed, but whose completion is never posted. An abort does
    /// not find them.
    pub drop_rate: f64,
    /// The rate of commands that take `delay_ns` longer.
    pub delay_rate: f64,
    /// The delay of delayed commands, in nanoseconds.
    pub delay_ns: u64,
    /// The rate of reads that succeed with one flipped bit.
    pub corrupt_rate: f64,
    /// The command that is never executed.
    pub timeout_after: Option<u64>,
    /// The command whose completion is never posted.
    pub drop_after: Option<u64>,
    /// The command at which the controller reports a fatal status, and stops until it is reset.
    pub fatal_after: Option<u64>,
    /// The command at which the drive is removed.
    pub remove_after: Option<u64>,
    /// The command at which the drive loses power. Data in volatile caches is lost, and the drive
    /// is gone until power is back.
    pub power_cut_after: Option<u64>,
}

/// The delay if the text has a `delay_rate` but no `delay_us`.
const DELAY_NS: u64 = 1_000_000;

/// Returns the slot of an option whose value is the number of a command.
fn number(command: &mut Option<u64>) -> Slot<'_> {
    maybe(command, 1..=u64::MAX)
}

/// Returns the slot of an option whose value is ranges of blocks: `5`, `5-9` or `5-9+20-29`.
fn blocks(ranges: &mut Vec<BlockRange>) -> Slot<'_> {
    let read = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let range = BlockRange { first: first.parse().ok()?, last: last.parse().ok()? };
        (range.first <= range.last).then_some(range)
    };
    let write = |range: &BlockRange| format!("{}-{}", range.first, range.last);
    list(ranges, read, write, "blocks such as 5-9+20, last one included")
}

const TABLE: &[Key<Plan>] = &[
    key("seed", "seed of all faults", |p| plain(&mut p.seed, "a whole number")),
    key("read_error_rate", "reads that fail", |p| rate(&mut p.read_error_rate)),
    key("read_error_blocks", "blocks that fail reads", |p| blocks(&mut p.read_error_blocks)),
    key("write_error_rate", "writes that fail", |p| rate(&mut p.write_error_rate)),
    key("write_error_blocks", "blocks that fail writes", |p| blocks(&mut p.write_error_blocks)),
    key("flush_error_rate", "flushes that fail", |p| rate(&mut p.flush_error_rate)),
    key("timeout_rate", "commands that are never executed", |p| rate(&mut p.timeout_rate)),
    key("drop_rate", "commands whose completion is never posted", |p| rate(&mut p.drop_rate)),
    key("delay_rate", "commands that take longer", |p| rate(&mut p.delay_rate)),
    key("delay_us", "by this time; 1000 if only the rate is given", |p| us(&mut p.delay_ns)),
    key("corrupt_rate", "reads with one flipped bit", |p| rate(&mut p.corrupt_rate)),
    key("timeout_after", "command that is never executed", |p| number(&mut p.timeout_after)),
    key("drop_after", "command whose completion is never posted", |p| number(&mut p.drop_after)),
    key("fatal_after", "command that stops the controller", |p| number(&mut p.fatal_after)),
    key("remove_after", "command at which the drive is removed", |p| number(&mut p.remove_after)),
    key("power_cut_after", "command at which the power fails", |p| number(&mut p.power_cut_after)),
];

impl Plan {
    /// The keys of a plan.
    pub const KEYS: Keys<Self> = Keys { of: "a fault plan", repeats: false, keys: TABLE };

    /// Whether the plan has no faults.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { seed, delay_ns, .. } = *self;
        *self == Self { seed, delay_ns, ..Self::default() }
    }

    /// Takes the options of a plan out of a list of keys and values, in any order, and leaves the
    /// other pairs.
    ///
    /// # Errors
    /// `Invalid` for a value that makes no sense.
    pub fn take(options: &mut Vec<(&str, &str)>) -> Result<Self> {
        let mut plan = Self::default();
        Self::KEYS.take(options, &mut plan)?;
        if plan.delay_rate > 0.0 && plan.delay_ns == 0 {
            plan.delay_ns = DELAY_NS;
        }
        Ok(plan)
    }
}

impl FromStr for Plan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::KEYS.read_by(text, Self::take)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Self::KEYS.write(self, &Self::default()))
    }
}
