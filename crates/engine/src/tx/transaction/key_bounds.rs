//! The types that can be given as a range of keys.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use qpair_format::{Error, ErrorKind, Result};

/// A range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, a pair of bounds, or all keys with
/// a [`Prefix`]. A key is anything made of bytes (`&[u8]`, `&str`, arrays, vectors).
///
/// ```
/// # fn ranges(table: &qpair_engine::Table) -> qpair_engine::Result<()> {
/// use qpair_engine::Prefix;
///
/// table.range(..)?;
/// table.range("apple".."banana")?;
/// table.range(7u64.to_be_bytes()..)?;
/// table.range(Prefix("user/"))?;
/// # Ok(())
/// # }
/// ```
pub trait KeyBounds {
    /// Returns the lower and the upper bound of the range.
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<Vec<u8>>);
}

/// All keys that begin with these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<K>(pub K);

fn own<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<Vec<u8>> {
    bound.map(|key| key.as_ref().to_vec())
}

impl<K: AsRef<[u8]>> KeyBounds for Prefix<K> {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<Vec<u8>>) {
        let prefix = self.0.as_ref();
        let end = match prefix.iter().rposition(|byte| *byte != u8::MAX) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut end = prefix[..=last].to_vec();
                end[last] += 1;
                Bound::Excluded(end)
            }
        };
        (Bound::Included(prefix), end)
    }
}

impl KeyBounds for RangeFull {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// Implements [`KeyBounds`] for ranges of the standard library.
macro_rules! key_bounds {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> KeyBounds for $range {
            fn key_bounds(&self) -> (Bound<&[u8]>, Bound<Vec<u8>>) {
                use std::ops::RangeBounds;
                (self.start_bound().map(AsRef::as_ref), own(self.end_bound()))
            }
        }
    )*};
}

key_bounds!(
    Range<K>,
    RangeInclusive<K>,
    RangeFrom<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

/// The lower and the upper bound of a range of keys.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns owned bounds of a range of keys.
///
/// # Errors
/// `Invalid` if the range ends before it begins.
pub(crate) fn bounds(range: &impl KeyBounds) -> Result<Bounds> {
    let (from, to) = range.key_bounds();
    let from = from.map(<[u8]>::to_vec);
    if let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) =
        (&from, &to)
        && a > b
    {
        return Err(Error::new(ErrorKind::Invalid, "the range ends before it begins"));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_does_not_begin_with_it() {
        let end = |prefix: &[u8]| bounds(&Prefix(prefix)).unwrap().1;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\xff"), Bound::Unbounded);
        assert_eq!(end(b""), Bound::Unbounded);
    }

    #[test]
    fn keys_of_all_kinds_make_ranges() {
        let a_to_b = (Bound::Included(b"a".to_vec()), Bound::Excluded(b"b".to_vec()));
        assert_eq!(bounds(&("a".."b")).unwrap(), a_to_b);
        assert_eq!(bounds(&(*b"a"..*b"b")).unwrap(), a_to_b);
        assert_eq!(bounds(&(vec![b'a']..vec![b'b'])).unwrap(), a_to_b);
        assert_eq!(bounds(&a_to_b).unwrap(), a_to_b);
        assert_eq!(bounds(&Prefix("a")).unwrap(), a_to_b);
        assert_eq!(bounds(&..).unwrap(), (Bound::Unbounded, Bound::Unbounded));
        assert_eq!(bounds(&("b".."a")).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
