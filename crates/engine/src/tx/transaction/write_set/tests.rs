//! Compares write sets with sorted maps.

use std::collections::BTreeMap;

use super::*;
use crate::tx::versions::is_within;

type Model = BTreeMap<(u32, Vec<u8>), Option<Vec<u8>>>;

fn owned(item: &Item<'_>) -> ((u32, Vec<u8>), Option<Vec<u8>>) {
    let value = match item.write {
        Write::Inline(value) | Write::Large(value) => Some(value.to_vec()),
        Write::Delete => None,
    };
    ((item.tree.id, item.key.to_vec()), value)
}

/// Compares random writes, savepoints and rollbacks, which remove keys anywhere in the order,
/// with a sorted map and its copies.
#[test]
fn as_a_sorted_map_with_copies() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut set, mut model) = (WriteSet::default(), Model::new());
    let mut copies: Vec<(WriteMark, Model)> = Vec::new();
    let root = FrameIndex(0);
    for step in 0..1_000_000u32 {
        match random.u32(0..1000) {
            // For a while each, keys come upwards, downwards, or in random order.
            0..980 => {
                let index = match step / 5000 % 3 {
                    0 => step % 5000,
                    1 => 5000 - step % 5000,
                    _ => random.u32(0..5000),
                };
                let (tree, key) = (random.u32(1..4), index.to_be_bytes().to_vec());
                let value =
                    (random.u8(0..4) != 0).then(|| vec![random.u8(..); random.usize(0..12)]);
                let write = value.as_deref().map_or(Write::Delete, Write::Inline);
                let place = (RowRef::decode(0), None);
                set.put(Tree::new(tree, root), &key, place, write).unwrap();
                model.insert((tree, key), value);
            }
            980..990 => copies.push((set.mark(), model.clone())),
            990..999 if !copies.is_empty() => {
                copies.truncate(random.usize(0..copies.len()) + 1);
                let (mark, copy) = &copies[copies.len() - 1];
                assert!(set.rollback_to(mark));
                model.clone_from(copy);
            }
            999 if random.u8(0..4) == 0 => {
                match random.bool() {
                    true => set.clear(),
                    false => set.drain(),
                }
                model.clear();
                copies.clear();
            }
            _ => {}
        }
        if step % 500 != 0 {
            continue;
        }
        assert!(set.iter().map(|item| owned(&item)).eq(model.clone()));
        let mut sum = Model::new();
        let copies = copies.iter().map(|(_, copy)| copy).chain([&model]);
        for (segment, copy) in set.segments().iter().zip(copies) {
            assert!(segment.is_sorted_by_key(|(index, _)| {
                let item = set.item(*index);
                (item.tree.id, item.key)
            }));
            sum.extend(set.items_of(segment).map(|item| owned(&item)));
            assert_eq!(&sum, copy);
        }
        let tree = random.u32(1..5);
        let mut ends = [random.u32(0..5000), random.u32(0..5000)];
        ends.sort_unstable();
        let ends = ends.map(u32::to_be_bytes);
        let bound = |end, random: &mut fastrand::Rng| match random.u8(0..3) {
            0 => Bound::Included(end),
            1 => Bound::Excluded(end),
            _ => Bound::Unbounded,
        };
        let from = bound(ends[0].as_slice(), &mut random);
        let to = bound(ends[1].as_slice(), &mut random);
        let found: Model = set.range(tree, from, to).map(|item| owned(&item)).collect();
        let mut expected = model.clone();
        expected.retain(|(of, key), _| *of == tree && is_within((from, to), key));
        assert_eq!(found, expected, "{from:?} to {to:?}");
        for ((tree, key), value) in &model {
            assert_eq!(set.get(*tree, key).map(|item| owned(&item).1).as_ref(), Some(value));
        }
    }
}
