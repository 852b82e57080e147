//! [`Finding`]: the result of examining one property of the machine.

use std::fmt;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Area {
    Kernel,
    Processors,
    Memory,
    UserSpaceDrivers,
    Device(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Severity {
    /// Information without a judgement, or not available.
    Info,
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
    pub command: String,
    /// When the command takes effect, or for how long: "until the next start".
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Finding {
    pub area: Area,
    /// The property: "scheduler".
    pub subject: String,
    /// The state of the property: "mq-deadline".
    pub state: String,
    pub severity: Severity,
    /// The consequences of the state.
    pub why: String,
    /// Commands, each of which fixes the finding; empty if all is well or nothing can be done from
    /// here.
    pub mend: Vec<Mend>,
}

impl Finding {
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

    pub(crate) fn mend(mut self, command: impl Into<String>, note: &str) -> Self {
        self.mend.push(Mend { command: command.into(), note: note.to_owned() });
        self
    }
}
