//! Opens damaged stores: the damage is named, the rest can still be read, and no wrong data is
//! returned.
//!
//! Long, because the tests share one rig.

use crate::common;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{
    SUPERBLOCK_BYTES, SUPERBLOCKS, checkpoint_of, copy_of, crc32c, existing, options, ram, ram_of,
    read_bytes, reading, write_bytes,
};
use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, FaultDevice, FaultOptions, IoChannel};
use qpair_engine::{CheckReport, ErrorKind, Store, StoreOptions};

const PAGE: usize = 512;
const FRAMES: u64 = 256;

type Device = Arc<dyn BlockDevice>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Creates a small, closed store with every kind of page. Returns its records too.
fn small_store() -> (Device, Model) {
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
    // Put something into free pages, too.
    table.put(b"gone", &[3; 2000]).unwrap();
    table.delete(b"gone").unwrap();
    drop(table);
    store.close().unwrap();
    (device, model)
}

fn check(device: &Device) -> CheckReport {
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    store.check(&|_, _| ()).unwrap()
}

fn read_page(device: &Device, page: u64) -> Vec<u8> {
    common::read_page(device.as_ref(), PAGE, page)
}

fn write_page(device: &Device, page: u64, bytes: &[u8]) {
    write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, bytes);
}

/// Returns the pages of trees: inner pages, leaves, and pages of large values.
fn tree_pages(device: &Device) -> Vec<u64> {
    let checkpoint = checkpoint_of(device.as_ref(), PAGE);
    assert!(checkpoint.closed);
    let own = checkpoint.own;
    let used = checkpoint.used.into_iter();
    used.filter(|page| *page > 1 && !own.contains(page)).collect()
}

/// Reads all records: each must be right, or its error must name a page of `damaged`. Returns the
/// number of keys that could not be read.
fn read_all(device: &Device, model: &Model, damaged: &[u64], what: &str) -> usize {
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

/// Damages every page in use of a small store in turn. The check must name the page, lookups that
/// need it must fail and name it, and all others must work. Pages that are not in use may hold
/// anything.
#[test]
fn each_page_in_turn() {
    let (device, model) = small_store();
    let sound = check(&device);
    assert!(sound.is_sound(), "{:#?}", sound.faults);
    assert_eq!(sound.leaked_pages, 0);
    let used = tree_pages(&device);
    assert_eq!(used.len() as u64, sound.pages_checked);
    let mut kinds = [0; 4];
    for page in used {
        let whole = read_page(&device, page);
        kinds[whole[4] as usize] += 1;
        for (how, bytes) in damages(&whole, page) {
            let what = format!("{how} in page {page} of kind {}", whole[4]);
            write_page(&device, page, &bytes);
            let report = check(&device);
            let lost = read_all(&device, &model, &[page], &what);
            assert!(lost > 0, "{what}: not seen");
            let name = format!("page {page}, at byte {} of the store's pages", page * PAGE as u64);
            assert!(report.faults.iter().any(|f| f.contains(&name)), "{what}: {report:#?}");
            assert_eq!(report.leaked_pages, 0, "{what}");
        }
        write_page(&device, page, &whole);
    }
    assert!(kinds[1] > 0 && kinds[2] > 10 && kinds[3] > 10, "{kinds:?}");
    let free: Vec<u64> = {
        let used = checkpoint_of(device.as_ref(), PAGE).used;
        let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
        (0..store.report().pages).filter(|page| used.binary_search(page).is_err()).collect()
    };
    for page in &free {
        write_page(&device, *page, &noise(*page));
    }
    assert!(free.len() > 100);
    assert_eq!(read_all(&device, &model, &[], "noise in all free pages"), 0);
    common::assert_sound(&[device], PAGE);
}

/// Returns versions of a page that stand for different kinds of damage.
fn damages(whole: &[u8], page: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut damages = vec![
        ("a flipped bit", flipped(whole, (page as usize * 131) % (PAGE * 8))),
        ("zeroes", vec![0; PAGE]),
        ("half a page", [&whole[..PAGE / 2], &[0; PAGE / 2]].concat()),
        ("noise", noise(page)),
    ];
    damages.retain(|(_, bytes)| bytes != whole);
    damages
}

/// Damages one of the two checkpoint records: the other one is enough.
#[test]
fn the_checkpoint_record() {
    let (device, model) = small_store();
    let records = [0, 1].map(|page| read_page(&device, page));
    for page in 0..2 {
        let mut cases = damages(&records[page as usize], page);
        cases.extend((0..PAGE * 8).step_by(97).map(|bit| ("a bit", flipped(&records[0], bit))));
        for (how, bytes) in cases {
            let what = format!("{how} in record {page}");
            write_page(&device, page, &bytes);
            assert_eq!(read_all(&device, &model, &[], &what), 0);
            let report = check(&device);
            assert!(report.is_sound(), "{what}");
            assert_eq!(report.harmless.len(), 1, "{what}: {report:#?}");
            assert!(report.harmless[0].contains(&format!("record in page {page},")), "{what}");
        }
        write_page(&device, page, &records[page as usize]);
    }
    assert_eq!(check(&device).harmless, Vec::<String>::new());
    // With one record damaged, the store is used: the next checkpoint writes both.
    write_page(&device, 1, &noise(1));
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    store.table("t").unwrap().put(b"key 0001", &model[b"key 0001".as_slice()]).unwrap();
    store.close().unwrap();
    write_page(&device, 0, &noise(0));
    assert_eq!(read_all(&device, &model, &[], "the second record alone"), 0);
    write_page(&device, 1, &noise(1));
    let error = open_error(std::slice::from_ref(&device));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("checkpoint record") && error.way_out().is_some());
    let report = check(&device);
    assert!(report.faults[0].contains("checkpoint record"), "{report:#?}");
}

/// Damages the description that the checkpoint record leads to: the pages in use, and the roots of
/// the trees.
#[test]
fn the_description_of_the_image() {
    let (device, model) = small_store();
    let checkpoint = checkpoint_of(device.as_ref(), PAGE);
    for page in checkpoint.description {
        let whole = read_page(&device, page);
        for (how, bytes) in damages(&whole, page) {
            let what = format!("{how} in page {page} of the image's description");
            write_page(&device, page, &bytes);
            let error = open_error(std::slice::from_ref(&device));
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            assert!(error.to_string().contains(&format!("page {page},")), "{what}: {error}");
            assert!(error.way_out().is_some(), "{what}");
            let report = check(&device);
            assert!(!report.is_sound() && report.leaked_pages == 0, "{what}: {report:#?}");
            assert!(report.faults[0].contains(&format!("page {page},")), "{what}: {report:#?}");
            let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
            let error = store.existing_table("t").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            assert!(error.to_string().contains(&format!("page {page},")), "{what}: {error}");
        }
        write_page(&device, page, &whole);
    }
    assert_eq!(read_all(&device, &model, &[], "mended"), 0);
}

/// Flips bits of a crashed store's log. Either all acknowledged commits are there, or opening the
/// store says that some are missing. Only damage to the last write cannot be detected.
#[test]
fn the_log_of_a_crashed_store() {
    const BLOCK: u64 = 512;
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let mut model = Model::new();
    for i in 0..24u32 {
        let (key, value) = (i.to_be_bytes().to_vec(), vec![i as u8; 40]);
        table.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    let before_last: Model = {
        let last = model.keys().next_back().unwrap().clone();
        model.iter().filter(|(key, _)| **key != last).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let (mut refused, mut shorter, mut whole, mut blocks) = (0, 0, 0, 0);
    for block in 0..crashed.size_bytes() / BLOCK {
        let bytes = read_bytes(crashed.as_ref(), block * BLOCK, BLOCK as usize);
        if !matches!(&bytes[..4], b"qlgc" | b"qlgs") {
            continue;
        }
        blocks += 1;
        // Flip a bit in the magic number, in the header, and in the payload or the rest of the
        // header.
        for bit in [3, 40 * 8 + 1, 90 * 8 + 5] {
            let what = format!("bit {bit} of block {block}");
            let copy = copy_of(crashed.as_ref(), crashed.size_bytes());
            write_bytes(copy.as_ref(), block * BLOCK, &flipped(&bytes, bit));
            match Store::open(vec![copy.clone()], &existing(PAGE, FRAMES)) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
                    assert!(error.way_out().is_some(), "{what}: {error}");
                    refused += 1;
                }
                Ok(store) => {
                    let table = store.table("t").unwrap();
                    let found: Model = table.range(..).unwrap().map(Result::unwrap).collect();
                    assert!(found == model || found == before_last, "{what}: {}", found.len());
                    if found == model {
                        whole += 1
                    } else {
                        shorter += 1
                    }
                    drop(table);
                    store.close().unwrap();
                    common::assert_sound(&[copy], PAGE);
                }
            }
        }
    }
    assert!(blocks > 24 && refused > 3 * 20, "{blocks} blocks: {refused}, {shorter}, {whole}");
    assert!(shorter <= 3, "{shorter} times without the last commit");
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

/// Swaps two intact pages, as a misdirected write does.
#[test]
fn swapped_pages() {
    let (device, model) = small_store();
    let mut random = fastrand::Rng::with_seed(5);
    let pages = tree_pages(&device);
    for _ in 0..40 {
        let (a, b) = (pages[random.usize(..pages.len())], pages[random.usize(..pages.len())]);
        if a == b {
            continue;
        }
        let (page_a, page_b) = (read_page(&device, a), read_page(&device, b));
        write_page(&device, a, &page_b);
        write_page(&device, b, &page_a);
        let what = format!("pages {a} and {b} swapped");
        let report = check(&device);
        assert!(read_all(&device, &model, &[a, b], &what) > 0, "{what}");
        assert!(
            report.faults.iter().any(|fault| fault.contains("says it is page")),
            "{what}: {report:#?}"
        );
        write_page(&device, a, &page_a);
        write_page(&device, b, &page_b);
    }
}

#[test]
fn damage_in_the_catalog() {
    let (device, model) = small_store();
    let is_catalog = |page: &u64| {
        let bytes = read_page(&device, *page);
        bytes[4] == 2 && bytes[24..28] == [0; 4]
    };
    let catalog = tree_pages(&device).into_iter().find(is_catalog).unwrap();
    let whole = read_page(&device, catalog);
    for bytes in [flipped(&whole, 3000), vec![0; PAGE]] {
        write_page(&device, catalog, &bytes);
        let error = open_error(std::slice::from_ref(&device));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("page {catalog},")), "{error}");
        let report = check(&device);
        assert_eq!(report.faults.len(), 1, "{report:#?}");
        assert!(
            report.faults[0].contains("(catalog)")
                && report.faults[0].contains(&format!("page {catalog},")),
            "{report:#?}"
        );
        // The tables are still checked.
        assert_eq!((report.leaked_pages, report.unreached_pages), (0, 0));
        assert_eq!(report.tables[1].records, model.len() as u64);
        // A damaged catalog is reported as such, and not as a missing table.
        let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
        assert_eq!(store.existing_table("t").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(store.table_names().unwrap_err().kind(), ErrorKind::Corrupt);
    }
    write_page(&device, catalog, &whole);
    assert!(check(&device).is_sound());
}

/// Faults beyond the first thousand are only counted, and the check ends even if everything is
/// damaged.
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
    let mut leaves = 0;
    for page in tree_pages(&device) {
        let bytes = read_page(&device, page);
        if bytes[4] == 2 && bytes[24..28] != [0; 4] {
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
    let (device, model) = small_store();
    for (size, kind) in [
        (SUPERBLOCK_BYTES + (64 << 10) - 512, ErrorKind::Corrupt),
        (SUPERBLOCK_BYTES, ErrorKind::Corrupt),
        (SUPERBLOCK_BYTES - 512, ErrorKind::NotAStore),
        (512, ErrorKind::NotAStore),
    ] {
        let error = open_error(&[copy_of(device.as_ref(), size)]);
        assert_eq!(error.kind(), kind, "{size}: {error}");
        assert!(error.to_string().contains("ram:"), "{size}: {error}");
        assert!(error.way_out().is_some(), "{size}: {error}");
    }
    let members = striped_store(2);
    let cut = copy_of(members[1].as_ref(), SUPERBLOCK_BYTES + (4 << 10));
    let error = open_error(&[members[0].clone(), cut.clone()]);
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&cut.info().name), "{error}");
    assert!(error.way_out().is_some(), "{error}");
    let whole = copy_of(device.as_ref(), device.size_bytes());
    assert_eq!(read_all(&whole, &model, &[], "a copy"), 0);
}

#[test]
fn damaged_superblocks() {
    let (device, model) = small_store();
    // With one slot lost, the other one may be older, and is reported so.
    let [first, second] = SUPERBLOCKS.map(|offset| read_bytes(device.as_ref(), offset, 4096));
    let generation = |superblock: &[u8]| u64::from_le_bytes(superblock[72..80].try_into().unwrap());
    let (newer, older) = if generation(&first) > generation(&second) { (0, 1) } else { (1, 0) };
    let superblocks = [first, second];
    write_bytes(device.as_ref(), SUPERBLOCKS[older], &flipped(&superblocks[older], 4000));
    assert_eq!(read_all(&device, &model, &[], "the older superblock damaged"), 0);
    let names = |slot: usize| format!("the superblock at byte {} of", SUPERBLOCKS[slot]);
    let report = check(&device);
    assert!(report.is_sound() && report.harmless.len() == 1, "{report:#?}");
    assert!(report.harmless[0].contains(&names(older)), "{report:#?}");
    write_bytes(device.as_ref(), SUPERBLOCKS[newer], &flipped(&superblocks[newer], 4000));
    let error = open_error(std::slice::from_ref(&device));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.way_out().is_some());
    // With the newer superblock lost, the older one says that the store is open. The checkpoint
    // shows that it was closed.
    write_bytes(device.as_ref(), SUPERBLOCKS[older], &superblocks[older]);
    assert_eq!(read_all(&device, &model, &[], "the newer superblock damaged"), 0);
    let report = check(&device);
    assert!(report.is_sound() && report.harmless.len() == 1, "{report:#?}");
    assert!(report.harmless[0].contains(&names(newer)), "{report:#?}");
    for superblock in SUPERBLOCKS {
        write_bytes(device.as_ref(), superblock, &[0; 4096]);
    }
    assert_eq!(open_error(std::slice::from_ref(&device)).kind(), ErrorKind::NotAStore);
    for (superblock, bytes) in SUPERBLOCKS.iter().zip(&superblocks) {
        write_bytes(device.as_ref(), *superblock, bytes);
    }
    assert_eq!(read_all(&device, &model, &[], "mended"), 0);
}

#[test]
fn another_version() {
    let (device, _) = small_store();
    for offset in SUPERBLOCKS {
        let mut superblock = read_bytes(device.as_ref(), offset, 4096);
        superblock[8..12].copy_from_slice(&7u32.to_le_bytes());
        superblock[12..16].fill(0);
        let sum = crc32c(&superblock);
        superblock[12..16].copy_from_slice(&sum.to_le_bytes());
        write_bytes(device.as_ref(), offset, &superblock);
    }
    let error = open_error(&[device]);
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(error.to_string().contains("version 7"), "{error}");
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

/// Restores one member alone from an earlier copy, in every combination of states.
#[test]
fn members_of_different_generations() {
    let copies = |members: &[Device]| -> Vec<Device> {
        members.iter().map(|member| copy_of(member.as_ref(), member.size_bytes())).collect()
    };
    let members = striped_store(2);
    let mut states = vec![("closed", copies(&members))];
    for (open, closed) in [("open", "closed again"), ("open again", "closed at last")] {
        let store = Store::open(members.clone(), &existing(PAGE, FRAMES)).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..500u32 {
            table.put(&i.to_be_bytes(), open.as_bytes()).unwrap();
        }
        states.push((open, copies(&members)));
        drop(table);
        store.close().unwrap();
        states.push((closed, copies(&members)));
    }
    for (first, [a, _]) in states.iter().map(|(what, members)| (what, [&members[0], &members[1]])) {
        for (second, [_, b]) in
            states.iter().map(|(what, members)| (what, [&members[0], &members[1]]))
        {
            let mixed = copies(&[a.clone(), b.clone()]);
            let opened = Store::open(mixed.clone(), &existing(PAGE, FRAMES));
            if first == second {
                opened.unwrap().close().unwrap();
                common::assert_sound(&mixed, PAGE);
                continue;
            }
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Member, "{first}, {second}: {error}");
            assert!(error.way_out().is_some());
        }
    }
}

/// The power fails between the superblocks of members, several times in a row: the first one says
/// that the store is open, or the last one that it is closed, and the others are older. Nothing is
/// lost.
#[test]
fn a_crash_between_the_superblocks() {
    let [a, b] = [0, 1].map(|_| ram());
    let new = StoreOptions { stripe_unit_bytes: 4096, ..options(PAGE, FRAMES) };
    Store::open(vec![a.clone(), b.clone()], &new).unwrap().close().unwrap();
    for round in 0..6u8 {
        for sectors in [0, 3] {
            let faulty = FaultDevice::new(b.clone(), FaultOptions::default()).unwrap();
            let control = faulty.control();
            let members = vec![a.clone(), Arc::new(faulty) as Device];
            let store = Store::open(members, &existing(PAGE, FRAMES)).unwrap();
            control.crash_at_write(1, sectors);
            assert!(store.checkpoint().is_err());
            assert!(store.close().is_err());
        }
        if round % 2 == 0 {
            let members = vec![a.clone(), b.clone()];
            let store = Store::open(members.clone(), &existing(PAGE, FRAMES)).unwrap();
            let table = store.table("t").unwrap();
            table.put(&[round], b"v").unwrap();
            assert_eq!(table.range(..).unwrap().count(), usize::from(round) / 2 + 1);
            drop(table);
            store.close().unwrap();
            common::assert_sound(&members, PAGE);
        }
    }
}

#[derive(Debug)]
struct ReadOnly {
    copy: Device,
    info: DeviceInfo,
}

impl BlockDevice for ReadOnly {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.copy.size_bytes()
    }

    fn grow(&self, _size_bytes: u64) -> qpair_block::Result<()> {
        panic!("nobody should ask")
    }

    fn open_channel(&self, options: &ChannelOptions) -> qpair_block::Result<Box<dyn IoChannel>> {
        self.copy.open_channel(options)
    }
}

/// Opens a store read-only after a crash: the error says what to do, unless the last checkpoint has
/// everything.
#[test]
fn a_store_that_was_not_closed() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"a", b"1").unwrap();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    let error = Store::open(vec![copy.clone()], &reading(PAGE, FRAMES)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unclean);
    assert!(error.way_out().is_some());
    // The same on a device that is read-only.
    let info = DeviceInfo { read_only: true, ..copy.info().clone() };
    let fixed: Device = Arc::new(ReadOnly { copy: copy.clone(), info });
    let error = Store::open(vec![fixed], &existing(PAGE, FRAMES)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unclean, "{error}");
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    // Opened, but unchanged: a crash leaves the store as it was closed.
    let copy = copy_of(device.as_ref(), device.size_bytes());
    assert_eq!(store.table("t").unwrap().get(b"a").unwrap().unwrap(), b"1");
    common::assert_sound(&[copy], PAGE);
    store.table("t").unwrap().put(b"b", b"2").unwrap();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    let error = Store::open(vec![copy], &reading(PAGE, FRAMES)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unclean);
    // A store that is dropped without close closes itself.
    drop(store);
    common::assert_sound(&[device], PAGE);
}
