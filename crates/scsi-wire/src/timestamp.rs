//! The timestamp of a unit: milliseconds, and the event that it counts from.

use qpair_wire::be::u16_at;
use qpair_wire::{get, put, u8_at};

/// The size of REPORT TIMESTAMP's answer, and of SET TIMESTAMP's parameters, in bytes.
pub const TIMESTAMP_BYTES: usize = 12;
/// The offset of the milliseconds in both.
const MS_AT: usize = 4;
/// The maximum of the milliseconds, which have 48 bits.
const MS_MAX: u64 = (1 << 48) - 1;

/// The origin of a timestamp that started from zero, at power on or by a hard reset.
pub const ORIGIN_POWER_ON: u8 = 0;
/// The origin of a timestamp that SET TIMESTAMP set.
pub const ORIGIN_SET: u8 = 2;

/// The answer of REPORT TIMESTAMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// The event that the timestamp counts from.
    pub origin: u8,
    /// The milliseconds, 48 bits. They count from 1970 if the initiator that set the timestamp did
    /// so.
    pub ms: u64,
}

impl Timestamp {
    /// Decodes an answer; `None` if the answer or its stated length is too short.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        let is_whole = data.len() >= TIMESTAMP_BYTES - 2 && u16_at(data, 0) >= 8;
        is_whole.then(|| Self { origin: u8_at(data, 2) & 7, ms: decode_ms(data) })
    }

    /// Encodes an answer.
    #[must_use]
    pub fn encode(&self) -> [u8; TIMESTAMP_BYTES] {
        let mut data = encode_set(self.ms);
        put(&mut data, 0, &10u16.to_be_bytes());
        data[2] = self.origin & 7;
        data
    }
}

fn decode_ms(data: &[u8]) -> u64 {
    let [a, b, c, d, e, f] = get(data, MS_AT);
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Encodes the parameters of SET TIMESTAMP.
#[must_use]
pub fn encode_set(ms: u64) -> [u8; TIMESTAMP_BYTES] {
    let mut data = [0; TIMESTAMP_BYTES];
    put(&mut data, MS_AT, &(ms & MS_MAX).to_be_bytes()[2..]);
    data
}

/// Decodes the milliseconds in the parameters of SET TIMESTAMP; `None` if the parameters are
/// truncated.
#[must_use]
pub fn decode_set(data: &[u8]) -> Option<u64> {
    (data.len() >= TIMESTAMP_BYTES).then(|| decode_ms(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        let timestamp = Timestamp { origin: ORIGIN_SET, ms: 0x0102_0304_0506 };
        let bytes = timestamp.encode();
        assert_eq!(bytes, [0, 10, 2, 0, 1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(Timestamp::decode(&bytes), Some(timestamp));
        assert_eq!(Timestamp::decode(&bytes[..9]), None);
        assert_eq!(Timestamp::decode(&[0; 12]), None, "it says that there is nothing");
        assert_eq!(encode_set(u64::MAX), [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0]);
        assert_eq!(decode_set(&encode_set(1 << 47)), Some(1 << 47));
        assert_eq!(decode_set(&[0; 11]), None);
    }
}
