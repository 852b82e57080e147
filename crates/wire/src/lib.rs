//! Integers and texts in the byte strings that devices exchange: NVMe and MPI in little-endian
//! order ([`le`]), SCSI in big-endian order ([`be`]).
//!
//! No access fails: bytes outside a string read as zero, and are not written. A decoder that must
//! distinguish a short string from zeros checks the length first.

#![forbid(unsafe_code)]

pub mod be;
pub mod le;

#[inline]
#[must_use]
pub fn get<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    data.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[inline]
#[must_use]
pub fn u8_at(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

/// Writes `bytes` at `at`, or nothing if they do not fit.
#[inline]
pub fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = at.checked_add(bytes.len()).and_then(|end| data.get_mut(at..end)) {
        place.copy_from_slice(bytes);
    }
}

/// Returns the characters before the first NUL without surrounding blanks. Characters that are not
/// printable ASCII become '?'.
#[must_use]
pub fn text(data: &[u8]) -> String {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let printable = |byte: &u8| if (0x20..0x7F).contains(byte) { char::from(*byte) } else { '?' };
    data[..end].iter().map(printable).collect::<String>().trim().to_owned()
}

/// Writes `text` in ASCII, padded with blanks.
pub fn put_text(place: &mut [u8], text: &str) {
    place.fill(b' ');
    let ascii = text.bytes().map(|byte| if (0x20..0x7F).contains(&byte) { byte } else { b'?' });
    for (place, byte) in place.iter_mut().zip(ascii) {
        *place = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outside_are_zero_and_are_not_written() {
        let mut data = [1, 2, 3, 4, 5];
        assert_eq!((le::u32_at(&data, 1), be::u32_at(&data, 1)), (0x0504_0302, 0x0203_0405));
        assert_eq!((le::u16_at(&data, 4), be::u64_at(&data, 0), u8_at(&data, 5)), (0, 0, 0));
        assert_eq!(le::u32_at(&data, usize::MAX), 0);
        put(&mut data, 4, &[9, 9]);
        put(&mut data, usize::MAX, &[9]);
        assert_eq!(data, [1, 2, 3, 4, 5]);
        put(&mut data, 3, &[8, 9]);
        assert_eq!(data, [1, 2, 3, 8, 9]);
    }

    #[test]
    fn texts_are_printable() {
        let mut place = [0; 8];
        put_text(&mut place, "a\u{7f}b");
        assert_eq!(&place, b"a?b     ");
        assert_eq!((text(&place), text(b" c\x01 \0d")), ("a?b".to_owned(), "c?".to_owned()));
    }
}
