//! The results of the suite.

use std::any::Any;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The device does not support it, or the options exclude it; with the reason.
    Skipped(String),
    Failed(String),
}

/// The outcomes of all checks, in order. `Display` prints a table.
#[derive(Clone, Debug)]
pub struct Report {
    pub device: String,
    /// The seed of the run. Use it as [`crate::Options::seed`] to repeat the run.
    pub seed: u64,
    /// The name and the outcome of each check.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { device: String::new(), seed, outcomes: Vec::new() }
    }

    /// Returns the checks that passed.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.outcomes.iter().filter(|(_, end)| *end == Outcome::Passed).map(|(name, _)| *name)
    }

    /// Returns the checks that were skipped, with the reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.outcomes.iter().filter_map(|(name, end)| match end {
            Outcome::Skipped(reason) => Some((*name, reason.as_str())),
            _ => None,
        })
    }

    /// Returns the checks that failed, with descriptions of the failure.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.outcomes.iter().filter_map(|(name, end)| match end {
            Outcome::Failed(why) => Some((*name, why.as_str())),
            _ => None,
        })
    }

    /// Panics with the whole report if a check failed; for tests.
    ///
    /// # Panics
    /// If a check failed.
    pub fn assert_passed(&self) {
        assert!(self.failed().next().is_none(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}, seed {}", self.device, self.seed)?;
        for (name, outcome) in &self.outcomes {
            match outcome {
                Outcome::Passed => writeln!(f, "  passed   {name}")?,
                Outcome::Skipped(reason) => writeln!(f, "  skipped  {name}: {reason}")?,
                Outcome::Failed(why) => writeln!(f, "  FAILED   {name}: {why}")?,
            }
        }
        let (passed, skipped, failed) =
            (self.passed().count(), self.skipped().count(), self.failed().count());
        write!(f, "{passed} passed, {skipped} skipped, {failed} failed")
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no message)"))
}
