//! Repairs crashed stores, stores of which only the tables and logs are left, and devices that are
//! partly unreadable.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{
    Checkpoint, Device, SUPERBLOCK_BYTES, SUPERBLOCKS, assert_sound, checkpoint_of, copy_of,
    existing, key, options, ram, read_page, reading, with_log, write_bytes,
};
use qpair_block::{FaultDevice, FaultOptions, Op};
use qpair_engine::{ErrorKind, Result, Store, StoreOptions, Table};
use qpair_inspect::{RepairReport, RepairStep, repair};

const PAGE: usize = 512;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn go_on(_: RepairStep, _: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Repairs a store. Returns the result, and the new store.
fn salvage_with(source: &Device, options_then: &StoreOptions) -> (Result<RepairReport>, Device) {
    let target = ram();
    let mut make = |page_size| {
        Store::open(vec![target.clone()], &StoreOptions { log: false, ..options(page_size, 256) })
    };
    let report = repair(std::slice::from_ref(source), options_then, &mut make, &go_on);
    (report, target)
}

fn salvage(source: &Device, page_size: usize) -> (RepairReport, Device) {
    let (report, target) = salvage_with(source, &existing(page_size, 256));
    (report.unwrap(), target)
}

fn crashed(device: &Device) -> Device {
    copy_of(device.as_ref(), device.size_bytes())
}

fn lose_checkpoint_records(device: &Device) {
    (0..2).for_each(|page| {
        write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, &[0; PAGE])
    });
}

fn damage(device: &Device, page: u64, at: usize, bits: u8) {
    let mut bytes = read_page(device.as_ref(), PAGE, page);
    bytes[at] ^= bits;
    write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, &bytes);
}

/// Returns the catalog's root, which is a leaf, at the checkpoint.
fn catalog_of(device: &Device) -> u64 {
    let is_root = |page: &u64| {
        let bytes = read_page(device.as_ref(), PAGE, *page);
        bytes[4] == 2 && bytes[24..28] == [0; 4]
    };
    checkpoint_of(device.as_ref(), PAGE).used.into_iter().find(is_root).unwrap()
}

/// Makes the reads of a range of sectors fail.
fn unreadable(device: &Device, at: u64) -> Device {
    let faulty = FaultDevice::new(crashed(device), FaultOptions::default()).unwrap();
    faulty.control().fail_range(Op::Read, at..at + 4096);
    Arc::new(faulty)
}

fn put_all(table: &Table, mut keys: std::ops::Range<u32>, value: &[u8]) {
    keys.try_for_each(|i| table.put(&key(i), value).map(|_| ())).unwrap();
}

fn records(table: &Table) -> Model {
    table.range(..).unwrap().map(Result::unwrap).collect()
}

fn all(store: &Store) -> BTreeMap<String, Model> {
    store
        .table_names()
        .unwrap()
        .into_iter()
        .map(|name| {
            let table = store.existing_table(&name).unwrap().unwrap();
            (name, records(&table))
        })
        .collect()
}

/// A repair that was killed or interrupted leaves no store. A regression: an interrupted repair
/// left a part of the store, marked as complete.
#[test]
fn a_repair_that_is_broken_off_leaves_no_store() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    for name in ["first", "second"] {
        let table = store.table(name).unwrap();
        table.bulk_load((0..9000).map(|i| Ok((key(i), vec![1; 20])))).unwrap();
    }
    store.close().unwrap();
    let is_leaf_of_table = |page: &u64| {
        let bytes = read_page(device.as_ref(), PAGE, *page);
        bytes[4] == 2 && bytes[24] != 0
    };
    let leaf = checkpoint_of(device.as_ref(), PAGE).used.into_iter().find(is_leaf_of_table);
    damage(&device, leaf.unwrap(), 200, 0x55);
    let target = ram();
    let mut make = |page_size| {
        let whole = options(page_size, 256);
        let options = StoreOptions { log: false, whole_when_closed: true, ..whole };
        Store::open(vec![target.clone()], &options)
    };
    let saves = AtomicU64::new(0);
    let break_off = |step: RepairStep, _: u64, _: u64| match step {
        RepairStep::Save if saves.fetch_add(1, Ordering::Relaxed) == 3 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let source = std::slice::from_ref(&device);
    let error = repair(source, &existing(PAGE, 256), &mut make, &break_off).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    let error = Store::open(vec![target], &existing(PAGE, 256)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAStore, "{error}");
}

/// Opening refuses a store and a log device of different moments. A repair once called such a store
/// healthy, and did not mention the missing commits.
#[test]
fn a_log_device_of_another_moment() {
    let (device, log) = (ram(), ram());
    let fill = |store: &Store, keys: std::ops::Range<u32>| {
        let table = store.table("t").unwrap();
        put_all(&table, keys, &[7; 30]);
    };
    let existing = existing(4096, 256);
    let store = Store::open(vec![device.clone()], &with_log(options(4096, 256), &log)).unwrap();
    fill(&store, 0..20);
    let (old, old_log) = (crashed(&device), crashed(&log));
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &with_log(existing.clone(), &log)).unwrap();
    fill(&store, 20..40);
    let (left, left_log) = (crashed(&device), crashed(&log));
    store.close().unwrap();
    for (device, log) in [(&old, &left_log), (&left, &old_log)] {
        let options = with_log(existing.clone(), log);
        let error = Store::open(vec![device.clone()], &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Member);
        let report = salvage_with(device, &options).0.unwrap();
        assert!(!report.healthy && !report.is_complete());
    }
    let (report, target) = salvage_with(&left, &with_log(existing, &left_log));
    assert!(report.unwrap().healthy);
    assert_eq!(
        Store::open(vec![target], &reading(4096, 256)).unwrap_err().kind(),
        ErrorKind::NotAStore
    );
}

#[test]
fn a_log_device_that_cannot_be_read() {
    let (device, log) = (ram(), ram());
    let store = Store::open(vec![device.clone()], &with_log(options(4096, 256), &log)).unwrap();
    let table = store.table("t").unwrap();
    put_all(&table, 0..20, b"x");
    let left = crashed(&device);
    let faulty = FaultDevice::new(crashed(&log), FaultOptions::default()).unwrap();
    faulty.control().fail_reads(true);
    let faulty: Device = Arc::new(faulty);
    let (report, _) = salvage_with(&left, &with_log(existing(4096, 256), &faulty));
    assert!(report.unwrap().log.unwrap().damaged);
    // One of the log's two superblocks is enough, unless the newest one is lost: then the log may
    // be of another moment.
    let opened = SUPERBLOCKS.map(|at| {
        let left_log = unreadable(&log, at);
        let opened = Store::open(vec![crashed(&left)], &with_log(existing(4096, 256), &left_log));
        match opened {
            Ok(store) => records(&store.table("t").unwrap()).len() == 20,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Member, "{error}");
                false
            }
        }
    });
    assert!(opened.contains(&true));
}

/// A regression: a flipped bit in one of two superblocks was tolerated, but unreadable sectors were
/// not.
#[test]
fn one_superblock_of_two_that_cannot_be_read() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(4096, 256)).unwrap();
    let table = store.table("t").unwrap();
    put_all(&table, 0..200, &[3; 40]);
    drop(table);
    store.close().unwrap();
    for at in [SUPERBLOCKS[0], SUPERBLOCKS[1], SUPERBLOCK_BYTES, SUPERBLOCK_BYTES + 4096] {
        let faulty = unreadable(&device, at);
        let store = Store::open(vec![faulty.clone()], &reading(4096, 256)).unwrap();
        let report = store.check(&|_, _| ()).unwrap();
        assert!(report.is_sound() && report.harmless.len() == 1, "{report:?}");
        assert_eq!(records(&store.existing_table("t").unwrap().unwrap()).len(), 200);
        salvage(&faulty, 4096);
    }
}

/// The empty leaf from before the load has the same timestamp as the load's leaves.
#[test]
fn a_sorted_load_and_no_checkpoint() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    table.put(&key(1), b"x").unwrap();
    table.delete(&key(1)).unwrap();
    store.checkpoint().unwrap();
    table.bulk_load((0..1000).map(|i| Ok((key(i), vec![7; 20])))).unwrap();
    drop(table);
    store.close().unwrap();
    lose_checkpoint_records(&device);
    assert_eq!(salvage(&device, PAGE).0.tables[0].records, 1000);
}

/// Without checkpoint records the log cannot be found. Either all records are saved, or the report
/// says that some are missing.
#[test]
fn a_crash_and_no_checkpoint() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    table.put(&key(0), b"x").unwrap();
    store.checkpoint().unwrap();
    put_all(&table, 1..500, b"x");
    let left = crashed(&device);
    lose_checkpoint_records(&left);
    let report = salvage(&left, PAGE).0;
    assert!(report.tables[0].records == 500 || !report.is_complete());
}

/// The catalog is damaged. An older copy of it names a table that was dropped, and the log makes
/// another table of that name.
#[test]
fn a_name_that_an_older_catalog_has() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let old = store.table("a").unwrap();
    put_all(&old, 0..500, &[1; 20]);
    drop(old);
    store.checkpoint().unwrap();
    store.drop_table("a").unwrap();
    store.table("b").unwrap();
    while store.tables_being_dropped() > 0 {
        std::thread::yield_now();
    }
    store.checkpoint().unwrap();
    let new = store.table("a").unwrap();
    new.put(&key(1000), &[2; 20]).unwrap();
    new.put(&key(7), &[2; 20]).unwrap();
    new.delete(&key(7)).unwrap();
    let left = crashed(&device);
    damage(&left, catalog_of(&left), 200, 1);
    let (report, target) = salvage(&left, PAGE);
    assert_eq!(report.tables.iter().filter(|table| table.name == "a").count(), 1);
    let store = Store::open(vec![target], &existing(PAGE, 256)).unwrap();
    let found = records(&store.existing_table("a").unwrap().unwrap());
    assert!(found.keys().eq([&key(1000)]), "{} records", found.len());
}

/// The log renames a table, and makes and drops others under the names that become free.
#[test]
fn names_that_the_log_changes() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let (a, b) = (store.table("a").unwrap(), store.table("b").unwrap());
    put_all(&a, 0..300, &[1; 20]);
    put_all(&b, 0..100, &[2; 20]);
    store.checkpoint().unwrap();
    store.rename_table("a", "c").unwrap();
    store.rename_table("b", "a").unwrap();
    store.rename_table("c", "b").unwrap();
    put_all(&a, 300..400, &[3; 20]);
    store.table("made").unwrap().put(b"k", b"v").unwrap();
    store.rename_table("made", "c").unwrap();
    let left = crashed(&device);
    let recovered = Store::open(vec![crashed(&left)], &existing(PAGE, 256)).unwrap();
    let truth = all(&recovered);
    assert_eq!(truth.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    drop(recovered);
    // The checkpoint no longer needs this page: repair finds damage, and loses nothing.
    let is_inner = |page: &u64| read_page(left.as_ref(), PAGE, *page)[4] == 1;
    let Checkpoint { used, own, .. } = checkpoint_of(left.as_ref(), PAGE);
    let inner = used.into_iter().filter(|page| !own.contains(page)).find(is_inner).unwrap();
    damage(&left, inner, 200, 1);
    let (report, target) = salvage(&left, PAGE);
    assert!(report.is_complete() && !report.healthy, "{report:#?}");
    let store = Store::open(vec![target], &existing(PAGE, 256)).unwrap();
    assert_eq!(all(&store), truth);
    for table in &report.tables {
        assert_eq!(table.records, truth[&table.name].len() as u64, "{}", table.name);
    }
}

/// Repair reads 64 pages of a value at once. A regression: it reported each longer value as lost,
/// whether a leaf or the log had it, and reported a store that only needed recovery as damaged.
#[test]
fn large_values_of_more_pages_than_are_read_at_once() {
    const PART: usize = PAGE - 64;
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let put_large = |from: u32| {
        for (i, len) in (from..).zip([64 * PART, 64 * PART + 1, 129 * PART]) {
            let value: Vec<u8> = (0..len).map(|at| (at / PART) as u8).collect();
            table.put(&key(i), &value).unwrap();
        }
    };
    put_all(&table, 0..300, &[1; 20]);
    put_large(300);
    store.checkpoint().unwrap();
    put_large(400);
    let left = crashed(&device);
    let (report, _) = salvage(&left, PAGE);
    assert!(report.healthy, "{report:#?}");
    let recovered = Store::open(vec![crashed(&left)], &existing(PAGE, 256)).unwrap();
    let truth = all(&recovered);
    assert_eq!(truth["t"].len(), 306);
    drop(recovered);
    // Leaves are found without this page: the store is damaged, and no record is lost.
    let is_inner = |page: &u64| read_page(left.as_ref(), PAGE, *page)[4] == 1;
    let inner = checkpoint_of(left.as_ref(), PAGE).used.into_iter().find(is_inner).unwrap();
    damage(&left, inner, 200, 1);
    let (report, target) = salvage(&left, PAGE);
    assert!(report.is_complete() && !report.healthy, "{report:#?}");
    let store = Store::open(vec![target], &existing(PAGE, 256)).unwrap();
    assert_eq!(all(&store), truth);
}

/// The catalog is damaged. An older copy of it has a table under its old name from before a rename,
/// and the log makes another table of that name. Neither is lost.
#[test]
fn a_name_that_an_older_catalog_has_of_a_renamed_table() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let old = store.table("a").unwrap();
    put_all(&old, 0..500, &[1; 20]);
    store.checkpoint().unwrap();
    store.rename_table("a", "b").unwrap();
    store.checkpoint().unwrap();
    store.table("a").unwrap().put(&key(1000), &[2; 20]).unwrap();
    old.put(&key(500), &[1; 20]).unwrap();
    let left = crashed(&device);
    damage(&left, catalog_of(&left), 200, 1);
    let (report, target) = salvage(&left, PAGE);
    assert!(report.names_uncertain && !report.is_complete());
    let store = Store::open(vec![target], &existing(PAGE, 256)).unwrap();
    let mut found = all(&store);
    let new = found.remove("a").unwrap();
    assert!(new.keys().eq([&key(1000)]), "{} records", new.len());
    let (name, kept) = found.pop_first().unwrap();
    assert_eq!((found.len(), kept.len()), (0, 501), "{name}");
    let mut told: Vec<_> =
        report.tables.iter().map(|table| (&*table.name, table.records)).collect();
    told.sort_unstable();
    assert_eq!(told, [("a", 1), (&*name, 501)]);
}

/// Compares repairs of randomly damaged, crashed stores with the result of recovery.
#[test]
fn repairs_of_crashed_stores() {
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = ram();
        let opts = StoreOptions {
            checkpoint_bytes: if random.bool() { 16 << 10 } else { 256 << 20 },
            ..options(PAGE, 200)
        };
        let store = Store::open(vec![device.clone()], &opts).unwrap();
        for _ in 0..random.u32(5..60) {
            let name = format!("t{}", random.u8(0..4));
            match random.u8(0..9) {
                0 => drop(store.drop_table(&name)),
                1 => {
                    let _ = store.drop_table(&name);
                    let table = store.table(&name).unwrap();
                    let fill = random.u8(..);
                    let records = (0..random.u32(1..900)).map(move |i| {
                        Ok((key(i), vec![fill; if i % 40 == 0 { 1300 } else { 30 }]))
                    });
                    table.bulk_load(records).unwrap();
                }
                2 => store.checkpoint().unwrap(),
                3 => drop(store.rename_table(&name, &format!("t{}", random.u8(0..4)))),
                _ => {
                    let table = store.table(&name).unwrap();
                    for _ in 0..random.u32(1..200) {
                        let key = key(random.u32(0..900));
                        let len = if random.u8(0..9) == 0 { random.usize(200..3000) } else { 25 };
                        if random.u8(0..4) == 0 {
                            table.delete(&key).unwrap();
                        } else {
                            table.put(&key, &vec![random.u8(..); len]).unwrap();
                        }
                    }
                }
            }
        }
        let left = crashed(&device);
        drop(store);
        let recovered = Store::open(vec![crashed(&left)], &existing(PAGE, 256)).unwrap();
        let truth = all(&recovered);
        drop(recovered);
        let Checkpoint { used, own, .. } = checkpoint_of(left.as_ref(), PAGE);
        let pages: Vec<u64> = used.into_iter().filter(|p| *p > 1 && !own.contains(p)).collect();
        for _ in 0..random.u32(1..4) {
            let page = pages[random.usize(..pages.len())];
            damage(&left, page, random.usize(..PAGE), 1 << random.u8(0..8));
        }
        match seed % 7 {
            4 => lose_checkpoint_records(&left),
            6 => damage(&left, pages[0], 100, 0xaa),
            _ => {}
        }
        let (report, target) = salvage(&left, PAGE);
        if report.healthy {
            continue;
        }
        assert_sound(std::slice::from_ref(&target), PAGE);
        let store = Store::open(vec![target], &existing(PAGE, 256)).unwrap();
        let found = all(&store);
        if report.names_uncertain {
            continue;
        }
        assert!(
            found.keys().eq(truth.keys()),
            "seed {seed}: {:?} {:?} {report:#?}",
            found.keys(),
            truth.keys()
        );
        assert!(report.log.is_none_or(|log| !log.damaged), "seed {seed}: {report:#?}");
        for (name, model) in &truth {
            let told = report.tables.iter().find(|t| t.name == *name).unwrap();
            assert_eq!(told.records, found[name].len() as u64, "seed {seed} {name}");
            let within = |key: &Vec<u8>| {
                told.lost
                    .iter()
                    .chain(&told.stale)
                    .any(|r| r.from <= *key && r.to.as_ref().is_none_or(|to| key < to))
                    || told.large_keys_lost.contains(key)
            };
            for (key, value) in model {
                assert!(
                    found[name].get(key) == Some(value) || within(key),
                    "seed {seed} {name} {}: {report:#?}",
                    key.escape_ascii()
                );
            }
            for key in found[name].keys() {
                assert!(
                    model.contains_key(key) || within(key),
                    "seed {seed} {name} {}: {report:#?}",
                    key.escape_ascii()
                );
            }
        }
    }
}
