//! Renames tables: access by both names, before and after a crash at any moment, and which software
//! may read the store then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Device, SUPERBLOCKS, assert_sound, copy_of, existing, key, options, ram, read_bytes, reading,
};
use qpair_block::time::SimClock;
use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions, TransactionOptions};
use qpair_sim_block::{SimDevice, SimOptions};

const PAGE: usize = 512;
const FRAMES: u64 = 256;

fn made() -> (Store, Device) {
    let device = ram();
    (Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap(), device)
}

fn recovered(device: &Device) -> (Store, Device) {
    let left = copy_of(device.as_ref(), device.size_bytes());
    (Store::open(vec![left.clone()], &existing(PAGE, FRAMES)).unwrap(), left)
}

/// Returns each table's name, and the value of its only record.
fn content(store: &Store) -> Vec<(String, String)> {
    let value = |name: &String| store.existing_table(name).unwrap().unwrap().get(b"k").unwrap();
    let text = |name: String| (String::from_utf8(value(&name).unwrap_or_default()).unwrap(), name);
    store.table_names().unwrap().into_iter().map(text).map(|(value, name)| (name, value)).collect()
}

fn expect(store: &Store, tables: &[(&str, &str)]) {
    let tables: Vec<_> = tables.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(content(store), tables);
}

fn make(store: &Store, names: &[&str]) {
    for name in names {
        store.table(name).unwrap().put(b"k", format!("of {name}").as_bytes()).unwrap();
    }
}

/// Returns whether the newest superblock of a device has the feature bit of renames, and whether
/// any superblock has it.
fn bits(device: &Device) -> (bool, bool) {
    let superblocks = SUPERBLOCKS.map(|at| read_bytes(device.as_ref(), at, 4096));
    let word = |superblock: &[u8], at: usize| {
        u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap())
    };
    let has = |superblock: &Vec<u8>| word(superblock, 16) & 32 != 0;
    let newest = superblocks.iter().max_by_key(|superblock| word(superblock, 72)).unwrap();
    (has(newest), superblocks.iter().any(has))
}

#[test]
fn a_renamed_table_is_found_under_its_new_name_only() {
    let (store, device) = made();
    make(&store, &["a", "b"]);
    let table = store.table("a").unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut open = store.begin();
    open.put(&table, b"open", b"1").unwrap();
    store.rename_table("a", "c").unwrap();
    expect(&store, &[("b", "of b"), ("c", "of a")]);
    assert!(store.existing_table("a").unwrap().is_none());
    // The existing records stay.
    table.put(b"later", b"2").unwrap();
    open.commit().unwrap();
    let renamed = store.table("c").unwrap();
    assert_eq!(renamed.get(b"open").unwrap().unwrap(), b"1");
    assert_eq!(renamed.get(b"later").unwrap().unwrap(), b"2");
    assert_eq!(snapshot.get(&renamed, b"k").unwrap().unwrap(), b"of a");
    assert_eq!(snapshot.get(&table, b"later").unwrap(), None);
    drop((snapshot, table, renamed));
    // No handle is needed, not even in a store that was just opened.
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    store.rename_table("c", "a").unwrap();
    expect(&store, &[("a", "of a"), ("b", "of b")]);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    expect(&store, &[("a", "of a"), ("b", "of b")]);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn errors_tell_the_new_name() {
    let (store, _) = made();
    let table = store.table("old").unwrap();
    let mut holder = store.begin();
    holder.put(&table, b"k", b"1").unwrap();
    let refused = || {
        let timeout = Some(Duration::from_millis(5));
        let options = TransactionOptions { lock_timeout: timeout, ..TransactionOptions::default() };
        store.begin_with(&options).put(&table, b"k", b"2").unwrap_err().to_string()
    };
    assert!(refused().contains("table old"), "{}", refused());
    store.rename_table("old", "new").unwrap();
    assert!(refused().contains("table new"), "{}", refused());
    holder.commit().unwrap();
}

#[test]
fn what_cannot_be_renamed_stays() {
    let (store, device) = made();
    make(&store, &["a", "b"]);
    let kind = |from: &str, to: &str| store.rename_table(from, to).unwrap_err().kind();
    assert_eq!(kind("none", "c"), ErrorKind::NotFound);
    assert_eq!(kind("none", "a"), ErrorKind::NotFound);
    assert_eq!(kind("a", "b"), ErrorKind::Exists);
    assert_eq!(kind("a", "a"), ErrorKind::Exists);
    for name in [String::new(), "x".repeat(129)] {
        assert_eq!(kind("a", &name), ErrorKind::Invalid);
        assert_eq!(kind(&name, "c"), ErrorKind::Invalid);
    }
    // A worker must not wait for its own commits.
    let other = store.clone();
    let of_worker = store.spawn(move || async move { other.rename_table("a", "c") });
    assert_eq!(of_worker.join().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    expect(&store, &[("a", "of a"), ("b", "of b")]);
    assert_eq!(bits(&device), (false, false), "nothing was renamed");
    store.clone().close().unwrap();
    assert_eq!(kind("a", "c"), ErrorKind::Closed);
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    assert_eq!(store.rename_table("a", "c").unwrap_err().kind(), ErrorKind::ReadOnly);
    expect(&store, &[("a", "of a"), ("b", "of b")]);
    store.close().unwrap();
    assert_eq!(bits(&device), (false, false));
}

/// From before the log has a rename until the store is closed, older software refuses the store.
#[test]
fn the_superblocks_say_that_the_log_may_have_renames() {
    let (store, device) = made();
    make(&store, &["a"]);
    assert_eq!(bits(&device), (false, false));
    store.rename_table("a", "b").unwrap();
    assert!(bits(&device).0);
    store.checkpoint().unwrap();
    assert!(bits(&device).0);
    // The log of a recovery follows the old one, and the superblocks keep the bit until the store
    // is closed.
    let (after, left) = recovered(&device);
    make(&after, &["c"]);
    assert!(bits(&left).0);
    after.close().unwrap();
    assert!(!bits(&left).0);
    store.close().unwrap();
    assert!(!bits(&device).0);
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    make(&store, &["c"]);
    store.close().unwrap();
    assert_eq!(bits(&device), (false, false));
    // Without a log there is nothing to misread.
    let unlogged = StoreOptions { log: false, ..existing(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &unlogged).unwrap();
    store.rename_table("b", "d").unwrap();
    assert_eq!(bits(&device), (false, false));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn renames_are_made_again_from_the_log() {
    let (store, device) = made();
    make(&store, &["a", "x", "y"]);
    let check = |tables: &[(&str, &str)]| {
        expect(&store, tables);
        let (after, left) = recovered(&device);
        expect(&after, tables);
        after.close().unwrap();
        assert_sound(&[left], PAGE);
    };
    // Another table can take the old name.
    store.rename_table("a", "b").unwrap();
    make(&store, &["a"]);
    store.table("b").unwrap().put(b"k", b"renamed").unwrap();
    check(&[("a", "of a"), ("b", "renamed"), ("x", "of x"), ("y", "of y")]);
    // A chain of renames, and two tables that swap their names.
    store.rename_table("b", "c").unwrap();
    store.rename_table("c", "d").unwrap();
    store.rename_table("x", "z").unwrap();
    store.rename_table("y", "x").unwrap();
    store.rename_table("z", "y").unwrap();
    check(&[("a", "of a"), ("d", "renamed"), ("x", "of y"), ("y", "of x")]);
    // A table that is made, filled, renamed, filled and dropped, and a table that takes the name of
    // a dropped one.
    make(&store, &["e"]);
    store.rename_table("e", "f").unwrap();
    store.table("f").unwrap().put(b"k", b"more").unwrap();
    store.drop_table("f").unwrap();
    store.drop_table("a").unwrap();
    store.rename_table("d", "a").unwrap();
    check(&[("a", "renamed"), ("x", "of y"), ("y", "of x")]);
    // Part of the changes is in the image, and the rest in the log.
    store.checkpoint().unwrap();
    check(&[("a", "renamed"), ("x", "of y"), ("y", "of x")]);
    store.rename_table("x", "b").unwrap();
    store.rename_table("a", "x").unwrap();
    check(&[("b", "of y"), ("x", "renamed"), ("y", "of x")]);
}

/// Names are as long as possible, so that the catalog has many leaves: the two records of a rename
/// may be in any of them.
#[test]
fn a_catalog_of_many_leaves() {
    const TABLES: u32 = 60;
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 1024)).unwrap();
    let long =
        |number: u32| format!("{number:02}{}", "-".repeat(store.whole_key_len_max().min(128) - 2));
    let mut names: Vec<String> =
        (0..TABLES).map(|number| format!("{:02}", number * 7 % 100)).collect();
    names.iter().zip(0u32..).for_each(|(name, number)| {
        store.table(name).unwrap().put(b"k", &number.to_be_bytes()).unwrap();
    });
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..300 {
        let table = random.usize(..names.len());
        let to = match random.bool() {
            true => long(random.u32(..100)),
            false => format!("{:02}", random.u32(..100)),
        };
        let outcome = store.rename_table(&names[table], &to);
        match names.contains(&to) {
            true => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Exists),
            false => names[table] = outcome.map(|()| to).unwrap(),
        }
        if round == 150 {
            store.checkpoint().unwrap();
        }
    }
    let left = copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    for device in [device, left] {
        let store = Store::open(vec![device.clone()], &existing(PAGE, 1024)).unwrap();
        assert_eq!(store.table_names().unwrap().len(), names.len());
        for (name, number) in names.iter().zip(0u32..) {
            let found = store.existing_table(name).unwrap().unwrap().get(b"k").unwrap();
            assert_eq!(found.unwrap(), number.to_be_bytes());
        }
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}

/// A caller that lists names during renames never sees both names of a table, or none; and each
/// checkpoint has one of them.
#[test]
fn renames_beside_readers_writers_and_checkpoints() {
    let (store, device) = made();
    make(&store, &["a", "z"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, over) = (&store, &over);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let names = store.table_names().unwrap();
                assert!(names == ["a", "z"] || names == ["b", "z"] || names == ["z", "zz"]);
            }
        });
        scope.spawn(move || {
            let table = store.table("a").unwrap();
            for index in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
                table.put(&key(index % 500), b"value").unwrap();
            }
        });
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        // The writer has a handle of the table.
        while store.table("a").unwrap().get(&key(0)).unwrap().is_none() {
            std::thread::yield_now();
        }
        for _ in 0..40 {
            store.rename_table("a", "zz").unwrap();
            store.rename_table("zz", "b").unwrap();
            store.rename_table("b", "a").unwrap();
        }
        store.rename_table("a", "b").unwrap();
        over.store(true, Ordering::Relaxed);
    });
    let (after, left) = recovered(&device);
    expect(&after, &[("b", "of a"), ("z", "of z")]);
    after.close().unwrap();
    assert_sound(&[left], PAGE);
}

/// The power is cut at each write and flush of a rename in turn. The table has the old or the new
/// name, with all records. After the rename was acknowledged, it has the new name.
#[test]
fn a_power_cut_leaves_the_old_name_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..6 {
        for cut in 1.. {
            let (has_old, is_over) = cut_power(seed, cut);
            (old, new) = (old + u32::from(has_old), new + u32::from(!has_old));
            if is_over {
                break;
            }
        }
    }
    assert!(old > 10 && new > 10, "{old} times the old name, {new} times the new one");
}

/// Cuts the power at this write or flush of a rename and a checkpoint after it. Returns whether the
/// old name is left, and whether both calls had ended before.
fn cut_power(seed: u64, cut: u64) -> (bool, bool) {
    let clock = SimClock::new();
    let stepped = |options: StoreOptions| StoreOptions {
        runtime: Runtime::Stepped { seed, clock: clock.clone() },
        ..options
    };
    let device_options = SimOptions::new(seed, &clock);
    let power = device_options.power.clone();
    let device = SimDevice::new(device_options).unwrap();
    let members: Vec<Device> = vec![Arc::new(device.clone())];
    let store = Store::open(members, &stepped(options(PAGE, FRAMES))).unwrap();
    make(&store, &["a", "b"]);
    power.cut_at_change(cut);
    let renamed = store.rename_table("a", "c");
    let checkpoint = store.checkpoint();
    power.cut();
    let content = device.content();
    store.crash();
    let after = SimDevice::over(SimOptions::new(seed, &clock), content).unwrap();
    let members: Vec<Device> = vec![Arc::new(after)];
    let store = Store::open(members.clone(), &stepped(existing(PAGE, FRAMES))).unwrap();
    let has_old = store.table_names().unwrap() == ["a", "b"];
    match has_old {
        true => expect(&store, &[("a", "of a"), ("b", "of b")]),
        false => expect(&store, &[("b", "of b"), ("c", "of a")]),
    }
    assert!(renamed.is_err() || !has_old, "seed {seed}, cut {cut}: it was acknowledged");
    store.close().unwrap();
    assert_sound(&members, PAGE);
    (has_old, checkpoint.is_ok())
}

/// A rename that fails leaves the store as any failed commit does: read-only, and consistent when
/// it is reopened.
#[test]
fn a_write_of_the_log_that_fails() {
    let (device, below, control) = crate::common::faulty();
    let store = Store::open(vec![device], &options(PAGE, FRAMES)).unwrap();
    make(&store, &["a"]);
    store.rename_table("a", "b").unwrap();
    control.fail_nth(qpair_block::Op::Write, 1);
    assert_eq!(store.rename_table("b", "c").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(store.is_read_only());
    assert_eq!(store.rename_table("b", "c").unwrap_err().kind(), ErrorKind::ReadOnly);
    drop(store.close());
    control.heal();
    let (after, _) = recovered(&below);
    assert_eq!(content(&after).len(), 1, "{:?}", content(&after));
}
