//! The workloads over real stores in memory: transactions of many tasks on two workers, with
//! evictions.

use qpair::ErrorKind;

use crate::kv::{Begin, Direction, Durability, KeyRange, KvSession, System, TableId, block_on};
use crate::progress::Silent;
use crate::store_kv::*;
use crate::tpcc::{CheckReport, Scale, TPCC_TABLES, TpccOptions, run_tpcc};

/// Opens a store of this memory on a device in memory.
pub(crate) fn store(tables: &[&str], memory_bytes: u64) -> StoreKv {
    let store = "ram:size=64MiB".into();
    let options = StoreKvOptions { store, memory_bytes, workers: 2, ..StoreKvOptions::default() };
    StoreKv::open(&options, tables).unwrap()
}

/// Options for a database of a few megabytes that is checked afterwards.
fn small_tpcc(seconds: f64, warm_up_seconds: f64) -> TpccOptions {
    TpccOptions {
        scale: Scale { warehouses: 2, items: 1000, customers: 100 },
        terminals: 16,
        seconds,
        warm_up_seconds,
        check: true,
        ..TpccOptions::default()
    }
}

#[test]
fn parents_are_found_from_the_root_too_and_the_time_is_told() {
    for parent_hints in [true, false] {
        let options = StoreKvOptions {
            store: "ram:size=64MiB".into(),
            memory_bytes: 1 << 20,
            workers: 2,
            cycles: true,
            parent_hints,
            ..StoreKvOptions::default()
        };
        let kv = StoreKv::open(&options, &TPCC_TABLES).unwrap();
        let options = small_tpcc(0.3, 0.0);
        let report = run_tpcc(&kv, &options, &Silent).unwrap();
        assert!(report.check.as_ref().is_some_and(CheckReport::holds), "{report:#?}");
        // A worker that finds no parent evicts nothing.
        assert!(kv.store().statistics().unwrap().evictions > 100, "{parent_hints}");
        let shares: f64 = report.cycles.iter().map(|part| part.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{report:#?}");
        for name in ["tasks", "eviction", "submission", "completion"] {
            let part = report.cycles.iter().find(|part| part.part == name).unwrap();
            assert!(part.share > 0.0 && part.us_per_op > 0.0, "{report:#?}");
        }
        kv.close().unwrap();
    }
}

#[test]
fn tpcc_keeps_all_conditions_while_pages_leave_memory() {
    // The store of some megabytes has the smallest possible memory.
    let kv = store(&TPCC_TABLES, 1 << 20);
    let options = small_tpcc(0.5, 0.1);
    for _ in 0..2 {
        let report = run_tpcc(&kv, &options, &Silent).unwrap();
        assert!(report.check.as_ref().is_some_and(CheckReport::holds), "{report:#?}");
        assert!(report.cycles.is_empty(), "nobody asked");
    }
    assert!(kv.store().statistics().unwrap().evictions > 0);
    kv.close().unwrap();
}

#[test]
fn a_lost_update_is_a_conflict_and_a_lock_ahead_of_reads_is_none() {
    const TABLE: TableId = TableId(0);
    let kv = store(&["t"], 2 << 20);
    let both = kv.clone();
    let clients = kv.start(1, move |_, mut first| {
        let mut second = both.session(0);
        async move {
            let mut value = Vec::new();
            let begin = Begin::read_write(Durability::Async);
            first.begin(begin).await?;
            assert!(!first.get_into(TABLE, b"k", &mut value).await?);
            second.begin(begin).await?;
            second.put(TABLE, b"k", b"second").await?;
            second.commit().await?;
            let lost = first.put(TABLE, b"k", b"first").await;
            assert!(
                lost.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict),
                "{lost:?}"
            );
            first.rollback().await?;
            // A snapshot that is taken after the lock sees the commits before it.
            first.begin(begin).await?;
            first.lock(TABLE, b"k").await?;
            assert!(first.get_for_update(TABLE, b"k", &mut value).await?);
            assert_eq!(value, b"second");
            first.put(TABLE, b"k", b"third").await?;
            first.commit().await?;
            let mut seen = Vec::new();
            first.begin(Begin::read_only()).await?;
            first
                .scan(TABLE, KeyRange::ALL, Direction::Backward, 5, |key, value| {
                    seen.push((key.to_vec(), value.to_vec()));
                    std::ops::ControlFlow::Continue(())
                })
                .await?;
            assert_eq!(seen, [(b"k".to_vec(), b"third".to_vec())]);
            assert!(first.put(TABLE, b"k", b"fourth").await.is_err());
            Ok(())
        }
    });
    clients.unwrap().join().unwrap();
    // Outside of the workers the call fails, and does not panic.
    let mut session = kv.session(0);
    assert!(block_on(session.get_into(TABLE, b"k", &mut Vec::new())).is_err());
    kv.close().unwrap();
}
