//! Addresses in logs: tells those on a log device from those in the store's space.

use qpair_block::PAIR_SECOND_BYTES;
use qpair_format::log::LogPosition;

/// Whether an address in a log is on a log device, and not in the store's own space.
pub fn is_on_log_device(address_bytes: u64) -> bool {
    address_bytes >= PAIR_SECOND_BYTES
}

/// Whether any of these logs begins on a log device.
pub fn any_on_log_device(logs: &[Vec<u8>]) -> bool {
    let positions = logs.iter().filter_map(|log| LogPosition::decode(log).ok());
    positions.into_iter().any(|position| is_on_log_device(position.segment_offset_bytes))
}
