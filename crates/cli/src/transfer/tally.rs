//! The count and the checksum of a table's records.

use crc_fast::{CrcAlgorithm, Digest};

/// The number of records of a table, the bytes of their keys and values, and a checksum over all
/// records in order.
///
/// The checksum is the CRC-32 of zlib and of every standard library. It covers, for each record,
/// the lengths of key and value as 32-bit little-endian integers, the key, and the value. It
/// therefore does not depend on the format of the dump.
pub(crate) struct Tally {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    digest: Digest,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { records: 0, bytes: 0, digest: Digest::new(CrcAlgorithm::Crc32IsoHdlc) }
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let mut lens = [0; 8];
        lens[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
        lens[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        for part in [&lens, key, value] {
            self.digest.update(part);
        }
    }

    pub(crate) fn checksum(&self) -> u32 {
        self.digest.finalize() as u32
    }

    /// Compares with the count and the checksum in the dump. Returns the difference in words.
    pub(crate) fn compare(&self, records: u64, checksum: u32) -> Result<(), String> {
        if self.records != records {
            return Err(format!("it has {} records, its end says {records}", self.records));
        }
        if self.checksum() != checksum {
            return Err(format!(
                "its records have the checksum {:08x}, its end says {checksum:08x}",
                self.checksum()
            ));
        }
        Ok(())
    }
}
