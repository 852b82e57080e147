//! Updates and inserts over a store in memory, and the baseline over a file.

use qpair::{ErrorKind, Mode};

use super::report::slowest_over_median;
use super::*;
use crate::kv::Durability;
use crate::progress::Silent;
use crate::records;
use crate::store_kv::StoreKv;
use crate::tests::store;

fn options(work: CommitWork) -> CommitOptions {
    CommitOptions {
        work,
        records: 1001,
        clients: 3,
        seconds: 0.2,
        warm_up_seconds: 0.0,
        durability: Durability::Async,
        ..CommitOptions::default()
    }
}

fn records_with_their_values(kv: &StoreKv) -> usize {
    let table = kv.store().table("bench").unwrap();
    let value = |record: &u64| table.get(&records::key(*record)).unwrap();
    let is_right = |record: &u64| value(record).is_some_and(|v| records::is_value_of(*record, &v));
    (0..1001).filter(is_right).count()
}

#[test]
fn inserts_put_every_record_in_once() {
    let kv = store(&COMMIT_TABLES, 2 << 20);
    let insert = CommitOptions { rows_per_tx: 100, ..options(CommitWork::Insert) };
    let report = run_commit(&kv, &insert, &Silent).unwrap();
    assert_eq!(records_with_their_values(&kv), 1001);
    assert_eq!(report.commits, 11);
    assert_eq!(report.rows_by_second.iter().sum::<u64>(), 1001);
    let error = run_commit(&kv, &insert, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
}

#[test]
fn updates_fill_the_table_first() {
    let kv = store(&COMMIT_TABLES, 2 << 20);
    let report = run_commit(&kv, &options(CommitWork::Update), &Silent).unwrap();
    assert!(report.load_records_per_s.is_some() && report.commits > 0);
    assert_eq!(records_with_their_values(&kv), 1001);
    let again = run_commit(&kv, &options(CommitWork::Update), &Silent).unwrap();
    assert!(again.load_records_per_s.is_none());
    let other = CommitOptions { records: 5, ..options(CommitWork::Update) };
    assert_eq!(run_commit(&kv, &other, &Silent).unwrap_err().kind(), ErrorKind::Exists);
}

#[test]
fn a_slow_second_shows() {
    assert_eq!(slowest_over_median(&[100, 50, 100, 100, 3], 4.5), Some(0.5));
    assert_eq!(slowest_over_median(&[100, 100], 2.0), Some(1.0));
    assert_eq!(slowest_over_median(&[7], 0.5), None);
    assert_eq!(slowest_over_median(&[0, 0, 0], 3.0), None);
}

#[test]
fn the_device_alone_is_measured_without_changing_what_it_holds() {
    // The file is next to the build, on a file system with direct I/O; /tmp may not have it.
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let path = directory.join(format!("baseline-{}", std::process::id()));
    let content: Vec<u8> = (0..1_u32 << 16).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &content).unwrap();
    for buffered in [false, true] {
        let options =
            BaselineOptions { path: path.clone(), io: Mode::default(), buffered, seconds: 0.05 };
        match baseline(&options, &Silent) {
            Ok(baseline) => assert!(baseline.writes > 0 && baseline.latency_us.p50 > 0.0),
            Err(error) if !buffered => println!("no direct I/O here: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(std::fs::read(&path).unwrap() == content);
    std::fs::remove_file(&path).unwrap();
}
