//! Backups of stores that are written to, and of stores at rest.

use crate::common;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::{
    SUPERBLOCK_BYTES, assert_sound, copy_of, existing, options, ram, ram_of, read_bytes, reading,
    write_bytes,
};
use qpair_block::time::SimClock;
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions};

const PAGE: usize = 512;
const ACCOUNTS: u32 = 500;
const EACH: u64 = 1000;

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Returns the sum and the number of all accounts, and the newest entry of the journal.
fn audit(store: &Store) -> (u64, usize, u64) {
    let accounts = store.existing_table("accounts").unwrap().unwrap();
    let values: Vec<u64> =
        accounts.range(..).unwrap().map(|entry| number(&entry.unwrap().1)).collect();
    let journal = store.existing_table("journal").unwrap().unwrap();
    let entries = journal.range(..).unwrap().inspect(|entry| assert!(entry.is_ok())).count() as u64;
    (values.iter().sum(), values.len(), entries)
}

/// Money moves between accounts while backups are made. Each backup must have the right sum, and
/// all transfers that were made before it.
#[test]
fn a_backup_is_of_one_moment() {
    let device = ram();
    let small = StoreOptions { checkpoint_bytes: 64 << 10, ..options(PAGE, 256) };
    let store = Store::open(vec![device.clone()], &small).unwrap();
    let (accounts, journal) = (store.table("accounts").unwrap(), store.table("journal").unwrap());
    for account in 0..ACCOUNTS {
        accounts.put(&account.to_be_bytes(), &EACH.to_le_bytes()).unwrap();
    }
    let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            let (store, accounts, journal) = (store.clone(), accounts.clone(), journal.clone());
            let (stop, moved) = (stop.clone(), moved.clone());
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(writer);
                for turn in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (from, to) = (random.u32(..ACCOUNTS), random.u32(..ACCOUNTS));
                    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                    let big = vec![turn as u8; if turn % 16 == 0 { 2000 } else { 20 }];
                    let key = [writer.to_be_bytes(), turn.to_be_bytes()].concat();
                    store
                        .transact(|tx| {
                            let have = number(&tx.get(&accounts, &from)?.unwrap());
                            tx.put(&accounts, &from, &(have.wrapping_sub(7)).to_le_bytes())?;
                            let have = number(&tx.get(&accounts, &to)?.unwrap());
                            tx.put(&accounts, &to, &(have.wrapping_add(7)).to_le_bytes())?;
                            tx.put(&journal, &key, &big)
                        })
                        .unwrap();
                    moved.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut backups = Vec::new();
    for count in 1..=4usize {
        let target = moved.load(Ordering::SeqCst) + 150;
        while moved.load(Ordering::SeqCst) < target {
            std::thread::yield_now();
        }
        let members: Vec<Arc<dyn BlockDevice>> = (0..count).map(|_| ram()).collect();
        let before = moved.load(Ordering::SeqCst);
        let report = store.backup(members.clone(), None, &go_on).unwrap();
        // Each writer may have made one commit that is not counted yet.
        let after = moved.load(Ordering::SeqCst) + 3;
        backups.push((members, before, after, report));
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    drop((accounts, journal));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
    for (members, before, after, report) in backups {
        assert_sound(&members, PAGE);
        let copy = Store::open(members.clone(), &existing(PAGE, 256)).unwrap();
        let (sum, count, entries) = audit(&copy);
        assert_eq!((sum, count), (u64::from(ACCOUNTS) * EACH, ACCOUNTS as usize));
        assert!(entries >= before && entries <= after, "{before} <= {entries} <= {after}");
        assert_eq!(copy.report().id, report.id);
        // The copy is an ordinary store: it takes changes, and can be backed up.
        let table = copy.table("accounts").unwrap();
        assert!(table.put(&0u32.to_be_bytes(), &EACH.to_le_bytes()).unwrap());
        drop(table);
        copy.close().unwrap();
        assert_sound(&members, PAGE);
    }
}

fn filled() -> (Arc<dyn BlockDevice>, Store) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..2000u32 {
        table.put(&i.to_be_bytes(), &[i as u8; 100]).unwrap();
    }
    drop(table);
    (device, store)
}

#[test]
fn stores_that_are_closed_or_crashed_are_backed_up_too() {
    let (device, store) = filled();
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    let before = copy_of(device.as_ref(), device.size_bytes());
    let store = Store::open(vec![device.clone()], &reading(PAGE, 256)).unwrap();
    let target = ram();
    store.backup(vec![target.clone()], None, &go_on).unwrap();
    store.close().unwrap();
    let size = device.size_bytes() as usize;
    let (a, b) = (read_bytes(device.as_ref(), 0, 1 << 16), read_bytes(before.as_ref(), 0, 1 << 16));
    assert!(a == b && size as u64 == before.size_bytes(), "a backup changed a closed store");
    let store = Store::open(vec![crashed], &existing(PAGE, 256)).unwrap();
    let recovered = ram();
    store.backup(vec![recovered.clone()], None, &go_on).unwrap();
    store.close().unwrap();
    for target in [target, recovered] {
        assert_eq!(assert_sound(&[target], PAGE).tables[1].records, 2000);
    }
}

#[test]
fn one_that_is_broken_off_leaves_no_store() {
    let (_, store) = filled();
    let target = ram();
    store.backup(vec![target.clone()], None, &go_on).unwrap();
    let broken_off = store
        .backup(vec![target.clone()], None, &|done, all| match done * 2 > all {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
        .unwrap_err();
    assert_eq!(broken_off.kind(), ErrorKind::Interrupted);
    let opened = Store::open(vec![target], &existing(PAGE, 256)).unwrap_err();
    assert_eq!(opened.kind(), ErrorKind::NotAStore);
    // The held pages are free again after the next checkpoint.
    store.table("t").unwrap().put(b"k", b"v").unwrap();
    store.checkpoint().unwrap();
    let retained = store.report().retained_pages;
    assert!(retained < 200, "{retained}");
    store.close().unwrap();
}

#[test]
fn a_full_target_is_an_error_and_the_store_goes_on() {
    let (device, store) = filled();
    let target = Arc::new(
        RamDevice::new(RamOptions {
            size_bytes: 1200 << 10,
            growable: false,
            ..RamOptions::default()
        })
        .unwrap(),
    );
    let error = store.backup(vec![target], None, &go_on).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    store.table("t").unwrap().put(b"k", b"v").unwrap();
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A regression: the old backup was erased before it was known that the new one fits, so the device
/// had neither.
#[test]
fn a_backup_that_does_not_fit_leaves_the_old_one() {
    let fixed = RamOptions { size_bytes: 2 << 20, growable: false, ..RamOptions::default() };
    let target: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(fixed).unwrap());
    let (_device, store) = filled();
    let first = store.backup(vec![target.clone()], None, &go_on).unwrap();
    let table = store.table("large").unwrap();
    for i in 0..100u32 {
        table.put(&i.to_be_bytes(), &[7; 40_000]).unwrap();
    }
    let refused = store.backup(vec![target.clone()], None, &go_on).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let old = Store::open(vec![target.clone()], &reading(PAGE, 128)).unwrap();
    assert_eq!(old.report().id, first.id);
    old.close().unwrap();
    assert_sound(&[target], PAGE);
    drop(table);
    store.close().unwrap();
}

#[test]
fn damage_is_named_and_not_copied() {
    let (device, store) = filled();
    store.close().unwrap();
    let mut damaged = false;
    for page in (2..(device.size_bytes() - SUPERBLOCK_BYTES) / PAGE as u64).rev() {
        let offset = SUPERBLOCK_BYTES + page * PAGE as u64;
        let bytes = read_bytes(device.as_ref(), offset, PAGE);
        // Most leaves are older copies, which a backup ignores.
        if bytes[4] != 2 || damaged {
            continue;
        }
        let mut bad = bytes.clone();
        bad[300] ^= 1;
        write_bytes(device.as_ref(), offset, &bad);
        let store = Store::open(vec![device.clone()], &reading(PAGE, 256)).unwrap();
        let target = ram_of(1 << 20);
        if let Err(error) = store.backup(vec![target.clone()], None, &go_on) {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(&format!("page {page} ")), "{error}");
            let opened = Store::open(vec![target], &existing(PAGE, 256)).unwrap_err();
            assert_eq!(opened.kind(), ErrorKind::NotAStore);
            drop(store);
            // The copy is checked by a store with the same kind of runtime.
            let runtime = Runtime::Stepped { seed: 1, clock: SimClock::new() };
            let stepped = StoreOptions { runtime, ..reading(PAGE, 256) };
            let store = Store::open(vec![device.clone()], &stepped).unwrap();
            let error = store.backup(vec![ram_of(1 << 20)], None, &go_on).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            damaged = true;
        }
        write_bytes(device.as_ref(), offset, &bytes);
    }
    assert!(damaged);
}

/// A regression: a backup during a close copied the previous checkpoint, without later commits.
#[test]
fn a_backup_beside_a_close() {
    for turn in 0..200 {
        let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..100 {
            table.put(&common::key(i), b"v").unwrap();
        }
        let (target, ready) = (ram(), Arc::new(Barrier::new(2)));
        let (own, at, other) = (store.clone(), target.clone(), ready.clone());
        let backup = std::thread::spawn(move || {
            other.wait();
            own.backup(vec![at], None, &go_on)
        });
        ready.wait();
        for _ in 0..turn % 40 * 50 {
            std::hint::spin_loop();
        }
        drop(table);
        store.close().unwrap();
        match backup.join().unwrap() {
            Ok(report) => {
                let copy = Store::open(vec![target], &reading(PAGE, 256)).unwrap();
                let table = copy.existing_table("t").unwrap();
                let count = table.map_or(0, |of| of.range(..).unwrap().count());
                assert_eq!(count, 100, "turn {turn}: {report:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
        }
    }
}
