//! The faults that a soft virtio SCSI host can inject.

use qpair_scsi_wire::sense::Sense;

use crate::hba::Rule;

/// A fault of a command that reads or writes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioFault {
    /// The command is not executed, and completes only when a task management function ends it.
    LoseCommand,
    /// The command is not executed, and completes with this response code.
    Response(u8),
    /// The command is not executed, and completes with this SCSI status.
    Status(u8),
    /// The command is not executed, and completes with a check condition and this sense data.
    Check(Sense),
    /// The command is executed, and the used ring gives this length for it.
    Len(u32),
    /// The command is executed, and the used ring gives this descriptor index for it.
    Id(u32),
    /// The command is executed, and appears in the used ring twice.
    Twice,
    /// The command is executed. From then on, the index of the used ring is this much too high,
    /// until a reset.
    Index(u16),
    /// The command is executed, and its response code is 0xFF, which has no meaning.
    NoResponse,
    /// The command is not executed, and the device stops until the driver resets it.
    NeedsReset,
    /// The command is not executed, its disk is removed, and the response is `BAD_TARGET`.
    Pull,
}

/// A range of commands, and the fault that they have.
pub type VirtioRule = Rule<VirtioFault>;
