//! The choice of the images that a run must have.

/// Decides which images the snapshots in use need. Callers must ask in the order of a run.
pub(super) struct Needs {
    /// The snapshots in use below the bound of the images, in order.
    snapshots: Vec<u64>,
    tree: u32,
    key: Vec<u8>,
    /// The timestamp of this key that was asked about last; 0 if there was none.
    timestamp: u64,
}

impl Needs {
    pub(super) fn new(snapshots: Vec<u64>) -> Self {
        Self { snapshots, tree: 0, key: Vec::new(), timestamp: 0 }
    }

    /// Whether a snapshot needs the before-image of a commit: a snapshot below this commit, and not
    /// below the previous commit that changed the row. `Needs` does not know about commits before
    /// the first one that it is asked about.
    pub(super) fn has(&mut self, tree: u32, key: &[u8], timestamp: u64) -> bool {
        if (self.tree, self.key.as_slice()) != (tree, key) {
            (self.tree, self.timestamp) = (tree, 0);
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        let from = std::mem::replace(&mut self.timestamp, timestamp);
        let first = self.snapshots.partition_point(|snapshot| *snapshot < from);
        self.snapshots.get(first).is_some_and(|snapshot| *snapshot < timestamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_snapshot_needs_the_first_after_it() {
        let mut needs = Needs::new(vec![10, 20, 21]);
        for (key, timestamp, needed) in [
            ("a", 5, false),
            ("a", 10, false),
            ("a", 11, true),
            ("a", 12, false),
            ("a", 12, false),
            ("a", 20, false),
            ("a", 21, true),
            ("a", 30, true),
            ("a", 31, false),
            ("b", 31, true),
            ("b", 32, false),
        ] {
            assert_eq!(needs.has(1, key.as_bytes(), timestamp), needed, "{key} {timestamp}");
        }
        assert!(needs.has(2, b"b", 32), "of another tree");
        assert!(!Needs::new(Vec::new()).has(1, b"a", 5));
    }
}
