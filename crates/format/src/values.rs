//! Compressed values: what a table with a compression keeps in the place of a value.
//!
//! The compression of a table is in the upper two bits of its tree's id, so the catalog, the log
//! and the checkpoint's image have it wherever they name the tree. See docs/design/compression.md.
//!
//! Decoding takes any bytes, and never panics.

use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Result};
use crate::page::VALUE_LEN_MAX;

/// The number of the lowest bit of a tree's id that says how values are compressed.
pub(crate) const TREE_BITS: u32 = 30;
/// The greatest number of a tree. The bit above says whether values expire.
pub const TREE_NUMBER_MAX: u32 = (1 << (TREE_BITS - 1)) - 1;

/// The first byte of a value that follows as it is.
const RAW: u8 = 0;
/// The first byte of a compressed value. The length of the value follows, then its bytes.
const COMPRESSED: u8 = 1;
const HEADER_BYTES: usize = 5;
/// The shortest value that is compressed, in bytes. Shorter ones hardly get smaller.
const LEN_MIN: usize = 64;
/// A compressed value is kept if it saves at least this part of the value.
const SAVED_PART_MIN: usize = 16;

/// The way in which the values of a table are compressed, each by itself.
///
/// ```
/// use qpair_format::values::Compression;
///
/// assert_eq!("lz4".parse(), Ok(Compression::Lz4));
/// assert_eq!(Compression::Zstd.to_string(), "zstd");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Values are kept as they are.
    #[default]
    None,
    /// LZ4 blocks: quick, and about half the size for text.
    Lz4,
    /// Zstandard frames: smaller, and several times slower than LZ4.
    Zstd,
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

impl std::str::FromStr for Compression {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err("give none, lz4 or zstd"),
        }
    }
}

impl Compression {
    /// Returns the compression of the values of a tree.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn of_tree(id: u32) -> Self {
        Self::of_bits((id >> TREE_BITS) as u8)
    }

    #[inline]
    pub(crate) const fn of_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Lz4,
            2 => Self::Zstd,
            _ => Self::None,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// Checks that this build can compress and decompress in this way.
    ///
    /// # Errors
    /// `Unsupported`.
    #[doc(hidden)]
    pub fn check(self) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Lz4 if cfg!(feature = "lz4") => Ok(()),
            Self::Zstd if cfg!(feature = "zstd") => Ok(()),
            Self::Lz4 | Self::Zstd => Err(Error::with_hint(
                ErrorKind::Unsupported,
                format!("the values are compressed by {self}, which this build does not support"),
                format!("build the program with the feature `{self}`"),
            )),
        }
    }

    /// Returns what a table keeps in the place of a value.
    ///
    /// # Errors
    /// Those of [`Compression::check`]; `ValueTooLong` if the longest value cannot be made shorter.
    #[doc(hidden)]
    #[inline]
    pub fn encode(self, value: &[u8]) -> Result<Cow<'_, [u8]>> {
        if self == Self::None {
            return Ok(Cow::Borrowed(value));
        }
        self.encode_some(value).map(Cow::Owned)
    }

    fn encode_some(self, value: &[u8]) -> Result<Vec<u8>> {
        self.check()?;
        if value.len() >= LEN_MIN {
            let mut stored = Vec::new();
            stored.push(COMPRESSED);
            stored.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.compress(value, &mut stored);
            if stored.len() <= value.len() - value.len() / SAVED_PART_MIN {
                return Ok(stored);
            }
        }
        if value.len() >= VALUE_LEN_MAX {
            return Err(Error::new(
                ErrorKind::ValueTooLong,
                format!(
                    "a value of {} bytes does not get smaller by compression; the limit for such values is {}",
                    value.len(),
                    VALUE_LEN_MAX - 1
                ),
            ));
        }
        let mut stored = Vec::with_capacity(1 + value.len());
        stored.push(RAW);
        stored.extend_from_slice(value);
        Ok(stored)
    }

    /// Replaces what a table keeps, in `value` from `start` on, by the value, if `found`. Returns
    /// `found`. After an error nothing is left from `start` on.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a value; those of [`Compression::check`].
    #[doc(hidden)]
    #[inline]
    pub fn decode(self, found: bool, value: &mut Vec<u8>, start: usize) -> Result<bool> {
        if found && self != Self::None {
            self.decode_some(value, start).inspect_err(|_| value.truncate(start))?;
        }
        Ok(found)
    }

    /// Returns the reason why stored bytes are not a value, for a check. The bytes in `stored` are
    /// used up. In a build without the compression nothing is found.
    #[doc(hidden)]
    pub fn fault(self, stored: &mut Vec<u8>) -> Option<String> {
        match self.decode(true, stored, 0) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Some(error.context().to_owned()),
            _ => None,
        }
    }

    fn decode_some(self, value: &mut Vec<u8>, start: usize) -> Result<()> {
        self.check()?;
        let stored_end = value.len();
        match value.get(start) {
            Some(&RAW) => {
                value.copy_within(start + 1.., start);
                value.truncate(stored_end - 1);
                return Ok(());
            }
            Some(&COMPRESSED) => {}
            _ => {
                let what = "the first byte of a compressed value is unknown";
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        }
        let len = value.get(start + 1..start + HEADER_BYTES).and_then(|len| len.first_chunk());
        let len = len.map_or(usize::MAX, |len| u32::from_le_bytes(*len) as usize);
        if len > VALUE_LEN_MAX {
            let what = "the length of a compressed value is over the limit";
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        value.resize(stored_end + len, 0);
        let (stored, target) = value.split_at_mut(stored_end);
        if self.decompress(&stored[start + HEADER_BYTES..], target) != Some(len) {
            let what = format!("a value cannot be decompressed by {self}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        value.copy_within(stored_end.., start);
        value.truncate(start + len);
        Ok(())
    }

    /// Appends the compressed value.
    #[cfg_attr(
        not(any(feature = "lz4", feature = "zstd")),
        allow(
            unused_variables,
            clippy::ptr_arg,
            clippy::match_single_binding,
            reason = "there is nothing to compress with"
        )
    )]
    fn compress(self, value: &[u8], stored: &mut Vec<u8>) {
        match self {
            #[cfg(feature = "lz4")]
            Self::Lz4 => {
                let start = stored.len();
                let most = lz4_flex::block::get_maximum_output_size(value.len());
                stored.resize(start + most, 0);
                // A value that does not fit is kept as it is.
                let len =
                    lz4_flex::block::compress_into(value, &mut stored[start..]).unwrap_or(most);
                stored.truncate(start + len);
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress(value, stored, level);
            }
            _ => {}
        }
    }

    /// Fills `target` with the value, and returns the value's length.
    #[cfg_attr(
        not(any(feature = "lz4", feature = "zstd")),
        allow(
            unused_variables,
            clippy::match_single_binding,
            reason = "there is nothing to decompress with"
        )
    )]
    fn decompress(self, stored: &[u8], target: &mut [u8]) -> Option<usize> {
        match self {
            #[cfg(feature = "lz4")]
            Self::Lz4 => lz4_flex::block::decompress_into(stored, target).ok(),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd::decompress(stored, target),
            _ => None,
        }
    }
}

#[cfg(feature = "zstd")]
mod zstd {
    use std::cell::RefCell;

    use ruzstd::decoding::FrameDecoder;

    use crate::page::VALUE_LEN_MAX;

    thread_local! {
        /// The tables of a decoder are large, and making them costs more than a short value.
        static DECODER: RefCell<FrameDecoder> = RefCell::new(FrameDecoder::new());
    }

    /// Fills `target` with the content of a frame, and returns the content's length.
    pub(super) fn decompress(frame: &[u8], target: &mut [u8]) -> Option<usize> {
        if !window_is_bounded(frame) {
            return None;
        }
        let decode = |decoder: &mut FrameDecoder| decoder.decode_all(frame, target).ok();
        DECODER.with_borrow_mut(decode)
    }

    /// Whether a frame needs no larger window than the longest value: the decoder takes memory for
    /// it before it looks at the content.
    fn window_is_bounded(frame: &[u8]) -> bool {
        const SINGLE_SEGMENT: u8 = 1 << 5;
        let (Some(descriptor), Some(window)) = (frame.get(4), frame.get(5)) else { return false };
        if descriptor & SINGLE_SEGMENT == 0 {
            // The window has 2^(10 + exponent) bytes, and up to seven eighths more.
            return 1 << (10 + (window >> 3)) <= VALUE_LEN_MAX as u64;
        }
        // The window is the content, whose size is behind the id of a dictionary.
        let at = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = frame.get(at..at + (1 << (descriptor >> 6)));
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        size.is_some_and(|size| size.iter().rev().fold(0, add) <= VALUE_LEN_MAX as u64)
    }
}

#[cfg(all(test, feature = "lz4", feature = "zstd"))]
mod tests {
    use super::*;

    const BOTH: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    fn text(len: usize) -> Vec<u8> {
        (0..).flat_map(|i| format!("record {i} of the log; ").into_bytes()).take(len).collect()
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(len as u64);
        (0..len).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn values_come_back() {
        for compression in BOTH {
            for len in [0, 1, 63, 64, 65, 1000, 70_000, 300_000] {
                for value in [text(len), noise(len), vec![7; len]] {
                    let stored = compression.encode(&value).unwrap();
                    assert!(stored.len() <= value.len() + 1);
                    // A caller's buffer keeps what it has.
                    let mut found = b"before".to_vec();
                    found.extend_from_slice(&stored);
                    assert!(compression.decode(true, &mut found, 6).unwrap());
                    assert!(found == [&b"before"[..], &value[..]].concat(), "{compression} {len}");
                }
            }
            assert!(compression.encode(&text(4000)).unwrap().len() < 2000);
        }
        let longest = noise(VALUE_LEN_MAX);
        let error = Compression::Lz4.encode(&longest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueTooLong);
        assert!(Compression::Lz4.encode(&longest[1..]).is_ok());
    }

    #[test]
    fn other_bytes_are_damage_and_never_a_panic() {
        let mut random = fastrand::Rng::with_seed(3);
        for compression in BOTH {
            let value = text(3000);
            let stored = compression.encode(&value).unwrap().into_owned();
            for round in 0..2000 {
                let mut bytes = stored.clone();
                match round % 3 {
                    0 => bytes.truncate(random.usize(0..bytes.len())),
                    1 => bytes = noise(round),
                    _ => {
                        let at = random.usize(0..bytes.len());
                        bytes[at] ^= 1 << random.u8(0..8);
                    }
                }
                bytes.splice(0..0, [9; 3]);
                match compression.decode(true, &mut bytes, 3) {
                    Ok(found) => assert!(found && bytes.starts_with(&[9; 3])),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt);
                        assert_eq!(bytes, [9; 3]);
                    }
                }
            }
        }
    }

    /// A window of 64 MiB, and a content of 4 GiB in one segment: refused without memory for them.
    #[test]
    fn frames_with_large_windows_are_damage() {
        let stored = Compression::Zstd.encode(&text(3000)).unwrap().into_owned();
        let [one, other] = [(0, 16 << 3), (0xa0, 0)].map(|(descriptor, next)| {
            let mut bytes = stored.clone();
            bytes[HEADER_BYTES + 4] = descriptor;
            bytes[HEADER_BYTES + 5..HEADER_BYTES + 9].copy_from_slice(&[next, 0, 0, 0xff]);
            bytes
        });
        for mut bytes in [one, other] {
            let error = Compression::Zstd.decode(true, &mut bytes, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
}
