//! What goes wrong, on command.

use qpair_scsi_wire::sense::Sense;

use crate::hba::Rule;

/// What happens to a command that reads or writes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioFault {
    /// It is never done, and waits for a task to end it.
    LoseCommand,
    /// It is not done, and has this response.
    Response(u8),
    /// It is not done, and has this SCSI status.
    Status(u8),
    /// It is not done, and there is sense data.
    Check(Sense),
    /// It is done, and its bytes are given as this number.
    Len(u32),
    /// It is done, and said to be another one.
    Id(u32),
    /// It is done, and given back twice.
    Twice,
    /// It is done, and from then on the index of what was used is this much further.
    Index(u16),
    /// It is done, and nothing is said in its response.
    NoResponse,
    /// It is not done, and the device cannot go on without a reset.
    NeedsReset,
    /// It is not done, and its disk is pulled.
    Pull,
}

/// Which commands, and what.
pub type VirtioRule = Rule<VirtioFault>;
