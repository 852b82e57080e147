//! A group that is opened again, after what fills more than one transaction.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::log_id;
use openraft::{RaftLogReader, RaftSnapshotBuilder, RaftTypeConfig};
use openraft_0_10 as openraft;
use qpair::Options;
use qpair_openraft::{Application, Group, State, v0_10};

openraft::declare_raft_types!(Types: D = String, R = ());
type Entry = <Types as RaftTypeConfig>::Entry;

/// Puts each request's text, 100 times.
struct Texts;

impl Application<Entry, ()> for Texts {
    fn apply(&self, state: &mut State<'_>, entry: &Entry) -> qpair::Result<()> {
        let openraft::EntryPayload::Normal(text) = &entry.payload else { return Ok(()) };
        for part in 0..100 {
            state.put(format!("{text}-{part:03}").as_bytes(), &[7; 1_000])?;
        }
        Ok(())
    }
}

fn entry(index: u64) -> Entry {
    Entry::new_normal(log_id::<Types>(1, 0, index), format!("text-{index:06}"))
}

async fn apply(machine: &mut v0_10::StateMachine<Texts>, indexes: std::ops::Range<u64>) {
    let entries = indexes.map(|index| Ok((entry(index), None)));
    RaftStateMachine::<Types>::apply(machine, futures_util::stream::iter(entries)).await.unwrap();
}

#[tokio::test]
async fn a_group_is_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.qpair");
    let open = || Options::new(&path).memory_bytes(32 << 20).buffered(true).open().unwrap();
    let store = open();
    let group = Group::open(&store, "a").unwrap();
    let (mut log, _) = v0_10::storage(&group, Texts);
    // More than a transaction of a purge or a truncation removes.
    RaftLogStorageExt::<Types>::blocking_append(&mut log, (0..50_000).map(entry)).await.unwrap();
    RaftLogStorage::<Types>::purge(&mut log, log_id::<Types>(1, 0, 21_000)).await.unwrap();
    let last = Some(log_id::<Types>(1, 0, 24_999));
    RaftLogStorage::<Types>::truncate_after(&mut log, last).await.unwrap();

    // A snapshot of more bytes than a transaction installs, and of another group of the store.
    let other = Group::open(&store, "b").unwrap();
    let (_, mut source) = v0_10::storage(&other, Texts);
    apply(&mut source, 0..100).await;
    let mut builder =
        RaftStateMachine::<Types>::try_create_snapshot_builder(&mut source, true).await.unwrap();
    apply(&mut source, 100..101).await;
    let built = RaftSnapshotBuilder::<Types>::build_snapshot(&mut builder).await.unwrap();
    let (_, mut machine) = v0_10::storage(&group, Texts);
    apply(&mut machine, 900..901).await;
    RaftStateMachine::<Types>::install_snapshot(&mut machine, &built.meta, built.snapshot)
        .await
        .unwrap();
    drop((log, machine, group, source, builder, other));
    store.close().unwrap();

    let store = open();
    let group = Group::open(&store, "a").unwrap();
    let (mut log, mut machine) = v0_10::storage(&group, Texts);
    let state = RaftLogStorage::<Types>::get_log_state(&mut log).await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id::<Types>(1, 0, 21_000)));
    assert_eq!(state.last_log_id, Some(log_id::<Types>(1, 0, 24_999)));
    let entries = RaftLogReader::<Types>::try_get_log_entries(&mut log, ..).await.unwrap();
    assert!(entries.iter().map(RaftEntry::index).eq(21_001..25_000));
    // The state is the one at the moment of the builder: neither the later entry nor the old state.
    let records = group.reader().range(..).unwrap().count();
    assert_eq!(records, 100 * 100);
    let applied = RaftStateMachine::<Types>::applied_state(&mut machine).await.unwrap().0;
    assert_eq!(applied, Some(log_id::<Types>(1, 0, 99)));
    let current = RaftStateMachine::<Types>::get_current_snapshot(&mut machine).await.unwrap();
    assert_eq!(current.unwrap().meta, built.meta);
    let names = store.table_names().unwrap();
    assert!(
        names.contains(&"raft/a/data.1".to_owned()) && !names.contains(&"raft/a/data.0".to_owned())
    );
}
