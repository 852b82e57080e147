//! Isolation: runs histories of many transactions at once, and checks that they have no anomalies.

mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{options, ram};
use history::{Anomaly, Done, Op, anomalies};
use qpair_engine::{
    ErrorKind, Isolation, Store, Table, TaskTransaction, Transaction, TransactionOptions,
};

const PAGE: usize = 512;
const LISTS: u32 = 7;

fn key(list: u32) -> Vec<u8> {
    format!("list {list}").into_bytes()
}

fn decode(value: &[u8]) -> Vec<u64> {
    value.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn appended(value: Option<Vec<u8>>, element: u64) -> Vec<u8> {
    let mut value = value.unwrap_or_default();
    value.extend_from_slice(&element.to_le_bytes());
    value
}

/// A step that a transaction is going to make.
#[derive(Clone, Copy)]
enum Plan {
    Append(u32),
    Read(u32),
    ReadAll(bool),
}

fn plan(random: &mut fastrand::Rng) -> Vec<Plan> {
    (0..random.usize(1..5))
        .map(|_| match random.u8(0..10) {
            0..5 => Plan::Append(random.u32(0..LISTS)),
            5..9 => Plan::Read(random.u32(0..LISTS)),
            _ => Plan::ReadAll(random.bool()),
        })
        .collect()
}

/// Records the reads of a whole scan. Missing lists were seen empty.
fn read_all(seen: Vec<(Vec<u8>, Vec<u8>)>, ops: &mut Vec<Op>) {
    let mut seen: BTreeMap<_, _> = seen.into_iter().collect();
    for list in 0..LISTS {
        ops.push(Op::Read(list, decode(&seen.remove(&key(list)).unwrap_or_default())));
    }
    assert!(seen.is_empty(), "{seen:?}");
}

async fn run_task(
    tx: &mut TaskTransaction,
    table: &Table,
    plan: &[Plan],
    next: &AtomicU64,
    ops: &mut Vec<Op>,
) -> qpair_engine::Result<()> {
    for step in plan {
        match step {
            Plan::Append(list) => {
                let element = next.fetch_add(1, Ordering::Relaxed);
                let value = tx.get(table, &key(*list)).await?;
                // The read before the write belongs to the history.
                ops.push(Op::Read(*list, decode(value.as_deref().unwrap_or_default())));
                tx.put(table, &key(*list), &appended(value, element)).await?;
                ops.push(Op::Append(*list, element));
            }
            Plan::Read(list) => {
                let value = tx.get(table, &key(*list)).await?.unwrap_or_default();
                ops.push(Op::Read(*list, decode(&value)));
            }
            Plan::ReadAll(reverse) => {
                let range = tx.range(table, ..)?;
                let mut range = if *reverse { range.reverse() } else { range };
                let mut seen = Vec::new();
                while let Some(record) = range.next().await? {
                    seen.push(record);
                }
                read_all(seen, ops);
            }
        }
        if fastrand::u8(0..4) == 0 {
            qpair_engine::yield_now().await;
        }
    }
    Ok(())
}

fn run_thread(
    tx: &mut Transaction,
    table: &Table,
    plan: &[Plan],
    next: &AtomicU64,
    ops: &mut Vec<Op>,
) -> qpair_engine::Result<()> {
    for step in plan {
        match step {
            Plan::Append(list) => {
                let element = next.fetch_add(1, Ordering::Relaxed);
                let value = tx.get(table, &key(*list))?;
                ops.push(Op::Read(*list, decode(value.as_deref().unwrap_or_default())));
                tx.put(table, &key(*list), &appended(value, element))?;
                ops.push(Op::Append(*list, element));
            }
            Plan::Read(list) => {
                let value = tx.get(table, &key(*list))?.unwrap_or_default();
                ops.push(Op::Read(*list, decode(&value)));
            }
            Plan::ReadAll(reverse) => {
                let range = tx.range(table, ..)?;
                let range = if *reverse { range.reverse() } else { range };
                read_all(range.collect::<Result<_, _>>()?, ops);
            }
        }
    }
    Ok(())
}

/// Returns whether a transaction of a history was committed. Only a conflict may prevent that.
fn outcome(result: qpair_engine::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            false
        }
    }
}

fn concurrent(isolation: Isolation, seed: u64) -> (Vec<Done>, BTreeMap<u32, Vec<u64>>) {
    const TASKS: u64 = 8;
    const EACH: u64 = 60;
    let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
    let table = store.table("lists").unwrap();
    let next = Arc::new(AtomicU64::new(1));
    let chosen = TransactionOptions { isolation, ..TransactionOptions::default() };
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store_task, table, next) = (store.task(), table.clone(), next.clone());
            let chosen = chosen.clone();
            store.spawn(move || async move {
                let mut random = fastrand::Rng::with_seed(seed * 100 + task);
                let mut history = Vec::new();
                for _ in 0..EACH {
                    let plan = plan(&mut random);
                    let mut tx = store_task.begin_with(&chosen);
                    let mut ops = Vec::new();
                    let ran = run_task(&mut tx, &table, &plan, &next, &mut ops).await;
                    let rollback = random.u8(0..10) == 0;
                    let committed = outcome(ran.clone()) && !rollback && {
                        outcome(tx.commit().await.map(|_| ()))
                    };
                    history.push(Done { ops, committed });
                }
                history
            })
        })
        .collect();
    let threads: Vec<_> = (0..2)
        .map(|thread| {
            let (store, table, next) = (store.clone(), table.clone(), next.clone());
            let chosen = chosen.clone();
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 100 + 50 + thread);
                let mut history = Vec::new();
                for _ in 0..EACH {
                    let plan = plan(&mut random);
                    let mut tx = store.begin_with(&chosen);
                    let mut ops = Vec::new();
                    let committed = outcome(run_thread(&mut tx, &table, &plan, &next, &mut ops))
                        && outcome(tx.commit().map(|_| ()));
                    history.push(Done { ops, committed });
                }
                history
            })
        })
        .collect();
    let mut history: Vec<_> = tasks.into_iter().flat_map(|task| task.join().unwrap()).collect();
    history.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
    let last = (0..LISTS)
        .filter_map(|list| Some((list, decode(&table.get(&key(list)).unwrap()?))))
        .collect();
    assert!(store.transactions().is_empty());
    (history, last)
}

#[test]
fn snapshot_histories_are_snapshot_isolated() {
    let mut skewed = 0;
    for seed in 0..12 {
        let (history, last) = concurrent(Isolation::Snapshot, seed);
        assert!(history.iter().filter(|done| done.committed).count() > 100);
        let mut found = anomalies(&history, &last);
        // Snapshot isolation allows write skew.
        skewed += usize::from(found.remove(&Anomaly::Serializable));
        assert_eq!(found, BTreeSet::new(), "seed {seed}");
    }
    assert!(skewed > 0, "no history was skewed: they were hardly concurrent");
}

#[test]
fn serializable_histories_are_serializable() {
    for seed in 0..12 {
        let (history, last) = concurrent(Isolation::Serializable, seed);
        assert!(history.iter().filter(|done| done.committed).count() > 50);
        assert_eq!(anomalies(&history, &last), BTreeSet::new(), "seed {seed}");
    }
}

#[test]
fn wrong_histories_are_caught() {
    use Anomaly::*;
    let done = |ops: &[Op]| Done { ops: ops.to_vec(), committed: true };
    let aborted = |ops: &[Op]| Done { ops: ops.to_vec(), committed: false };
    let append = Op::Append;
    let read = |list, seen: &[u64]| Op::Read(list, seen.to_vec());
    let last = |lists: &[(u32, &[u64])]| -> BTreeMap<u32, Vec<u64>> {
        lists.iter().map(|(list, elements)| (*list, elements.to_vec())).collect()
    };
    let cases: Vec<(&str, Vec<Done>, _, &[Anomaly])> = vec![
        (
            "nothing wrong",
            vec![done(&[append(1, 1), append(2, 2)]), done(&[read(1, &[1]), append(1, 3)])],
            last(&[(1, &[1, 3]), (2, &[2])]),
            &[],
        ),
        (
            "dirty write",
            vec![done(&[append(1, 1), append(2, 2)]), done(&[append(1, 3), append(2, 4)])],
            last(&[(1, &[1, 3]), (2, &[4, 2])]),
            &[G1c, Snapshot, Serializable],
        ),
        (
            "lost update",
            vec![done(&[read(1, &[]), append(1, 1)]), done(&[read(1, &[]), append(1, 2)])],
            last(&[(1, &[2])]),
            &[Lost],
        ),
        (
            "update of what was read before another's",
            vec![done(&[read(1, &[]), append(1, 1)]), done(&[read(1, &[]), append(1, 2)])],
            last(&[(1, &[1, 2])]),
            &[Snapshot, Serializable],
        ),
        (
            "aborted read",
            vec![aborted(&[append(1, 1)]), done(&[read(1, &[1])])],
            last(&[]),
            &[Order, G1a],
        ),
        (
            "intermediate read",
            vec![done(&[append(1, 1), append(1, 2)]), done(&[read(1, &[1])])],
            last(&[(1, &[1, 2])]),
            &[G1b, Snapshot, Serializable],
        ),
        (
            "circular reads",
            vec![done(&[append(1, 1), read(2, &[2])]), done(&[append(2, 2), read(1, &[1])])],
            last(&[(1, &[1]), (2, &[2])]),
            &[G1c, Snapshot, Serializable],
        ),
        (
            "torn read",
            vec![done(&[append(1, 1), append(2, 2)]), done(&[read(1, &[1]), read(2, &[])])],
            last(&[(1, &[1]), (2, &[2])]),
            &[Snapshot, Serializable],
        ),
        (
            "fork",
            vec![
                done(&[append(1, 1)]),
                done(&[append(2, 2)]),
                done(&[read(1, &[1]), read(2, &[])]),
                done(&[read(1, &[]), read(2, &[2])]),
            ],
            last(&[(1, &[1]), (2, &[2])]),
            &[Snapshot, Serializable],
        ),
        (
            "write skew",
            vec![done(&[read(1, &[]), append(2, 2)]), done(&[read(2, &[]), append(1, 1)])],
            last(&[(1, &[1]), (2, &[2])]),
            &[Serializable],
        ),
        (
            "a read that changes",
            vec![done(&[append(1, 1)]), done(&[read(1, &[]), read(1, &[1])])],
            last(&[(1, &[1])]),
            &[Internal, Snapshot, Serializable],
        ),
    ];
    for (name, history, last, expected) in cases {
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        assert_eq!(anomalies(&history, &last), expected, "{name}");
    }
}
