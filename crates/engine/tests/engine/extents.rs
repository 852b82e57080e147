//! Large values in several runs of pages, which a list names.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{
    SUPERBLOCK_BYTES, SUPERBLOCKS, assert_sound, checkpoint_of, copy_of, existing, key, options,
    ram, read_bytes, read_page, reading, write_bytes,
};
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Store, StoreOptions};
use qpair_inspect::repair;

const PAGE: usize = 512;
const FRAMES: u64 = 98;
/// The bytes of a value in one overflow page.
const PART: usize = PAGE - 64;
const LIST: u8 = 7;

type Device = Arc<dyn BlockDevice>;

fn value(seed: u32, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed.into());
    (0..len).map(|_| random.u8(..)).collect()
}

fn damage(device: &Device, page: u64) {
    let mut bytes = read_page(device.as_ref(), PAGE, page);
    bytes[100] ^= 0x10;
    write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, &bytes);
}

/// Returns options with which each large value has several runs.
fn in_pieces() -> StoreOptions {
    StoreOptions { run_pages_max: 2, ..options(PAGE, 256) }
}

/// Whether a page is part of a list. The kind and id are checked, because a block of the log has a
/// checksum in the place of the kind, and its own id behind that.
fn is_list(device: &Device, page: u64) -> bool {
    let bytes = read_page(device.as_ref(), PAGE, page);
    bytes[4] == LIST && bytes[8..16] == page.to_le_bytes()
}

/// Whether the newest superblock says that large values may be in several runs.
fn says_so(device: &Device) -> bool {
    let superblocks = SUPERBLOCKS.map(|at| read_bytes(device.as_ref(), at, 4096));
    let word = |superblock: &[u8], at: usize| {
        u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap())
    };
    let newest = superblocks.iter().max_by_key(|superblock| word(superblock, 72)).unwrap();
    word(newest, 16) & 16 != 0
}

/// A device with only gaps of one to three pages stores one value of nearly all free pages. It
/// stores it again after the value was replaced beside a snapshot, and after it was deleted. Such
/// values do not move, so a row of free pages cannot be made.
#[test]
fn a_value_of_most_of_what_is_free_between_values() {
    let fixed = RamOptions { size_bytes: 4 << 20, growable: false, ..RamOptions::default() };
    let device: Device = Arc::new(RamDevice::new(fixed).unwrap());
    let small = StoreOptions { checkpoint_bytes: 100 << 10, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &small).unwrap();
    let table = store.table("t").unwrap();
    let mut model = BTreeMap::new();
    for i in 0.. {
        let small = value(i, 200 + i as usize % 3 * PART);
        if table.put(&key(i), &small).is_err() {
            break;
        }
        model.insert(i, small);
        assert!(i > 500 || !says_so(&device), "a store without such values is as before");
    }
    assert!(model.len() > 1500, "{}", model.len());
    for i in (0..model.len() as u32).step_by(2) {
        table.delete(&key(i)).unwrap();
        model.remove(&i);
    }
    for _ in 0..2 {
        store.checkpoint().unwrap();
    }
    let free = store.report().free_pages;
    // Pages kept for pages in memory, for the leaf's change, the log and the list.
    let kept = 7 * (FRAMES + 32) / 4 + 32;
    let pages = (free - kept) * 55 / 56;
    assert!(pages > 2000, "{free}");
    let large = value(1, pages as usize * PART);
    table.put(b"large", &large).unwrap();
    assert!(says_so(&device));
    assert!(table.get(b"large").unwrap().as_ref() == Some(&large));
    let snapshot = store.snapshot().unwrap();
    table.put(b"large", b"small").unwrap();
    assert!(snapshot.get(&table, b"large").unwrap().as_ref() == Some(&large));
    drop(snapshot);
    for turn in 0..3 {
        for _ in 0..2 {
            store.checkpoint().unwrap();
        }
        table.put(b"large", &large).unwrap();
        assert!(table.get(b"large").unwrap().as_ref() == Some(&large), "turn {turn}");
        if turn < 2 {
            table.delete(b"large").unwrap();
        }
    }
    drop(table);
    store.close().unwrap();
    assert!(says_so(&device));
    assert_sound(std::slice::from_ref(&device), PAGE);
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    assert!(table.get(b"large").unwrap() == Some(large));
    for (i, value) in &model {
        assert_eq!(table.get(&key(*i)).unwrap().as_ref(), Some(value));
    }
    // The store that deletes the value has never read its list.
    table.delete(b"large").unwrap();
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Puts, replaces and deletes values of many lengths, in pieces of two pages, over several
/// incarnations that end with a crash or a close.
#[test]
fn after_crashes_no_page_is_lost() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut device = ram();
    let small = StoreOptions { checkpoint_bytes: 64 << 10, ..in_pieces() };
    let mut store = Store::open(vec![device.clone()], &small).unwrap();
    let small = StoreOptions { format: false, ..small };
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for life in 0..8 {
        let table = store.table("t").unwrap();
        for _ in 0..300 {
            let key = key(random.u32(0..40));
            if random.u8(..4) == 0 {
                table.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = value(random.u32(..), random.usize(0..150 * PART));
                table.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if random.u16(..50) == 0 {
                store.checkpoint().unwrap();
            }
        }
        let crashed = copy_of(device.as_ref(), device.size_bytes());
        drop(table);
        store.close().unwrap();
        assert_sound(&[device.clone()], PAGE);
        if life % 2 == 0 {
            device = crashed;
        }
        store = Store::open(vec![device.clone()], &small).unwrap();
        let table = store.table("t").unwrap();
        let found: BTreeMap<_, _> = table.range(..).unwrap().map(|entry| entry.unwrap()).collect();
        assert!(found == model, "life {life}");
    }
    // The values are removed one by one, and not all of them before the store is closed.
    store.drop_table("t").unwrap();
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Damages each page of a list in turn: reading and `check` name it, a backup is refused, a repair
/// loses only that value, and the record can still be deleted.
#[test]
fn damage_of_a_list() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &in_pieces()).unwrap();
    let table = store.table("t").unwrap();
    // The list has two pages.
    let large = value(1, 150 * PART);
    table.put(&key(0), b"beside").unwrap();
    table.put(&key(1), &large).unwrap();
    drop(table);
    store.close().unwrap();
    let go_on = |_: u64, _: u64| ControlFlow::Continue(());
    let used = checkpoint_of(device.as_ref(), PAGE).used;
    let lists: Vec<u64> = used.into_iter().filter(|page| is_list(&device, *page)).collect();
    assert_eq!(lists.len(), 2);
    {
        let store = Store::open(vec![device.clone()], &reading(PAGE, 128)).unwrap();
        let copy = ram();
        store.backup(vec![copy.clone()], None, &go_on).unwrap();
        assert!(says_so(&copy));
        assert_sound(&[copy], PAGE);
    }
    for page in lists {
        let damaged = copy_of(device.as_ref(), device.size_bytes());
        damage(&damaged, page);
        let store = Store::open(vec![damaged.clone()], &reading(PAGE, 128)).unwrap();
        let report = store.check(&|_, _| ()).unwrap();
        let name = format!("page {page}, at byte {} of the store's pages", page * PAGE as u64);
        assert!(report.faults.iter().any(|fault| fault.contains(&name)), "{report:#?}");
        let table = store.table("t").unwrap();
        let error = table.get(&key(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("page {page}")), "{error}");
        assert_eq!(table.get(&key(0)).unwrap().as_deref(), Some(&b"beside"[..]));
        let refused = store.backup(vec![ram()], None, &go_on).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        drop((table, store));
        let mut make = |page_size| {
            Store::open(vec![ram()], &StoreOptions { log: false, ..options(page_size, 256) })
        };
        let source = [damaged.clone()];
        let go_on = |_, _, _| ControlFlow::Continue(());
        let report = repair(&source, &existing(PAGE, 256), &mut make, &go_on).unwrap();
        assert_eq!(report.tables[0].large_keys_lost, [key(1)]);
        assert_eq!(report.tables[0].records, 1);
        let store = Store::open(vec![damaged.clone()], &existing(PAGE, 128)).unwrap();
        let table = store.table("t").unwrap();
        assert!(table.delete(&key(1)).unwrap());
        assert_eq!(table.get(&key(1)).unwrap(), None);
        drop(table);
        store.close().unwrap();
        let store = Store::open(vec![damaged], &reading(PAGE, 128)).unwrap();
        let report = store.check(&|_, _| ()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.faults);
        assert!(report.leaked_pages >= 150, "{report:#?}");
    }
    // The damaged copy did not affect the original store.
    let store = Store::open(vec![device.clone()], &existing(PAGE, 128)).unwrap();
    let table = store.table("t").unwrap();
    assert!(table.get(&key(1)).unwrap() == Some(large));
    drop(table);
    store.close().unwrap();
}

/// If a list that the log names is damaged, recovery still restores the record, which was
/// acknowledged.
#[test]
fn damage_of_a_list_behind_the_checkpoint() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &in_pieces()).unwrap();
    let table = store.table("t").unwrap();
    table.put(&key(0), b"beside").unwrap();
    table.put(&key(1), &value(1, 50 * PART)).unwrap();
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    let pages = (crashed.size_bytes() - SUPERBLOCK_BYTES) / PAGE as u64;
    let list = (2..pages).find(|page| is_list(&crashed, *page)).unwrap();
    damage(&crashed, list);
    let store = Store::open(vec![crashed.clone()], &existing(PAGE, 128)).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(table.get(&key(0)).unwrap().as_deref(), Some(&b"beside"[..]));
    assert_eq!(table.get(&key(1)).unwrap_err().kind(), ErrorKind::Corrupt);
    table.put(&key(1), b"again").unwrap();
    drop(table);
    store.close().unwrap();
    assert_sound(&[crashed], PAGE);
}
