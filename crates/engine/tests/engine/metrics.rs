//! The counters of a store, and the text that Prometheus reads.

use std::collections::BTreeMap;

use crate::common::{options, ram};
use qpair_engine::{Durability, ErrorKind, Store, TransactionOptions};

const PAGE: usize = 512;

#[test]
fn what_happened_is_counted() {
    let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let before = store.metrics().unwrap();
    for i in 0..100u32 {
        table.put(&i.to_be_bytes(), &[1; 60]).unwrap();
    }
    let quick = TransactionOptions { durability: Durability::Async, ..Default::default() };
    let mut tx = store.begin_with(&quick);
    tx.put(&table, b"k", b"v").unwrap();
    tx.commit().unwrap().wait_durable().unwrap();
    let (mut first, mut second) = (store.begin(), store.begin());
    first.get(&table, b"k").unwrap();
    second.get(&table, b"k").unwrap();
    first.put(&table, b"k", b"1").unwrap();
    first.commit().unwrap();
    assert_eq!(second.put(&table, b"k", b"2").unwrap_err().kind(), ErrorKind::Conflict);
    drop(second);
    let mut dropped = store.begin();
    dropped.put(&table, b"x", b"y").unwrap();
    dropped.rollback();
    let snapshot = store.snapshot().unwrap();
    table.put(b"k", b"3").unwrap();
    let open = store.begin_with(&TransactionOptions {
        name: Some("forgotten".to_owned()),
        ..TransactionOptions::default()
    });
    store.checkpoint().unwrap();
    let now = store.metrics().unwrap();
    assert_eq!(now.commits - before.commits, 103);
    assert_eq!((now.conflicts, now.rollbacks - before.rollbacks), (1, 2));
    // All commits except the one that did not wait.
    assert_eq!(now.commit_latency_us.count() - before.commit_latency_us.count(), 102);
    assert!(now.log_bytes > 103 * 60 && now.log_writes > 0 && now.commits_per_log_write() > 0.0);
    assert_eq!(now.checkpoints, now.checkpoint_us.count());
    assert!(now.checkpoints > before.checkpoints && now.checkpoint_stall_us.count() > 0);
    assert_eq!((now.open_transactions, now.oldest_snapshot_age_commits), (1, 1));
    assert!(now.versions_bytes > 0 && now.used_bytes > 0 && now.device_writes > 0);
    assert!(!now.read_only && now.frames == 256);
    let observer = store.observer();
    assert_eq!(observer.transactions().unwrap()[0].name.as_deref(), Some("forgotten"));
    assert_eq!(observer.metrics().unwrap().commits, now.commits);
    drop((open, snapshot, table));
    store.close().unwrap();
    assert!(!observer.is_open());
    assert_eq!(observer.metrics().unwrap_err().kind(), ErrorKind::Closed);
}

/// Parses the format by its own rules: comments first, then names, labels and numbers.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<(String, f64)>)> {
    let mut families: BTreeMap<String, (String, Vec<(String, f64)>)> = BTreeMap::new();
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (mut helped, mut family) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').unwrap().0.to_owned();
        } else if let Some(of) = line.strip_prefix("# TYPE ") {
            let (name, kind) = of.split_once(' ').unwrap();
            assert!(name == helped && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            family = name.to_owned();
            assert!(families.insert(family.clone(), (kind.to_owned(), Vec::new())).is_none());
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            assert!(is_name(name) && name.starts_with(&family) && labels.ends_with('}'), "{line}");
            let value: f64 = value.parse().unwrap();
            families.get_mut(&family).unwrap().1.push((series.to_owned(), value));
        }
    }
    families
}

#[test]
fn prometheus_can_read_it() {
    let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..50u32 {
        table.put(&i.to_be_bytes(), b"v").unwrap();
    }
    let metrics = store.metrics().unwrap();
    let text = metrics.to_prometheus();
    assert!(text.ends_with('\n'));
    let families = parse(&text);
    assert_eq!(families.len(), metrics.samples().count());
    let (kind, series) = &families["qpair_commits_total"];
    assert_eq!((kind.as_str(), series[0].1), ("counter", metrics.commits as f64));
    for (name, (kind, series)) in &families {
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        if kind != "histogram" {
            assert_eq!(series.len(), 1, "{name}");
            continue;
        }
        let buckets: Vec<_> = series.iter().filter(|(of, _)| of.contains("_bucket{")).collect();
        assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{name}");
        let bounds: Vec<f64> = buckets
            .iter()
            .map(|(of, _)| of.split('"').nth(1).unwrap().replace("+Inf", "inf").parse().unwrap())
            .collect();
        assert!(bounds.is_sorted() && bounds.last() == Some(&f64::INFINITY), "{name}");
        let count = series.iter().find(|(of, _)| *of == format!("{name}_count")).unwrap().1;
        assert_eq!(buckets.last().unwrap().1, count);
        assert!(series.iter().any(|(of, _)| *of == format!("{name}_sum")));
    }
    drop(table);
    store.close().unwrap();
}
