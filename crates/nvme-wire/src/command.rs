//! Submission queue entries (Base §3.3.3.1) and their contents.

use qpair_wire::le::{u32_at, u64_at};

use crate::{PAGE_BYTES, SUBMISSION_BYTES};

/// Opcodes of admin commands (Base §5).
pub mod admin {
    pub const DELETE_SQ: u8 = 0x00;
    pub const CREATE_SQ: u8 = 0x01;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const DELETE_CQ: u8 = 0x04;
    pub const CREATE_CQ: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0A;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7C;
    pub const FORMAT_NVM: u8 = 0x80;
}

/// Opcodes of the NVM command set (NVM §3).
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Feature identifiers (Base §5.27).
pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    pub const INTERRUPT_VECTOR: u8 = 0x09;
    pub const WRITE_ATOMICITY: u8 = 0x0A;
    pub const ASYNC_EVENT: u8 = 0x0B;
}

/// Identify data structures: the values of CNS (Base §5.17.1).
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const CONTROLLER_OF_COMMAND_SET: u8 = 0x06;
}

/// Command dword 12 of a write: force unit access (NVM §3.2.6).
pub const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Command dword 11 of Dataset Management: deallocate (NVM §3.2.3).
pub const DEALLOCATE: u32 = 1 << 2;

/// A submission queue entry: sixteen dwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Command(pub [u32; 16]);

impl Command {
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; SUBMISSION_BYTES]) -> Self {
        let mut dwords = [0; 16];
        for (dword, chunk) in dwords.iter_mut().zip(bytes.chunks_exact(4)) {
            *dword = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
        Self(dwords)
    }

    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; SUBMISSION_BYTES] {
        let mut bytes = [0; SUBMISSION_BYTES];
        for (chunk, dword) in bytes.chunks_exact_mut(4).zip(self.0) {
            chunk.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }

    /// Returns the command as eight native words, for stores of eight bytes that are little-endian
    /// themselves.
    #[inline]
    #[must_use]
    pub fn words(&self) -> [u64; 8] {
        std::array::from_fn(|i| u64::from(self.0[2 * i]) | u64::from(self.0[2 * i + 1]) << 32)
    }

    /// Makes a command of `opcode` for namespace `nsid` with all other fields zero.
    #[inline]
    #[must_use]
    pub fn new(opcode: u8, nsid: u32) -> Self {
        let mut command = Self::default();
        command.0[0] = opcode.into();
        command.0[1] = nsid;
        command
    }

    #[inline]
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0] as u8
    }

    #[inline]
    #[must_use]
    pub fn cid(&self) -> u16 {
        (self.0[0] >> 16) as u16
    }

    #[inline]
    pub fn set_cid(&mut self, cid: u16) {
        self.0[0] = self.0[0] & 0xFFFF | u32::from(cid) << 16;
    }

    /// Whether the command names its data by PRPs (PSDT is 0) and is not half of a fused pair (FUSE
    /// is 0).
    #[inline(always)]
    #[must_use]
    pub fn is_single_with_prps(&self) -> bool {
        self.0[0] & 0xC300 == 0
    }

    #[inline]
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.0[1]
    }

    #[inline]
    #[must_use]
    pub fn prp1(&self) -> u64 {
        u64::from(self.0[6]) | u64::from(self.0[7]) << 32
    }

    /// Returns PRP entry 2: the address of a page, or of a list of entries.
    #[inline]
    #[must_use]
    pub fn prp2(&self) -> u64 {
        u64::from(self.0[8]) | u64::from(self.0[9]) << 32
    }

    #[inline]
    pub fn set_prps(&mut self, prp1: u64, prp2: u64) {
        self.0[6] = prp1 as u32;
        self.0[7] = (prp1 >> 32) as u32;
        self.0[8] = prp2 as u32;
        self.0[9] = (prp2 >> 32) as u32;
    }

    /// Returns command dword `number`, 10 to 15.
    #[inline]
    #[must_use]
    pub fn cdw(&self, number: usize) -> u32 {
        self.0.get(number).copied().unwrap_or(0)
    }

    /// Returns the first block of a read, write, compare or write zeroes (SLBA).
    #[inline]
    #[must_use]
    pub fn first_block(&self) -> u64 {
        u64::from(self.0[10]) | u64::from(self.0[11]) << 32
    }

    /// Returns the number of blocks of a read, write, compare or write zeroes, 1 to 65536 (NLB +
    /// 1).
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> u32 {
        (self.0[12] & 0xFFFF) + 1
    }

    /// Makes a read, write, compare or write zeroes (`opcode`) of 1 to 65536 blocks.
    #[inline]
    #[must_use]
    pub fn blocks_of(opcode: u8, nsid: u32, first_block: u64, blocks: u32) -> Self {
        let mut command = Self::new(opcode, nsid);
        command.0[10] = first_block as u32;
        command.0[11] = (first_block >> 32) as u32;
        command.0[12] = blocks.wrapping_sub(1) & 0xFFFF;
        command
    }

    /// Makes an Identify command (Base §5.17) with its data in one page at `prp1`.
    #[must_use]
    pub fn identify(cns: u8, nsid: u32, prp1: u64) -> Self {
        let mut command = Self::new(admin::IDENTIFY, nsid);
        command.set_prps(prp1, 0);
        command.0[10] = cns.into();
        command
    }

    /// Makes a Doorbell Buffer Config command (Base §5.8) with the pages of shadow doorbells and of
    /// event indexes.
    #[must_use]
    pub fn doorbell_buffers(shadows: u64, events: u64) -> Self {
        let mut command = Self::new(admin::DOORBELL_BUFFER_CONFIG, 0);
        command.set_prps(shadows, events);
        command
    }

    /// Makes a Create I/O Completion Queue command (Base §5.4) for a contiguous queue of `entries`
    /// (2 to 65536). With `vector`, the queue raises interrupts by that vector.
    #[must_use]
    pub fn create_cq(queue: u16, entries: u32, prp1: u64, vector: Option<u16>) -> Self {
        let mut command = Self::new(admin::CREATE_CQ, 0);
        command.set_prps(prp1, 0);
        command.0[10] = u32::from(queue) | entries.wrapping_sub(1) << 16;
        command.0[11] = 1 | vector.map_or(0, |vector| 2 | u32::from(vector) << 16);
        command
    }

    /// Makes a Create I/O Submission Queue command (Base §5.5) for a contiguous queue of `entries`
    /// that completes to the queue of the same number.
    #[must_use]
    pub fn create_sq(queue: u16, entries: u32, prp1: u64) -> Self {
        let mut command = Self::new(admin::CREATE_SQ, 0);
        command.set_prps(prp1, 0);
        command.0[10] = u32::from(queue) | entries.wrapping_sub(1) << 16;
        command.0[11] = 1 | u32::from(queue) << 16;
        command
    }

    /// Makes a Delete I/O Submission or Completion Queue command (`opcode`; Base §5.6, §5.7).
    #[must_use]
    pub fn delete_queue(opcode: u8, queue: u16) -> Self {
        let mut command = Self::new(opcode, 0);
        command.0[10] = queue.into();
        command
    }

    /// Makes an Abort command (Base §5.1) for command `cid` of submission queue `queue`.
    #[must_use]
    pub fn abort(queue: u16, cid: u16) -> Self {
        let mut command = Self::new(admin::ABORT, 0);
        command.0[10] = u32::from(queue) | u32::from(cid) << 16;
        command
    }

    /// Makes a Set Features command (Base §5.27) with its value in dword 11.
    #[must_use]
    pub fn set_features(feature: u8, value: u32) -> Self {
        let mut command = Self::new(admin::SET_FEATURES, 0);
        command.0[10] = feature.into();
        command.0[11] = value;
        command
    }
}

/// Returns the PRP entries of a transfer of `len` bytes from `address` on, all contiguous for the
/// device (Base §4.1.1): the first entry, the number of further ones, and the first of those. The
/// others follow page by page.
#[inline]
#[must_use]
pub fn contiguous_prps(address: u64, len: u32) -> (u64, u32, u64) {
    let page = PAGE_BYTES as u64;
    let in_first = page - address % page;
    let rest = u64::from(len).saturating_sub(in_first);
    (address, rest.div_ceil(page) as u32, address + in_first)
}

/// One range of Dataset Management (NVM §3.2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub attributes: u32,
    pub blocks: u32,
    pub first_block: u64,
}

impl Range {
    pub const BYTES: usize = 16;

    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            attributes: u32_at(bytes, 0),
            blocks: u32_at(bytes, 4),
            first_block: u64_at(bytes, 8),
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.attributes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&self.first_block.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_as_written() {
        let mut command = Command::blocks_of(io::WRITE, 3, 0x1_2345_6789, 65536);
        command.set_cid(0xABCD);
        command.set_prps(0x1122_3344_5566_7788, 0x99AA_BBCC_DDEE_FF00);
        let bytes = command.encode();
        assert_eq!((bytes[0], bytes[2], bytes[3], bytes[4]), (1, 0xCD, 0xAB, 3));
        let read = Command::decode(&bytes);
        assert_eq!(read, command);
        assert_eq!((read.first_block(), read.blocks(), read.cid()), (0x1_2345_6789, 65536, 0xABCD));
        assert_eq!((read.prp1(), read.prp2()), (0x1122_3344_5566_7788, 0x99AA_BBCC_DDEE_FF00));
        let words: Vec<u8> = command.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(words, bytes);
        let range = Range { attributes: 1, blocks: 2, first_block: 3 << 32 };
        assert_eq!(Range::decode(&range.encode()), range);
    }

    #[test]
    fn pages_of_a_transfer() {
        assert_eq!(contiguous_prps(0x1000, 4096), (0x1000, 0, 0x2000));
        assert_eq!(contiguous_prps(0x1200, 4096), (0x1200, 1, 0x2000));
        assert_eq!(contiguous_prps(0x1000, 8192), (0x1000, 1, 0x2000));
        assert_eq!(contiguous_prps(0x1E00, 512), (0x1E00, 0, 0x2000));
        assert_eq!(contiguous_prps(0x1E00, 131_072), (0x1E00, 32, 0x2000));
    }
}
