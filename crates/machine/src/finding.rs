//! [`Finding`]: the result of examining one property of the machine.

use std::fmt;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// The subject area of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Area {
    /// The kernel and its settings.
    Kernel,
    /// Processors.
    Processors,
    /// Memory and limits.
    Memory,
    /// The requirements of user-space drivers.
    UserSpaceDrivers,
    /// A device, by its path.
    Device(String),
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Severity {
    /// Information without a judgement, or not available.
    Info,
    /// The state is good.
    Good,
    /// The state works and could be better.
    Hint,
    /// Something does not work.
    Problem,
}

/// A command that fixes something, which can be pasted into a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Mend {
    /// The command.
    pub command: String,
    /// When the command takes effect, or for how long: "until the next start".
    pub note: String,
}

/// The result of examining one property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Finding {
    /// The subject area.
    pub area: Area,
    /// The property: "scheduler".
    pub subject: String,
    /// The state of the property: "mq-deadline".
    pub state: String,
    /// The severity.
    pub severity: Severity,
    /// The consequences of the state.
    pub why: String,
    /// Commands, each of which fixes the finding; empty if all is well or nothing can be done from
    /// here.
    pub mend: Vec<Mend>,
}

impl Finding {
    /// Returns a finding without commands.
    pub(crate) fn new(
        area: Area,
        subject: &str,
        state: impl fmt::Display,
        severity: Severity,
        why: impl Into<String>,
    ) -> Self {
        Self {
            area,
            subject: subject.to_owned(),
            state: state.to_string(),
            severity,
            why: why.into(),
            mend: Vec::new(),
        }
    }

    /// Adds a command.
    pub(crate) fn mend(mut self, command: impl Into<String>, note: &str) -> Self {
        self.mend.push(Mend { command: command.into(), note: note.to_owned() });
        self
    }
}
