//! How values of callers become values of a tree: compressed, and with an expiry time behind them.
//!
//! Both are in the upper bits of the tree's id, so the catalog, the log and the checkpoint's image
//! have them wherever they name the tree. See docs/design/compression.md and docs/design/ttl.md.

use crate::values::{Compression, TREE_BITS, TREE_NUMBER_MAX};

/// The bit of a codec, and of a tree's id above the tree's number, for values with an expiry time.
const EXPIRES: u8 = 1;
const EXPIRES_BITS: u32 = 1;

/// How the values of a tree are kept.
///
/// ```
/// use qpair_format::codec::Codec;
/// use qpair_format::values::Compression;
///
/// let codec = Codec::new(Compression::Lz4, true);
/// assert_eq!(Codec::of_tree(codec.tree_id(7)), codec);
/// assert!(codec.expires());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec(u8);

impl Codec {
    /// Values are kept as they are.
    pub const PLAIN: Self = Self(0);

    #[must_use]
    pub const fn new(compression: Compression, expires: bool) -> Self {
        Self(compression.bits() << EXPIRES_BITS | expires as u8)
    }

    /// Returns the codec of a tree's values.
    #[inline]
    #[must_use]
    pub const fn of_tree(id: u32) -> Self {
        Self((id >> (TREE_BITS - EXPIRES_BITS)) as u8)
    }

    /// Returns the id of a tree with this number and codec.
    #[must_use]
    pub const fn tree_id(self, number: u32) -> u32 {
        number & TREE_NUMBER_MAX | (self.0 as u32) << (TREE_BITS - EXPIRES_BITS)
    }

    /// Whether values are kept as they are.
    #[inline(always)]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// Whether values have an expiry time behind them.
    #[inline(always)]
    #[must_use]
    pub const fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    #[must_use]
    pub const fn compression(self) -> Compression {
        Compression::of_bits(self.0 >> EXPIRES_BITS)
    }

    /// Returns the reason why stored bytes are not a value, for a check. The bytes in `stored` are
    /// used up. In a build without the compression its bytes are not checked.
    pub fn fault(self, stored: &mut Vec<u8>) -> Option<String> {
        if self.expires() {
            let Some(len) = stored.len().checked_sub(crate::expiry::EXPIRY_BYTES) else {
                return Some("a value has no expiry time".to_owned());
            };
            stored.truncate(len);
        }
        self.compression().fault(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_says_how_its_values_are_kept() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            for expires in [false, true] {
                let codec = Codec::new(compression, expires);
                let id = codec.tree_id(77);
                assert_eq!((Codec::of_tree(id), id & TREE_NUMBER_MAX), (codec, 77));
                assert_eq!((codec.compression(), codec.expires()), (compression, expires));
                assert_eq!(Compression::of_tree(id), compression);
                assert_eq!(codec.is_plain(), compression == Compression::None && !expires);
            }
        }
    }

    #[test]
    fn a_value_without_an_expiry_time_is_a_fault() {
        let codec = Codec::new(Compression::None, true);
        assert!(codec.fault(&mut vec![0; 7]).is_some());
        assert!(codec.fault(&mut vec![0; 8]).is_none());
        assert!(Codec::PLAIN.fault(&mut Vec::new()).is_none());
    }
}
