//! What the status of a command means to those above.

use qpair_block::IoError;
use qpair_nvme_wire::Status;

/// The error of a command that failed. EAGAIN and EBUSY where the controller says that it may work later.
pub(crate) fn error_of(status: Status) -> IoError {
    IoError::from_errno(status.errno())
}
