//! Keys and values that identify themselves, so that every byte that is read can be judged.

use super::catalog::CATALOG;

/// A bit of the numbers of tables with long keys. Of two such tables, one has keys of which four
/// begin with the same 1,024 bytes, the other keys with a common end.
pub(crate) const LONG: u16 = 1 << 14;
/// The position of the index in keys that begin with the same bytes.
const SHARED_BYTES: usize = 1024;
/// The number of equal bytes behind the index in other long keys.
const FILLER_BYTES: usize = 1030;

/// A key of the simulation: a table and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) table: u16,
    pub(crate) index: u16,
}

impl Key {
    /// Returns the key's bytes, which have various lengths and sort by number. They include the
    /// table.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![b'k'];
        if self.has_long_bytes() && self.table & 1 == 0 {
            bytes.resize(SHARED_BYTES - 2, b'-');
            bytes.extend_from_slice(&(self.index / 4).to_be_bytes());
        }
        bytes.extend_from_slice(&self.index.to_be_bytes());
        bytes.extend_from_slice(&self.table.to_be_bytes());
        if self.has_long_bytes() && self.table & 1 == 1 {
            bytes.resize(bytes.len() + FILLER_BYTES, b'-');
        }
        bytes.extend((0..self.index % 23).map(|position| position as u8 ^ self.table as u8));
        bytes
    }

    /// Parses the bytes of a key of this table.
    pub(crate) fn parse(table: u16, bytes: &[u8]) -> Option<Self> {
        Self::parse_any(bytes).filter(|key| key.table == table)
    }

    /// Parses the bytes of a key of any table.
    pub(crate) fn parse_any(bytes: &[u8]) -> Option<Self> {
        [1, SHARED_BYTES].into_iter().find_map(|at| {
            let index = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
            let table = u16::from_be_bytes(bytes.get(at + 2..at + 4)?.try_into().ok()?);
            let key = Self { table, index };
            (key.bytes() == bytes).then_some(key)
        })
    }

    /// Whether keys of this table are in groups if pages have 4 KiB or more.
    fn has_long_bytes(self) -> bool {
        self.table & LONG != 0 && self.table != CATALOG
    }
}

/// A value of the simulation. No two writes have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    pub(crate) id: u64,
    pub(crate) len: u32,
}

impl Value {
    pub(crate) const LEN_MIN: u32 = 12;

    /// Returns the value's bytes: its number, its length, and bytes that follow from the number. In
    /// two of three values each word of them comes several times, so that they can be compressed.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len as usize);
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        let mut word = self.id;
        while bytes.len() < self.len as usize {
            word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let times = if self.id.is_multiple_of(3) { 1 } else { 8 };
            (0..times).for_each(|_| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        bytes.truncate(self.len as usize);
        bytes
    }

    /// Parses the bytes of a value; `None` if any byte is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let id = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let value = Self { id, len };
        (len as usize == bytes.len() && value.bytes() == bytes).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_say_what_they_are() {
        for table in [2, LONG | 2, LONG | 3, 0x2D2D] {
            for index in [0, 1, 22, 400, 0x2D2D] {
                let key = Key { table, index };
                assert_eq!(Key::parse(table, &key.bytes()), Some(key));
                assert_eq!(key.bytes().len() > 1024, table & LONG != 0);
            }
        }
        assert_eq!(Key::parse(2, b"k"), None);
        assert_eq!(Key::parse(3, &Key { table: 2, index: 1 }.bytes()), None);
        for len in [12, 13, 20, 5000] {
            let value = Value { id: 77, len };
            let mut bytes = value.bytes();
            assert_eq!(Value::parse(&bytes), Some(value));
            *bytes.last_mut().unwrap() ^= 1;
            assert_eq!(Value::parse(&bytes), None);
        }
        for table in [0, LONG, LONG | 1] {
            let keys: Vec<_> = (0..300).map(|index| Key { table, index }.bytes()).collect();
            assert!(keys.is_sorted());
        }
    }
}
