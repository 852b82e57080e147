//! Backups of stores in memory: each point is restored, and compared with what the store had.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use qpair_backup::{
    At, Backup, BackupOptions, Canary, Faults, Folder, Objects, Point, Shipper, Simulated, Step,
    verify,
};
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{Compression, ErrorKind, Store, StoreOptions, TableOptions};

type Tables = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(RamOptions { size_bytes: 16 << 20, ..RamOptions::default() }).unwrap())
}

fn options() -> StoreOptions {
    StoreOptions {
        format: true,
        workers: 1,
        memory_bytes: 4 << 20,
        page_size: 4096,
        ..StoreOptions::default()
    }
}

fn store() -> Store {
    Store::open(vec![memory()], &options()).unwrap()
}

fn tables(store: &Store) -> Tables {
    let mut all = Tables::new();
    for name in store.table_names().unwrap() {
        let table = store.existing_table(&name).unwrap().unwrap();
        all.insert(name, table.range(..).unwrap().map(Result::unwrap).collect());
    }
    all
}

/// Restores a point into a new store, checks the store, and returns its tables.
fn restored(objects: &Arc<dyn Objects>, at: At) -> Tables {
    let backup = Backup::open(objects.clone()).unwrap();
    let restore = backup.restore(at, None).unwrap();
    let device = memory();
    let store = Store::open(vec![device.clone()], &options()).unwrap();
    restore.fill(&store, &|_, _| ControlFlow::Continue(())).unwrap();
    store.close().unwrap();
    let read_only = StoreOptions { format: false, read_only: true, ..options() };
    let store = Store::open(vec![device], &read_only).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let all = tables(&store);
    store.close().unwrap();
    all
}

fn small() -> BackupOptions {
    let mut options = BackupOptions::default();
    options.every_ms = 20;
    options.piece_bytes = 600;
    options.inline_bytes = 300;
    options.fan_in = 3;
    options.full_bytes_min = 30_000;
    options.sweep_ms = 300;
    options
}

/// A store, what it should have, and what it had at each commit.
struct Model {
    store: Store,
    tables: Tables,
    states: BTreeMap<u64, Tables>,
    /// The time of each commit.
    times: BTreeMap<u64, u64>,
    now_ms: u64,
    random: fastrand::Rng,
}

impl Model {
    fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let mut model = Self {
            store: store(),
            tables: Tables::new(),
            states: BTreeMap::new(),
            times: BTreeMap::new(),
            now_ms: 0,
            random,
        };
        model.note();
        model
    }

    /// Notes the state after a commit.
    fn note(&mut self) {
        let timestamp = self.store.snapshot().unwrap().timestamp();
        self.states.insert(timestamp, self.tables.clone());
        self.times.insert(timestamp, self.now_ms);
    }

    fn name(&mut self) -> String {
        format!("table {}", self.random.u8(0..4))
    }

    fn existing(&mut self) -> Option<String> {
        let names: Vec<_> = self.tables.keys().cloned().collect();
        (!names.is_empty()).then(|| names[self.random.usize(..names.len())].clone())
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.u8(0..20) {
            // Longer than a page: the record in the log has only its place.
            0 => self.random.usize(5_000..20_000),
            _ => self.random.usize(0..60),
        };
        vec![self.random.u8(..); len]
    }

    fn change(&mut self) {
        match self.random.u8(0..40) {
            0..3 => {
                let name = self.name();
                self.store.table(&name).unwrap();
                self.tables.entry(name).or_default();
            }
            3 => {
                let Some(name) = self.existing() else { return };
                self.store.drop_table(&name).unwrap();
                self.tables.remove(&name);
            }
            4 => {
                let (Some(from), to) = (self.existing(), self.name()) else { return };
                if !self.tables.contains_key(&to) {
                    self.store.rename_table(&from, &to).unwrap();
                    let table = self.tables.remove(&from).unwrap();
                    self.tables.insert(to, table);
                }
            }
            _ => {
                let Some(name) = self.existing() else { return };
                let table = self.store.table(&name).unwrap();
                let changes = self.random.usize(1..12);
                let mut tx = self.store.begin();
                for _ in 0..changes {
                    let key = self.random.u16(0..200).to_be_bytes().to_vec();
                    let of = self.random.u8(0..3);
                    let value = self.value();
                    let model = self.tables.get_mut(&name).unwrap();
                    if of == 0 {
                        tx.delete(&table, &key).unwrap();
                        model.remove(&key);
                    } else {
                        tx.put(&table, &key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                tx.commit().unwrap();
            }
        }
        self.note();
    }

    /// Loads a new table sorted, which no log has.
    fn load(&mut self) {
        let name = format!("load {}", self.random.u64(..));
        let table = self.store.table(&name).unwrap();
        let records: BTreeMap<_, _> =
            (0..50u16).map(|key| (key.to_be_bytes().to_vec(), self.value())).collect();
        let all: Vec<_> = records.clone().into_iter().map(Ok).collect();
        table.bulk_load(all).unwrap();
        self.tables.insert(name, records);
        self.note();
    }

    /// Reads all points, and compares each with the state at its commit; restores some of them.
    fn compare(&mut self, objects: &Arc<dyn Objects>) -> Vec<Point> {
        let backup = Backup::open(objects.clone()).unwrap();
        let points = backup.points();
        for point in &points {
            let earlier = |(at, ms): &(&u64, &u64)| **at > point.timestamp && **ms < point.time_ms;
            let missing = self.times.iter().find(earlier);
            assert_eq!(missing, None, "acknowledged before the time of {point:?}");
            let mut all = Tables::new();
            let restore = backup.restore(At::Point(*point), None).unwrap();
            let mut load = |_: u32, name: &str, records: &mut dyn Iterator<Item = _>| {
                all.insert(name.to_owned(), records.collect::<Result<_, _>>()?);
                Ok(())
            };
            restore.read(&|_, _| ControlFlow::Continue(()), &mut load).unwrap();
            assert!(all == self.states[&point.timestamp], "{point:?}");
        }
        let some = points.iter().rev().step_by(points.len() / 3 + 1);
        for point in some {
            let all = restored(objects, At::Point(*point));
            assert!(all == self.states[&point.timestamp], "{point:?}");
        }
        points
    }
}

/// Runs a step until it succeeds.
fn steps(shipper: &mut Shipper, store: &Store, now_ms: u64) {
    loop {
        match shipper.step(store, now_ms) {
            Ok(Step::Idle(_)) => return,
            Ok(Step::Worked) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
}

fn open(objects: &Arc<dyn Objects>, store: &Store, now_ms: u64, canary: Option<Canary>) -> Shipper {
    let mut options = small();
    options.canary = canary;
    loop {
        match Shipper::open(store, objects.clone(), options.clone(), now_ms) {
            Ok(shipper) => return shipper,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
}

/// Changes a store and ships it to a place with these faults; compares each point with the store's
/// state at its commit.
fn run(seed: u64, faults: Faults, canary: Option<Canary>) {
    let place = Arc::new(Simulated::new(seed, faults));
    let objects: Arc<dyn Objects> = place.clone();
    let mut model = Model::new(seed);
    let mut shipper = open(&objects, &model.store, model.now_ms, canary);
    let mut acknowledged = 0;
    for _ in 0..500 {
        model.now_ms += model.random.u64(0..15);
        model.change();
        match model.random.u8(0..200) {
            // The process ends, with whatever it was writing.
            0 => {
                drop(shipper);
                has_shipped(&place, acknowledged);
                shipper = open(&objects, &model.store, model.now_ms, canary);
                acknowledged = 0;
            }
            1 => {
                model.load();
                acknowledged = 0;
            }
            2..50 => steps(&mut shipper, &model.store, model.now_ms),
            _ => match shipper.step(&model.store, model.now_ms) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    let status = shipper.status();
                    has_shipped(&place, if status.is_restorable { status.shipped } else { 0 });
                }
            },
        }
        let status = shipper.status();
        if status.is_restorable {
            assert!(status.shipped >= acknowledged, "seed {seed}");
            acknowledged = status.shipped;
        }
    }
    drop(shipper);
    // Requests that are late may never be done, or be done at last.
    has_shipped(&place, acknowledged);
    place.set_faults(Faults::default());
    place.settle();
    let points = model.compare(&objects);
    let newest = points.iter().map(|point| point.timestamp).max().unwrap_or(0);
    assert!(newest >= acknowledged, "seed {seed}: {newest} of {acknowledged}");
    assert!(points.len() > 10, "seed {seed}: {}", points.len());
    let found = verify(&*objects, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.faults, [""; 0], "seed {seed}");
    model.store.close().unwrap();
}

/// Checks that what lies there now leads to this commit.
fn has_shipped(place: &Simulated, timestamp: u64) {
    let points = Backup::open(Arc::new(place.copy())).unwrap().points();
    let newest = points.iter().map(|point| point.timestamp).max().unwrap_or(0);
    assert!(newest >= timestamp, "{timestamp} was shipped; there is {newest}");
}

const FAULTS: Faults = Faults { lost: 8, unanswered: 8, late: 8 };

#[test]
fn every_point_is_the_state_at_its_commit_whatever_fails() {
    for seed in 0..12 {
        run(seed, if seed % 3 == 0 { Faults::default() } else { FAULTS }, None);
    }
}

#[test]
fn planted_bugs_are_found() {
    use std::panic::catch_unwind;
    for canary in Canary::ALL {
        let is_found = match canary {
            // It does harm only while two writers live.
            Canary::PutUnconditionally => catch_unwind(|| second_writer(Some(canary))).is_err(),
            _ => (0..12).any(|seed| catch_unwind(|| run(seed, FAULTS, Some(canary))).is_err()),
        };
        assert!(is_found, "{canary:?} is not found");
    }
}

#[test]
fn a_folder_has_the_points_of_all_times() {
    let folder = tempfile::tempdir().unwrap();
    let objects: Arc<dyn Objects> = Arc::new(Folder::new(folder.path().join("backup")));
    let store = store();
    let table = store.table("t").unwrap();
    table.put(b"a", b"1").unwrap();
    let mut shipper = Shipper::open(&store, objects.clone(), small(), 1000).unwrap();
    let none = Backup::open(objects.clone()).unwrap().restore(At::Newest, None).err().unwrap();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    steps(&mut shipper, &store, 1000);
    table.put(b"a", b"2").unwrap();
    steps(&mut shipper, &store, 2000);
    table.put(b"a", b"3").unwrap();
    shipper.finish(&store, 3000).unwrap();
    let value = |at| restored(&objects, at)["t"][&b"a"[..]].clone();
    assert_eq!(value(At::Time(1999)), b"1");
    assert_eq!(value(At::Time(2999)), b"2");
    assert_eq!(value(At::Newest), b"3");
    let before = Backup::open(objects).unwrap().restore(At::Time(999), None).err().unwrap();
    assert_eq!(before.kind(), ErrorKind::NotFound);
    store.close().unwrap();
}

#[test]
fn a_second_writer_ends_the_first_one_and_keeps_its_points() {
    second_writer(None);
}

fn second_writer(canary: Option<Canary>) {
    let objects: Arc<dyn Objects> = Arc::new(Simulated::new(1, Faults::default()));
    let device = memory();
    let first = Store::open(vec![device.clone()], &options()).unwrap();
    let table = first.table("t").unwrap();
    table.put(b"a", b"first").unwrap();
    let mut one = open(&objects, &first, 0, canary);
    one.finish(&first, 10).unwrap();
    table.put(b"a", b"after").unwrap();
    // The store goes on elsewhere, and the process that had it does not know.
    let moved = StoreOptions { format: false, ..options() };
    let second = Store::open(vec![device], &moved).unwrap();
    let mut two = Shipper::open(&second, objects.clone(), small(), 20).unwrap();
    let fenced = one.finish(&first, 30).unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Busy, "{fenced}");
    assert_eq!(one.step(&first, 40).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(restored(&objects, At::Newest)["t"][&b"a"[..]], b"first");
    second.table("t").unwrap().put(b"b", b"second").unwrap();
    two.finish(&second, 50).unwrap();
    assert_eq!(restored(&objects, At::Newest)["t"].len(), 2);
    assert_eq!(restored(&objects, At::Time(10))["t"].len(), 1);
    // Another store is refused.
    let other = store();
    let refused = Shipper::open(&other, objects, small(), 60).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    other.close().unwrap();
    drop((one, two));
    second.close().unwrap();
    std::mem::forget(first);
}

#[test]
fn old_points_go_and_nothing_else_does() {
    let place = Arc::new(Simulated::new(2, Faults::default()));
    let objects: Arc<dyn Objects> = place.clone();
    let mut model = Model::new(5);
    let options = || {
        let mut options = small();
        options.keep_ms = 2000;
        options.keep_all_ms = 500;
        options
    };
    let mut shipper = Shipper::open(&model.store, objects.clone(), options(), 0).unwrap();
    let mut now_ms = 0;
    for _ in 0..800 {
        model.now_ms = now_ms;
        model.change();
        now_ms += 10;
        steps(&mut shipper, &model.store, now_ms);
    }
    shipper.finish(&model.store, now_ms).unwrap();
    now_ms += 1000;
    steps(&mut shipper, &model.store, now_ms);
    let points = model.compare(&objects);
    assert!(points.iter().any(|point| point.time_ms <= now_ms - 2000), "{points:?}");
    let old = points.iter().filter(|point| point.time_ms < now_ms - 5000).count();
    assert!(old < 150, "{old} points are older than they should be");
    let found = verify(&*objects, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.faults, [""; 0]);
    // Of 800 entries few are left.
    assert!(objects.list("journal/", "").unwrap().len() < 400);
    model.store.close().unwrap();
}

#[test]
fn damage_is_found_and_an_interrupted_restore_goes_on() {
    let place = Arc::new(Simulated::new(3, Faults::default()));
    let objects: Arc<dyn Objects> = place.clone();
    let mut model = Model::new(9);
    let mut shipper = Shipper::open(&model.store, objects.clone(), small(), 0).unwrap();
    (0..300).for_each(|_| model.change());
    assert!(!model.tables.is_empty());
    shipper.finish(&model.store, 100).unwrap();
    let received = tempfile::tempdir().unwrap();
    let backup = Backup::open(objects.clone()).unwrap();
    let path = || Some(received.path().to_owned());
    let restore = backup.restore(At::Newest, path()).unwrap();
    let broken = restore.fill(&store(), &|done, all| match done > all / 2 {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    assert_eq!(broken.unwrap_err().kind(), ErrorKind::Interrupted);
    let before = backup.costs().received_bytes;
    let target = store();
    let restore = backup.restore(At::Newest, path()).unwrap();
    restore.fill(&target, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(tables(&target), model.tables);
    let again = backup.costs().received_bytes - before;
    assert!(again < restore.bytes() * 2 / 3, "{again} bytes of {}", restore.bytes());
    // Of the full part, which every point needs.
    let piece = objects.list("parts/", "").unwrap().remove(0);
    place.damage(&piece.name, 40);
    let found = verify(&*objects, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.faults.len(), 1, "{:?}", found.faults);
    let refused = backup.restore(At::Newest, None).unwrap();
    let error = refused.fill(&store(), &|_, _| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    target.close().unwrap();
    model.store.close().unwrap();
}

/// A table keeps its options in a backup: its compression, and its time to live.
#[test]
fn tables_keep_their_options() {
    let place = Arc::new(Simulated::new(1, Faults::default()));
    let objects: Arc<dyn Objects> = place;
    let store = store();
    let hour = TableOptions::default().ttl(Duration::from_secs(3600));
    let early = store.table_with("early", &hour).unwrap();
    early.put(b"in the full part", b"1").unwrap();
    let mut shipper = open(&objects, &store, 0, None);
    steps(&mut shipper, &store, 1000);
    early.put(b"in the journal", b"2").unwrap();
    let compressed = TableOptions::default().compression(Compression::Lz4);
    let packed = store.table_of_stored("packed", &compressed).unwrap();
    packed.put(b"k", b"as the table keeps it").unwrap();
    let late = store.table_with("late", &hour.ttl(Duration::from_secs(60))).unwrap();
    late.put(b"k", &[7; 2000]).unwrap();
    steps(&mut shipper, &store, 2000);

    let backup = Backup::open(objects).unwrap();
    let restore = backup.restore(At::Newest, None).unwrap();
    let copy = Store::open(vec![memory()], &options()).unwrap();
    restore.fill(&copy, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(copy.table_names().unwrap(), store.table_names().unwrap());
    for name in ["early", "late", "packed"] {
        let [was, is] = [&store, &copy].map(|of| of.existing_table(name).unwrap().unwrap());
        assert_eq!(was.options(), is.options(), "{name}");
        let [was, is] = [was, is]
            .map(|table| table.stored().range(..).unwrap().map(Result::unwrap).collect::<Vec<_>>());
        assert!(!was.is_empty() && was == is, "{name}");
    }
    assert_eq!(copy.horizon_ms(), store.horizon_ms());
    drop(shipper);
    copy.close().unwrap();
    drop((early, packed, late));
    store.close().unwrap();
}
