//! The check of whole stores: its counts, and that it has no effect on the store.

use std::cell::Cell;

use crate::common::{assert_sound, checkpoint_of, existing, options, ram, reading};
use qpair_engine::{ErrorKind, Store};

#[test]
fn counts_what_is_there() {
    for page_size in [512, 4096, 65536] {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(page_size, 64)).unwrap();
        for (name, records) in [("a", 5000u32), ("b", 1), ("c", 0)] {
            let table = store.table(name).unwrap();
            for i in 0..records {
                table.put(&i.to_be_bytes(), &[7; 20]).unwrap();
            }
        }
        let large = store.table("a").unwrap();
        large.put(b"large", &vec![1; 3 * page_size]).unwrap();
        large.put(b"gone", &vec![1; 5 * page_size]).unwrap();
        large.delete(b"gone").unwrap();
        drop(large);
        store.close().unwrap();

        let report = assert_sound(std::slice::from_ref(&device), page_size);
        let names: Vec<_> = report.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["(catalog)", "a", "b", "c"]);
        let records: Vec<_> = report.tables.iter().map(|table| table.records).collect();
        assert_eq!(records, [3, 5001, 1, 0]);
        assert_eq!(report.tables[1].overflow_pages, 4);
        let pages: u64 =
            report.tables.iter().map(|t| t.leaf_pages + t.inner_pages + t.overflow_pages).sum();
        assert_eq!(report.pages_checked, pages);
        assert!(report.free_pages >= 6, "{}", report.free_pages);
        // The remaining pages are the checkpoint's own: two records, the image's description, and
        // room for the next description.
        let checkpoint = checkpoint_of(device.as_ref(), page_size);
        assert!(checkpoint.own.len() > checkpoint.description.count());
        let own = 2 + checkpoint.own.len() as u64;
        let store = Store::open(vec![device], &reading(page_size, 64)).unwrap();
        assert_eq!(store.report().pages, pages + own + report.free_pages);
    }
}

#[test]
fn progress_grows_to_the_total() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(512, 128)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..20_000u32 {
        table.put(&i.to_be_bytes(), b"value").unwrap();
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &existing(512, 64)).unwrap();
    let (last, calls) = (Cell::new((0, 0)), Cell::new(0));
    let report = store
        .check(&|done, total| {
            assert!(done >= last.get().0 && done <= total);
            last.set((done, total));
            calls.set(calls.get() + 1);
        })
        .unwrap();
    assert_eq!(last.get(), (report.pages_checked, report.pages_checked));
    assert!(calls.get() > 2);
    // The pool is unchanged, and the store continues to work.
    store.table("t").unwrap().put(b"more", b"value").unwrap();
    assert_eq!(store.check(&|_, _| ()).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_changed_store_is_refused() {
    let store = Store::open(vec![ram()], &options(512, 64)).unwrap();
    store.table("t").unwrap();
    let error = store.check(&|_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.way_out().is_some());
}

#[test]
fn the_check_of_an_unused_store() {
    let device = ram();
    Store::open(vec![device.clone()], &options(4096, 64)).unwrap().close().unwrap();
    let report = assert_sound(&[device], 4096);
    assert_eq!((report.tables.len(), report.pages_checked), (1, 1));
}
