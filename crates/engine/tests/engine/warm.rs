//! Reading a store into memory in advance.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::noting::noting;
use crate::common::{Device, existing, faulty, options, ram};
use qpair_block::Op;
use qpair_engine::{ErrorKind, Store, StoreOptions, Table, WarmReport};

const PAGE: usize = 512;
const RECORDS: u32 = 6000;
/// The number of frames that hold the whole store, and a number that does not.
const ENOUGH: u64 = 4096;
const FEW: u64 = 256;
const TABLES: [&str; 3] = ["one", "two", "empty"];

fn on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Keys in a shuffled order, so that the pages are in a shuffled order too.
fn shuffled() -> impl Iterator<Item = u32> {
    (0..RECORDS).map(|i| i * 2477 % RECORDS)
}

fn value(i: u32) -> [u8; 40] {
    [i as u8; 40]
}

fn fill(device: &Device) {
    let store = Store::open(vec![device.clone()], &options(PAGE, ENOUGH)).unwrap();
    for name in TABLES {
        let table = store.table(name).unwrap();
        for i in shuffled().filter(|_| name != "empty") {
            table.put(&i.to_be_bytes(), &value(i)).unwrap();
        }
    }
    store.close().unwrap();
}

fn open(device: &Device, frames: u64, workers: usize) -> Store {
    let options = StoreOptions { workers, ..existing(PAGE, frames) };
    Store::open(vec![device.clone()], &options).unwrap()
}

fn get_all(table: &Table) {
    for i in 0..RECORDS {
        assert!(table.get(&i.to_be_bytes()).unwrap().is_some_and(|found| found.len() == 40));
    }
}

#[test]
fn lookups_of_a_warm_store_read_nothing() {
    let (device, _, control) = faulty();
    fill(&device);
    let store = open(&device, ENOUGH, 2);
    let before = control.seen(Op::Read);
    let told = AtomicU64::new(0);
    let report = store
        .warm(&|done, total| {
            assert!(done <= total && told.fetch_max(done, Ordering::Relaxed) <= done);
            ControlFlow::Continue(())
        })
        .unwrap();
    let after = control.seen(Op::Read);
    assert_eq!((report.full, report.unread), (false, 0));
    assert_eq!(report.bytes, report.pages * PAGE as u64);
    assert_eq!(told.into_inner(), report.pages);
    // In addition to these, roots are read when their tables are opened.
    let roots = TABLES.len() as u64;
    assert_eq!(after - before, report.pages + roots);
    for name in ["one", "two"] {
        get_all(&store.table(name).unwrap());
    }
    assert_eq!(control.seen(Op::Read), after);
    assert!(report.pages > 2 * u64::from(RECORDS) * 44 / PAGE as u64);

    let again = store.warm(&on).unwrap();
    assert_eq!((again.pages, control.seen(Op::Read)), (0, after));
    let of_task = store.clone();
    let refused = store.spawn(move || async move { of_task.warm(&on).map_err(|e| e.kind()) });
    assert_eq!(refused.join().unwrap(), Err(ErrorKind::Invalid));
}

#[test]
fn the_store_is_written_meanwhile() {
    let (device, _, control) = faulty();
    fill(&device);
    let store = open(&device, 2 * ENOUGH, 2);
    let table = store.table("one").unwrap();
    let over = AtomicBool::new(false);
    let (report, puts) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut puts = 0;
            while !over.load(Ordering::Relaxed) || puts < 500 {
                // Some puts replace records; others add records and split pages.
                let (old, new) = (puts * 7 % RECORDS, RECORDS + puts);
                for i in [old, new] {
                    table.put(&i.to_be_bytes(), &[9; 40]).unwrap();
                }
                puts += 1;
            }
            puts
        });
        store.checkpoint().unwrap();
        let report = store.warm(&on);
        over.store(true, Ordering::Relaxed);
        (report.unwrap(), writer.join().unwrap())
    });
    assert_eq!((report.full, report.unread), (false, 0));
    let before = control.seen(Op::Read);
    get_all(&table);
    get_all(&store.table("two").unwrap());
    assert_eq!(control.seen(Op::Read), before);
    for i in 0..puts {
        assert_eq!(table.get(&(RECORDS + i).to_be_bytes()).unwrap().as_deref(), Some(&[9; 40][..]));
    }
    drop(table);
    store.close().unwrap();
    crate::common::assert_sound(&[device], PAGE);
}

#[test]
fn it_stops_where_memory_is_full() {
    let (device, _, control) = faulty();
    fill(&device);
    let store = open(&device, FEW, 2);
    let table = store.table("one").unwrap();
    // These pages are in use, so they must stay.
    let hot = || (0..RECORDS).step_by(500).map(u32::to_be_bytes);
    hot().for_each(|key| drop(table.get(&key).unwrap()));
    let before = control.seen(Op::Read);
    let report = store.warm(&on).unwrap();
    assert!(report.full && report.pages > FEW / 2 && report.pages < FEW, "{report:?}");
    assert_eq!(store.statistics().unwrap().evictions, 0);
    let after = control.seen(Op::Read);
    assert!(after - before <= report.pages + TABLES.len() as u64);
    hot().for_each(|key| drop(table.get(&key).unwrap()));
    assert_eq!(control.seen(Op::Read), after);
    // The pool is full up to its usual level.
    get_all(&table);
    let (before, evictions) = (control.seen(Op::Read), store.statistics().unwrap().evictions);
    assert!(evictions > 0);
    let again = store.warm(&on).unwrap();
    assert!(again.full && again.pages < FEW / 4, "{again:?}");
    assert_eq!(store.statistics().unwrap().evictions, evictions);
    assert_eq!(control.seen(Op::Read) - before, again.pages);
}

#[test]
fn whoever_watches_may_break_it_off() {
    let device = ram();
    fill(&device);
    let store = open(&device, ENOUGH, 2);
    let error = store.warm(&|_, _| ControlFlow::Break(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    get_all(&store.table("one").unwrap());
    assert!(!store.warm(&on).unwrap().full);
}

#[test]
fn a_page_that_cannot_be_read_is_left_out() {
    let (device, _, control) = faulty();
    fill(&device);
    let store = open(&device, ENOUGH, 2);
    control.fail_nth(Op::Read, 1500);
    let report = store.warm(&on).unwrap();
    assert_eq!((report.unread, report.full), (1, false));
    let before = control.seen(Op::Read);
    let rest = store.warm(&on).unwrap();
    assert_eq!((rest.pages, rest.unread), (1, 0), "a leaf, after {report:?}");
    assert_eq!(control.seen(Op::Read), before + 1);
    get_all(&store.table("one").unwrap());
    assert_eq!(control.seen(Op::Read), before + 1);
}

#[test]
fn each_level_is_read_in_the_order_of_the_device() {
    let device = ram();
    fill(&device);
    let (noting, reads) = noting(device);
    let store = open(&noting, ENOUGH, 1);
    store.table_names().unwrap();
    TABLES.iter().for_each(|name| drop(store.table(name).unwrap()));
    reads.lock().unwrap().clear();
    let WarmReport { pages, .. } = store.warm(&on).unwrap();
    let reads = reads.lock().unwrap();
    assert_eq!(reads.len() as u64, pages);
    let back = reads.windows(2).filter(|pair| pair[1].offset_bytes < pair[0].offset_bytes).count();
    // Reads go back once for each level, and where two batches alternate.
    assert!(back as u64 <= 8 + pages / 32, "{back} of {pages} reads go back");
}
