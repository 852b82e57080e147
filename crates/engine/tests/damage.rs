//! Damaged stores: what is damaged is named, what is not is still read, and what was not closed is refused.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{
    LABEL_BYTES, LABELS, copy_of, existing, options, ram, ram_of, read_bytes, reading, write_bytes,
};
use qpair_block::BlockDevice;
use qpair_engine::{CheckReport, ErrorKind, Store, StoreOptions};

const PAGE: usize = 512;
const FRAMES: u64 = 256;

type Device = Arc<dyn BlockDevice>;

/// A small store of every kind of page, closed; its records.
fn small_store() -> (Device, BTreeMap<Vec<u8>, Vec<u8>>, u64) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let mut model = BTreeMap::new();
    for i in 0..400u32 {
        let len = if i % 100 == 50 { 1200 } else { 24 };
        model.insert(format!("key {i:04}").into_bytes(), vec![i as u8; len]);
    }
    for (key, value) in &model {
        table.put(key, value).unwrap();
    }
    // A list of free pages too.
    table.put(b"gone", &[3; 2000]).unwrap();
    table.delete(b"gone").unwrap();
    drop(table);
    let pages = {
        store.close().unwrap();
        let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
        store.report().pages
    };
    (device, model, pages)
}

fn check(device: &Device) -> CheckReport {
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    store.check(&|_, _| ()).unwrap()
}

/// Kind byte of a page.
fn kind_of(device: &Device, page: u64) -> u8 {
    read_page(device, page)[4]
}

fn read_page(device: &Device, page: u64) -> Vec<u8> {
    read_bytes(device.as_ref(), LABEL_BYTES + page * PAGE as u64, PAGE)
}

fn write_page(device: &Device, page: u64, bytes: &[u8]) {
    write_bytes(device.as_ref(), LABEL_BYTES + page * PAGE as u64, bytes);
}

/// Pages in use, as the check reaches them: those whose loss it reports.
fn is_in_use(kind: u8) -> bool {
    matches!(kind, 1..=3)
}

/// Whatever can be read is right, and what cannot names one of `damaged`; how many keys could not.
fn read_all(
    device: &Device,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    damaged: &[u64],
    what: &str,
) -> usize {
    let names_one = |error: &qpair_engine::Error| {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        let text = error.to_string();
        let named = damaged.iter().any(|page| {
            let offset = page * PAGE as u64;
            text.contains(&format!("page {page}, at byte {offset} of the store's pages"))
        });
        assert!(named, "{what}: {text}");
    };
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    let table = match store.table("t") {
        Ok(table) => table,
        Err(error) => {
            names_one(&error);
            return model.len();
        }
    };
    let mut lost = 0;
    for (key, value) in model {
        match table.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "{what}"),
            Err(error) => {
                names_one(&error);
                lost += 1;
            }
        }
    }
    lost
}

/// Every page of a small store damaged in turn: the check names it, lookups below it fail and name it, all
/// others go on.
#[test]
fn each_page_in_turn() {
    let (device, model, pages) = small_store();
    let mut used = 0;
    let mut lost_somewhere = 0;
    let free: Vec<u64> = {
        // Pages that no tree has: damage there must not be seen.
        let sound = check(&device);
        assert!(sound.is_sound(), "{:#?}", sound.faults);
        assert_eq!(sound.leaked_pages, 0);
        used += sound.pages_checked;
        (0..pages).filter(|page| !is_in_use(kind_of(&device, *page))).collect()
    };
    for page in 0..pages {
        let whole = read_page(&device, page);
        for (how, bytes) in [
            ("a flipped bit", flipped(&whole, (page as usize * 131) % (PAGE * 8))),
            ("zeroes", vec![0; PAGE]),
            ("half a page", [&whole[..PAGE / 2], &[0; PAGE / 2]].concat()),
            ("noise", noise(page)),
        ] {
            let what = format!("{how} in page {page} of kind {}", whole[4]);
            if bytes == whole {
                continue;
            }
            write_page(&device, page, &bytes);
            let report = check(&device);
            let lost = read_all(&device, &model, &[page], &what);
            if lost > 0 {
                assert!(lost < model.len() || page < 4, "{what}: all keys lost");
                lost_somewhere += 1;
                let place = page * PAGE as u64;
                let name = format!("page {page}, at byte {place} of the store's pages");
                assert!(report.faults.iter().any(|f| f.contains(&name)), "{what}: {report:#?}");
                assert_eq!(report.leaked_pages, 0, "{what}");
            }
            if whole[4] == 4 {
                // A free page, or one of the list of free pages.
                assert_eq!(lost, 0, "{what}");
            }
        }
        write_page(&device, page, &whole);
    }
    assert!(lost_somewhere as u64 >= used, "{lost_somewhere} cases of {used} pages in use");
    assert!(!free.is_empty());
    assert!(check(&device).is_sound());
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

fn noise(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..PAGE).map(|_| random.u8(..)).collect()
}

/// Two pages, each whole, in each other's place: a misdirected write.
#[test]
fn swapped_pages() {
    let (device, model, pages) = small_store();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..60 {
        let (a, b) = (random.u64(0..pages), random.u64(0..pages));
        let (page_a, page_b) = (read_page(&device, a), read_page(&device, b));
        if a == b || !is_in_use(page_a[4]) || !is_in_use(page_b[4]) {
            continue;
        }
        write_page(&device, a, &page_b);
        write_page(&device, b, &page_a);
        let what = format!("pages {a} and {b} swapped");
        let report = check(&device);
        if read_all(&device, &model, &[a, b], &what) > 0 {
            assert!(
                report.faults.iter().any(|fault| fault.contains("says it is page")),
                "{what}: {report:#?}"
            );
        }
        write_page(&device, a, &page_a);
        write_page(&device, b, &page_b);
    }
}

/// An older version of a page, whole and in its place: only its neighbours can tell.
#[test]
fn a_page_that_was_not_written() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..200u32 {
        table.put(format!("key {i:04}").as_bytes(), &[1; 24]).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let before = copy_of(device.as_ref(), device.size_bytes());
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let pages = store.report().pages;
    let table = store.table("t").unwrap();
    for i in 0..200u32 {
        table.put(format!("key {i:04}/later").as_bytes(), &[2; 24]).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let mut seen = 0;
    for page in 0..pages {
        let (old, new) = (read_page(&before, page), read_page(&device, page));
        if old == new || !matches!(old[4], 1 | 2) {
            continue;
        }
        write_page(&device, page, &old);
        if !check(&device).is_sound() {
            seen += 1;
        }
        write_page(&device, page, &new);
    }
    assert!(seen > 5, "stale pages were noticed {seen} times");
    assert!(check(&device).is_sound());
}

#[test]
fn damage_in_the_catalog_or_the_free_list() {
    let (device, _, pages) = small_store();
    let lists: Vec<u64> = (0..pages).filter(|page| kind_of(&device, *page) == 4).collect();
    assert_eq!(lists.len(), 1);
    for (page, what) in [(0, "(catalog)"), (lists[0], "list of free pages")] {
        let whole = read_page(&device, page);
        write_page(&device, page, &flipped(&whole, 3000));
        let error = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("page {page},")), "{error}");
        let report = check(&device);
        assert!(
            report.faults.iter().any(|f| f.contains(what) && f.contains(&format!("page {page},"))),
            "{report:#?}"
        );
        assert_eq!(report.leaked_pages, 0);
        write_page(&device, page, &whole);
    }
    // A catalog that cannot be read says so, rather than that there is no such table.
    let whole = read_page(&device, 0);
    write_page(&device, 0, &[0; PAGE]);
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    assert_eq!(store.existing_table("t").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.table_names().unwrap_err().kind(), ErrorKind::Corrupt);
    drop(store);
    write_page(&device, 0, &whole);
    assert!(check(&device).is_sound());
}

/// Faults past the first thousand are counted, and damage everywhere ends the check all the same.
#[test]
fn damage_everywhere() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..30_000u32 {
        table.put(&i.to_be_bytes(), &[1; 24]).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    let pages = store.report().pages;
    drop(store);
    let mut leaves = 0;
    for page in 0..pages {
        let bytes = read_page(&device, page);
        if bytes[4] == 2 && page > 0 {
            write_page(&device, page, &flipped(&bytes, 999));
            leaves += 1;
        }
    }
    let report = check(&device);
    assert_eq!(report.faults.len(), 1001);
    assert_eq!(report.faults[1000], format!("and {} more", leaves - 1000));
    assert_eq!((report.tables[1].leaf_pages, report.leaked_pages), (0, 0));
}

fn open_error(members: &[Device]) -> qpair_engine::Error {
    Store::open(members.to_vec(), &existing(PAGE, FRAMES)).unwrap_err()
}

#[test]
fn a_truncated_member() {
    let (device, model, _) = small_store();
    for (size, kind) in [
        (LABEL_BYTES + (64 << 10) - 512, ErrorKind::Corrupt),
        (LABEL_BYTES, ErrorKind::Corrupt),
        (LABEL_BYTES - 512, ErrorKind::NotAStore),
        (512, ErrorKind::NotAStore),
    ] {
        let error = open_error(&[copy_of(device.as_ref(), size)]);
        assert_eq!(error.kind(), kind, "{size}: {error}");
        assert!(error.to_string().contains("ram:"), "{size}: {error}");
    }
    let members = striped_store(2);
    let cut = copy_of(members[1].as_ref(), LABEL_BYTES + (4 << 10));
    let error = open_error(&[members[0].clone(), cut.clone()]);
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().starts_with(&cut.info().name), "{error}");
    let whole = copy_of(device.as_ref(), device.size_bytes());
    assert_eq!(read_all(&whole, &model, &[], "a copy"), 0);
}

#[test]
fn damaged_labels() {
    let (device, model, _) = small_store();
    // One slot lost: the other one may be older, and says so.
    let [first, second] = LABELS.map(|offset| read_bytes(device.as_ref(), offset, 4096));
    let generation = |label: &[u8]| u64::from_le_bytes(label[72..80].try_into().unwrap());
    let (newer, older) = if generation(&first) > generation(&second) { (0, 1) } else { (1, 0) };
    let labels = [first, second];
    write_bytes(device.as_ref(), LABELS[older], &flipped(&labels[older], 4000));
    assert_eq!(read_all(&device, &model, &[], "the older label damaged"), 0);
    write_bytes(device.as_ref(), LABELS[newer], &flipped(&labels[newer], 4000));
    let error = open_error(std::slice::from_ref(&device));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.way_out().is_some());
    // With the newer label lost, the older one, written when the store was opened, says that it was not closed.
    write_bytes(device.as_ref(), LABELS[older], &labels[older]);
    assert_eq!(open_error(std::slice::from_ref(&device)).kind(), ErrorKind::Unclean);
    for label in LABELS {
        write_bytes(device.as_ref(), label, &[0; 4096]);
    }
    assert_eq!(open_error(std::slice::from_ref(&device)).kind(), ErrorKind::NotAStore);
    for (label, bytes) in LABELS.iter().zip(&labels) {
        write_bytes(device.as_ref(), *label, bytes);
    }
    assert_eq!(read_all(&device, &model, &[], "mended"), 0);
}

#[test]
fn another_version() {
    let (device, ..) = small_store();
    for offset in LABELS {
        let mut label = read_bytes(device.as_ref(), offset, 4096);
        label[8..12].copy_from_slice(&7u32.to_le_bytes());
        label[12..16].fill(0);
        let sum = crc32c(&label);
        label[12..16].copy_from_slice(&sum.to_le_bytes());
        write_bytes(device.as_ref(), offset, &label);
    }
    let error = open_error(&[device]);
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(error.to_string().contains("version 7"), "{error}");
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
        crc
    })
}

#[test]
fn what_is_no_store() {
    assert_eq!(open_error(&[ram()]).kind(), ErrorKind::NotAStore);
    assert_eq!(open_error(&[ram_of(512)]).kind(), ErrorKind::NotAStore);
    let text = ram();
    write_bytes(text.as_ref(), 0, &[b'x'; 4096]);
    assert_eq!(open_error(&[text]).kind(), ErrorKind::NotAStore);
    assert_eq!(open_error(&[]).kind(), ErrorKind::Invalid);
}

fn striped_store(members: usize) -> Vec<Device> {
    let devices: Vec<_> = (0..members).map(|_| ram()).collect();
    let options = StoreOptions { stripe_unit_bytes: 4096, ..options(PAGE, FRAMES) };
    let store = Store::open(devices.clone(), &options).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..2000u32 {
        table.put(&i.to_be_bytes(), b"value").unwrap();
    }
    drop(table);
    store.close().unwrap();
    devices
}

#[test]
fn members_missing_swapped_or_foreign() {
    let members = striped_store(3);
    let others = striped_store(3);
    let [a, b, c] = [0, 1, 2].map(|i| members[i].clone());
    for (given, what) in [
        (vec![a.clone(), b.clone()], "one missing"),
        (vec![a.clone()], "two missing"),
        (vec![a.clone(), c.clone(), b.clone()], "two swapped"),
        (vec![b.clone(), a.clone(), c.clone()], "the first swapped"),
        (vec![a.clone(), b.clone(), others[2].clone()], "one of another store"),
        (vec![others[0].clone(), b.clone(), c.clone()], "the first of another store"),
        (vec![a.clone(), b.clone(), b.clone()], "one twice"),
        (vec![a.clone(), b.clone(), c.clone(), others[2].clone()], "one too many"),
    ] {
        let error = open_error(&given);
        assert_eq!(error.kind(), ErrorKind::Member, "{what}: {error}");
        assert!(error.way_out().is_some(), "{what}");
    }
    let error = open_error(&[a.clone(), b.clone(), ram()]);
    assert_eq!(error.kind(), ErrorKind::NotAStore, "{error}");
    common::assert_sound(&[a, b, c], PAGE);
}

/// A member restored alone from a copy made at an earlier close.
#[test]
fn members_of_different_generations() {
    let members = striped_store(2);
    let old = copy_of(members[1].as_ref(), members[1].size_bytes());
    let store = Store::open(members.clone(), &existing(PAGE, FRAMES)).unwrap();
    store.table("t").unwrap().put(b"more", b"value").unwrap();
    store.close().unwrap();
    let error = open_error(&[members[0].clone(), old]);
    assert_eq!(error.kind(), ErrorKind::Unclean, "{error}");
    common::assert_sound(&members, PAGE);
}

/// The process is gone in the middle: what its devices hold then is refused.
#[test]
fn a_store_that_was_not_closed() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"a", b"1").unwrap();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    for options in [existing(PAGE, FRAMES), reading(PAGE, FRAMES)] {
        let error = Store::open(vec![copy.clone()], &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unclean);
        assert!(error.way_out().is_some());
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    // Opened, but unchanged: whatever happens, it is as it was closed.
    let copy = copy_of(device.as_ref(), device.size_bytes());
    assert_eq!(store.table("t").unwrap().get(b"a").unwrap().unwrap(), b"1");
    common::assert_sound(&[copy], PAGE);
    store.table("t").unwrap().put(b"b", b"2").unwrap();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    assert_eq!(open_error(&[copy]).kind(), ErrorKind::Unclean);
    // A store that is dropped without close closes itself.
    drop(store);
    common::assert_sound(&[device], PAGE);
}
