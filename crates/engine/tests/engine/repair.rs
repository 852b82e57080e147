//! Repairs stores in which each kind of page is damaged in turn.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{
    SUPERBLOCK_BYTES, SUPERBLOCKS, assert_sound, copy_of, crc32c, existing, options, ram, ram_of,
    read_bytes, write_bytes,
};
use qpair_block::BlockDevice;
use qpair_engine::{Error, ErrorKind, Store, StoreOptions};
use qpair_inspect::{RepairReport, RepairStep, dump_log, repair};

const PAGE: usize = 512;

type Device = Arc<dyn BlockDevice>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn go_on(_: RepairStep, _: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:05}").into_bytes()
}

/// Fills two tables with values of all sizes, including large ones.
fn fill(store: &Store) -> [Model; 2] {
    let mut models = [Model::new(), Model::new()];
    for (name, model) in ["first", "second"].into_iter().zip(&mut models) {
        let table = store.table(name).unwrap();
        for i in 0..1500u32 {
            let len = if i % 300 == 50 { 1500 } else { 20 + i as usize % 20 };
            let value = vec![(i % 251) as u8; len];
            table.put(&key(i), &value).unwrap();
            model.insert(key(i), value);
        }
    }
    models
}

fn closed() -> (Device, [Model; 2]) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let models = fill(&store);
    store.close().unwrap();
    (device, models)
}

fn page(device: &Device, page: u64) -> Vec<u8> {
    read_bytes(device.as_ref(), SUPERBLOCK_BYTES + page * PAGE as u64, PAGE)
}

fn damage(device: &Device, page_id: u64) {
    let mut bytes = page(device, page_id);
    bytes[200] ^= 0x55;
    write_bytes(device.as_ref(), SUPERBLOCK_BYTES + page_id * PAGE as u64, &bytes);
}

/// Repairs a damaged store and returns the report and the new store's tables. Checks that the
/// damaged store is unchanged.
fn salvage(device: &Device) -> (RepairReport, BTreeMap<String, Model>) {
    let before = read_bytes(device.as_ref(), 0, device.size_bytes() as usize);
    let target = ram();
    let mut made = false;
    let mut make = |page_size| {
        made = true;
        let options = StoreOptions { log: false, ..options(page_size, 256) };
        Store::open(vec![target.clone()], &options)
    };
    let report =
        repair(std::slice::from_ref(device), &existing(PAGE, 256), &mut make, &go_on).unwrap();
    assert!(before == read_bytes(device.as_ref(), 0, before.len()), "the source was written to");
    assert_eq!(made, !report.healthy);
    if report.healthy {
        return (report, BTreeMap::new());
    }
    assert_sound(std::slice::from_ref(&target), PAGE);
    let store = Store::open(vec![target], &existing(PAGE, 256)).unwrap();
    let tables = store.table_names().unwrap().into_iter().map(|name| {
        let table = store.existing_table(&name).unwrap().unwrap();
        let model: Model = table.range(..).unwrap().map(|e| e.unwrap()).collect();
        let told = report.tables.iter().find(|table| table.name == name).unwrap();
        assert_eq!(told.records, model.len() as u64, "{name}");
        (name, model)
    });
    let tables = tables.collect();
    store.close().unwrap();
    (report, tables)
}

/// Checks that all saved records are right, and that each missing one is in a range reported as
/// lost or stale, or is reported as a lost large value.
fn assert_told(report: &RepairReport, tables: &BTreeMap<String, Model>, models: &[Model; 2]) {
    for (name, model) in ["first", "second"].iter().zip(models) {
        let found = &tables[*name];
        let told = report.tables.iter().find(|table| table.name == *name).unwrap();
        let within = |key: &Vec<u8>| {
            told.lost
                .iter()
                .chain(&told.stale)
                .any(|range| range.from <= *key && range.to.as_ref().is_none_or(|to| key < to))
                || told.large_keys_lost.contains(key)
        };
        for (key, value) in model {
            if found.get(key) != Some(value) {
                assert!(within(key), "{}: {report:#?}", key.escape_ascii());
            }
        }
        assert!(found.keys().all(|key| model.contains_key(key)));
    }
}

#[test]
fn a_healthy_store_is_left_alone() {
    let (device, _) = closed();
    let (report, _) = salvage(&device);
    assert!(report.healthy && report.is_complete());
    // A store that only needs recovery is healthy too.
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    fill(&store);
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    assert!(salvage(&crashed).0.healthy);
}

/// Returns the pages that the newest checkpoint has in use, by kind and level.
fn used(device: &Device) -> BTreeMap<(u8, u8), Vec<u64>> {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let record = [0, 1].map(|id| page(device, id)).into_iter().max_by_key(|r| word(r, 88)).unwrap();
    let (first, len) = (word(&record, 104), word(&record, 120) as usize);
    let image: Vec<u8> = (first..)
        .take(len.div_ceil(PAGE - 64))
        .flat_map(|id| page(device, id)[64..].to_vec())
        .collect();
    let (roots, logs) = (half(&image, 0) as usize, half(&image, 4));
    let mut at = 8 + roots * 12;
    for _ in 0..logs {
        at += 4 + half(&image, at) as usize;
    }
    let bitmap = &image[at + 8..at + 8 + word(&image, at) as usize * 8];
    let mut kinds: BTreeMap<(u8, u8), Vec<u64>> = BTreeMap::new();
    for id in
        (2..bitmap.len() as u64 * 8).filter(|id| bitmap[*id as usize / 8] >> (id % 8) & 1 == 1)
    {
        let bytes = page(device, id);
        // The image's run may be longer than its content.
        if bytes[4] != 5 || (first..first + len.div_ceil(PAGE - 64) as u64).contains(&id) {
            let level = if bytes[4] <= 2 { bytes[5] } else { 0 };
            kinds.entry((bytes[4], level)).or_default().push(id);
        }
    }
    kinds
}

#[test]
fn every_kind_of_page() {
    let (device, models) = closed();
    let kinds = used(&device);
    let top = kinds.keys().filter(|(kind, _)| *kind == 1).map(|(_, level)| *level).max().unwrap();
    assert!(top >= 2 && kinds.contains_key(&(3, 0)) && kinds.contains_key(&(5, 0)), "{kinds:?}");
    for ((kind, level), ids) in kinds.iter().filter(|((kind, _), _)| *kind != 0) {
        for id in ids.iter().step_by(ids.len().div_ceil(4)) {
            let copy = copy_of(device.as_ref(), device.size_bytes());
            damage(&copy, *id);
            let (report, tables) = salvage(&copy);
            let what = format!("kind {kind}, level {level}, page {id}: {report:#?}");
            assert!(!report.healthy, "{what}");
            match kind {
                // Inner pages are not needed to find leaves.
                1 => {
                    assert!(report.is_complete(), "{what}");
                    assert_eq!(tables.values().cloned().collect::<Vec<_>>(), models, "{what}");
                }
                // The timestamps in the pages tell which are the newest.
                5 => assert_eq!(tables.values().cloned().collect::<Vec<_>>(), models, "{what}"),
                2 => {
                    if tables.contains_key("first") && tables.contains_key("second") {
                        assert_told(&report, &tables, &models);
                    } else {
                        // This is the catalog's only leaf.
                        assert!(report.remarks.iter().any(|r| r.contains("names")), "{what}");
                        assert!(report.names_uncertain && !report.is_complete(), "{what}");
                        assert_eq!(tables.values().cloned().collect::<Vec<_>>(), models);
                    }
                }
                3 => {
                    let lost: u64 = report.tables.iter().map(|t| t.large_values_lost).sum();
                    assert_eq!(lost, 1, "{what}");
                    assert_told(&report, &tables, &models);
                }
                _ => panic!("{what}"),
            }
        }
    }
}

/// The run for the next checkpoint's description has old content: a leaf in it counts as an older
/// copy, whatever its timestamp.
#[test]
fn a_leaf_in_a_run_of_the_checkpoints_is_out_of_date() {
    let (device, models) = closed();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let record =
        [0, 1].map(|id| page(&device, id)).into_iter().max_by_key(|r| word(r, 88)).unwrap();
    let (spare, id) = (word(&record, 144), used(&device)[&(2, 0)][30]);
    let mut leaf = page(&device, id);
    damage(&device, id);
    leaf[8..16].copy_from_slice(&spare.to_le_bytes());
    // All bytes of a value are equal.
    let value = leaf.windows(20).rposition(|some| some.iter().all(|byte| *byte == some[0]));
    leaf[value.unwrap()] ^= 0xFF;
    let sum = crc32c(&leaf[4..]);
    leaf[..4].copy_from_slice(&sum.to_le_bytes());
    write_bytes(device.as_ref(), SUPERBLOCK_BYTES + spare * PAGE as u64, &leaf);
    let (report, tables) = salvage(&device);
    assert!(report.tables.iter().any(|table| !table.stale.is_empty()), "{report:#?}");
    assert_ne!(tables.values().cloned().collect::<Vec<_>>(), models);
    assert_told(&report, &tables, &models);
}

#[test]
fn records_of_checkpoints_and_superblocks() {
    let (device, models) = closed();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    damage(&copy, 0);
    // Its second copy serves.
    let (report, _) = salvage(&copy);
    assert!(report.healthy && report.harmless.len() == 1, "{report:#?}");
    damage(&copy, 1);
    let (report, tables) = salvage(&copy);
    assert!(!report.healthy);
    assert_eq!(tables.values().cloned().collect::<Vec<_>>(), models, "{report:#?}");
    assert!(report.remarks.iter().any(|remark| remark.contains("no checkpoint")), "{report:#?}");
    for slot in SUPERBLOCKS {
        let copy = copy_of(device.as_ref(), device.size_bytes());
        write_bytes(copy.as_ref(), slot, &[7; 512]);
        let (report, tables) = salvage(&copy);
        if !report.healthy {
            assert_eq!(tables.values().cloned().collect::<Vec<_>>(), models, "{report:#?}");
        }
    }
    // Without any superblock, the pages show the parameters of the store, even without records.
    for content in [0, 7] {
        let copy = copy_of(device.as_ref(), device.size_bytes());
        write_bytes(copy.as_ref(), 0, &vec![content; SUPERBLOCK_BYTES as usize]);
        for damaged in 0..3 {
            let (report, tables) = salvage(&copy);
            assert!(!report.healthy);
            assert_eq!(tables.values().cloned().collect::<Vec<_>>(), models, "{report:#?}");
            assert!(report.remarks.iter().any(|remark| remark.contains("read from its pages")));
            damage(&copy, damaged % 2);
        }
    }
    // Nothing is created from a device that never was a store.
    let mut make = |_| Err(Error::new(ErrorKind::Invalid, "nothing to be made"));
    for content in [0, 7] {
        let none = ram();
        write_bytes(none.as_ref(), 0, &vec![content; 1 << 20]);
        let error = repair(&[none], &existing(PAGE, 256), &mut make, &go_on).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAStore);
    }
}

/// A regression: the search for pages looked at only the first 1,024 pages of each size.
#[test]
fn without_a_beginning_of_any_length() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let record = |i: u32| (key(i), vec![b'v'; 200]);
    table.bulk_load((0..60_000).map(|i| Ok(record(i)))).unwrap();
    drop(table);
    store.close().unwrap();
    for gone_bytes in [80 << 10, 2 << 20, 9 << 20_u64] {
        let copy = copy_of(device.as_ref(), device.size_bytes());
        write_bytes(copy.as_ref(), 0, &vec![0; gone_bytes as usize]);
        let (report, tables) = salvage(&copy);
        let saved: usize = tables.values().map(BTreeMap::len).sum();
        let least = 60_000 * (16_000_000 - gone_bytes) / 16_000_000;
        assert!(saved as u64 > least / 2 && !report.healthy, "{gone_bytes}: {saved}: {report:#?}");
        assert!(tables.values().flatten().all(|(_, value)| *value == record(0).1));
    }
    // The search can be interrupted.
    let blank = ram_of(9 << 20);
    write_bytes(blank.as_ref(), 0, &vec![7; 9 << 20]);
    let mut make = |_| Err(Error::new(ErrorKind::Invalid, "nothing to be made"));
    let stop = |step, done, _| match (step, done > 4 << 20) {
        (RepairStep::Search, true) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let error = repair(&[blank], &existing(PAGE, 256), &mut make, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}

/// Commits after the last checkpoint are restored from the log, as far as it is readable.
#[test]
fn what_is_in_the_log() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let mut models = fill(&store);
    store.checkpoint().unwrap();
    let table = store.table("first").unwrap();
    for i in 0..300u32 {
        let len = if i % 40 == 3 { 2000 } else { 30 };
        table.put(&key(i * 7), &vec![9; len]).unwrap();
        models[0].insert(key(i * 7), vec![9; len]);
        table.delete(&key(i * 3 + 1)).unwrap();
        models[0].remove(&key(i * 3 + 1));
    }
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    let dump = dump_log(std::slice::from_ref(&crashed), &StoreOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((dump.commits, dump.damaged), (600, false), "{dump:#?}");
    // Damage a leaf of the other table: all records but those in it come back, and the log adds its
    // own.
    let leaf = used(&crashed)[&(2, 0)]
        .iter()
        .copied()
        .find(|id| {
            let bytes = page(&crashed, *id);
            u32::from_le_bytes(bytes[24..28].try_into().unwrap()) == 2
        })
        .unwrap();
    let copy = copy_of(crashed.as_ref(), crashed.size_bytes());
    damage(&copy, leaf);
    let (report, tables) = salvage(&copy);
    assert_eq!(tables["first"], models[0]);
    assert_told(&report, &tables, &models);
    assert_eq!(report.log.unwrap().commits, 600);
    // Damage a block of the log: the commits before it come back.
    let mut entries = Vec::new();
    dump_log(std::slice::from_ref(&crashed), &StoreOptions::default(), &mut |entry| {
        entries.push((entry.timestamp, entry.operations[0].text.clone()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(entries[0].1.contains("table \"first\""), "{entries:?}");
    let needle = key(100 * 7);
    let all = read_bytes(crashed.as_ref(), 0, crashed.size_bytes() as usize);
    let mut hit = 0;
    for (at, window) in all.windows(needle.len()).enumerate() {
        if window != needle {
            continue;
        }
        let copy = copy_of(crashed.as_ref(), crashed.size_bytes());
        let block = at as u64 / 512 * 512;
        let mut bytes = read_bytes(copy.as_ref(), block, 512);
        bytes[at % 512] ^= 1;
        write_bytes(copy.as_ref(), block, &bytes);
        let dump = dump_log(std::slice::from_ref(&copy), &StoreOptions::default(), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        if dump.commits == 600 {
            continue;
        }
        hit += 1;
        assert!(dump.damaged && dump.commits > 0, "{dump:#?}");
        let (report, tables) = salvage(&copy);
        let log = report.log.unwrap();
        assert!(log.damaged && log.commits == dump.commits, "{report:#?}");
        assert!(!report.is_complete());
        assert_eq!(tables["second"], models[1]);
        assert!(tables["first"].len() > 1000);
    }
    assert!(hit > 0);
}

/// A regression: a killed repair left a store that looked complete, with the tables saved so far.
#[test]
fn what_is_of_use_as_a_whole_is_no_store_before() {
    let device = ram();
    let making = StoreOptions { whole_when_closed: true, log: false, ..options(PAGE, 256) };
    let store = Store::open(vec![device.clone()], &making).unwrap();
    let [model, _] = fill(&store);
    store.checkpoint().unwrap();
    let killed = copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    for read_only in [false, true] {
        for at_checkpoint in [false, read_only] {
            let looking = StoreOptions { read_only, at_checkpoint, ..existing(PAGE, 256) };
            let error = Store::open(vec![killed.clone()], &looking).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAStore);
            assert!(error.to_string().contains("did not complete"), "{error}");
        }
    }
    let store = Store::open(vec![device], &existing(PAGE, 256)).unwrap();
    let table = store.existing_table("first").unwrap().unwrap();
    assert_eq!(table.range(..).unwrap().count(), model.len());
    drop(table);
    store.close().unwrap();
    // The store never had a record.
    let empty = ram();
    Store::open(vec![empty.clone()], &making).unwrap().close().unwrap();
    Store::open(vec![empty], &existing(PAGE, 256)).unwrap().close().unwrap();
}
