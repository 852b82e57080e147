//! Changes a node. The caller holds the node's exclusive latch.

use qpair_memory::RacyBytesMut;

use super::{
    HEAD_BYTES, HEADER_BYTES, HINTED_COUNT_MIN, HINTS, INNER_SLOT_BYTES, Node, OVERFLOW_FLAG,
    PageKind, RECORD_HEAD_BYTES, field, head_of, shared_prefix_len, slots_offset,
};

pub struct NodeMut<'a> {
    bytes: RacyBytesMut<'a>,
}

#[derive(Clone, Copy)]
pub struct NodeInit<'a> {
    pub level: u8,
    pub tree_id: u32,
    pub page_id: u64,
    /// The lower fence: no key is below it.
    pub lower: &'a [u8],
    /// The upper fence: every key is below it; `None` at the right edge.
    pub upper: Option<&'a [u8]>,
}

impl<'a> NodeMut<'a> {
    #[inline]
    pub fn new(bytes: RacyBytesMut<'a>) -> Self {
        Self { bytes }
    }

    #[inline]
    pub fn read(&self) -> Node<'_> {
        Node::new(self.bytes.read())
    }

    /// Makes the page an empty node. The previous content is lost.
    #[inline]
    pub fn init(&mut self, init: NodeInit<'_>) {
        let size = self.bytes.read().len();
        let upper = init.upper.unwrap_or_default();
        let prefix = init.upper.map_or(0, |upper| shared_prefix_len(init.lower, upper));
        self.bytes.zero(0, slots_offset(init.level == 0));
        let kind = if init.level == 0 { PageKind::Leaf } else { PageKind::Inner };
        self.bytes.store_u8(field::KIND, kind as u8);
        self.bytes.store_u8(field::LEVEL, init.level);
        self.bytes.store_u64(field::PAGE_ID, init.page_id);
        self.bytes.store_u32(field::TREE_ID, init.tree_id);
        self.bytes.store_u16(field::PREFIX_LEN, prefix as u16);
        self.bytes.store_u16(field::LOWER_LEN, init.lower.len() as u16);
        self.bytes.store_u16(field::UPPER_LEN, upper.len() as u16);
        self.bytes.store_u16(field::FLAGS, u16::from(init.upper.is_some()));
        let lower_at = size - init.lower.len();
        let upper_at = lower_at - upper.len();
        self.bytes.copy_from(lower_at, init.lower);
        self.bytes.copy_from(upper_at, upper);
        self.bytes.store_u32(field::HEAP_START, upper_at as u32);
    }

    /// Inserts a record before `position`. Returns `false` if there is no room even after
    /// compaction.
    #[inline]
    pub fn insert_record(
        &mut self,
        position: usize,
        suffix: &[u8],
        value: &[u8],
        overflow: bool,
    ) -> bool {
        let Some(record) = self.make_room(position, suffix, RECORD_HEAD_BYTES + value.len()) else {
            return false;
        };
        let flag = if overflow { OVERFLOW_FLAG } else { 0 };
        self.bytes.store_u16_unaligned(record, value.len() as u16 | flag);
        let tail = suffix.get(HEAD_BYTES..).unwrap_or_default();
        self.bytes.copy_from(record + RECORD_HEAD_BYTES, tail);
        self.bytes.copy_from(record + RECORD_HEAD_BYTES + tail.len(), value);
        true
    }

    /// Inserts a child left of the key with this suffix, before `position`. Returns `false` if
    /// there is no room.
    #[inline]
    pub fn insert_child(&mut self, position: usize, suffix: &[u8], child: u64) -> bool {
        let Some(record) = self.make_room(position, suffix, 0) else { return false };
        self.bytes.copy_from(record, suffix.get(HEAD_BYTES..).unwrap_or_default());
        let offset = self.read().child_offset(position);
        self.bytes.store_u64(offset, child);
        self.refresh_hints();
        true
    }

    /// Opens a slot at `position`, and a record for the key's tail and `extra` bytes. Returns the
    /// record's offset.
    fn make_room(&mut self, position: usize, suffix: &[u8], extra: usize) -> Option<usize> {
        let slot_bytes = self.read().slot_bytes();
        let record_bytes = suffix.len().saturating_sub(HEAD_BYTES) + extra;
        if self.read().gap_bytes() < slot_bytes + record_bytes {
            if self.read().free_bytes() < slot_bytes + record_bytes {
                return None;
            }
            self.compact();
        }
        let count = self.read().count();
        let slot = slots_offset(self.read().is_leaf()) + position * slot_bytes;
        self.bytes.move_words(slot, slot + slot_bytes, (count - position) * slot_bytes);
        let record = self.read().heap_start() - record_bytes;
        self.bytes.store_u32(field::HEAP_START, record as u32);
        self.bytes.store_u32(slot, head_of(suffix));
        // A key without a tail has no record in an inner page. Its offset is never used, and may
        // not fit.
        self.bytes.store_u16(slot + 4, if record_bytes == 0 { 0 } else { record as u16 });
        self.bytes.store_u16(slot + 6, suffix.len() as u16);
        self.bytes.store_u16(field::COUNT, (count + 1) as u16);
        Some(record)
    }

    /// Overwrites a value of the same length. Returns `false` if the lengths differ.
    #[inline]
    pub fn overwrite_value(&mut self, position: usize, value: &[u8], overflow: bool) -> bool {
        let place = self.read().value(position);
        if place.len != value.len() || place.overflow != overflow {
            return false;
        }
        self.bytes.copy_from(place.offset, value);
        true
    }

    #[inline]
    pub fn remove(&mut self, position: usize) {
        let node = self.read();
        let (slot_bytes, count) = (node.slot_bytes(), node.count());
        let record_bytes = node.entry_bytes_at(position) - slot_bytes;
        let dead = node.dead_bytes() + record_bytes;
        let next = slots_offset(node.is_leaf()) + (position + 1) * slot_bytes;
        self.bytes.move_words(next, next - slot_bytes, (count - position - 1) * slot_bytes);
        self.bytes.store_u16(field::COUNT, (count - 1) as u16);
        self.bytes.store_u32(field::DEAD_BYTES, dead as u32);
        self.refresh_hints();
    }

    fn refresh_hints(&mut self) {
        let count = self.read().count();
        if self.read().is_leaf() || count < HINTED_COUNT_MIN {
            return;
        }
        let distance = count / (HINTS + 1);
        for hint in 0..HINTS {
            let slot = slots_offset(false) + (hint + 1) * distance * INNER_SLOT_BYTES;
            let head = self.read().bytes.load_u32(slot);
            self.bytes.store_u32(HEADER_BYTES + hint * HEAD_BYTES, head);
        }
    }

    /// Notes that a commit changed the leaf.
    #[inline]
    pub fn set_timestamp(&mut self, timestamp: u64) {
        self.bytes.store_u64(field::LSN, timestamp);
    }

    #[inline]
    pub fn set_child(&mut self, position: usize, child: u64) {
        let offset = self.read().child_offset(position);
        self.bytes.store_u64(offset, child);
    }

    #[inline]
    pub fn set_last_child(&mut self, child: u64) {
        self.bytes.store_u64(field::LAST_CHILD, child);
    }

    /// Sets the place where the page is about to be written.
    #[inline]
    pub fn set_place(&mut self, place: u64) {
        self.bytes.store_u64(field::PAGE_ID, place);
    }

    /// Seals the page before it goes to the device.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u32) {
        self.bytes.store_u32(field::CHECKSUM, checksum);
    }

    /// Appends the entries `from..to` of `source` behind the present ones. They must fit, and lie
    /// between the fences.
    #[inline]
    pub fn append_range(&mut self, source: Node<'_>, from: usize, to: usize) {
        let leaf = source.is_leaf();
        let prefix_len = self.read().prefix_len();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for position in from..to {
            key.clear();
            source.key(position, &mut key);
            let count = self.read().count();
            let suffix = key.get(prefix_len..).unwrap_or_default();
            let fits = if leaf {
                let place = source.value(position);
                value.clear();
                source.bytes.append_to(place.offset, place.len, &mut value);
                self.insert_record(count, suffix, &value, place.overflow)
            } else {
                self.insert_child(count, suffix, source.child(position))
            };
            debug_assert!(fits, "the entries were measured before");
        }
    }

    /// Rewrites the heap without its dead bytes.
    #[inline]
    pub fn compact(&mut self) {
        let size = self.bytes.read().len();
        let mut copy = vec![0u64; size / 8];
        for (i, word) in copy.iter_mut().enumerate() {
            *word = self.bytes.read().load_u64(i * 8);
        }
        let source = Node::new(copy.as_slice().into());
        let last_child = source.bytes.load_u64(field::LAST_CHILD);
        let fences = usize::from(source.bytes.load_u16(field::LOWER_LEN))
            + usize::from(source.bytes.load_u16(field::UPPER_LEN));
        self.bytes.store_u16(field::COUNT, 0);
        self.bytes.store_u32(field::DEAD_BYTES, 0);
        self.bytes.store_u32(field::HEAP_START, (size - fences) as u32);
        self.append_range(source, 0, source.count());
        self.bytes.store_u64(field::LAST_CHILD, last_child);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use qpair_memory::{Arena, ArenaOptions};

    use super::*;

    /// Compares random inserts, overwrites and removals with a map, for every page size and with
    /// long common prefixes.
    #[test]
    fn a_leaf_is_a_small_ordered_map() {
        for (seed, size) in [(1, 512), (2, 4096), (3, 65536)] {
            let mut random = fastrand::Rng::with_seed(seed);
            let arena = Arena::new(size, 1, ArenaOptions::ordinary_pages()).unwrap();
            let mut buffer = arena.lease().unwrap();
            let mut node = NodeMut::new(buffer.bytes_mut());
            node.init(NodeInit {
                level: 0,
                tree_id: 3,
                page_id: 9,
                lower: b"key/a",
                upper: Some(b"key/z"),
            });
            assert_eq!(node.read().prefix_len(), 4);
            let mut model = BTreeMap::new();
            for _ in 0..20_000 {
                let len = random.usize(0..8);
                let mut key = b"key/b".to_vec();
                key.extend((0..len).map(|_| random.u8(0..3)));
                let value: Vec<u8> = (0..random.usize(0..20)).map(|_| random.u8(..)).collect();
                let (position, found) = node.read().lower_bound(&key);
                assert_eq!(found, model.contains_key(&key));
                if random.u8(0..3) == 0 {
                    if found {
                        node.remove(position);
                        model.remove(&key);
                    }
                } else if !found {
                    if node.insert_record(position, &key[4..], &value, false) {
                        model.insert(key, value);
                    }
                } else if node.overwrite_value(position, &value, false) {
                    model.insert(key, value);
                }
                assert_eq!(node.read().fault(), None);
                if random.u8(0..50) == 0 {
                    for (i, (key, value)) in model.iter().enumerate() {
                        let (mut k, mut v) = (vec![], vec![]);
                        node.read().key(i, &mut k);
                        let place = node.read().value(i);
                        node.read().bytes.append_to(place.offset, place.len, &mut v);
                        assert_eq!((&k, &v), (key, value));
                    }
                    assert_eq!(node.read().count(), model.len());
                }
                if size > 4096 && model.len() > 400 {
                    break;
                }
            }
        }
    }

    /// At the edge of a tree no prefix is cut off, so heads and second heads are equal.
    #[test]
    fn keys_that_are_alike_for_long_are_found() {
        let mut random = fastrand::Rng::with_seed(4);
        let arena = Arena::new(65536, 1, ArenaOptions::ordinary_pages()).unwrap();
        let mut buffer = arena.lease().unwrap();
        let mut node = NodeMut::new(buffer.bytes_mut());
        let mut some_key = |alike: usize| {
            let mut key = vec![0; alike];
            key.extend((0..random.usize(0..14)).map(|_| random.u8(0..2)));
            key
        };
        for alike in [0, 3, 4, 6, 11, 12, 30] {
            for level in [0, 1] {
                node.init(NodeInit { level, tree_id: 3, page_id: 9, lower: b"", upper: None });
                let mut model = std::collections::BTreeSet::new();
                for _ in 0..1000 {
                    let key = some_key(alike);
                    let (position, found) = node.read().lower_bound(&key);
                    assert_eq!(position, model.range(..key.clone()).count());
                    assert_eq!(found, model.contains(&key));
                    if !found {
                        assert!(match level {
                            0 => node.insert_record(position, &key, b"value", false),
                            _ => node.insert_child(position, &key, 7),
                        });
                        model.insert(key);
                    }
                }
                assert_eq!(node.read().fault(), None);
            }
        }
    }

    #[test]
    fn an_inner_page_routes() {
        let arena = Arena::new(512, 1, ArenaOptions::ordinary_pages()).unwrap();
        let mut buffer = arena.lease().unwrap();
        let mut node = NodeMut::new(buffer.bytes_mut());
        node.init(NodeInit { level: 1, tree_id: 3, page_id: 9, lower: b"", upper: None });
        node.set_last_child(100);
        for (i, key) in ["b", "bb", "bbbbb", "bbbbbc", "d"].iter().enumerate() {
            assert!(node.insert_child(i, key.as_bytes(), i as u64));
        }
        for (key, child) in [
            ("", 0),
            ("a", 0),
            ("b", 1),
            ("ba", 1),
            ("bb", 2),
            ("bbbbb", 3),
            ("bbbbbb", 3),
            ("bbbbbc", 4),
            ("c", 4),
            ("d", 100),
            ("z", 100),
        ] {
            let position = node.read().child_position(key.as_bytes());
            assert_eq!(node.read().child(position), child, "{key}");
        }
        assert_eq!(node.read().fault(), None);
    }
}
