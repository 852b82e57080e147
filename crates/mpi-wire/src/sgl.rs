//! Scatter-gather elements: the 64-bit IEEE form, and the older MPI form of configuration requests.

use qpair_wire::le::{u32_at, u64_at};
use qpair_wire::u8_at;

pub const ELEMENT_BYTES: usize = 16;
/// Flag: the last element of the list.
pub const END_OF_LIST: u8 = 0x40;
/// Flag: the element names a further segment of the list.
pub const CHAIN: u8 = 0x80;
/// Flags: the address space; 0: the system's.
pub const ADDRESS_MASK: u8 = 0x03;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub address: u64,
    /// The length in bytes.
    pub len: u32,
    /// For a chain element: the index of the next chain element in its segment; 0: there is none.
    pub next_chain: u8,
    pub flags: u8,
}

impl Element {
    #[inline(always)]
    #[must_use]
    pub fn words(self) -> [u64; 2] {
        let second =
            u64::from(self.len) | u64::from(self.next_chain) << 48 | u64::from(self.flags) << 56;
        [self.address, second]
    }

    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self {
            address: u64_at(data, 0),
            len: u32_at(data, 8),
            next_chain: u8_at(data, 14),
            flags: u8_at(data, 15),
        }
    }

    #[must_use]
    pub fn encode(self) -> [u8; ELEMENT_BYTES] {
        let [first, second] = self.words().map(u64::to_le_bytes);
        let mut data = [0; ELEMENT_BYTES];
        data[..8].copy_from_slice(&first);
        data[8..].copy_from_slice(&second);
        data
    }
}

/// Decodes a 64-bit MPI element to its length and address.
#[must_use]
pub fn decode_mpi(data: &[u8]) -> (u32, u64) {
    (u32_at(data, 0) & 0x00FF_FFFF, u64_at(data, 4))
}

/// Encodes a list of one 64-bit MPI element; `to_host`: the controller writes there.
#[must_use]
pub fn encode_mpi(address: u64, len: u32, to_host: bool) -> [u8; 12] {
    let flags: u32 = if to_host { 0xD3 } else { 0xD7 };
    let mut data = [0; 12];
    data[..4].copy_from_slice(&(flags << 24 | len & 0x00FF_FFFF).to_le_bytes());
    data[4..].copy_from_slice(&address.to_le_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_their_bytes() {
        let element = Element { address: 1 << 40, len: 4096, next_chain: 7, flags: CHAIN };
        assert_eq!(Element::decode(&element.encode()), element);
        assert_eq!(decode_mpi(&encode_mpi(1 << 33, 36, true)), (36, 1 << 33));
    }
}
