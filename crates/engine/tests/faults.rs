//! Devices that fail: what fails, what goes on, and what is kept.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use common::{assert_sound, existing, faulty, options, ram, reading};
use qpair_block::{
    BlockDevice, DelayDevice, DelayOptions, FaultDevice, FaultOptions, IoError, Op, RamDevice,
    RamOptions,
};
use qpair_engine::{ErrorKind, Store, StoreOptions, Table, VALUE_LEN_MAX, yield_now};

const PAGE: usize = 512;
const FRAMES: u64 = 128;

type Device = Arc<dyn BlockDevice>;

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 24]
}

/// Fills a table, closes the store, and opens it again: nothing but roots is in memory.
fn filled(device: &Device, records: u32) -> Store {
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..records {
        table.put(&key(i), &value(i)).unwrap();
    }
    drop(table);
    store.close().unwrap();
    Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap()
}

#[test]
fn a_failed_read_fails_its_operation_only() {
    let (device, _, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    assert_eq!(table.get(&key(1)).unwrap(), Some(value(1)));
    control.fail_reads(true);
    let error = table.get(&key(2900)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("reading page"), "{error}");
    // What is in memory is still served.
    assert_eq!(table.get(&key(1)).unwrap(), Some(value(1)));
    assert_eq!(table.put(&key(2900), b"new").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(table.delete(&key(2900)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(
        table.range(key(2900).as_slice()..).unwrap().next().unwrap().unwrap_err().kind(),
        ErrorKind::Io
    );
    control.heal();
    for i in 0..3000 {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
    }
    assert!(!store.is_read_only());
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Many tasks after the same pages, of which some reads fail: each is answered, right or with the error.
#[test]
fn tasks_that_wait_for_the_same_failing_page() {
    let (device, _, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    for round in 0..20 {
        control.set_error_rate(Op::Read, 0.5);
        let tasks: Vec<_> = (0..200u32)
            .map(|task| {
                let table = table.task();
                store.spawn(move || async move {
                    let i = (round * 131 + task / 50) % 3000;
                    (i, table.get(&key(i)).await)
                })
            })
            .collect();
        for task in tasks {
            match task.join().unwrap() {
                (i, Ok(found)) => assert_eq!(found, Some(value(i))),
                (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Io),
            }
        }
        control.heal();
        for task in 0..4 {
            let i = (round * 131 + task) % 3000;
            assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
        }
    }
}

/// A bad spot under one leaf: its keys are lost, a scan stops there, all others are read.
#[test]
fn a_bad_spot() {
    let (device, below, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    let is_leaf = |page: &&u64| {
        let bytes = common::read_page(below.as_ref(), PAGE, **page);
        bytes[4] == 2 && bytes[24..28] != [0; 4]
    };
    let used = common::checkpoint_of(below.as_ref(), PAGE).used;
    let page = *used.iter().filter(is_leaf).nth(20).unwrap();
    let spot = common::LABEL_BYTES + page * PAGE as u64;
    control.fail_range(Op::Read, spot..spot + PAGE as u64);
    let lost: Vec<_> = (0..3000).filter(|i| table.get(&key(*i)).is_err()).collect();
    assert!(!lost.is_empty() && lost.len() < 100, "{lost:?}");
    let mut scan = table.range::<[u8], _>(..).unwrap();
    let before = scan.by_ref().take_while(Result::is_ok).count();
    assert_eq!(before, lost[0] as usize);
    let after = table.range(key(lost[lost.len() - 1] + 1).as_slice()..).unwrap();
    assert_eq!(after.count(), 2999 - lost[lost.len() - 1] as usize);
    let report = store.check(&|_, _| ()).unwrap();
    assert!(
        report.faults.iter().any(|fault| fault.contains(&format!("page {page},"))),
        "{report:#?}"
    );
    assert_eq!(report.leaked_pages, 0);
}

/// A failed write of the log: what was acknowledged is there, and nothing more is taken.
#[test]
fn a_failed_write_makes_the_store_read_only() {
    let (device, _, control) = faulty();
    let store = filled(&device, 10);
    let table = store.table("t").unwrap();
    for i in 10..50 {
        table.put(&key(i), &value(i)).unwrap();
    }
    control.fail_writes(true);
    let error = table.put(&key(50), &value(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    control.heal();
    assert!(store.is_read_only());
    // Final: a device that is well again does not bring back what it forgot.
    for error in [
        table.put(b"b", b"1").unwrap_err(),
        table.delete(&key(1)).unwrap_err(),
        store.table("another").unwrap_err(),
        store.drop_table("t").unwrap_err(),
        store.checkpoint().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("writing the log"), "{error}");
        assert!(error.way_out().is_some());
    }
    for i in 0..50 {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
    }
    drop(table);
    let error = store.close().unwrap_err();
    assert!(error.to_string().contains("writing the log"), "{error}");
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..50 {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_failed_write_of_a_large_value() {
    let (device, _, control) = faulty();
    let store = filled(&device, 10);
    let table = store.table("t").unwrap();
    table.put(b"a", b"marks the store open").unwrap();
    control.fail_nth(Op::Write, 3);
    let error = table.put(b"large", &[1; 5000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.put(b"b", b"1").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(store.close().is_err());
    drop(table);
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.get(b"a").unwrap().unwrap(), b"marks the store open");
}

/// What a life of a store acknowledged: by key, the value, and what may have become of the change that was answered with an
/// error.
#[derive(Default)]
struct Life {
    acknowledged: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    doubtful: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    failed: bool,
}

impl Life {
    fn change(&mut self, table: &Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        let outcome = match &value {
            Some(value) => table.put(&key, value).map(|_| ()),
            None => table.delete(&key).map(|_| ()),
        };
        match outcome {
            Ok(()) => {
                assert!(!self.failed, "a change after a failure was taken");
                self.acknowledged.insert(key, value);
            }
            Err(_) => {
                self.failed = true;
                self.doubtful.push((key, value));
            }
        }
    }

    /// Opens the store, changes this and that, makes checkpoints, and closes it.
    fn live(&mut self, device: &Device) {
        let options = StoreOptions { checkpoint_bytes: 8 << 10, ..existing(PAGE, FRAMES) };
        let Ok(store) = Store::open(vec![device.clone()], &options) else { return };
        let Ok(table) = store.table("t") else { return };
        for i in 0..120u32 {
            let at = i * 37 % 400;
            match i % 8 {
                7 => self.change(&table, key(at), None),
                5 => self.change(&table, key(at), Some(vec![i as u8; 1500])),
                _ => self.change(&table, key(at), Some(value(at + i))),
            }
            if i == 60 {
                self.failed |= store.checkpoint().is_err();
            }
        }
        // Reads go on, whatever failed.
        if self.failed {
            assert!(store.is_read_only());
        }
        for (key, value) in &self.acknowledged {
            if self.doubtful.iter().any(|(other, _)| other == key) {
                continue;
            }
            match table.get(key) {
                Ok(found) => assert_eq!(found, *value),
                // The power is off.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
            }
        }
        drop(table);
        // A change that was refused, or a checkpoint, is why a close may fail.
        if store.close().is_ok() {
            assert!(!self.failed);
        }
    }

    /// On the device as it is now: everything acknowledged is there, nothing else has changed.
    fn assert_kept(&self, device: &Device, records: u32, what: &str) {
        let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let table = store.table("t").unwrap();
        let mut expected: BTreeMap<_, _> = (0..records).map(|i| (key(i), value(i))).collect();
        for (key, value) in &self.acknowledged {
            match value {
                Some(value) => expected.insert(key.clone(), value.clone()),
                None => expected.remove(key),
            };
        }
        let mut found: BTreeMap<_, _> =
            table.range::<[u8], _>(..).unwrap().map(Result::unwrap).collect();
        for (key, value) in &self.doubtful {
            if found.get(key) == value.as_ref() {
                match expected.get(key) {
                    Some(value) => found.insert(key.clone(), value.clone()),
                    None => found.remove(key),
                };
            }
        }
        assert!(found == expected, "{what}");
        drop(table);
        store.close().unwrap();
        assert_sound(std::slice::from_ref(device), PAGE);
    }
}

/// Every third write, and every flush, of a life fails in turn: of the log, of pages, of a checkpoint's, of labels.
#[test]
fn each_write_or_flush_fails() {
    for (op, step) in [(Op::Write, 3), (Op::Flush, 1)] {
        let mut failures = 0;
        for nth in (1..).step_by(step) {
            let (device, below, control) = faulty();
            filled(&device, 300).close().unwrap();
            control.fail_nth(op, nth);
            let before = control.counts().errors;
            let mut life = Life::default();
            life.live(&device);
            let struck = control.counts().errors > before;
            control.heal();
            life.assert_kept(&below, 300, &format!("{op:?} {nth} failed"));
            if !struck {
                break;
            }
            failures += 1;
        }
        assert!(failures > 20, "{failures} of {op:?}");
    }
}

/// The power fails at every third write of a life, which may be torn: whenever that is, the store opens and has everything
/// that was acknowledged.
#[test]
fn a_crash_at_each_write_of_a_life() {
    let mut crashes = 0;
    for nth in (1..).step_by(3) {
        let (device, below, control) = faulty();
        filled(&device, 300).close().unwrap();
        let before = control.seen(Op::Write);
        control.crash_at_write(nth, nth % 4);
        let mut life = Life::default();
        life.live(&device);
        life.assert_kept(&below, 300, &format!("crash at write {nth}"));
        if control.seen(Op::Write) - before < nth {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 50, "{crashes}");
}

/// The same for each write of a close.
#[test]
fn a_crash_at_each_write_of_a_close() {
    let mut crashes = 0;
    for nth in 1.. {
        let (device, below, control) = faulty();
        let store = filled(&device, 60);
        let table = store.table("t").unwrap();
        for i in 0..60 {
            table.put(&key(i), &value(i + 1)).unwrap();
        }
        drop(table);
        let before = control.seen(Op::Write);
        control.crash_at_write(nth, 0);
        let closed = store.close();
        let reached = control.seen(Op::Write) - before >= nth;
        // Once the checkpoint is durable, only the labels are missing.
        assert_eq!(closed.is_err(), reached, "write {nth}");
        let store = Store::open(vec![below.clone()], &existing(PAGE, FRAMES)).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..60 {
            assert_eq!(table.get(&key(i)).unwrap(), Some(value(i + 1)), "write {nth}");
        }
        drop(table);
        store.close().unwrap();
        assert_sound(&[below], PAGE);
        if !reached {
            break;
        }
        crashes = nth;
    }
    assert!(crashes > 5);
}

/// The label that marks the store open cannot be written: no change was made, and none is.
#[test]
fn a_failed_label() {
    let (device, below, control) = faulty();
    let store = filled(&device, 100);
    let table = store.table("t").unwrap();
    control.fail_nth(Op::Write, 1);
    assert_eq!(table.put(b"a", b"1").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(table.put(b"a", b"1").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(&key(7)).unwrap(), Some(value(7)));
    drop(table);
    assert!(store.close().is_err());
    // The label was not written, so the store is as it was closed.
    assert_sound(&[below], PAGE);
}

#[test]
fn no_space_left() {
    let (device, _, control) = faulty();
    let store = filled(&device, 2000);
    let table = store.table("t").unwrap();
    control.fail_grow(true);
    let mut next = 2000;
    let error = loop {
        match table.put(&key(next), &value(next)) {
            Ok(_) => next += 1,
            Err(error) => break error,
        }
        assert!(next < 100_000);
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(!store.is_read_only());
    assert_eq!(table.put(b"large", &[1; 500_000]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.get(&key(next)).unwrap(), None);
    // What fits goes on, and what is freed is used again.
    assert!(table.put(&key(5), &value(5)).unwrap());
    for i in 0..1500 {
        assert!(table.delete(&key(i)).unwrap());
    }
    for i in 0..500 {
        assert!(!table.put(&key(i), &value(i)).unwrap(), "{i}");
    }
    control.heal();
    for i in next..next + 2000 {
        table.put(&key(i), &value(i)).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let report = assert_sound(std::slice::from_ref(&device), PAGE);
    assert_eq!(report.tables[1].records, u64::from(next) + 2000 - 1000);
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..next + 2000 {
        let expected = (!(500..1500).contains(&i)).then(|| value(i));
        assert_eq!(table.get(&key(i)).unwrap(), expected, "{i}");
    }
}

/// A device that grows no more from some moment on: changes are refused for want of space, and nothing else goes wrong. The
/// store closes, and it recovers, with all it acknowledged.
#[test]
fn no_space_from_any_moment_on() {
    for (moment, crash) in
        [0, 1, 200, 900, 1700, 3000].into_iter().flat_map(|m| [(m, false), (m, true)])
    {
        let what = format!("after {moment}, crash {crash}");
        let (device, _, control) = faulty();
        let store = filled(&device, 1000);
        let table = store.table("t").unwrap();
        let mut model: BTreeMap<_, _> = (0..1000).map(|i| (key(i), value(i))).collect();
        let mut refused = 0;
        let mut done = 0;
        for i in 0.. {
            if done == moment {
                control.fail_grow(true);
            }
            let key = key(i * 7919 % 20_000);
            let outcome = match i % 40 {
                39 => table.put(&key, &[i as u8; 3000]).map(|_| vec![i as u8; 3000]),
                _ => table.put(&key, &value(i)).map(|_| value(i)),
            };
            match outcome {
                Ok(value) => {
                    model.insert(key, value);
                    done += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
                    assert!(error.way_out().is_some(), "{what}: {error}");
                    refused += 1;
                    if refused == 20 {
                        break;
                    }
                }
            }
            assert!(i < 100_000);
        }
        // Full: reads and deletes go on, and so does dropping and closing.
        for (index, key) in model.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
            if index % 3 == 0 {
                assert!(table.delete(&key).unwrap(), "{what}");
                model.remove(&key);
            }
        }
        let all: BTreeMap<_, _> = table.range::<[u8], _>(..).unwrap().map(Result::unwrap).collect();
        assert!(all == model, "{what}");
        assert!(!store.is_read_only());
        let copy = common::copy_of(device.as_ref(), device.size_bytes());
        drop(table);
        store.close().unwrap();
        // What recovers has no more space than there was.
        let device: Device = if crash { copy } else { device };
        let device = FaultDevice::new(device, FaultOptions::default()).unwrap();
        device.control().fail_grow(true);
        let device: Device = Arc::new(device);
        let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let table = store.table("t").unwrap();
        let all: BTreeMap<_, _> = table.range::<[u8], _>(..).unwrap().map(Result::unwrap).collect();
        assert!(all == model, "{what}, opened again");
        let first = model.keys().next().unwrap();
        assert!(table.delete(first).unwrap(), "{what}");
        drop(table);
        store.drop_table("t").unwrap();
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}

#[test]
fn options_that_cannot_be() {
    let open = |options: StoreOptions| Store::open(vec![ram()], &options).unwrap_err();
    let small = open(options(PAGE, 8));
    assert_eq!(small.kind(), ErrorKind::NoMemory);
    assert!(small.way_out().unwrap().contains("bytes"), "{small}");
    for (page_size, unit, depth) in [
        (500, 65536, 1),
        (256, 65536, 1),
        (131_072, 131_072, 1),
        (4096, 0, 1),
        (4096, 6144, 1),
        (4096, 65536, 0),
    ] {
        let options = StoreOptions {
            page_size,
            stripe_unit_bytes: unit,
            depth,
            memory_bytes: 64 << 20,
            ..options(PAGE, FRAMES)
        };
        assert_eq!(open(options).kind(), ErrorKind::Invalid, "{page_size} {unit} {depth}");
    }
    let blocks = RamOptions { logical_block_bytes: 4096, ..RamOptions::default() };
    let device: Device = Arc::new(RamDevice::new(blocks).unwrap());
    let error = Store::open(vec![device], &options(PAGE, FRAMES)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn keys_and_values_too_long() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let longest = store.key_len_max();
    table.put(&vec![1; longest], b"fits").unwrap();
    let long = vec![1; longest + 1];
    assert_eq!(table.put(&long, b"").unwrap_err().kind(), ErrorKind::KeyTooLong);
    // Asking for what cannot be there is no error.
    assert_eq!(table.get(&long).unwrap(), None);
    assert!(!table.delete(&long).unwrap());
    let large = vec![1; VALUE_LEN_MAX + 1];
    assert_eq!(table.put(b"k", &large).unwrap_err().kind(), ErrorKind::ValueTooLong);
    assert_eq!(table.get(b"k").unwrap(), None);
    // Names are keys of the catalog.
    for name in ["".to_owned(), "x".repeat(longest + 1)] {
        assert_eq!(store.table(&name).unwrap_err().kind(), ErrorKind::Invalid);
    }
    store.table(&"x".repeat(longest)).unwrap();
    let store = Store::open(vec![ram()], &options(4096, 64)).unwrap();
    assert_eq!(store.table(&"x".repeat(129)).unwrap_err().kind(), ErrorKind::Invalid);
    store.table(&"x".repeat(128)).unwrap();
}

#[test]
fn a_store_for_reading() {
    let device = ram();
    filled(&device, 100).close().unwrap();
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    assert!(store.is_read_only());
    for error in [
        table.put(b"a", b"1").unwrap_err(),
        table.delete(&key(1)).unwrap_err(),
        store.table("another").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
    }
    assert!(store.existing_table("another").unwrap().is_none());
    assert_eq!(table.range::<[u8], _>(..).unwrap().count(), 100);
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_device_that_cannot_be_written() {
    let blank = RamDevice::new(RamOptions { read_only: true, ..RamOptions::default() }).unwrap();
    let error = Store::open(vec![Arc::new(blank)], &options(PAGE, FRAMES)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Io), "{error}");
}

/// Many more tasks than frames, all with pages in flight: slow, but every one finishes.
#[test]
fn more_tasks_than_frames() {
    let delay = DelayOptions { read_us: 50, ..DelayOptions::default() };
    let delay: Device = Arc::new(DelayDevice::new(ram(), delay).unwrap());
    let store = filled(&delay, 5000);
    let table = store.table("t").unwrap();
    let tasks: Vec<_> = (0..1000u32)
        .map(|task| {
            let table = table.task();
            store.spawn(move || async move {
                for step in 0..5 {
                    let i = (task * 7919 + step * 104_729) % 5000;
                    assert_eq!(table.get(&key(i)).await.unwrap(), Some(value(i)));
                    if step == 2 {
                        table.put(&key(i), &value(i)).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[delay], PAGE);
}

#[test]
fn calls_in_the_wrong_place() {
    let store = filled(&ram(), 5000);
    let table = store.table("t").unwrap();
    // A blocking call on a worker. What is in memory needs no waiting and may answer.
    let on_worker = {
        let table = table.clone();
        store.spawn(move || async move { table.get(&key(4000)) }).join().unwrap()
    };
    let error = on_worker.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.way_out().is_some());
    let checked = {
        let store = store.clone();
        store.clone().spawn(move || async move { store.check(&|_, _| ()) }).join().unwrap()
    };
    assert_eq!(checked.unwrap_err().kind(), ErrorKind::Invalid);
    // A task's call outside of the workers.
    let task = table.task();
    let key = key(1);
    let mut future = Box::pin(task.get(&key));
    let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it should not wait")
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    // A task's call on another store's worker.
    let other = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let task = table.task();
    let outcome = other.spawn(move || async move { task.get(b"key").await }).join().unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    // With a large value, which goes to pages of its own first.
    let task = table.task();
    let outcome =
        other.spawn(move || async move { task.put(b"large", &[1; 5000]).await }).join().unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    let task = table.task();
    let mut future = Box::pin(task.put(b"large", &[1; 5000]));
    let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it should not wait")
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    let empty = table.range::<[u8], _>((
        std::ops::Bound::Included(&b"b"[..]),
        std::ops::Bound::Excluded(&b"a"[..]),
    ));
    assert_eq!(empty.err().unwrap().kind(), ErrorKind::Invalid);
}

#[test]
fn a_task_that_panics() {
    let store = filled(&ram(), 1000);
    let table = store.table("t").unwrap();
    let others: Vec<_> = (0..50u32)
        .map(|task| {
            let table = table.task();
            store.spawn(move || async move {
                for i in 0..100 {
                    assert_eq!(
                        table.get(&key((task + i) % 1000)).await.unwrap(),
                        Some(value((task + i) % 1000))
                    );
                    if task % 10 == 3 && i == 50 {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                }
            })
        })
        .collect();
    for (task, other) in others.into_iter().enumerate() {
        match other.join() {
            Ok(()) => assert_ne!(task % 10, 3),
            Err(error) => {
                assert_eq!(task % 10, 3);
                assert_eq!(error.kind(), ErrorKind::Closed);
            }
        }
    }
    // In the making of the task, not in its running.
    let made = store
        .spawn(|| -> std::future::Ready<()> { std::panic::resume_unwind(Box::new("on purpose")) });
    assert_eq!(made.join().unwrap_err().kind(), ErrorKind::Closed);
    for _ in 0..4 {
        assert_eq!(store.spawn(|| async { 7 }).join().unwrap(), 7);
    }
    drop(table);
    store.close().unwrap();
}

/// Tasks that go away while their pages and large values are on their way: no frame is lost.
#[test]
fn tasks_that_are_dropped_in_flight() {
    let delay = DelayOptions { read_us: 200, write_us: 200, ..DelayOptions::default() };
    let device: Device = Arc::new(DelayDevice::new(ram(), delay).unwrap());
    let store = filled(&device, 4000);
    let table = store.table("t").unwrap();
    for i in 0..4 {
        table.put(format!("large {i}").as_bytes(), &[i; 9000]).unwrap();
    }
    for round in 0..300u32 {
        let table = table.task();
        let polls = round % 7;
        store
            .spawn(move || async move {
                let large = vec![round as u8; 9000];
                let (near, far) = (key(round * 13 % 4000), key(round * 977 % 4000));
                let mut futures: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = vec![
                    Box::pin(async { drop(table.get(&near).await) }),
                    Box::pin(async { drop(table.get(b"large 2").await) }),
                    Box::pin(async { drop(table.get(&far).await) }),
                    Box::pin(async { drop(table.put(b"large 3", &large).await) }),
                    Box::pin(async { drop(table.delete(&near).await) }),
                ];
                for _ in 0..=polls {
                    std::future::poll_fn(|context| {
                        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    yield_now().await;
                }
            })
            .join()
            .unwrap();
    }
    // Every frame is still to be had: large reads need many at once, and lookups all of the tree.
    for _ in 0..3 {
        for i in 0..3 {
            let found = table.get(format!("large {i}").as_bytes()).unwrap();
            assert_eq!(found, Some(vec![i; 9000]));
        }
        assert!(table.range::<[u8], _>(..).unwrap().map(Result::unwrap).count() > 3000);
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.leaked_pages, 0);
}

/// Another store's errors, another store's tasks: nothing is shared but the process.
#[test]
fn a_closed_store_says_so() {
    let store = filled(&ram(), 100);
    let table = store.table("t").unwrap();
    let other = store.clone();
    let ran = Arc::new(AtomicBool::new(false));
    store.close().unwrap();
    let flag = ran.clone();
    let task = other.spawn(move || async move { flag.store(true, Ordering::Relaxed) });
    assert_eq!(task.join().unwrap_err().kind(), ErrorKind::Closed);
    assert!(!ran.load(Ordering::Relaxed));
    assert_eq!(other.close().map_err(|error| error.kind()), Ok(()));
    let outcome = table.put(&key(1), b"late");
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(table.get(&key(99)).unwrap_err().kind(), ErrorKind::Closed);
}

/// A device error that is no EIO keeps its own kind.
#[test]
fn the_device_has_the_word() {
    let (device, _, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    control.set_error(IoError::NO_SPACE);
    control.fail_reads(true);
    assert_eq!(table.get(&key(1500)).unwrap_err().kind(), ErrorKind::NoSpace);
}

/// The last to let go of a store is a task of its own: it is closed all the same, and marked clean.
#[test]
fn a_store_whose_last_owner_is_a_task() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let task = table.task();
    let handle = store.spawn(move || async move {
        wait.recv().unwrap();
        for i in 0..500 {
            task.put(&key(i), &value(i)).await.unwrap();
        }
    });
    drop((table, store));
    go.send(()).unwrap();
    handle.join().unwrap();
    // The close goes on behind; until it is done the label says so.
    let report = loop {
        match Store::open(vec![device.clone()], &reading(PAGE, FRAMES)) {
            Ok(store) => break store.check(&|_, _| ()).unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unclean),
        }
        std::thread::yield_now();
    };
    assert!(report.is_sound() && report.leaked_pages == 0);
    assert_eq!(report.tables[1].records, 500);
}
