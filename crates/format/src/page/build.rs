//! Compares keys: their common prefix, and the shortest key between them.

#[inline]
pub fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the length of the shortest prefix of `right` that is greater than `left`. Requires `left
/// < right`.
#[inline]
pub fn separator_len(left: &[u8], right: &[u8]) -> usize {
    debug_assert!(left < right);
    (shared_prefix_len(left, right) + 1).min(right.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_separate() {
        for (left, right, separator) in [
            ("a", "b", "b"),
            ("abc", "abd", "abd"),
            ("ab", "abzzz", "abz"),
            ("", "x", "x"),
            ("hello", "help me", "help"),
        ] {
            let len = separator_len(left.as_bytes(), right.as_bytes());
            assert_eq!(&right[..len], separator);
            assert!(left < separator && separator <= right);
        }
    }
}
