//! Lost writes: an older version of a page, with the right checksum and id, is put back in its
//! place. No reader may get its data, and scans, `check` and `backup` must end with an error.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::common::{
    Device, SUPERBLOCK_BYTES, assert_sound, checkpoint_of, copy_of, crc32c, existing, key, options,
    ram, read_bytes, read_page, reading, write_bytes,
};
use qpair_engine::{ErrorKind, Store, StoreOptions};
use qpair_inspect::repair;

const PAGE: usize = 512;
const FRAMES: u64 = 128;
const KEYS: u32 = 1200;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn word(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn id_of(page: &[u8]) -> u64 {
    word(page, 8) & ((1 << 40) - 1)
}

fn is_page(bytes: &[u8], page: u64) -> bool {
    let sum = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    id_of(bytes) == page && sum == crc32c(&bytes[4..])
}

/// All versions of each page of a store over time, the newest last.
#[derive(Default)]
struct Past(BTreeMap<u64, Vec<Vec<u8>>>);

impl Past {
    fn look(&mut self, device: &Device) {
        let all = read_bytes(
            device.as_ref(),
            SUPERBLOCK_BYTES,
            (device.size_bytes() - SUPERBLOCK_BYTES) as usize,
        );
        for (page, bytes) in (0..).zip(all.chunks_exact(PAGE)) {
            let before = self.0.entry(page).or_default();
            if before.last().is_none_or(|last| last != bytes) && is_page(bytes, page) {
                before.push(bytes.to_vec());
            }
        }
    }
}

/// Creates a closed store whose records were changed over and over, without a page split since the
/// first change. Returns its content, and the past content of its places.
fn aged(seed: u64, rounds: u32) -> (Device, Model, Past) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (device, mut model, mut past) = (ram(), Model::new(), Past::default());
    let mut store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    for round in 0..rounds {
        let table = store.table("t").unwrap();
        let some = if round == 0 { KEYS } else { random.u32(1..60) };
        let first = if round % 3 == 0 { 0 } else { random.u32(0..KEYS) };
        for turn in 0..some {
            // Change adjacent keys, so that a page stays in its place for a while, or any keys.
            let i = if round % 2 == 0 { (first + turn) % KEYS } else { random.u32(0..KEYS) };
            let mut value = vec![0; if i % 50 == 7 { 1200 } else { 24 }];
            random.fill(&mut value);
            table.put(&key(i), &value).unwrap();
            model.insert(key(i), value);
        }
        drop(table);
        if random.u8(0..4) == 0 {
            store.close().unwrap();
            past.look(&device);
            store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
        } else {
            store.checkpoint().unwrap();
        }
        past.look(&device);
    }
    store.close().unwrap();
    past.look(&device);
    (device, model, past)
}

/// Checks that lookups, scans, `check` and `backup` all report the damage. Returns a description of
/// the first one that gives wrong data or no error.
fn told_wrong(device: &Device, model: &Model) -> Option<String> {
    let store = match Store::open(vec![device.clone()], &reading(PAGE, FRAMES)) {
        Ok(store) => store,
        Err(error) => return (error.kind() != ErrorKind::Corrupt).then(|| error.to_string()),
    };
    if store.check(&|_, _| ()).unwrap().is_sound() {
        return Some("check found nothing".to_owned());
    }
    match store.backup(vec![ram()], None, &|_, _| ControlFlow::Continue(())) {
        Ok(_) => return Some("backup made a copy".to_owned()),
        Err(error) if error.kind() != ErrorKind::Corrupt => return Some(error.to_string()),
        Err(_) => {}
    }
    let table = match store.existing_table("t") {
        Ok(table) => table.unwrap(),
        Err(error) => return (error.kind() != ErrorKind::Corrupt).then(|| error.to_string()),
    };
    for (key, value) in model {
        match table.get(key) {
            Ok(found) if found.as_ref() != Some(value) => {
                return Some(format!("{} is out of date", key.escape_ascii()));
            }
            Err(error) if error.kind() != ErrorKind::Corrupt => return Some(error.to_string()),
            _ => {}
        }
    }
    let mut expected = model.iter();
    let scanned: Result<(), Option<String>> =
        table.range(..).unwrap().try_for_each(|entry| match entry {
            Ok((key, value)) if expected.next() == Some((&key, &value)) => Ok(()),
            Ok((key, _)) => Err(Some(format!("the scan has {}", key.escape_ascii()))),
            Err(error) if error.kind() != ErrorKind::Corrupt => Err(Some(error.to_string())),
            Err(_) => Err(None),
        });
    match scanned {
        Ok(()) => Some("the scan ended without an error".to_owned()),
        Err(what) => what,
    }
}

/// Puts older pages back, one at a time. Returns how many were tried, how many of them had the
/// bounds of the right page, and which were not detected.
fn put_back(seed: u64, rounds: u32, cases: usize) -> (usize, usize, Vec<String>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (device, model, past) = aged(seed, rounds);
    let checkpoint = checkpoint_of(device.as_ref(), PAGE);
    let spare: BTreeSet<u64> = checkpoint
        .own
        .iter()
        .filter(|page| !checkpoint.description.contains(page))
        .copied()
        .collect();
    let mut all: Vec<(u64, &Vec<u8>)> = Vec::new();
    for page in checkpoint.used.iter().filter(|page| **page > 1 && !spare.contains(page)) {
        let whole = read_page(device.as_ref(), PAGE, *page);
        all.extend(past.0[page].iter().filter(|old| **old != whole).map(|old| (*page, old)));
    }
    random.shuffle(&mut all);
    all.truncate(cases);
    let (mut like, mut unseen) = (0, Vec::new());
    for (page, old) in &all {
        let whole = read_page(device.as_ref(), PAGE, *page);
        // The kind, level, tree and lengths of the fences.
        let header = |of: &[u8]| (of[4..6].to_vec(), of[24..28].to_vec(), of[36..44].to_vec());
        like += usize::from(header(old) == header(&whole));
        write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, old);
        if let Some(what) = told_wrong(&device, &model) {
            unseen.push(format!(
                "seed {seed}, page {page} of kind {} over {}: {what}",
                old[4], whole[4]
            ));
        }
        write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, &whole);
    }
    assert_eq!(told_wrong(&device, &model).as_deref(), Some("check found nothing"), "it is whole");
    (all.len(), like, unseen)
}

#[test]
fn older_pages_are_seen() {
    let (cases, like, unseen) = put_back(1, 40, 250);
    assert!(cases == 250 && like > 20, "{cases} cases, {like} of them with the same bounds");
    assert!(unseen.is_empty(), "{} of {cases}: {unseen:#?}", unseen.len());
}

/// Prints the figures of docs/design/page-format.md.
#[test]
#[ignore = "it tries 10,000 older pages, which takes minutes; run it with --ignored to renew the figures"]
fn ten_thousand_older_pages_are_seen() {
    let (mut cases, mut like, mut unseen) = (0, 0, Vec::new());
    for seed in 0.. {
        if cases >= 10_000 {
            break;
        }
        let (some, some_like, some_unseen) = put_back(seed, 60, 10_000 - cases);
        cases += some;
        like += some_like;
        unseen.extend(some_unseen);
    }
    println!(
        "{cases} pages put back, {like} with the same kind and bounds: {} unseen",
        unseen.len()
    );
    assert!(unseen.is_empty(), "{unseen:#?}");
}

/// The records that a repair saves from a store with an older page are right, or the report names
/// them.
#[test]
fn repair_tells_what_is_older() {
    let (device, model, past) = aged(2, 40);
    let checkpoint = checkpoint_of(device.as_ref(), PAGE);
    let leaves = |page: &&u64| read_page(device.as_ref(), PAGE, **page)[4] == 2;
    let mut tried = 0;
    for page in checkpoint.used.iter().filter(leaves) {
        let whole = read_page(device.as_ref(), PAGE, *page);
        let is_like =
            |old: &&Vec<u8>| old[4] == 2 && old[36..44] == whole[36..44] && **old != whole;
        let Some(old) = past.0[page].iter().rfind(is_like) else { continue };
        write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, old);
        let target = ram();
        let mut make = |page_size| Store::open(vec![target.clone()], &options(page_size, FRAMES));
        let members = std::slice::from_ref(&device);
        let go_on = |_, _, _| ControlFlow::Continue(());
        let report = repair(members, &existing(PAGE, FRAMES), &mut make, &go_on).unwrap();
        assert!(!report.healthy);
        let store = Store::open(vec![target], &existing(PAGE, FRAMES)).unwrap();
        let table = store.existing_table("t").unwrap().unwrap();
        let told = &report.tables[0];
        for (key, value) in &model {
            let is_told = told
                .lost
                .iter()
                .chain(&told.stale)
                .any(|range| range.from <= *key && range.to.as_ref().is_none_or(|to| key < to));
            assert!(is_told || table.get(key).unwrap().as_ref() == Some(value), "page {page}");
        }
        store.close().unwrap();
        write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, &whole);
        tried += 1;
        if tried == 12 {
            break;
        }
    }
    assert!(tried > 3, "{tried}");
}

/// Removes the versions from a closed store, so that it looks like one from before there were
/// versions.
fn without_versions(device: &Device) {
    let seal = |page: u64, mut bytes: Vec<u8>| {
        let sum = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, &bytes);
    };
    let cut = |bytes: &mut [u8], at: usize| {
        let id = word(bytes, at) & ((1 << 40) - 1);
        bytes[at..at + 8].copy_from_slice(&id.to_le_bytes());
    };
    let checkpoint = checkpoint_of(device.as_ref(), PAGE);
    let mut versions = 0;
    for page in checkpoint.used.into_iter().filter(|page| *page > 1) {
        let mut bytes = read_page(device.as_ref(), PAGE, page);
        if !is_page(&bytes, page) || !matches!(bytes[4], 1 | 2) {
            continue;
        }
        versions += u32::from(word(&bytes, 8) != page);
        cut(&mut bytes, 8);
        if bytes[4] == 1 {
            let slots = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
            cut(&mut bytes, 48);
            (0..slots).for_each(|slot| cut(&mut bytes, 128 + slot * 16 + 8));
        }
        seal(page, bytes);
    }
    assert!(versions > 10, "there are some");
    let mut image = Vec::new();
    for page in checkpoint.description.clone() {
        image.extend_from_slice(&read_page(device.as_ref(), PAGE, page)[64..]);
    }
    let roots = u32::from_le_bytes(image[..4].try_into().unwrap()) as usize;
    (0..roots).for_each(|root| cut(&mut image, 8 + root * 12 + 4));
    for (page, part) in checkpoint.description.zip(image.chunks(PAGE - 64)) {
        let mut bytes = read_page(device.as_ref(), PAGE, page);
        bytes[64..].copy_from_slice(part);
        seal(page, bytes);
    }
    for page in 0..2 {
        let mut record = read_page(device.as_ref(), PAGE, page);
        let sum = crc32c(&image[..word(&record, 120) as usize]);
        record[128..136].copy_from_slice(&u64::from(sum).to_le_bytes());
        seal(page, record);
    }
    for slot in crate::common::SUPERBLOCKS {
        let mut superblock = read_bytes(device.as_ref(), slot, 4096);
        superblock[16..24].fill(0);
        superblock[12..16].fill(0);
        let sum = crc32c(&superblock);
        superblock[12..16].copy_from_slice(&sum.to_le_bytes());
        write_bytes(device.as_ref(), slot, &superblock);
    }
}

/// A store made before pages had versions is read as it is, backed up, and changed page by page.
/// From its first change on it is of the newer kind.
#[test]
fn a_store_without_versions_goes_on() {
    let (device, mut model, _) = aged(3, 6);
    without_versions(&device);
    assert_sound(std::slice::from_ref(&device), PAGE);
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    let copy = ram();
    store.backup(vec![copy.clone()], None, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_sound(&[copy], PAGE);
    store.close().unwrap();
    let features = |device: &Device| {
        let newest = crate::common::SUPERBLOCKS
            .map(|slot| read_bytes(device.as_ref(), slot, 4096))
            .into_iter()
            .max_by_key(|superblock| word(superblock, 72));
        word(&newest.unwrap(), 16)
    };
    assert_eq!(features(&device), 0, "reading changes nothing");
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in (0..KEYS).step_by(90) {
        table.put(&key(i), b"changed").unwrap();
        model.insert(key(i), b"changed".to_vec());
    }
    store.checkpoint().unwrap();
    // A crash leaves a valid store, too.
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    for device in [device, crashed] {
        assert_eq!(features(&device) & 8, 8);
        let options = StoreOptions { checkpoint_bytes: 1 << 30, ..existing(PAGE, FRAMES) };
        let store = Store::open(vec![device.clone()], &options).unwrap();
        let table = store.existing_table("t").unwrap().unwrap();
        let found: Model = table.range(..).unwrap().map(|e| e.unwrap()).collect();
        assert!(found == model);
        drop(table);
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}
