//! The results of the suite.

use std::any::Any;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The device cannot do it, or the options leave it out; why.
    Skipped(String),
    Failed(String),
}

/// How every check ended, in order. `Display` prints it as a table.
#[derive(Clone, Debug)]
pub struct Report {
    pub device: String,
    /// Seed of the run: [`crate::Options::seed`] repeats it.
    pub seed: u64,
    /// Each check by name, and its end.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { device: String::new(), seed, outcomes: Vec::new() }
    }

    /// Checks that held.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.outcomes.iter().filter(|(_, end)| *end == Outcome::Passed).map(|(name, _)| *name)
    }

    /// Checks that were left out, and why.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.outcomes.iter().filter_map(|(name, end)| match end {
            Outcome::Skipped(reason) => Some((*name, reason.as_str())),
            _ => None,
        })
    }

    /// Checks that did not hold, and what happened.
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
