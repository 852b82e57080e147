//! The status of a command (Base §3.3.3.2.1).

use std::fmt;

/// The fifteen bits of a status: code, type, retry delay, more, do not retry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    pub const SUCCESS: Self = Self(0);
    pub const INVALID_OPCODE: Self = Self::lasting(0, 0x01);
    pub const INVALID_FIELD: Self = Self::lasting(0, 0x02);
    pub const CID_CONFLICT: Self = Self::lasting(0, 0x03);
    pub const DATA_TRANSFER_ERROR: Self = Self::passing(0, 0x04);
    pub const POWER_LOSS: Self = Self::passing(0, 0x05);
    pub const INTERNAL_ERROR: Self = Self::passing(0, 0x06);
    pub const ABORT_REQUESTED: Self = Self::passing(0, 0x07);
    pub const ABORTED_SQ_DELETED: Self = Self::passing(0, 0x08);
    pub const INVALID_NAMESPACE: Self = Self::lasting(0, 0x0B);
    pub const COMMAND_SEQUENCE_ERROR: Self = Self::lasting(0, 0x0C);
    pub const INVALID_SGL_LENGTH: Self = Self::lasting(0, 0x0F);
    pub const INVALID_SGL_TYPE: Self = Self::lasting(0, 0x11);
    pub const INVALID_PRP_OFFSET: Self = Self::lasting(0, 0x13);
    pub const NAMESPACE_WRITE_PROTECTED: Self = Self::lasting(0, 0x20);
    pub const KEEP_ALIVE_INVALID: Self = Self::lasting(0, 0x19);
    pub const COMMAND_INTERRUPTED: Self = Self::passing(0, 0x21);
    pub const TRANSIENT_TRANSPORT_ERROR: Self = Self::passing(0, 0x22);
    pub const LBA_OUT_OF_RANGE: Self = Self::lasting(0, 0x80);
    pub const CAPACITY_EXCEEDED: Self = Self::lasting(0, 0x81);
    pub const NAMESPACE_NOT_READY: Self = Self::passing(0, 0x82);
    pub const INVALID_CQ: Self = Self::lasting(1, 0x00);
    pub const INVALID_QUEUE_ID: Self = Self::lasting(1, 0x01);
    pub const INVALID_QUEUE_SIZE: Self = Self::lasting(1, 0x02);
    pub const ABORT_LIMIT: Self = Self::passing(1, 0x03);
    pub const ASYNC_EVENT_LIMIT: Self = Self::lasting(1, 0x05);
    pub const INVALID_INTERRUPT_VECTOR: Self = Self::lasting(1, 0x08);
    pub const INVALID_LOG_PAGE: Self = Self::lasting(1, 0x09);
    pub const INVALID_QUEUE_DELETION: Self = Self::lasting(1, 0x0C);
    pub const FEATURE_NOT_SAVEABLE: Self = Self::lasting(1, 0x0D);
    pub const FEATURE_NOT_CHANGEABLE: Self = Self::lasting(1, 0x0E);
    pub const CONNECT_FORMAT: Self = Self::lasting(1, 0x80);
    pub const CONTROLLER_BUSY: Self = Self::passing(1, 0x81);
    pub const CONNECT_INVALID_PARAMETER: Self = Self::lasting(1, 0x82);
    pub const CONNECT_INVALID_HOST: Self = Self::lasting(1, 0x84);
    pub const AUTHENTICATION_REQUIRED: Self = Self::lasting(1, 0x91);
    pub const WRITE_FAULT: Self = Self::passing(2, 0x80);
    pub const UNRECOVERED_READ_ERROR: Self = Self::lasting(2, 0x81);
    pub const COMPARE_FAILURE: Self = Self::lasting(2, 0x85);

    pub const ANA_PERSISTENT_LOSS: Self = Self::passing(3, 0x01);
    pub const ANA_INACCESSIBLE: Self = Self::passing(3, 0x02);
    pub const ANA_TRANSITION: Self = Self::passing(3, 0x03);

    const fn passing(kind: u16, code: u16) -> Self {
        Self(kind << 8 | code)
    }

    /// Makes a status that tells the driver not to retry the command.
    const fn lasting(kind: u16, code: u16) -> Self {
        Self(kind << 8 | code | 1 << 14)
    }

    #[inline]
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0 & 0x7FF == 0
    }

    #[must_use]
    pub fn code(self) -> u8 {
        self.0 as u8
    }

    /// Returns the status code type (SCT): 0 generic, 1 command-specific, 2 media and data, 3 path,
    /// 7 vendor-specific.
    #[must_use]
    pub fn kind(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Whether the way to the namespace is at fault, and another way or a later time may serve.
    #[must_use]
    pub fn is_of_path(self) -> bool {
        self.kind() == 3 && !self.do_not_retry()
    }

    /// Returns Linux's error number (errno) for a status that is not success. EAGAIN and EBUSY: the
    /// controller says that the command may succeed later. ECANCELED: the command was aborted.
    #[must_use]
    pub fn errno(self) -> i32 {
        const EIO: i32 = 5;
        const EAGAIN: i32 = 11;
        const EACCES: i32 = 13;
        const EBUSY: i32 = 16;
        const ENODEV: i32 = 19;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const EROFS: i32 = 30;
        const EOPNOTSUPP: i32 = 95;
        const ECANCELED: i32 = 125;
        match (self.kind(), self.code()) {
            // Command interrupted; transient transport error; namespace not ready.
            (0, 0x21 | 0x22 | 0x82) if !self.do_not_retry() => EAGAIN,
            // Invalid opcode; the drive does not know the verb.
            (0, 0x01) => EOPNOTSUPP,
            // Invalid field, LBA out of range; conflicting attributes, invalid protection
            // information.
            (0, 0x02 | 0x80) | (1, 0x80 | 0x81) => EINVAL,
            // Aborted: by request, because the queue was deleted, with a fused command, or before a
            // power loss.
            (0, 0x05 | 0x07 | 0x08 | 0x09 | 0x0A) => ECANCELED,
            // Invalid namespace or format: the namespace was deleted or formatted while in use.
            (0, 0x0B) => ENODEV,
            // Namespace write protected; attempted write to a read-only range.
            (0, 0x20) | (1, 0x82) => EROFS,
            // Capacity exceeded.
            (0, 0x81) => ENOSPC,
            // Command interrupted, namespace not ready, format in progress.
            (0, 0x21 | 0x82 | 0x84) => EBUSY,
            // Reservation conflict; access denied by lock.
            (0, 0x83) | (2, 0x86) => EACCES,
            // Media errors, internal errors, lost paths, and vendor-specific errors.
            _ => EIO,
        }
    }

    /// Whether the controller says that a retry will not help (DNR).
    #[must_use]
    pub fn do_not_retry(self) -> bool {
        self.0 >> 14 & 1 != 0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = if self.do_not_retry() { ", do not retry" } else { "" };
        write!(f, "status type {} code {:#04x}{retry}", self.kind(), self.code())
    }
}
