//! Compares tables that have long keys with a model: random operations of every kind, with keys
//! that share their heads, end with zeroes, and are just short enough to be whole, or just too
//! long.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{Device, assert_sound, copy_of, encrypted, options, ram};
use qpair_engine::{
    Compression, KeyBounds, Prefix, Snapshot, Store, StoreOptions, Table, Transaction, WriteBatch,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Record = (Vec<u8>, Vec<u8>);
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

const FRAMES: u64 = 96;

struct Keys {
    random: fastrand::Rng,
    /// The length of the longest key that is whole.
    whole: usize,
}

impl Keys {
    fn key(&mut self) -> Vec<u8> {
        let (random, whole) = (&mut self.random, self.whole);
        let mut key = match random.u8(0..5) {
            0 => vec![b'a'; whole],
            1 => [vec![b'a'; whole - 1], vec![0]].concat(),
            2 => [vec![b'a'; whole - 1], vec![b'b']].concat(),
            3 => vec![u8::MAX; whole],
            _ => vec![0; whole],
        };
        match random.u8(0..12) {
            0 => key.truncate(random.usize(whole - 3..=whole)),
            1 => key.truncate(random.usize(0..4)),
            2 => {}
            3 => key.extend((0..random.usize(1..3)).map(|_| 0)),
            4 => {
                let len = random.usize(1..=2 * whole);
                key.extend(std::iter::repeat_n(b'-', len));
                key.push(random.u8(..));
            }
            5 if random.u8(0..20) == 0 => {
                key.resize(65_535, random.u8(0..3) * 127);
            }
            _ => key
                .extend((0..random.usize(1..4)).map(|_| [0, 1, b'z', u8::MAX][random.usize(0..4)])),
        }
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let len = match random.u8(0..30) {
            0 => random.usize(0..5 * self.whole),
            _ => random.usize(0..40),
        };
        let byte = random.u8(..);
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }

    fn bounds(&mut self) -> Bounds {
        match self.random.u8(0..5) {
            0 => return (Bound::Unbounded, Bound::Unbounded),
            1 => {
                let mut prefix = self.key();
                prefix.truncate(self.random.usize(0..=prefix.len()));
                let prefix = Prefix(&prefix);
                let (from, to) = prefix.key_bounds();
                return (from.map(<[u8]>::to_vec), to);
            }
            _ => {}
        }
        let mut ends = [self.key(), self.key()];
        ends.sort();
        let [from, to] = ends;
        let is_one = from == to;
        let mut bound = |key: Vec<u8>| match self.random.u8(0..4) {
            0 => Bound::Unbounded,
            1 | 2 if is_one => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        (bound(from), bound(to))
    }
}

fn of_model(model: &Model, bounds: &Bounds) -> Vec<Record> {
    model.range(bounds.clone()).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Reads an iteration in a random way, and compares it.
fn compare<I: DoubleEndedIterator<Item = qpair_engine::Result<Record>>>(
    random: &mut fastrand::Rng,
    range: I,
    expected: Vec<Record>,
    reverse: impl FnOnce(I) -> I,
) {
    let same = |found: &[Record], expected: &[Record]| {
        assert!(
            found == expected,
            "{:?} is not {:?}",
            found.iter().map(|(k, _)| short(k)).collect::<Vec<_>>(),
            expected.iter().map(|(k, _)| short(k)).collect::<Vec<_>>()
        );
    };
    match random.u8(0..3) {
        0 => same(&range.map(Result::unwrap).collect::<Vec<_>>(), &expected),
        1 => {
            let mut back: Vec<_> = reverse(range).map(Result::unwrap).collect();
            back.reverse();
            same(&back, &expected);
        }
        _ => {
            let (mut range, mut front, mut back) = (range, Vec::new(), Vec::new());
            loop {
                let is_back = random.bool();
                let record = if is_back { range.next_back() } else { range.next() };
                let Some(record) = record else { break };
                if is_back { back.push(record.unwrap()) } else { front.push(record.unwrap()) }
            }
            back.reverse();
            front.extend(back);
            same(&front, &expected);
        }
    }
}

fn short(key: &[u8]) -> String {
    let tail = &key[key.len().saturating_sub(6)..];
    format!("{}:{}", key.len(), tail.escape_ascii())
}

fn compare_table(
    keys: &mut Keys,
    (store, table): (&Store, &Table),
    model: &Model,
    bounds: &Bounds,
) {
    let expected = of_model(model, bounds);
    let limit = keys.random.usize(1..8);
    let first: Vec<_> =
        table.range(bounds.clone()).unwrap().limit(limit).map(Result::unwrap).collect();
    assert!(first == expected[..limit.min(expected.len())]);
    let range = table.range(bounds.clone()).unwrap();
    compare(&mut keys.random, range, expected.clone(), qpair_engine::Range::reverse);
    // The same from a task.
    let (task, of, back) = (table.task(), bounds.clone(), keys.random.bool());
    let read = store.spawn(move || async move {
        let range = task.range(of).unwrap();
        let mut range = if back { range.reverse() } else { range };
        let mut found = Vec::new();
        while let Some(record) = range.next().await.unwrap() {
            found.push(record);
        }
        found
    });
    let mut found = read.join().unwrap();
    if back {
        found.reverse();
    }
    assert!(found == expected);
}

fn compare_gets(keys: &mut Keys, table: &Table, model: &Model) {
    let sought: Vec<_> = (0..5).map(|_| keys.key()).chain(model.keys().take(3).cloned()).collect();
    let found = table.multi_get(&sought).unwrap();
    for (key, found) in sought.iter().zip(found) {
        assert!(found.as_ref() == model.get(key), "{}", short(key));
        assert_eq!(table.get(key).unwrap().as_ref(), model.get(key));
        assert_eq!(table.contains_key(key).unwrap(), model.contains_key(key));
    }
}

fn single_change(keys: &mut Keys, table: &Table, model: &mut Model) {
    let (key, value) = (keys.key(), keys.value());
    match keys.random.u8(0..12) {
        0..5 => {
            assert_eq!(table.put(&key, &value).unwrap(), model.contains_key(&key));
            model.insert(key, value);
        }
        5 | 6 => assert_eq!(table.delete(&key).unwrap(), model.remove(&key).is_some()),
        7 => {
            assert_eq!(table.insert(&key, &value).unwrap(), !model.contains_key(&key));
            model.entry(key).or_insert(value);
        }
        8 => {
            let expected = if keys.random.bool() { model.get(&key).cloned() } else { None };
            let new = keys.random.bool().then_some(value);
            let swapped =
                table.compare_and_swap(&key, expected.as_deref(), new.as_deref()).unwrap();
            assert_eq!(swapped, model.get(&key) == expected.as_ref());
            if swapped {
                set(model, key, new);
            }
        }
        9 => {
            let new = value.clone();
            table.update(&key, move |_| Some(new.clone())).unwrap();
            model.insert(key, value);
        }
        10 => match keys.random.bool() {
            true => assert!(table.pop_first().unwrap() == model.pop_first()),
            false => assert!(table.pop_last().unwrap() == model.pop_last()),
        },
        _ if keys.random.u8(0..4) == 0 => {
            let bounds = keys.bounds();
            let gone = of_model(model, &bounds);
            assert_eq!(table.delete_range(bounds).unwrap(), gone.len() as u64);
            gone.iter().for_each(|(key, _)| drop(model.remove(key)));
        }
        _ => assert_eq!(table.get(&key).unwrap().as_ref(), model.get(&key)),
    }
}

fn set(model: &mut Model, key: Vec<u8>, value: Option<Vec<u8>>) {
    match value {
        Some(value) => drop(model.insert(key, value)),
        None => drop(model.remove(&key)),
    }
}

fn transaction(keys: &mut Keys, store: &Store, table: &Table, model: &mut Model) {
    let (mut tx, mut own) = (store.begin(), model.clone());
    let mut marked = None;
    for _ in 0..keys.random.usize(1..12) {
        change_in(keys, &mut tx, table, &mut own);
        match keys.random.u8(0..8) {
            0 => marked = Some((tx.savepoint().unwrap(), own.clone())),
            1 => {
                if let Some((savepoint, before)) = &marked {
                    tx.rollback_to(savepoint).unwrap();
                    own.clone_from(before);
                }
            }
            2 => {
                let bounds = keys.bounds();
                let range = tx.range(table, bounds.clone()).unwrap();
                compare(&mut keys.random, range, of_model(&own, &bounds), |r| r.reverse());
            }
            _ => {}
        }
    }
    // Nobody else sees anything of it.
    let key = keys.key();
    assert_eq!(table.get(&key).unwrap().as_ref(), model.get(&key));
    if keys.random.u8(0..3) > 0 {
        tx.commit().unwrap();
        *model = own;
    }
}

fn change_in(keys: &mut Keys, tx: &mut Transaction, table: &Table, own: &mut Model) {
    let (key, value) = (keys.key(), keys.value());
    match keys.random.u8(0..10) {
        0..4 => {
            tx.put(table, &key, &value).unwrap();
            own.insert(key, value);
        }
        4 => assert_eq!(tx.delete(table, &key).unwrap(), own.remove(&key).is_some()),
        5 => {
            assert_eq!(tx.insert(table, &key, &value).unwrap(), !own.contains_key(&key));
            own.entry(key).or_insert(value);
        }
        6 => {
            let expected = own.get(&key).cloned();
            let swapped = tx.compare_and_swap(table, &key, expected.as_deref(), Some(&value));
            assert!(swapped.unwrap());
            own.insert(key, value);
        }
        7 if keys.random.u8(0..3) == 0 => {
            let bounds = keys.bounds();
            let gone = of_model(own, &bounds);
            assert_eq!(tx.delete_range(table, bounds).unwrap(), gone.len() as u64);
            gone.iter().for_each(|(key, _)| drop(own.remove(key)));
        }
        8 => assert_eq!(tx.get_for_update(table, &key).unwrap().as_ref(), own.get(&key)),
        _ => assert_eq!(tx.get(table, &key).unwrap().as_ref(), own.get(&key)),
    }
}

fn batch(keys: &mut Keys, store: &Store, table: &Table, model: &mut Model) {
    let mut batch = WriteBatch::default();
    for _ in 0..keys.random.usize(1..10) {
        let (key, value) = (keys.key(), keys.random.u8(0..3) > 0);
        let value = value.then(|| keys.value());
        match &value {
            Some(value) => batch.put(table, &key, value),
            None => batch.delete(table, &key),
        };
        set(model, key, value);
    }
    store.write(&batch).unwrap();
}

fn compare_snapshot(keys: &mut Keys, table: &Table, (snapshot, model): &(Snapshot, Model)) {
    let bounds = keys.bounds();
    let range = snapshot.range(table, bounds.clone()).unwrap();
    compare(&mut keys.random, range, of_model(model, &bounds), |r| r.reverse());
    let key = keys.key();
    assert_eq!(snapshot.get(table, &key).unwrap().as_ref(), model.get(&key));
}

fn open(device: &Device, options: &StoreOptions, compression: Compression) -> (Store, Table) {
    let store = Store::open(vec![device.clone()], options).unwrap();
    let table = store.compressed_table("t", compression).unwrap();
    (store, table)
}

fn run(seed: u64, options: &StoreOptions, compression: Compression, operations: usize) {
    const ALL: Bounds = (Bound::Unbounded, Bound::Unbounded);
    let device = ram();
    let (mut store, mut table) = open(&device, options, compression);
    let again = StoreOptions { format: false, ..options.clone() };
    let mut keys =
        Keys { random: fastrand::Rng::with_seed(seed), whole: store.whole_key_len_max() };
    let (mut model, mut snapshots) = (Model::new(), Vec::new());
    for number in 1..=operations {
        match keys.random.u8(0..16) {
            0..8 => single_change(&mut keys, &table, &mut model),
            8 | 9 => transaction(&mut keys, &store, &table, &mut model),
            10 => batch(&mut keys, &store, &table, &mut model),
            11 => compare_gets(&mut keys, &table, &model),
            12 | 13 => {
                let bounds = keys.bounds();
                compare_table(&mut keys, (&store, &table), &model, &bounds);
            }
            14 if snapshots.len() < 3 => snapshots.push((store.snapshot().unwrap(), model.clone())),
            _ => {
                if !snapshots.is_empty() {
                    let chosen = keys.random.usize(0..snapshots.len());
                    compare_snapshot(&mut keys, &table, &snapshots[chosen]);
                }
                if keys.random.u8(0..8) == 0 {
                    snapshots.clear();
                }
            }
        }
        if number % 500 == 0 {
            snapshots.clear();
            let crashed = copy_of(device.as_ref(), device.size_bytes());
            drop(table);
            store.close().unwrap();
            {
                let (store, table) = open(&crashed, &again, compression);
                compare_table(&mut keys, (&store, &table), &model, &ALL);
                drop(table);
                store.close().unwrap();
            }
            (store, table) = open(&device, &again, compression);
            compare_table(&mut keys, (&store, &table), &model, &ALL);
            assert_eq!(table.count().unwrap(), model.len() as u64);
        }
    }
    drop(snapshots);
    while let Some(record) = model.pop_first() {
        assert!(table.pop_first().unwrap().unwrap() == record);
    }
    assert!(table.is_empty().unwrap());
    drop(table);
    store.close().unwrap();
    if options.encryption.is_none() {
        assert_sound(&[device], options.page_size);
    }
}

#[test]
fn pages_of_512_bytes() {
    for seed in 0..4 {
        run(seed, &options(512, FRAMES), Compression::None, 1500);
    }
}

#[test]
fn pages_of_4_kib() {
    for seed in 10..13 {
        run(seed, &options(4096, FRAMES), Compression::None, 1500);
    }
}

#[test]
fn pages_of_64_kib() {
    run(20, &options(65_536, FRAMES), Compression::None, 1500);
}

#[test]
fn encrypted_pages() {
    run(30, &encrypted(options(2048, FRAMES)), Compression::None, 1000);
}

#[cfg(feature = "lz4")]
#[test]
fn compressed_values() {
    run(40, &options(512, FRAMES), Compression::Lz4, 1500);
    run(41, &options(4096, FRAMES), Compression::Lz4, 1000);
}
