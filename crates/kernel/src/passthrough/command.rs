//! Turns requests into NVMe commands, and command statuses into the kernel's error numbers.
//!
//! Clause numbers are of the NVM Express Base Specification 2.0 and the NVM Command Set
//! Specification 1.0.

use qpair_block::Op;
use qpair_nvme_wire::Status;
use qpair_nvme_wire::command::io::{DATASET_MANAGEMENT, FLUSH, READ, WRITE, WRITE_ZEROES};
use qpair_nvme_wire::command::{DEALLOCATE, FORCE_UNIT_ACCESS};

/// The bytes of a 128-byte submission entry that hold the command.
pub(super) const COMMAND_BYTES: usize = 80;

/// One range of a Dataset Management command, NVM §3.2.3.1.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub(super) struct Range {
    attributes: u32,
    blocks: u32,
    first_block: u64,
}

const _: () = assert!(size_of::<Range>() == 16);

impl Range {
    /// Makes a range in the drive's byte order.
    pub(super) fn new(first_block: u64, blocks: u32) -> Self {
        Self { attributes: 0, blocks: blocks.to_le(), first_block: first_block.to_le() }
    }
}

/// The parts of a request that go into one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) op: Op,
    pub(super) force_unit_access: bool,
    pub(super) nsid: u32,
    pub(super) first_block: u64,
    /// At least 1 and at most 65536 for read, write and write-zeroes.
    pub(super) blocks: u32,
    /// The address of the data or of the range of a discard; 0 if the command has neither.
    pub(super) address: u64,
    pub(super) len_bytes: u32,
}

impl Command {
    /// Encodes the command as `struct nvme_uring_cmd` of linux/nvme_ioctl.h, with the rest of the
    /// entry zero.
    #[inline]
    pub(super) fn encode(&self) -> [u8; COMMAND_BYTES] {
        let first = (self.first_block as u32, (self.first_block >> 32) as u32);
        // Counts of blocks are 0-based in commands.
        let count = self.blocks.wrapping_sub(1) & 0xFFFF;
        let (opcode, cdw10, cdw11, cdw12) = match self.op {
            Op::Read => (READ, first.0, first.1, count),
            Op::Write if self.force_unit_access => {
                (WRITE, first.0, first.1, count | FORCE_UNIT_ACCESS)
            }
            Op::Write => (WRITE, first.0, first.1, count),
            Op::WriteZeroes => (WRITE_ZEROES, first.0, first.1, count),
            // The number of ranges is 0-based as well.
            Op::Discard => (DATASET_MANAGEMENT, 0, DEALLOCATE, 0),
            Op::Flush => (FLUSH, 0, 0, 0),
        };
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = opcode;
        bytes[4..8].copy_from_slice(&self.nsid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_ne_bytes());
        bytes[36..40].copy_from_slice(&self.len_bytes.to_ne_bytes());
        bytes[40..44].copy_from_slice(&cdw10.to_ne_bytes());
        bytes[44..48].copy_from_slice(&cdw11.to_ne_bytes());
        bytes[48..52].copy_from_slice(&cdw12.to_ne_bytes());
        bytes
    }
}

/// Converts the status of a failed command to an errno. `status` is status code and type without
/// the bits above (Base §4.5).
pub(super) fn errno_of(status: i32) -> i32 {
    match Status(status as u16).errno() {
        // A reset of the controller cancelled the command. Sent again at once, it might cause the
        // next reset.
        libc::ECANCELED => libc::EIO,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    #[test]
    fn encodes_a_write() {
        let command = Command {
            op: Op::Write,
            force_unit_access: true,
            nsid: 3,
            first_block: 0x1_2345_6789,
            blocks: 8,
            address: 0xABCD_0000,
            len_bytes: 4096,
        };
        let bytes = command.encode();
        assert_eq!((bytes[0], word(&bytes, 4), word(&bytes, 36)), (0x01, 3, 4096));
        assert_eq!((word(&bytes, 24), word(&bytes, 28)), (0xABCD_0000, 0));
        assert_eq!((word(&bytes, 40), word(&bytes, 44)), (0x2345_6789, 1));
        assert_eq!(word(&bytes, 48), 1 << 30 | 7);
        let most = Command { op: Op::Read, blocks: 65536, ..command }.encode();
        assert_eq!((most[0], word(&most, 48)), (0x02, 0xFFFF));
    }

    #[test]
    fn flushes_and_discards_name_no_blocks() {
        let command = Command {
            op: Op::Flush,
            force_unit_access: false,
            nsid: 1,
            first_block: 0,
            blocks: 0,
            address: 0,
            len_bytes: 0,
        };
        let bytes = command.encode();
        assert!(bytes[8..].iter().all(|byte| *byte == 0));
        let discard = Command { op: Op::Discard, first_block: 77, blocks: 9, ..command }.encode();
        assert_eq!((word(&discard, 40), word(&discard, 44), word(&discard, 48)), (0, 4, 0));
    }

    #[test]
    fn statuses_say_what_they_mean() {
        for (status, errno) in [
            (0x4001, libc::EOPNOTSUPP),
            (0x4002, libc::EINVAL),
            (0x0080, libc::EINVAL),
            (0x0082, libc::EAGAIN),
            (0x4082, libc::EBUSY),
            (0x0281, libc::EIO),
            (0x4281, libc::EIO),
            (0x0182, libc::EROFS),
            (0x0004, libc::EIO),
            (0x7FFF, libc::EIO),
        ] {
            assert_eq!(errno_of(status), errno, "{status:#x}");
        }
    }
}
