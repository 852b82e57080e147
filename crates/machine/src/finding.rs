//! [`Finding`]: one thing that was looked at, and what was found.

use std::fmt;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// What a finding is about.
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
    /// What drivers in user space need.
    UserSpaceDrivers,
    /// A device, by its path.
    Device(String),
}

/// How things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Severity {
    /// Nothing to be judged, or not available.
    Info,
    /// As it should be.
    Good,
    /// It works, and could be better.
    Hint,
    /// Something does not work.
    Problem,
}

/// A command that mends something, fit to be pasted into a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Mend {
    /// The command.
    pub command: String,
    /// When it works, or until when: "until the next start".
    pub note: String,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Finding {
    /// What it is about.
    pub area: Area,
    /// What was looked at: "scheduler".
    pub subject: String,
    /// How it is: "mq-deadline".
    pub state: String,
    /// How that is to be taken.
    pub severity: Severity,
    /// What it means.
    pub why: String,
    /// Commands, each of which mends it; none if all is well or nothing can be done from here.
    pub mend: Vec<Mend>,
}

impl Finding {
    /// A finding that mends nothing yet.
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
