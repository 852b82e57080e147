//! The plan of faults, as options and as text.

use std::fmt;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind, Result};

use crate::pairs;

/// A range of blocks that cannot be read or written, including the last block.
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
/// As text: `seed=7,read_error_rate=0.001,read_error_blocks=100-200,remove_after=5000`.
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

/// The delay if the text gives a rate of delays without `delay_us`.
const DELAY_NS: u64 = 1_000_000;

impl Plan {
    /// The keys of the plan's text.
    pub const KEYS: [&str; 16] = [
        "seed",
        "read_error_rate",
        "read_error_blocks",
        "write_error_rate",
        "write_error_blocks",
        "flush_error_rate",
        "timeout_rate",
        "drop_rate",
        "delay_rate",
        "delay_us",
        "corrupt_rate",
        "timeout_after",
        "drop_after",
        "fatal_after",
        "remove_after",
        "power_cut_after",
    ];

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
        let mut failure = None;
        options.retain(|(key, value)| {
            if failure.is_some() || !Self::KEYS.contains(key) {
                return true;
            }
            failure = plan.set(key, value).err();
            false
        });
        failure.map_or(Ok(()), Err)?;
        if plan.delay_rate > 0.0 && plan.delay_ns == 0 {
            plan.delay_ns = DELAY_NS;
        }
        Ok(plan)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let rate = || pairs::rate(key, value);
        let count = || match pairs::value(key, value, "the number of a command, from 1")? {
            0 => Err(pairs::invalid(key, value, "the number of a command, from 1")),
            number => Ok(Some(number)),
        };
        match key {
            "seed" => self.seed = pairs::value(key, value, "a whole number")?,
            "read_error_rate" => self.read_error_rate = rate()?,
            "read_error_blocks" => self.read_error_blocks = blocks(key, value)?,
            "write_error_rate" => self.write_error_rate = rate()?,
            "write_error_blocks" => self.write_error_blocks = blocks(key, value)?,
            "flush_error_rate" => self.flush_error_rate = rate()?,
            "timeout_rate" => self.timeout_rate = rate()?,
            "drop_rate" => self.drop_rate = rate()?,
            "delay_rate" => self.delay_rate = rate()?,
            "delay_us" => self.delay_ns = pairs::time_ns(key, value, 1000)?,
            "corrupt_rate" => self.corrupt_rate = rate()?,
            "timeout_after" => self.timeout_after = count()?,
            "drop_after" => self.drop_after = count()?,
            "fatal_after" => self.fatal_after = count()?,
            "remove_after" => self.remove_after = count()?,
            "power_cut_after" => self.power_cut_after = count()?,
            _ => return pairs::finish("a fault plan", &[(key, value)], &Self::KEYS),
        }
        Ok(())
    }
}

/// Ranges as `5`, `5-9` or `5-9+20-29`.
fn blocks(key: &str, text: &str) -> Result<Vec<BlockRange>> {
    let wrong = || pairs::invalid(key, text, "blocks such as 5-9+20, last one included");
    text.split('+')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let range = BlockRange {
                first: first.parse().map_err(|_| wrong())?,
                last: last.parse().map_err(|_| wrong())?,
            };
            if range.first <= range.last { Ok(range) } else { Err(wrong()) }
        })
        .collect()
}

impl FromStr for Plan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut options = pairs::split("a fault plan", text)?;
        for (at, (key, _)) in options.iter().enumerate() {
            if options[..at].iter().any(|(other, _)| other == key) {
                let context = format!("option {key} of a fault plan is given twice");
                return Err(Error::new(ErrorKind::Invalid, context));
            }
        }
        let plan = Self::take(&mut options)?;
        pairs::finish("a fault plan", &options, &Self::KEYS)?;
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut write = |key: &str, value: String| -> fmt::Result {
            if !value.is_empty() {
                write!(f, "{separator}{key}={value}")?;
                separator = ",";
            }
            Ok(())
        };
        let number = |number: u64| if number == 0 { String::new() } else { number.to_string() };
        let rate = |rate: f64| if rate == 0.0 { String::new() } else { rate.to_string() };
        let after = |after: Option<u64>| after.map_or_else(String::new, |after| after.to_string());
        let blocks = |ranges: &[BlockRange]| {
            let ranges: Vec<_> =
                ranges.iter().map(|range| format!("{}-{}", range.first, range.last)).collect();
            ranges.join("+")
        };
        write("seed", number(self.seed))?;
        write("read_error_rate", rate(self.read_error_rate))?;
        write("read_error_blocks", blocks(&self.read_error_blocks))?;
        write("write_error_rate", rate(self.write_error_rate))?;
        write("write_error_blocks", blocks(&self.write_error_blocks))?;
        write("flush_error_rate", rate(self.flush_error_rate))?;
        write("timeout_rate", rate(self.timeout_rate))?;
        write("drop_rate", rate(self.drop_rate))?;
        write("delay_rate", rate(self.delay_rate))?;
        if self.delay_ns != 0 {
            write("delay_us", pairs::format_time(self.delay_ns, 1000))?;
        }
        write("corrupt_rate", rate(self.corrupt_rate))?;
        write("timeout_after", after(self.timeout_after))?;
        write("drop_after", after(self.drop_after))?;
        write("fatal_after", after(self.fatal_after))?;
        write("remove_after", after(self.remove_after))?;
        write("power_cut_after", after(self.power_cut_after))
    }
}
