//! What the guest is told of a disk.

use qpair_block::DeviceInfo;

use super::request::SECTOR_SHIFT;

/// Bytes of the configuration, as front ends ask for it.
pub(crate) const CONFIG_BYTES: usize = 60;
/// The byte that the guest writes: 0 for a cache that is written through.
pub(crate) const WRITE_BACK_AT: u32 = 32;
/// Segments of a request's data at most. Some front ends have rings of 128 entries, and a request takes two more.
pub(crate) const SEG_MAX: u32 = 126;
/// Most bytes of a discard.
const DISCARD_BYTES_MAX: u32 = 1 << 31;

/// Features of the device (virtio 1.2, 5.2.3).
pub(crate) mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const CONFIG_WCE: u64 = 1 << 11;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;

    pub(crate) const READS: u64 = SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | MQ;
    pub(crate) const WRITES: u64 = CONFIG_WCE | DISCARD | WRITE_ZEROES;
}

/// The configuration (virtio 1.2, 5.2.4).
pub(crate) fn config(
    info: &DeviceInfo,
    size_bytes: u64,
    queues: u16,
    write_back: bool,
) -> [u8; CONFIG_BYTES] {
    let mut bytes = [0; CONFIG_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let sectors = |bytes: u32| (bytes >> SECTOR_SHIFT).to_le_bytes();
    put(0, &(size_bytes >> SECTOR_SHIFT).to_le_bytes());
    put(12, &SEG_MAX.to_le_bytes());
    put(20, &info.logical_block_bytes.to_le_bytes());
    put(WRITE_BACK_AT as usize, &[write_back.into()]);
    put(34, &queues.to_le_bytes());
    // Discards and zeroes: how much at once, in how many segments, on which grid.
    put(36, &sectors(DISCARD_BYTES_MAX));
    put(40, &1u32.to_le_bytes());
    put(44, &sectors(info.logical_block_bytes));
    put(48, &sectors(DISCARD_BYTES_MAX));
    put(52, &1u32.to_le_bytes());
    put(56, &[1]);
    bytes
}
