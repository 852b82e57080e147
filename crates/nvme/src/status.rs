//! The meaning of a command's status for the layers above.

use qpair_block::IoError;
use qpair_nvme_wire::Status;

/// Returns the error of a failed command: EAGAIN or EBUSY if the controller says that the command
/// may succeed later.
pub(crate) fn error_of(status: Status) -> IoError {
    IoError::from_errno(status.errno())
}
