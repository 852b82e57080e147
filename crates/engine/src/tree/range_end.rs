//! One end of a range that is read batch by batch.

use std::ops::Bound;

use qpair_format::Result;
use qpair_format::group::Records;

use super::{Batch, Direction, Pace, Tree};

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// The lower and the upper bound of a range.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The records of a range in groups.
#[derive(Default)]
struct Groups {
    /// The lower and the upper bound of the range, if one of them is a long key. The bounds of the
    /// scan have the keys of groups in their place.
    bounds: Option<Bounds>,
    /// The records of the last group that were not given out yet, the next one last.
    opened: Vec<Record>,
}

/// The progress of one end of a range. If the other end is used as well, it has another `RangeEnd`.
pub(crate) struct RangeEnd {
    pub(crate) direction: Direction,
    /// The bound at which the next batch begins, on the side that the scan comes from; `None` at
    /// the end.
    pub(crate) from: Option<Bound<Vec<u8>>>,
    pub(crate) to: Bound<Vec<u8>>,
    pub(crate) batch: Batch,
    /// The index of the record in the batch that is given out next.
    pub(crate) next: usize,
    pub(crate) pace: Pace,
    /// The key that the other end has given out last. This end goes no further than that key.
    limit: Option<Vec<u8>>,
    tree: Tree,
    /// `None` if the range has met no group, and has no long key as a bound.
    groups: Option<Box<Groups>>,
}

impl RangeEnd {
    pub(crate) fn new(tree: Tree, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        let is_long = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => tree.is_long(key),
            Bound::Unbounded => false,
        };
        // A scan meets the group of a bound, whose records are compared with the bound itself.
        let of_scan = |bound: Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) if tree.is_long(&key) => {
                Bound::Included(tree.group_key(&key))
            }
            bound => bound,
        };
        let groups = (is_long(&from) || is_long(&to)).then(|| {
            Box::new(Groups { bounds: Some((from.clone(), to.clone())), opened: Vec::new() })
        });
        Self {
            tree,
            groups,
            direction: Direction::Forward,
            from: Some(of_scan(from)),
            to: of_scan(to),
            batch: Batch::default(),
            next: 0,
            pace: Pace::default(),
            limit: None,
        }
    }

    /// Returns the other end, limited to what this one has not given out.
    pub(crate) fn other(&self) -> Option<Self> {
        let opened = self.groups.as_ref().and_then(|groups| groups.opened.last());
        let left = match (opened, self.peek()) {
            (Some((key, _)), _) => Bound::Included(self.tree.group_key(key)),
            (None, Some((key, ..))) => Bound::Included(key.to_vec()),
            (None, None) => self.from.clone()?,
        };
        let mut other = Self::new(self.tree.with_groups(), self.to.clone(), left);
        other.tree = self.tree;
        other.direction = self.direction.opposite();
        let bounds = self.groups.as_ref().and_then(|groups| groups.bounds.clone());
        let mut bounds = bounds.unwrap_or((Bound::Unbounded, Bound::Unbounded));
        if let Some((key, _)) = opened {
            match self.direction {
                Direction::Forward => bounds.0 = Bound::Included(key.clone()),
                Direction::Reverse => bounds.1 = Bound::Included(key.clone()),
            }
        }
        if bounds != (Bound::Unbounded, Bound::Unbounded) {
            other.groups = Some(Box::new(Groups { bounds: Some(bounds), opened: Vec::new() }));
        }
        other.pace.limit(self.pace.left());
        Some(other)
    }

    /// Notes that the other end has given out the record of a key.
    pub(crate) fn given_by_other(&mut self, key: &[u8]) {
        self.limit = Some(key.to_vec());
        self.pace.given();
    }

    /// Whether the other end has already given out the record of this key. The records of a group
    /// are compared one by one.
    pub(crate) fn is_past_limit(&self, key: &[u8]) -> bool {
        !self.tree.is_long(key) && self.is_given_by_other(key)
    }

    fn is_given_by_other(&self, key: &[u8]) -> bool {
        self.limit.as_ref().is_some_and(|limit| !self.direction.comes_before(key, limit))
    }

    /// Ends the range: no more records are given out.
    pub(crate) fn finish(&mut self) {
        self.from = None;
        self.batch.clear();
        if let Some(groups) = &mut self.groups {
            groups.opened.clear();
        }
    }

    /// Whether the record of this key of the batch is a group, for [`RangeEnd::open`].
    #[inline(always)]
    pub(crate) fn is_group(&self, key: &[u8]) -> bool {
        self.tree.is_long(key)
    }

    /// Takes the records of a group that are in the range, for [`RangeEnd::next_of_group`].
    ///
    /// # Errors
    /// `Corrupt` if the group is damaged: none of its records is taken.
    #[cold]
    pub(crate) fn open(&mut self, group_key: &[u8], group: &[u8]) -> Result<()> {
        let head = group_key.split_last().map_or(group_key, |(_, head)| head);
        let groups = self.groups.get_or_insert_default();
        let mut opened = Vec::new();
        for record in Records::of(group)? {
            let (rest, value) = record?;
            let key = [head, rest].concat();
            if groups.bounds.as_ref().is_none_or(|bounds| is_between(bounds, &key)) {
                opened.push((key, value.to_vec()));
            }
        }
        if self.direction == Direction::Forward {
            opened.reverse();
        }
        groups.opened = opened;
        Ok(())
    }

    /// Returns the next record of the group that was opened last; `None` if no record is left.
    #[inline(always)]
    pub(crate) fn next_of_group(&mut self) -> Option<Record> {
        if self.groups.is_none() { None } else { self.take_opened() }
    }

    #[cold]
    fn take_opened(&mut self) -> Option<Record> {
        let (key, value) = self.groups.as_mut()?.opened.pop()?;
        if self.is_given_by_other(&key) {
            self.finish();
            return None;
        }
        self.pace.given();
        Some((key, value))
    }

    pub(crate) fn reverse(&mut self) {
        if let Some(from) = self.from.take() {
            self.from = Some(std::mem::replace(&mut self.to, from));
        }
        self.direction = self.direction.opposite();
    }

    /// Returns the next record of the batch: key, value, and whether the value is a descriptor. It
    /// stays the next one until [`RangeEnd::step`].
    pub(crate) fn peek(&self) -> Option<(&[u8], &[u8], bool)> {
        (self.next < self.batch.len()).then(|| self.batch.entry(self.next))
    }

    /// Moves past the next record, which is given out, or is not there any more.
    pub(crate) fn step(&mut self, given: bool) {
        self.next += 1;
        if given {
            self.pace.given();
        }
    }
}

fn is_between((low, high): &Bounds, key: &[u8]) -> bool {
    let is_above = match low {
        Bound::Included(low) => key >= low.as_slice(),
        Bound::Excluded(low) => key > low.as_slice(),
        Bound::Unbounded => true,
    };
    is_above
        && match high {
            Bound::Included(high) => key <= high.as_slice(),
            Bound::Excluded(high) => key < high.as_slice(),
            Bound::Unbounded => true,
        }
}
