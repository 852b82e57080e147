//! The reads of a serializable transaction, which its commit validates.
//!
//! Invariant: a read that is not in the set was of a row that the transaction has locked, or has
//! written itself.

use std::ops::Bound;
use std::sync::Arc;

use qpair_format::{Error, ErrorKind, Result};

use super::key_list::KeyList;
use super::recent_commits::{Changed, short_hash};
use crate::shared::Shared;
use crate::task::run;
use crate::tree::{Batch, Direction, Scan, Tree};
use crate::tx::Tx;
use crate::tx::history::Reader;
use crate::tx::versions::{Bounds, Wanted, is_within, slices_of};

type OwnBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The number of deleted keys that are looked up between two looks at their list.
const GONE_AT_ONCE: usize = 256;
/// The number of bits by which keys that were read are told from others.
const HASH_BITS: usize = 8192;

/// The keys and ranges that a transaction has read.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    keys: KeyList<Tree>,
    ranges: Vec<(Tree, OwnBounds)>,
    range_bytes: usize,
}

impl ReadSet {
    pub(super) fn size_bytes(&self) -> usize {
        self.keys.size_bytes() + self.range_bytes
    }

    fn check(&self, more: usize, bytes_max: usize) -> Result<()> {
        if self.size_bytes() + more <= bytes_max.min(u32::MAX as usize) {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::TooLarge,
            format!(
                "a serializable transaction has read {} keys and {} ranges and exceeds its limit of {bytes_max} bytes",
                self.keys.len(),
                self.ranges.len()
            ),
            "read ranges instead of many keys, or raise write_set_bytes_max",
        ))
    }

    pub(super) fn key(&mut self, tree: Tree, key: &[u8], bytes_max: usize) -> Result<()> {
        self.check(key.len() + KeyList::<Tree>::ENTRY_BYTES, bytes_max)?;
        self.keys.push(tree, key);
        Ok(())
    }

    /// Adds a part of a range; extends one of the last two parts if it touches that one.
    pub(super) fn range(
        &mut self,
        tree: Tree,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        bytes_max: usize,
    ) -> Result<()> {
        let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let touches = |a: &Bound<Vec<u8>>, b: &Bound<&[u8]>| match (a, b) {
            (Bound::Included(a), Bound::Excluded(b)) | (Bound::Excluded(a), Bound::Included(b)) => {
                a == b
            }
            _ => false,
        };
        // A range that is read from both ends has two parts, which are extended alternately.
        for (of, bounds) in self.ranges.iter_mut().rev().take(2) {
            if of.id != tree.id {
                continue;
            }
            if touches(&bounds.1, &from) {
                bounds.1 = own(to);
                return Ok(());
            }
            if touches(&bounds.0, &to) {
                bounds.0 = own(from);
                return Ok(());
            }
        }
        let len = |bound: &Bound<&[u8]>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        let more = size_of::<(Tree, OwnBounds)>() + len(&from) + len(&to);
        self.check(more, bytes_max)?;
        self.range_bytes += more;
        self.ranges.push((tree, (own(from), own(to))));
        Ok(())
    }

    /// Returns an error if a commit above `after` and below `before` changed a key or range that
    /// was read. All commits below `before` must be applied.
    ///
    /// # Errors
    /// `Conflict` if there is such a commit; errors of the device.
    pub(in crate::tx) async fn validate(&self, tx: &Tx, after: u64, before: u64) -> Result<()> {
        let shared = &tx.shared;
        let rows = &tx.rows;
        for (tree, key) in self.keys.iter() {
            let is_changed = rows.changed(tree.id, key, after, before)
                || tx.history.is_behind(after)
                    && tx
                        .history
                        .find(shared, tree.id, key, after)
                        .await?
                        .is_some_and(|version| version.timestamp < before);
            if is_changed {
                return Err(conflict(tx, tree.id, key));
            }
        }
        for (tree, (from, to)) in &self.ranges {
            validate_range(tx, *tree, from, to, after, before).await?;
        }
        self.check_tables(shared)
    }

    /// Like [`ReadSet::validate`], with the known changes of the commits between the two
    /// timestamps.
    ///
    /// # Errors
    /// As [`ReadSet::validate`].
    pub(in crate::tx) fn validate_with(
        &self,
        tx: &Tx,
        changed: &[Arc<Changed>],
        after: u64,
        before: u64,
    ) -> Result<()> {
        // Few keys of others are among those that were read: a bit for each tells most of them.
        let mut hashes = [0_u64; HASH_BITS / 64];
        let bit = |hash: u32| (hash as usize / 64 % (HASH_BITS / 64), 1_u64 << (hash % 64));
        if !changed.is_empty() {
            for (tree, key) in self.keys.iter() {
                let (word, mask) = bit(short_hash(tree.id, key));
                hashes[word] |= mask;
            }
        }
        for ((tree, hash), key) in changed.iter().flat_map(|one| one.iter()) {
            let (word, mask) = bit(hash);
            let has = |(of, (low, high)): &(Tree, OwnBounds)| {
                of.id == tree && is_within(slices_of(low, high), key)
            };
            let is_read = hashes[word] & mask != 0
                && self.keys.iter().any(|(of, read)| of.id == tree && read == key)
                || self.ranges.iter().any(has);
            // A commit that deleted a missing key has changed nothing.
            if is_read && (tx.rows.changed(tree, key, after, before) || tx.history.is_behind(after))
            {
                return Err(conflict(tx, tree, key));
            }
        }
        self.check_tables(&tx.shared)
    }

    fn check_tables(&self, shared: &Shared) -> Result<()> {
        // The reads of a dropped table cannot be validated any more.
        let trees = self.keys.iter().map(|(tree, _)| tree);
        trees
            .chain(self.ranges.iter().map(|(tree, _)| *tree))
            .try_for_each(|tree| shared.check_table(tree))
    }
}

async fn validate_range(
    tx: &Tx,
    tree: Tree,
    from: &Bound<Vec<u8>>,
    to: &Bound<Vec<u8>>,
    after: u64,
    before: u64,
) -> Result<()> {
    let (shared, rows) = (&tx.shared, &tx.rows);
    let mut batch = Batch::default();
    let mut next = Some(from.clone());
    while let Some(from) = next {
        run(shared, Scan::new(tree, Direction::Forward, &from, to, &mut batch)).await?;
        if batch.timestamp > after {
            for index in 0..batch.len() {
                let key = batch.entry(index).0;
                if rows.changed(tree.id, key, after, before) {
                    return Err(conflict(tx, tree.id, key));
                }
            }
        }
        next = batch.next.take();
    }
    let mut low = from.clone();
    loop {
        let bounds = slices_of(&low, to);
        let wanted = Wanted::deleted_after(after);
        let gone = rows.deleted(tree.id, bounds, Direction::Forward, wanted, GONE_AT_ONCE);
        if let Some(key) = gone.keys.iter().find(|key| rows.changed(tree.id, key, after, before)) {
            return Err(conflict(tx, tree.id, key));
        }
        let Some(upto) = gone.upto else { break };
        low = Bound::Excluded(upto.to_vec());
    }
    validate_history(tx, tree, slices_of(from, to), after, before).await
}

/// Validates a range against the undo versions that have moved from the row table to the device.
async fn validate_history(
    tx: &Tx,
    tree: Tree,
    (low, high): Bounds<'_>,
    after: u64,
    before: u64,
) -> Result<()> {
    let shared = &tx.shared;
    let history = &tx.history;
    let (mut reader, mut next) = (Reader::default(), low.map(<[u8]>::to_vec));
    while history.is_behind(after) {
        let bounds = (next.as_ref().map(Vec::as_slice), high);
        let part =
            history.part(shared, &mut reader, tree.id, Direction::Forward, bounds, after).await?;
        for (key, version) in &part.images {
            if version.timestamp < before {
                return Err(conflict(tx, tree.id, key));
            }
        }
        let Some(cut) = part.cut else { break };
        next = Bound::Included(cut);
    }
    Ok(())
}

fn conflict(tx: &Tx, tree: u32, key: &[u8]) -> Error {
    Error::with_hint(
        ErrorKind::Conflict,
        format!(
            "{} was changed after a serializable transaction read it or its range",
            tx.names.place(tree, key)
        ),
        "roll back and try again, as Store::transact does",
    )
}
