//! Encrypted stores: nothing of their content is on a device in clear, and what an attacker who can
//! write to the device puts there is noticed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{
    Device, SUPERBLOCK_BYTES, copy_of, encrypted, existing, key, key_of, options, ram, ram_of,
    read_bytes, read_page, reading, with_log, write_bytes,
};
use qpair_block::{FaultDevice, FaultOptions};
use qpair_engine::{ErrorKind, Store, StoreOptions, Table, write_key_slots};
use qpair_format::superblock::KeySlot;
use qpair_inspect::{dump_log, repair};

const PAGE: usize = 1024;
const FRAMES: u64 = 128;

/// Every key, value and name of these tests has one of these.
const MARKS: [&[u8]; 3] = [b"key 0", b"attack at dawn", b"ships"];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(i: u32, len: usize) -> Vec<u8> {
    let text = format!("attack at dawn, {i}; ");
    text.bytes().cycle().take(text.len() + len).collect()
}

/// Asserts that a device has none of the marks, and that at least `least` of its bytes are used.
fn assert_secret(device: &Device, least: usize) {
    let size = device.size_bytes();
    let bytes: Vec<u8> = (0..size)
        .step_by(64 << 10)
        .flat_map(|at| read_bytes(device.as_ref(), at, (64u64 << 10).min(size - at) as usize))
        .collect();
    assert!(bytes.iter().filter(|byte| **byte != 0).count() > least, "the device is blank");
    for mark in MARKS {
        let at = bytes.windows(mark.len()).position(|part| part == mark);
        assert_eq!(at, None, "{:?} is on the device", String::from_utf8_lossy(mark));
    }
}

fn contents(table: &Table) -> Model {
    table.range(..).unwrap().map(Result::unwrap).collect()
}

/// Loads and changes records of all sizes, under a snapshot whose older values go to the device.
fn fill(store: &Store) -> Model {
    let table = store.table("ships").unwrap();
    let records = (0..2000).map(|i| Ok::<_, qpair_engine::Error>((key(i), value(i, 20))));
    table.bulk_load(records).unwrap();
    let mut model: Model = (0..2000).map(|i| (key(i), value(i, 20))).collect();
    let snapshot = store.snapshot().unwrap();
    for i in (0..2000).step_by(3) {
        let new = value(i, if i % 5 == 0 { 7 * PAGE } else { 90 });
        table.put(&key(i), &new).unwrap();
        model.insert(key(i), new);
    }
    drop(snapshot);
    store.table("ships in port").unwrap().put(b"key 0", b"attack at dawn").unwrap();
    model
}

fn crashed(device: &Device) -> Device {
    copy_of(device.as_ref(), device.size_bytes())
}

#[test]
fn nothing_is_on_the_devices_in_clear() {
    let (device, log) = (ram(), ram_of(64 << 20));
    let with_history =
        StoreOptions { versions_bytes_max: 20_000, ..encrypted(options(PAGE, FRAMES)) };
    for separate in [false, true] {
        let options = match separate {
            true => with_log(with_history.clone(), &log),
            false => with_history.clone(),
        };
        let store = Store::open(vec![device.clone()], &options).unwrap();
        assert!(store.report().encrypted);
        let model = fill(&store);
        // As a power loss leaves the devices, with the log.
        let (left, left_log) = (crashed(&device), crashed(&log));
        assert_secret(&left, 100_000);
        if separate {
            assert_secret(&left_log, 50_000);
        }
        let backup = ram();
        store.backup(vec![backup.clone()], None, &|_, _| ControlFlow::Continue(())).unwrap();
        assert_secret(&backup, 100_000);
        store.compact(&|_, _| ControlFlow::Continue(())).unwrap();
        store.close().unwrap();
        assert_secret(&device, 100_000);

        let again = StoreOptions { format: false, ..encrypted(options.clone()) };
        let recovering = match separate {
            true => with_log(again.clone(), &left_log),
            false => again.clone(),
        };
        let of_backup = encrypted(existing(PAGE, FRAMES));
        let stores = [(&device, &again), (&left, &recovering), (&backup, &of_backup)];
        for (device, options) in stores {
            let store = Store::open(vec![device.clone()], options).unwrap();
            let table = store.existing_table("ships").unwrap().unwrap();
            assert!(contents(&table) == model);
            drop(table);
            store.close().unwrap();
            assert_sound_with(std::slice::from_ref(device), options);
            assert_secret(device, 100_000);
        }
        // A backup has a key of its own: its pages are other bytes, though their content is the
        // same.
        let alike = (2..200)
            .filter(|page| {
                let [one, other] =
                    [&device, &backup].map(|device| read_page(device.as_ref(), PAGE, *page));
                one == other && one.iter().any(|byte| *byte != 0)
            })
            .count();
        assert_eq!(alike, 0);
    }
}

#[test]
fn a_wrong_or_missing_key_is_refused() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &encrypted(options(PAGE, FRAMES))).unwrap();
    fill(&store);
    store.close().unwrap();
    let open = |options: &StoreOptions| Store::open(vec![device.clone()], options).map(drop);
    let error = open(&existing(PAGE, FRAMES)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("is encrypted, and no key was given"), "{error}");
    let wrong = StoreOptions { encryption: Some(key_of(8)), ..existing(PAGE, FRAMES) };
    let error = open(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let members = std::slice::from_ref(&device);
    let error = dump_log(members, &wrong, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    // A store in clear in its place is not taken for it.
    let clear = ram();
    Store::open(vec![clear.clone()], &options(PAGE, FRAMES)).unwrap().close().unwrap();
    let error = Store::open(vec![clear], &encrypted(existing(PAGE, FRAMES))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    open(&encrypted(existing(PAGE, FRAMES))).unwrap();
}

#[test]
fn another_key_takes_the_place_of_the_first() {
    let members = vec![ram(), ram()];
    let store = Store::open(members.clone(), &encrypted(options(PAGE, FRAMES))).unwrap();
    let model = fill(&store);
    store.close().unwrap();
    let pages = |device: &Device| read_bytes(device.as_ref(), SUPERBLOCK_BYTES, 512 << 10);
    let before = pages(&members[0]);
    let [old, new] = [7, 9].map(|byte| qpair_crypt::EncryptionKey::from_bytes([byte; 32]));
    let wrap = |slot: &KeySlot| old.wrap_again(slot, &new);
    let with_new = StoreOptions { encryption: Some(key_of(9)), ..existing(PAGE, FRAMES) };
    let with_old = encrypted(existing(PAGE, FRAMES));
    let opens = |members: &[Device], options: &StoreOptions| {
        let members: Vec<Device> = members.iter().map(crashed).collect();
        Store::open(members, options).map(|store| store.close().unwrap())
    };

    // Each of the four writes is torn in turn.
    for (member, nth) in [(0, 1), (1, 1), (1, 2), (0, 2)] {
        let left: Vec<Device> = members.iter().map(crashed).collect();
        let mut failing = left.clone();
        let faults = FaultDevice::new(left[member].clone(), FaultOptions::default()).unwrap();
        faults.control().tear_nth_write(nth, 4);
        failing[member] = Arc::new(faults);
        write_key_slots(&failing, &wrap).unwrap_err();
        let is_new = Store::open(left.clone(), &with_new).map(|store| store.close().unwrap());
        if (member, nth) == (0, 1) {
            assert_eq!(is_new.unwrap_err().kind(), ErrorKind::Denied);
            Store::open(left.clone(), &with_old).unwrap().close().unwrap();
            write_key_slots(&left, &wrap).unwrap();
        } else {
            is_new.unwrap();
        }
        opens(&left, &with_new).unwrap();
        assert_eq!(opens(&left, &with_old).unwrap_err().kind(), ErrorKind::Denied);
    }

    write_key_slots(&members, &wrap).unwrap();
    assert!(pages(&members[0]) == before, "only superblocks were written");
    assert_eq!(opens(&members, &with_old).unwrap_err().kind(), ErrorKind::Denied);
    let store = Store::open(members.clone(), &with_new).unwrap();
    assert!(contents(&store.table("ships").unwrap()) == model);
    store.close().unwrap();
    assert_sound_with(&members, &with_new);
}

fn assert_sound_with(members: &[Device], options: &StoreOptions) {
    let store = Store::open(members.to_vec(), options).unwrap();
    assert_eq!(store.check(&|_, _| ()).unwrap().faults, Vec::<String>::new());
    store.close().unwrap();
}

/// Pages that are exchanged, brought back from earlier, or changed in one bit: no reader gets other
/// data than was written, and a check names the damage.
#[test]
fn what_is_put_in_the_place_of_a_page_is_noticed() {
    let device = ram();
    let options = encrypted(options(PAGE, FRAMES));
    let again = StoreOptions { format: false, ..options.clone() };
    let store = Store::open(vec![device.clone()], &options).unwrap();
    let table = store.table("ships").unwrap();
    let mut model = Model::new();
    let mut past: Vec<Vec<Vec<u8>>> = Vec::new();
    for round in 0..4 {
        for i in 0..600 {
            let value = value(i + round, 400);
            table.put(&key(i), &value).unwrap();
            model.insert(key(i), value);
        }
        store.checkpoint().unwrap();
        let pages = (device.size_bytes() - SUPERBLOCK_BYTES) / PAGE as u64;
        past.push((0..pages).map(|page| read_page(device.as_ref(), PAGE, page)).collect());
    }
    drop(table);
    store.close().unwrap();
    let pages = (device.size_bytes() - SUPERBLOCK_BYTES) / PAGE as u64;
    let now: Vec<Vec<u8>> = (0..pages).map(|page| read_page(device.as_ref(), PAGE, page)).collect();
    let mut random = fastrand::Rng::with_seed(5);
    let mut noticed = 0;
    for round in 0..240 {
        // The first two pages are the checkpoint's records, of which one is enough.
        let page = random.u64(2..pages);
        let bytes = &now[page as usize];
        let other = match round % 3 {
            0 => now[random.u64(2..pages) as usize].clone(),
            1 => match past[random.usize(0..past.len())].get(page as usize) {
                Some(earlier) => earlier.clone(),
                None => continue,
            },
            _ => {
                let mut bytes = bytes.clone();
                bytes[random.usize(0..PAGE)] ^= 1 << random.u8(0..8);
                bytes
            }
        };
        if other == *bytes {
            continue;
        }
        let at = SUPERBLOCK_BYTES + page * PAGE as u64;
        write_bytes(device.as_ref(), at, &other);
        let read = StoreOptions { read_only: true, ..again.clone() };
        let outcome = Store::open(vec![device.clone()], &read).and_then(|store| {
            let table = store.existing_table("ships")?.unwrap();
            let (mut found, mut fault) = (Model::new(), None);
            for record in table.range(..)? {
                match record {
                    Ok((key, value)) => drop(found.insert(key, value)),
                    Err(error) => {
                        fault = Some(error);
                        break;
                    }
                }
            }
            assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
            let faults = store.check(&|_, _| ()).unwrap().faults;
            match fault {
                Some(error) => {
                    assert!(!faults.is_empty());
                    Err(error)
                }
                None => {
                    assert_eq!(found.len(), model.len());
                    Ok(!faults.is_empty())
                }
            }
        });
        match outcome {
            Ok(is_damaged) => noticed += u32::from(is_damaged),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                noticed += 1;
            }
        }
        write_bytes(device.as_ref(), at, bytes);
    }
    assert!(noticed > 15, "only {noticed} were noticed");
    assert_sound_with(std::slice::from_ref(&device), &again);
}

/// The readable part of a damaged store is saved into another encrypted one.
#[test]
fn a_repair_reads_and_makes_encrypted_stores() {
    let (device, target) = (ram(), ram());
    let store = Store::open(vec![device.clone()], &encrypted(options(PAGE, FRAMES))).unwrap();
    let model = fill(&store);
    store.close().unwrap();
    let again = encrypted(existing(PAGE, FRAMES));
    let find = || {
        // A leaf is damaged whose loss a scan notices. Leaves are many: each tenth page is tried.
        (40..).step_by(10).find(|page| {
            let at = SUPERBLOCK_BYTES + page * PAGE as u64;
            let bytes = read_bytes(device.as_ref(), at, PAGE);
            let mut damaged = bytes.clone();
            damaged[100] ^= 1;
            write_bytes(device.as_ref(), at, &damaged);
            let is_noticed = || {
                let options = encrypted(reading(PAGE, FRAMES));
                let store = Store::open(vec![device.clone()], &options).ok()?;
                let table = store.existing_table("ships").ok()??;
                Some(table.range(..).ok()?.any(|record| record.is_err()))
            };
            let is_noticed = is_noticed() == Some(true);
            if !is_noticed {
                write_bytes(device.as_ref(), at, &bytes);
            }
            is_noticed
        })
    };
    find().unwrap();
    let mut make = |page_size| {
        let options = StoreOptions { page_size, ..encrypted(options(PAGE, FRAMES)) };
        Store::open(vec![target.clone()], &options)
    };
    let members = std::slice::from_ref(&device);
    let report = repair(members, &again, &mut make, &|_, _, _| ControlFlow::Continue(())).unwrap();
    assert!(!report.healthy);
    assert_secret(&target, 100_000);
    let store = Store::open(vec![target.clone()], &again).unwrap();
    let found = contents(&store.table("ships").unwrap());
    let told = report.tables.iter().find(|table| table.name == "ships").unwrap();
    let is_stale = |key: &Vec<u8>| {
        told.stale
            .iter()
            .any(|range| range.from <= *key && range.to.as_ref().is_none_or(|to| key < to))
    };
    let is_known = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        model.get(key) == Some(value) || is_stale(key) && value.starts_with(b"attack at dawn")
    };
    assert!(found.iter().all(is_known));
    assert!(found.len() + 60 > model.len(), "{} of {}", found.len(), model.len());
    store.close().unwrap();
}
