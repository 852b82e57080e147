//! Counts of faults behind an HBA.

use std::fmt;
use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    LostCommand,
    LostReply,
    LateReply,
    DoubledReply,
    WrongId,
    Refused,
    Failed,
    ControllerFault,
    PowerLoss,
    PowerLossWithLostReply,
    IgnoredTasks,
    HungReset,
    ResetAsked,
    DiskReset,
    Pull,
    Stall,
    /// A reset of the controller, by error recovery, the watchdog or the control plane.
    Reset,
    FailedFlush,
    FailedRequest,
}

const KINDS: [(Kind, &str); 19] = [
    (Kind::LostCommand, "commands lost"),
    (Kind::LostReply, "replies lost"),
    (Kind::LateReply, "replies late"),
    (Kind::DoubledReply, "replies doubled"),
    (Kind::WrongId, "replies to nobody"),
    (Kind::Refused, "commands refused by a busy disk"),
    (Kind::Failed, "commands failed with sense data"),
    (Kind::ControllerFault, "controllers failed"),
    (Kind::PowerLoss, "times disks without power"),
    (Kind::PowerLossWithLostReply, "of them with the reply lost that tells"),
    (Kind::IgnoredTasks, "times tasks not answered"),
    (Kind::HungReset, "resets set to hang"),
    (Kind::ResetAsked, "resets asked for"),
    (Kind::DiskReset, "resets of a disk"),
    (Kind::Pull, "disks pulled"),
    (Kind::Stall, "stalls"),
    (Kind::Reset, "resets of the controller in all"),
    (Kind::FailedFlush, "flushes failed"),
    (Kind::FailedRequest, "other requests failed"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met([u64; KINDS.len()]);

impl Met {
    pub(crate) fn add(&mut self, kind: Kind, count: u64) {
        self.0[kind as usize] += count;
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the kinds that never occurred.
    #[cfg(test)]
    pub(crate) fn missing(&self) -> Vec<Kind> {
        KINDS.iter().map(|(kind, _)| *kind).filter(|kind| self.0[*kind as usize] == 0).collect()
    }
}

impl AddAssign for Met {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, name) in KINDS {
            let separator = if kind == Kind::LostCommand { "" } else { ", " };
            write!(f, "{separator}{} {name}", self.0[kind as usize])?;
        }
        Ok(())
    }
}
