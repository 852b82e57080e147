//! Snapshots much larger than the memory that building, sending and installing one may hold.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use openraft::entry::RaftEntry;
use openraft::storage::RaftStateMachine;
use openraft::testing::log_id;
use openraft::{RaftSnapshotBuilder, RaftTypeConfig};
use openraft_0_10 as openraft;
use qpair::Options;
use qpair_openraft::{Application, Group, State, StoredSnapshot, check_snapshot, v0_10};
use std::io::SeekFrom;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

openraft::declare_raft_types!(Types: D = String, R = ());
type Entry = <Types as RaftTypeConfig>::Entry;
type Machine = v0_10::StateMachine<Texts>;

const VALUE_LEN: usize = 4_000;
const RECORDS_PER_ENTRY: usize = 256;

/// Puts 1 MB for each request.
struct Texts;

impl Application<Entry, ()> for Texts {
    fn apply(&self, state: &mut State<'_>, entry: &Entry) -> qpair::Result<()> {
        let openraft::EntryPayload::Normal(text) = &entry.payload else { return Ok(()) };
        for part in 0..RECORDS_PER_ENTRY {
            state.put(format!("{text}-{part:03}").as_bytes(), &[part as u8; VALUE_LEN])?;
        }
        Ok(())
    }
}

async fn apply(machine: &mut Machine, indexes: std::ops::Range<u64>) {
    for index in indexes {
        let entry = Entry::new_normal(log_id::<Types>(1, 0, index), format!("text-{index:06}"));
        let entries = futures_util::stream::iter([Ok((entry, None))]);
        RaftStateMachine::<Types>::apply(machine, entries).await.unwrap();
    }
}

async fn build(
    machine: &mut Machine,
) -> openraft::type_config::alias::SnapshotOf<Types, StoredSnapshot> {
    let builder = RaftStateMachine::<Types>::try_create_snapshot_builder(machine, true).await;
    RaftSnapshotBuilder::<Types>::build_snapshot(&mut builder.unwrap()).await.unwrap()
}

/// The process's memory in KiB: what it has now, or the most that it had.
fn memory_kib(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    found.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Copies by parts of a quarter MiB, as a network does.
async fn send(from: &mut StoredSnapshot, to: &mut StoredSnapshot) {
    let mut part = Vec::new();
    loop {
        part.clear();
        if from.take(256 << 10).read_to_end(&mut part).await.unwrap() == 0 {
            return;
        }
        to.write_all(&part).await.unwrap();
    }
}

#[tokio::test]
async fn memory_does_not_grow_with_the_state() {
    const STATE_MB: u64 = 48;
    const HELD_MIB_MAX: u64 = 24;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.qpair");
    let store = Options::new(&path).memory_bytes(32 << 20).buffered(true).open().unwrap();
    let group = Group::open(&store, "a").unwrap();
    let (_, mut machine) = v0_10::storage(&group, Texts);
    // By now the store has the memory that it was given.
    apply(&mut machine, 0..STATE_MB).await;
    let other = Group::open(&store, "b").unwrap();
    let (_, mut receiver) = v0_10::storage(&other, Texts);
    let has_peak = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = memory_kib("VmRSS");

    let mut built = build(&mut machine).await;
    assert!(built.snapshot.stored_len() > STATE_MB * 1_000_000);
    let mut received = other.receive_snapshot().await.unwrap();
    send(&mut built.snapshot, &mut received).await;
    assert_eq!(received.stored_len(), built.snapshot.stored_len());
    RaftStateMachine::<Types>::install_snapshot(&mut receiver, &built.meta, received)
        .await
        .unwrap();
    let held = memory_kib("VmHWM").saturating_sub(before);
    if has_peak {
        println!("{held} KiB more at most, for a state of {STATE_MB} MB");
        assert!(held < HELD_MIB_MAX << 10, "{held} KiB more");
    } else {
        println!("skipped: the peak of the process's memory cannot be set back");
    }
    assert_eq!(other.reader().range(..).unwrap().count(), STATE_MB as usize * RECORDS_PER_ENTRY);
    drop((built, machine, receiver, group, other));
    store.close().unwrap();
}

#[tokio::test]
async fn a_handle_keeps_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.qpair");
    let store = Options::new(&path).memory_bytes(32 << 20).buffered(true).open().unwrap();
    let group = Group::open(&store, "a").unwrap();
    let (_, mut machine) = v0_10::storage(&group, Texts);
    apply(&mut machine, 0..3).await;
    let mut first = build(&mut machine).await;
    apply(&mut machine, 3..4).await;
    let second = build(&mut machine).await;
    assert_eq!(chunks(&store), 3 + 4);
    // A reader of the state that an installation replaces.
    let mut reader = group.reader();
    RaftStateMachine::<Types>::install_snapshot(&mut machine, &second.meta, second.snapshot)
        .await
        .unwrap();
    assert_eq!(reader.range(..).unwrap().count(), 4 * RECORDS_PER_ENTRY);
    drop(reader);

    // Parts that come twice, or in pieces of any length.
    let other = Group::open(&store, "b").unwrap();
    let mut received = other.receive_snapshot().await.unwrap();
    assert!(first.snapshot.write_all(&[1]).await.is_err());
    send(&mut first.snapshot, &mut received).await;
    for from in [1_000_000, 2_097_152, 10] {
        let mut again = vec![0; 900_000];
        first.snapshot.seek(SeekFrom::Start(from)).await.unwrap();
        first.snapshot.read_exact(&mut again).await.unwrap();
        received.seek(SeekFrom::Start(from)).await.unwrap();
        received.write_all(&again).await.unwrap();
    }
    assert_eq!(received.stored_len(), first.snapshot.stored_len());
    received.seek(SeekFrom::End(1)).await.unwrap();
    assert!(received.write_all(&[1]).await.is_err());
    received.rewind().await.unwrap();
    let mut bytes = Vec::new();
    received.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(check_snapshot(&bytes[..]).unwrap(), 3 * RECORDS_PER_ENTRY as u64);

    // What is no whole snapshot is refused, and changes nothing.
    let (_, mut receiver) = v0_10::storage(&other, Texts);
    let mut wrong = other.receive_snapshot().await.unwrap();
    wrong.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
    assert!(
        RaftStateMachine::<Types>::install_snapshot(&mut receiver, &first.meta, wrong)
            .await
            .is_err()
    );
    assert_eq!(other.reader().range(..).unwrap().count(), 0);
    RaftStateMachine::<Types>::install_snapshot(&mut receiver, &first.meta, received)
        .await
        .unwrap();
    assert_eq!(other.reader().range(..).unwrap().count(), 3 * RECORDS_PER_ENTRY);

    // The next snapshot removes the chunks of those that nobody holds any more.
    drop(first);
    build(&mut machine).await;
    build(&mut receiver).await;
    assert_eq!(chunks(&store), 4);
    let names = store.table_names().unwrap();
    assert_eq!(names.iter().filter(|name| name.contains("/data.")).count(), 2, "{names:?}");
    drop((machine, receiver, group, other));
    store.close().unwrap();
}

/// The chunks of group `a`.
fn chunks(store: &qpair::Store) -> usize {
    store.table("raft/a/snapshots").unwrap().range(..).unwrap().count()
}
