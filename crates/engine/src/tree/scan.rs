//! Range scans, one leaf at a time, copied while no one changed it.

use std::ops::Bound;

use qpair_format::page::Node;

use super::Tree;
use super::descend::Route;
use crate::task::{Context, Descent, Need, Operation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

impl Direction {
    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }

    /// Whether a scan this way meets `a` before `b`.
    pub(crate) fn comes_before(self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Self::Forward => a < b,
            Self::Reverse => a > b,
        }
    }
}

/// One record of a batch, as the ends of its key and value in the batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key_end: u32,
    value_end: u32,
    overflow: bool,
}

/// Records of one leaf, in scan order.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The bound at which the next leaf begins, where the scan continues; `None` at the end.
    pub(crate) next: Option<Bound<Vec<u8>>>,
    /// The timestamp of the newest commit that changed the leaf.
    pub(crate) timestamp: u64,
    /// The number of records in the whole leaf.
    pub(crate) leaf_records: usize,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.next = None;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the capacity in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity().max(self.entries.capacity() * size_of::<Entry>())
    }

    /// Returns a record's key and value, and whether the value is an overflow descriptor.
    pub(crate) fn entry(&self, index: usize) -> (&[u8], &[u8], bool) {
        let start =
            index.checked_sub(1).map_or(0, |before| self.entries[before].value_end as usize);
        let Entry { key_end, value_end, overflow } = self.entries[index];
        (
            &self.bytes[start..key_end as usize],
            &self.bytes[key_end as usize..value_end as usize],
            overflow,
        )
    }

    pub(crate) fn push_record(&mut self, key: &[u8], value: &[u8], overflow: bool) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.entries.push(Entry { key_end, value_end: self.bytes.len() as u32, overflow });
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
        self.bytes.truncate(self.entries.last().map_or(0, |last| last.value_end as usize));
    }

    fn push(&mut self, node: Node<'_>, position: usize) {
        node.key(position, &mut self.bytes);
        let key_end = self.bytes.len() as u32;
        let value = node.value(position);
        node.bytes.append_to(value.offset, value.len, &mut self.bytes);
        self.entries.push(Entry {
            key_end,
            value_end: self.bytes.len() as u32,
            overflow: value.overflow,
        });
    }
}

/// Copies the records of the first leaf of a range.
pub(crate) struct Scan<'a> {
    tree: Tree,
    direction: Direction,
    /// The current position of the scan, on the side that it comes from.
    from: &'a Bound<Vec<u8>>,
    to: &'a Bound<Vec<u8>>,
    batch: &'a mut Batch,
    limit: usize,
    descent: Descent,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        tree: Tree,
        direction: Direction,
        from: &'a Bound<Vec<u8>>,
        to: &'a Bound<Vec<u8>>,
        batch: &'a mut Batch,
    ) -> Self {
        Self { tree, direction, from, to, batch, limit: usize::MAX, descent: Descent::default() }
    }

    pub(crate) fn limited(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Copies some of these records if there are more than the limit. The scan then continues
    /// behind the last of them.
    fn copy(&mut self, node: Node<'_>, positions: impl ExactSizeIterator<Item = usize>) -> bool {
        let more = positions.len() > self.limit;
        for position in positions.take(self.limit) {
            self.batch.push(node, position);
        }
        if more && let Some(last) = self.batch.len().checked_sub(1) {
            self.batch.next = Some(Bound::Excluded(self.batch.entry(last).0.to_vec()));
        }
        more
    }

    /// Copies records in ascending order.
    fn forward(&mut self, node: Node<'_>) {
        let start = match self.from {
            Bound::Included(key) => node.lower_bound(key).0,
            Bound::Excluded(key) => {
                let (position, found) = node.lower_bound(key);
                position + usize::from(found)
            }
            Bound::Unbounded => 0,
        };
        let mut upper = Vec::new();
        node.upper_fence(&mut upper);
        let (end, last) = if !node.has_upper_fence() {
            (self.end_position(node), true)
        } else {
            let last = match self.to {
                Bound::Included(key) => *key < upper,
                Bound::Excluded(key) => *key <= upper,
                Bound::Unbounded => false,
            };
            (if last { self.end_position(node) } else { node.count() }, last)
        };
        if !self.copy(node, start..end.max(start)) {
            self.batch.next = (!last).then_some(Bound::Included(upper));
        }
    }

    /// Whether the scan has advanced. In a damaged tree it may not, and would loop forever.
    fn goes_on(&self) -> bool {
        use Bound::{Excluded, Included};
        let (Included(from_key) | Excluded(from_key)) = self.from else { return true };
        let Some(next @ (Included(next_key) | Excluded(next_key))) = &self.batch.next else {
            return true;
        };
        // Once the inclusive start of a range was looked at, the scan continues from the same key
        // as an exclusive bound.
        let looked_at = matches!((self.from, next), (Included(_), Excluded(_)));
        match self.direction {
            Direction::Forward => next_key > from_key || looked_at && next_key == from_key,
            Direction::Reverse => next_key < from_key || looked_at && next_key == from_key,
        }
    }

    /// Returns the first position past a forward scan's end, in the leaf where it ends.
    fn end_position(&self, node: Node<'_>) -> usize {
        match self.to {
            Bound::Included(key) => {
                let (position, found) = node.lower_bound(key);
                position + usize::from(found)
            }
            Bound::Excluded(key) => node.lower_bound(key).0,
            Bound::Unbounded => node.count(),
        }
    }

    fn reverse(&mut self, node: Node<'_>) {
        let end = match self.from {
            Bound::Included(key) => {
                let (position, found) = node.lower_bound(key);
                position + usize::from(found)
            }
            Bound::Excluded(key) => node.lower_bound(key).0,
            Bound::Unbounded => node.count(),
        };
        let mut lower = Vec::new();
        node.lower_fence(&mut lower);
        let last = lower.is_empty()
            || match self.to {
                Bound::Included(key) | Bound::Excluded(key) => *key >= lower,
                Bound::Unbounded => false,
            };
        let start = match self.to {
            Bound::Included(key) if last => node.lower_bound(key).0,
            Bound::Excluded(key) if last => {
                let (position, found) = node.lower_bound(key);
                position + usize::from(found)
            }
            _ => 0,
        };
        if !self.copy(node, (start..end.max(start)).rev()) {
            self.batch.next = (!last).then_some(Bound::Excluded(lower));
        }
    }
}

/// Returns the route to the first leaf of a scan that comes from this bound.
pub(super) fn route(direction: Direction, from: &Bound<Vec<u8>>) -> Route<'_> {
    match (direction, from) {
        (_, Bound::Included(key)) | (Direction::Forward, Bound::Excluded(key)) => Route::To(key),
        (Direction::Reverse, Bound::Excluded(key)) => Route::Before(key),
        (Direction::Forward, Bound::Unbounded) => Route::To(&[]),
        (Direction::Reverse, Bound::Unbounded) => Route::Last,
    }
}

impl Operation for Scan<'_> {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        let route = route(self.direction, self.from);
        let page = self.descent.walk_to_leaf(context, &self.tree, route)?;
        self.batch.clear();
        let node = Node::new(page.bytes());
        (self.batch.timestamp, self.batch.leaf_records) = (node.timestamp(), node.count());
        match self.direction {
            Direction::Forward => self.forward(node),
            Direction::Reverse => self.reverse(node),
        }
        let stood = page.validate();
        if stood && self.goes_on() {
            return Ok(());
        }
        self.batch.clear();
        self.descent.restart();
        Err(if stood { Need::Sound } else { Need::Retry })
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
