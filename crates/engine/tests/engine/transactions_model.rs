//! Random histories of several open transactions and snapshots on one thread, against maps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::common::{assert_sound, options, ram};
use qpair_engine::{ErrorKind, Savepoint, Snapshot, Store, Table, Transaction, TransactionOptions};

const PAGE: usize = 512;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// Uncommitted writes; `None` deletes the key.
type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Formats records briefly for a message.
fn brief(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Vec<String> {
    let brief = |(key, value): (Vec<u8>, Vec<u8>)| {
        format!("{} {:?}*{}", key.escape_ascii(), value.first(), value.len())
    };
    records.into_iter().map(brief).collect()
}

/// An open transaction and what it should see.
struct Open {
    /// The transaction; `None` once it was committed.
    tx: Option<Transaction>,
    /// The committed state at its first read, and the number of the commit.
    base: Option<(Map, usize)>,
    writes: Writes,
    locks: BTreeSet<Vec<u8>>,
    savepoints: Vec<(Savepoint, Writes)>,
}

struct Model {
    now: Map,
    commits: usize,
    /// The commit that changed a key last.
    changed: BTreeMap<Vec<u8>, usize>,
}

impl Model {
    fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        // Deleting an absent key changes nothing.
        if value.is_none() && !self.now.contains_key(key) {
            return;
        }
        self.changed.insert(key.to_vec(), self.commits);
        match value {
            Some(value) => self.now.insert(key.to_vec(), value),
            None => self.now.remove(key),
        };
    }
}

impl Open {
    fn tx(&mut self) -> &mut Transaction {
        self.tx.as_mut().unwrap()
    }

    fn view(&mut self, table: &Table, model: &Model) -> Map {
        if self.base.is_none() {
            // Both take the snapshot now. Reading an own write would not.
            assert_eq!(self.tx().get(table, b"never").unwrap(), None);
            self.base = Some((model.now.clone(), model.commits));
        }
        let (base, _) = self.base.as_ref().unwrap();
        let mut view = base.clone();
        for (key, value) in &self.writes {
            match value {
                Some(value) => view.insert(key.clone(), value.clone()),
                None => view.remove(key),
            };
        }
        view
    }
}

fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    // Adjacent keys share long prefixes, and some leaves come and go.
    format!("{}/{:03}", ["a", "common-prefix", "z"][random.usize(0..3)], random.u32(0..60))
        .into_bytes()
}

fn random_value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = if random.u8(0..40) == 0 { random.usize(500..2000) } else { random.usize(0..60) };
    vec![random.u8(..); len]
}

fn random_bounds(random: &mut fastrand::Rng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (mut a, mut b) = (random_key(random), random_key(random));
    if a > b {
        std::mem::swap(&mut a, &mut b);
    }
    let mut bound = |key| match random.u8(0..3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    (bound(a), bound(b))
}

fn inside(map: &Map, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let low = |key: &Vec<u8>| match &bounds.0 {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    let high = |key: &Vec<u8>| match &bounds.1 {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    };
    let pairs = map.iter().filter(|(key, _)| low(key) && high(key));
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn check_snapshot(random: &mut fastrand::Rng, table: &Table, (snapshot, map): &(Snapshot, Map)) {
    let key = random_key(random);
    assert_eq!(snapshot.get(table, &key).unwrap(), map.get(&key).cloned());
    let bounds = random_bounds(random);
    let mut expected = inside(map, &bounds);
    let mut range = snapshot.range(table, bounds).unwrap();
    if random.bool() {
        expected.reverse();
        range = range.reverse();
    }
    assert_eq!(brief(range.map(Result::unwrap)), brief(expected));
}

/// Begins a transaction, whose writes mostly have little memory and go to the device.
fn begin(random: &mut fastrand::Rng, store: &Store) -> Transaction {
    let write_set_bytes_max = [0, 1, 1000, 4000][random.usize(0..4)];
    store.begin_with(&TransactionOptions { write_set_bytes_max, ..TransactionOptions::default() })
}

fn history(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let mut model = Model { now: Map::new(), commits: 0, changed: BTreeMap::new() };
    let mut open: Vec<Open> = Vec::new();
    let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
    for _ in 0..3000 {
        let key = random_key(&mut random);
        match random.u8(0..12) {
            0 if snapshots.len() < 4 => {
                snapshots.push((store.snapshot().unwrap(), model.now.clone()));
            }
            1 if !snapshots.is_empty() => {
                snapshots.swap_remove(random.usize(..snapshots.len()));
            }
            0 | 1 => {
                if let Some(snapshot) = snapshots.first() {
                    check_snapshot(&mut random, &table, snapshot);
                }
            }
            2 if open.len() < 3 => open.push(Open {
                tx: Some(begin(&mut random, &store)),
                base: None,
                writes: BTreeMap::new(),
                locks: BTreeSet::new(),
                savepoints: Vec::new(),
            }),
            2..4 => {
                if !open.iter().any(|open| open.locks.contains(&key)) {
                    model.commits += 1;
                    if random.bool() {
                        let value = random_value(&mut random);
                        let there = model.now.contains_key(&key);
                        assert_eq!(table.put(&key, &value).unwrap(), there);
                        model.set(&key, Some(value));
                    } else {
                        let there = model.now.contains_key(&key);
                        assert_eq!(table.delete(&key).unwrap(), there);
                        model.set(&key, None);
                    }
                }
            }
            _ if open.is_empty() => {
                assert_eq!(table.get(&key).unwrap(), model.now.get(&key).cloned());
            }
            _ => {
                let index = random.usize(..open.len());
                let over = transaction(&mut random, &table, &mut model, &mut open, index);
                if over {
                    open.swap_remove(index);
                }
            }
        }
    }
    for snapshot in &snapshots {
        check_snapshot(&mut random, &table, snapshot);
    }
    let all: Map = table.range(..).unwrap().map(Result::unwrap).collect();
    assert_eq!(brief(all), brief(model.now));
    // Some transactions are still open: a close does not wait for them.
    store.clone().close().unwrap();
    assert!(snapshots.iter().all(|(snapshot, _)| snapshot.get(&table, b"a").is_err()));
    drop((open, snapshots, table, store));
    assert_sound(&[device], PAGE);
}

/// Makes one step of an open transaction. Returns whether the transaction has ended.
fn transaction(
    random: &mut fastrand::Rng,
    table: &Table,
    model: &mut Model,
    all: &mut [Open],
    index: usize,
) -> bool {
    let key = random_key(random);
    // The transaction would wait for a lock that another one has, and no other transaction runs
    // meanwhile.
    let busy = |key: &Vec<u8>| {
        all.iter().enumerate().any(|(other, open)| other != index && open.locks.contains(key))
    };
    let is_busy = busy(&key);
    let others: BTreeSet<_> =
        (0..all.len()).filter(|i| *i != index).flat_map(|i| all[i].locks.clone()).collect();
    let open = &mut all[index];
    let newer = |open: &Open, key: &Vec<u8>| {
        let seen = open.base.as_ref().map_or(usize::MAX, |(_, commit)| *commit);
        !open.locks.contains(key) && model.changed.get(key).is_some_and(|changed| *changed > seen)
    };
    let action = random.u8(0..14);
    match action {
        0..3 => {
            let expected = open.view(table, model).get(&key).cloned();
            assert_eq!(open.tx().get(table, &key).unwrap(), expected);
        }
        3 => {
            let bounds = random_bounds(random);
            let mut expected = inside(&open.view(table, model), &bounds);
            let mut range = open.tx().range(table, bounds).unwrap();
            if random.bool() {
                expected.reverse();
                range = range.reverse();
            }
            assert_eq!(brief(range.map(Result::unwrap)), brief(expected));
        }
        4..9 => {
            if is_busy {
                return false;
            }
            let conflict = newer(open, &key);
            let value = random_value(random);
            let error = match action {
                4 | 5 => open.tx().put(table, &key, &value).err(),
                6 => open.tx().delete(table, &key).err(),
                7 => open.tx().insert(table, &key, &value).err(),
                _ => {
                    let expected = match random.bool() {
                        true if !conflict => open.view(table, model).get(&key).cloned(),
                        _ => Some(vec![1, 2, 3]),
                    };
                    let swap =
                        open.tx().compare_and_swap(table, &key, expected.as_deref(), Some(&value));
                    match swap {
                        Ok(swapped) => {
                            let there = open.view(table, model).get(&key).cloned();
                            assert_eq!(swapped, there == expected);
                            if swapped {
                                open.writes.insert(key.clone(), Some(value.clone()));
                            }
                            None
                        }
                        Err(error) => Some(error),
                    }
                }
            };
            if conflict {
                assert_eq!(error.unwrap().kind(), ErrorKind::Conflict);
                assert!(open.tx().get(table, &key).is_err());
                return true;
            }
            assert!(error.is_none(), "{error:?}");
            open.locks.insert(key.clone());
            let there = action > 5 && open.view(table, model).contains_key(&key);
            match action {
                4 | 5 => drop(open.writes.insert(key, Some(value))),
                6 if there => drop(open.writes.insert(key, None)),
                7 if !there => drop(open.writes.insert(key, Some(value))),
                _ => {}
            }
        }
        9 => {
            if open.savepoints.is_empty() || random.bool() {
                let point = open.tx().savepoint().unwrap();
                open.savepoints.push((point, open.writes.clone()));
            } else {
                let chosen = random.usize(..open.savepoints.len());
                open.savepoints.truncate(chosen + 1);
                let (point, writes) = open.savepoints[chosen].clone();
                open.tx().rollback_to(&point).unwrap();
                open.writes = writes;
            }
        }
        10 => {
            let bounds = random_bounds(random);
            let doomed = inside(&open.view(table, model), &bounds);
            if doomed.len() > 20 || doomed.iter().any(|(key, _)| others.contains(key)) {
                return false;
            }
            let conflict = doomed.iter().any(|(key, _)| newer(open, key));
            let outcome = open.tx().delete_range(table, bounds);
            if conflict {
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict);
                return true;
            }
            assert_eq!(outcome.unwrap(), doomed.len() as u64);
            for (key, _) in doomed {
                open.locks.insert(key.clone());
                open.writes.insert(key, None);
            }
        }
        11 => {
            if is_busy {
                return false;
            }
            let conflict = newer(open, &key);
            let outcome = open.tx().get_for_update(table, &key);
            if conflict {
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict);
                return true;
            }
            open.locks.insert(key.clone());
            assert_eq!(outcome.unwrap(), open.view(table, model).get(&key).cloned());
        }
        12 => {
            open.tx.take().unwrap().commit().unwrap();
            model.commits += 1;
            for (key, value) in std::mem::take(&mut open.writes) {
                model.set(&key, value);
            }
            return true;
        }
        _ => return random.u8(0..4) == 0,
    }
    false
}

#[test]
fn transactions_are_maps_at_a_point() {
    for seed in 0..16 {
        history(seed);
    }
}
