use std::collections::BTreeMap;

use super::super::bounds::{is_within, slices_of};
use super::*;

type Model = BTreeMap<(u32, Vec<u8>), Span>;

/// Returns all wanted keys of a range, by as many searches as needed, and the number of keys
/// that were looked at.
fn search(
    gone: &DeletedKeys,
    tree: u32,
    (mut low, mut high): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    direction: Direction,
    wanted: Wanted,
    most: usize,
) -> (Vec<Vec<u8>>, usize) {
    let (mut all, mut looked) = (Vec::new(), 0);
    loop {
        let bounds = slices_of(&low, &high);
        let found = Found::default();
        let mut search = Search { tree, bounds, direction, wanted, most, looked: 0, found };
        search.visit(&gone.root);
        looked += search.looked;
        assert!(search.found.keys.len() <= most);
        all.extend(search.found.keys.iter().map(|key| key.to_vec()));
        let Some(upto) = search.found.upto else { return (all, looked) };
        match direction {
            Direction::Forward => low = Bound::Excluded(upto.to_vec()),
            Direction::Reverse => high = Bound::Excluded(upto.to_vec()),
        }
    }
}

/// Checks the invariants of a node whose keys are at or above `from` and below `to`; returns
/// the number of keys.
fn check(node: &Node, from: Option<(u32, &[u8])>, to: Option<(u32, &[u8])>) -> usize {
    let is_within = |place| from.is_none_or(|from| from <= place) && to.is_none_or(|to| place < to);
    match node {
        Node::Leaf(entries) => {
            let places: Vec<_> = entries.iter().map(|entry| (entry.tree, &*entry.key)).collect();
            assert!(places.is_sorted_by(|one, next| one < next));
            assert!(places.iter().all(|place| is_within(*place)), "{places:?} in {from:?}..{to:?}");
            entries.len()
        }
        Node::Inner(children) => {
            let lows: Vec<_> = children.iter().map(|child| (child.tree, &*child.low)).collect();
            assert!(lows.is_sorted_by(|one, next| one < next), "{lows:?}");
            let ends = lows[1..].iter().copied().map(Some).chain([to]);
            let check_child = |((child, low), end): ((&Child, _), _)| {
                assert_eq!(child.span, child.node.span());
                assert!((1..=ENTRIES_MAX).contains(&child.node.len()));
                check(&child.node, Some(low), end)
            };
            children.iter().zip(lows.iter().copied()).zip(ends).map(check_child).sum()
        }
    }
}

/// The keys that a phase of the model test removes.
#[derive(Clone, Copy, Debug)]
enum From {
    Front,
    Back,
    Middle,
    Anywhere,
}

impl From {
    fn pick(self, model: &Model, random: &mut fastrand::Rng) -> Option<(u32, Vec<u8>)> {
        let middle = (random.u32(6..9), random.u16(0..3000).to_be_bytes().to_vec());
        let found = match self {
            Self::Front => model.keys().next(),
            Self::Back => model.keys().next_back(),
            Self::Middle => model.keys().nth(model.len() / 2),
            Self::Anywhere => model.range(middle..).map(|(place, _)| place).next(),
        };
        found.cloned()
    }
}

/// Compares a million random changes with a sorted map. A regression: ranges were wrong once
/// keys had been removed from the front and smaller ones were added.
#[test]
fn as_a_sorted_map() {
    const STEPS: u64 = 1_000_000;
    const PHASE_STEPS: u64 = 400;
    let mut random = fastrand::Rng::with_seed(5);
    let (mut gone, mut model) = (DeletedKeys::new(false), Model::new());
    let (mut from, mut removals) = (From::Anywhere, 4);
    for step in 0..STEPS {
        if step % PHASE_STEPS == 0 {
            let all = [From::Front, From::Back, From::Middle, From::Anywhere];
            from = all[random.usize(0..all.len())];
            // The number of removals in ten steps: the tree grows, keeps its size, or shrinks
            // to nothing.
            removals = random.u64(2..9);
        }
        if random.u64(0..10) >= removals {
            let key = (random.u32(6..9), random.u16(0..3000).to_be_bytes().to_vec());
            let born = if random.bool() { 0 } else { random.u64(..=step) };
            let span = Span { born, gone: step };
            gone.insert(key.0, key.1.as_slice().into(), span);
            let known = model.entry(key).or_insert(span);
            *known = known.with(span);
        } else if let Some(key) = from.pick(&model, &mut random) {
            gone.remove(key.0, &key.1);
            model.remove(&key);
        } else {
            gone.remove(6, b"absent");
        }
        if step % 50 == 0 {
            assert_eq!(check(&gone.root, None, None), model.len());
            compare(&gone, &model, &mut random, step);
        }
    }
}

/// Compares searches of one range with the model.
fn compare(gone: &DeletedKeys, model: &Model, random: &mut fastrand::Rng, step: u64) {
    let tree = random.u32(6..9);
    let mut ends = [random.u16(0..3000), random.u16(0..3000)];
    ends.sort_unstable();
    let mut bound = |end: u16| match random.u8(0..3) {
        0 => Bound::Included(end.to_be_bytes().to_vec()),
        1 => Bound::Excluded(end.to_be_bytes().to_vec()),
        _ => Bound::Unbounded,
    };
    let bounds = (bound(ends[0]), bound(ends[1]));
    let snapshot = random.u64(0..=step);
    for wanted in [Wanted::seen_at(snapshot), Wanted::deleted_after(snapshot)] {
        let slices = slices_of(&bounds.0, &bounds.1);
        let is_in = |(of, key): &(u32, Vec<u8>), span: &Span| {
            *of == tree && is_within(slices, key) && wanted.has(*span)
        };
        let expected = model.iter().filter(|(place, span)| is_in(place, span));
        let mut expected: Vec<_> = expected.map(|((_, key), _)| key.clone()).collect();
        for direction in [Direction::Forward, Direction::Reverse] {
            let most = random.usize(1..300);
            let found = search(gone, tree, bounds.clone(), direction, wanted, most).0;
            assert_eq!(found, expected, "{bounds:?} at {snapshot}");
            expected.reverse();
        }
    }
}

/// Keys that a snapshot does not see are skipped, whether deleted before it or made after it.
#[test]
fn what_is_not_wanted_costs_nothing() {
    const KEYS: u32 = 200_000;
    let mut gone = DeletedKeys::new(false);
    for i in 0..KEYS {
        let (born, gone_at) = (u64::from(i) * 2, u64::from(i) * 2 + 100);
        gone.insert(7, (*i.to_be_bytes().as_slice()).into(), Span { born, gone: gone_at });
    }
    let all = || (Bound::Unbounded, Bound::Unbounded);
    for direction in [Direction::Forward, Direction::Reverse] {
        for snapshot in [0, 50_000, 200_000, 399_999, 1_000_000] {
            let wanted = Wanted::seen_at(snapshot);
            let (found, looked) = search(&gone, 7, all(), direction, wanted, 1000);
            assert!(found.len() <= 50, "{} at {snapshot}", found.len());
            assert!(looked <= 50 + 4 * ENTRIES_MAX, "{looked} for {} keys", found.len());
        }
    }
    // The search looks at a limited number of keys, however many are wanted.
    let found = gone.find(
        7,
        (Bound::Unbounded, Bound::Unbounded),
        Direction::Forward,
        Wanted::deleted_after(0),
        16,
        Vec::new(),
    );
    assert_eq!(found.keys.len(), 16);
    assert_eq!(found.upto.as_deref(), Some(15u32.to_be_bytes().as_slice()));
}
