//! The bytes of a command.

use std::fmt;

use super::opcode;

/// The maximum length of a command descriptor block in this crate, in bytes.
pub const CDB_BYTES_MAX: usize = 16;

/// A command descriptor block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Cdb {
    pub(super) bytes: [u8; CDB_BYTES_MAX],
    pub(super) len: u8,
}

impl Cdb {
    /// Creates a descriptor block from bytes; `None` for no bytes, or more than 16.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut cdb = Self { bytes: [0; CDB_BYTES_MAX], len: bytes.len() as u8 };
        let place = cdb.bytes.get_mut(..bytes.len()).filter(|place| !place.is_empty())?;
        place.copy_from_slice(bytes);
        Some(cdb)
    }

    /// Creates a READ (16) or WRITE (16) directly, as these are the most frequent commands.
    #[inline(always)]
    #[must_use]
    pub fn transfer(is_write: bool, block: u64, blocks: u32, force_unit_access: bool) -> Self {
        let code = if is_write { opcode::WRITE_16 } else { opcode::READ_16 };
        let mut bytes = [0; CDB_BYTES_MAX];
        bytes[0] = code;
        bytes[1] = u8::from(force_unit_access) << 3;
        bytes[2..10].copy_from_slice(&block.to_be_bytes());
        bytes[10..14].copy_from_slice(&blocks.to_be_bytes());
        Self { bytes, len: 16 }
    }

    /// Returns the bytes of the block.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns all 16 bytes; those past the end of the block are zero.
    #[inline(always)]
    #[must_use]
    pub fn padded(&self) -> &[u8; CDB_BYTES_MAX] {
        &self.bytes
    }

    /// Returns the number of bytes.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether the block has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cdb")?;
        self.bytes().iter().try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}
