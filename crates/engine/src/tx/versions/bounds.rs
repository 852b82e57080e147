//! Bounds of ranges of keys, as searches take them.

use std::ops::{Bound, RangeBounds};

/// The lower and the upper bound of a range.
pub(in crate::tx) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Whether a key is within bounds.
pub(in crate::tx) fn is_within(bounds: Bounds<'_>, key: &[u8]) -> bool {
    RangeBounds::<[u8]>::contains(&bounds, key)
}

/// Borrows owned bounds.
pub(in crate::tx) fn slices_of<'a>(
    low: &'a Bound<Vec<u8>>,
    high: &'a Bound<Vec<u8>>,
) -> Bounds<'a> {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}
