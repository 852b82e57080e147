//! The workloads over a store in memory.

use qpair::ErrorKind;

use super::*;
use crate::progress::Silent;
use crate::tests::store;

fn options(workload: YcsbWorkload) -> YcsbOptions {
    YcsbOptions {
        workload,
        records: 500,
        fields: 4,
        field_bytes: 8,
        clients: 3,
        operations: Some(3000),
        ..YcsbOptions::default()
    }
}

#[test]
fn each_workload_does_its_share_of_each_kind() {
    let kv = store(&YCSB_TABLES, 2 << 20);
    for (workload, shares) in [
        (YcsbWorkload::A, [("read", 50), ("update", 50)]),
        (YcsbWorkload::B, [("read", 95), ("update", 5)]),
        (YcsbWorkload::C, [("read", 100), ("read", 100)]),
        (YcsbWorkload::D, [("read", 95), ("insert", 5)]),
        (YcsbWorkload::E, [("scan", 95), ("insert", 5)]),
        (YcsbWorkload::F, [("read", 50), ("read_modify_write", 50)]),
    ] {
        let report = run_ycsb(&kv, &options(workload), &Silent).unwrap();
        assert_eq!(report.ops, 3000);
        assert_eq!(report.ops_by_second.iter().sum::<u64>(), 3000);
        assert!(report.kinds.len() <= 2);
        for (kind, percent) in shares {
            let count = report.kinds[kind].count;
            assert!(count.abs_diff(3000 * percent / 100) < 150, "{workload}: {count} of {kind}");
        }
        // Only a record that is being inserted at the time of the read can be missing.
        let most = if workload == YcsbWorkload::D { 30 } else { 0 };
        assert!(report.missed <= most, "{workload}: {} missed", report.missed);
    }
}

#[test]
fn what_was_inserted_is_counted_for_the_next_run() {
    let kv = store(&YCSB_TABLES, 2 << 20);
    let first = run_ycsb(&kv, &options(YcsbWorkload::D), &Silent).unwrap();
    assert!(first.load_records_per_s.is_some() && first.records == 500);
    let second = run_ycsb(&kv, &options(YcsbWorkload::D), &Silent).unwrap();
    assert!(second.load_records_per_s.is_none());
    assert_eq!(second.records, 500 + first.kinds["insert"].count);
    let table = kv.store().table("usertable").unwrap();
    for record in 0..second.records {
        assert_eq!(table.get(&keys::key(record)).unwrap().unwrap().len(), 32);
    }
}

#[test]
fn a_store_with_other_records_is_refused() {
    let kv = store(&YCSB_TABLES, 2 << 20);
    let load = YcsbOptions { operations: None, seconds: 0.0, ..options(YcsbWorkload::C) };
    assert_eq!(run_ycsb(&kv, &load, &Silent).unwrap().ops, 0);
    let error = run_ycsb(&kv, &YcsbOptions { records: 501, ..load }, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("500 records of 32 bytes; 501 of 32"), "{error}");
}

#[test]
fn workloads_have_names() {
    assert_eq!("a".parse(), Ok(YcsbWorkload::A));
    assert_eq!("F".parse(), Ok(YcsbWorkload::F));
    assert!("G".parse::<YcsbWorkload>().is_err());
}
