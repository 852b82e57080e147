//! Controller registers in BAR 0 (Base §3.1.3) and the fields in them.

/// Controller Capabilities, 8 bytes.
pub const CAP: u64 = 0x00;
/// Version.
pub const VS: u64 = 0x08;
/// Interrupt Mask Set.
pub const INTMS: u64 = 0x0C;
/// Interrupt Mask Clear.
pub const INTMC: u64 = 0x10;
/// Controller Configuration.
pub const CC: u64 = 0x14;
/// Controller Status.
pub const CSTS: u64 = 0x1C;
/// NVM Subsystem Reset.
pub const NSSR: u64 = 0x20;
/// Admin Queue Attributes.
pub const AQA: u64 = 0x24;
/// Admin Submission Queue Base Address, 8 bytes.
pub const ASQ: u64 = 0x28;
/// Admin Completion Queue Base Address, 8 bytes.
pub const ACQ: u64 = 0x30;
/// The first doorbell (PCIe §3.1.2).
pub const DOORBELLS: u64 = 0x1000;

/// Returns the offset in BAR 0 of a queue's doorbell: the tail of submission queue `queue`, or the
/// head of its completion queue.
#[must_use]
pub fn doorbell(queue: u16, is_completion: bool, stride_bytes: u32) -> u64 {
    DOORBELLS + (2 * u64::from(queue) + u64::from(is_completion)) * u64::from(stride_bytes)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Returns the maximum number of entries of an I/O queue, 2 to 65536 (MQES + 1).
    #[must_use]
    pub fn queue_entries_max(self) -> u32 {
        (self.0 & 0xFFFF) as u32 + 1
    }

    /// Whether queues must be contiguous (CQR).
    #[must_use]
    pub fn contiguous_queues(self) -> bool {
        self.0 >> 16 & 1 != 0
    }

    /// Returns the maximum time to become ready, ms (TO; 0 means half a second at most).
    #[must_use]
    pub fn ready_timeout_ms(self) -> u32 {
        (self.0 >> 24 & 0xFF) as u32 * 500
    }

    /// Returns the bytes from doorbell to doorbell (DSTRD).
    #[must_use]
    pub fn doorbell_stride_bytes(self) -> u32 {
        4 << (self.0 >> 32 & 0xF)
    }

    /// Whether the controller supports the NVM command set (CSS bit 0).
    #[must_use]
    pub fn nvm_command_set(self) -> bool {
        self.0 >> 37 & 1 != 0
    }

    /// Returns the smallest memory page, bytes (MPSMIN).
    #[must_use]
    pub fn page_bytes_min(self) -> u64 {
        4096 << (self.0 >> 48 & 0xF)
    }

    /// Returns the largest memory page, bytes (MPSMAX).
    #[must_use]
    pub fn page_bytes_max(self) -> u64 {
        4096 << (self.0 >> 52 & 0xF)
    }

    /// Makes capabilities with the NVM command set, contiguous queues, pages of 4096 bytes, and
    /// doorbells 4 bytes apart.
    #[must_use]
    pub fn of(queue_entries_max: u32, ready_timeout_ms: u32) -> Self {
        let entries = u64::from(queue_entries_max.clamp(2, 65536) - 1);
        let timeout = u64::from(ready_timeout_ms.div_ceil(500).min(255));
        Self(entries | 1 << 16 | timeout << 24 | 1 << 37)
    }
}

/// Controller Configuration: enable (EN).
pub const CC_ENABLE: u32 = 1;
/// The Controller Configuration of a running controller: enabled, NVM command set, pages of 4096
/// bytes, round robin, entries of 64 and 16 bytes.
pub const CC_RUN: u32 = CC_ENABLE | 6 << 16 | 4 << 20;
/// Shutdown notification (SHN), as a mask.
pub const CC_SHUTDOWN_MASK: u32 = 3 << 14;
pub const CC_SHUTDOWN_NORMAL: u32 = 1 << 14;
/// Controller Status: ready (RDY).
pub const CSTS_READY: u32 = 1;
/// Controller fatal status (CFS).
pub const CSTS_FATAL: u32 = 1 << 1;
/// Shutdown status (SHST), as a mask.
pub const CSTS_SHUTDOWN_MASK: u32 = 3 << 2;
pub const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;
pub const CSTS_SHUTDOWN_OCCURRING: u32 = 1 << 2;
/// The value that every register reads as once the function is gone.
pub const GONE: u32 = 0xFFFF_FFFF;
