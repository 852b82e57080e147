//! What the status of a command means to those above.

use qpair_block::IoError;
use qpair_nvme_wire::Status;

/// The error of a command that failed. EAGAIN and EBUSY where the controller says that it may work later.
pub(crate) fn error_of(status: Status) -> IoError {
    const EAGAIN: i32 = 11;
    const EACCES: i32 = 13;
    const EBUSY: i32 = 16;
    match (status.kind(), status.code()) {
        // Command interrupted; namespace not ready.
        (0, 0x21 | 0x82) if !status.do_not_retry() => IoError::from_errno(EAGAIN),
        // Invalid opcode.
        (0, 0x01) => IoError::UNSUPPORTED,
        // Invalid field, LBA out of range; conflicting attributes, invalid protection information.
        (0, 0x02 | 0x80) | (1, 0x80 | 0x81) => IoError::INVALID,
        // Aborted: by request, as its queue went, with a fused command, in preparation of power loss.
        (0, 0x05 | 0x07 | 0x08 | 0x09 | 0x0A) => IoError::CANCELED,
        // Invalid namespace or format: it was deleted or formatted under us.
        (0, 0x0B) => IoError::GONE,
        // Namespace write protected; attempted write to a read-only range.
        (0, 0x20) | (1, 0x82) => IoError::READ_ONLY,
        // Capacity exceeded.
        (0, 0x81) => IoError::NO_SPACE,
        // Command interrupted, namespace not ready, format in progress.
        (0, 0x21 | 0x82 | 0x84) => IoError::from_errno(EBUSY),
        // Reservation conflict; access denied.
        (0, 0x83) | (2, 0x86) => IoError::from_errno(EACCES),
        // Media errors, internal errors, lost paths, and what vendors add.
        _ => IoError::IO,
    }
}
