//! A process that installs one large snapshot after the other is killed by signal 9. The state is
//! one of the two, with its position, and nothing is left over.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use openraft::entry::RaftEntry;
use openraft::storage::RaftStateMachine;
use openraft::testing::log_id;
use openraft::{RaftSnapshotBuilder, RaftTypeConfig};
use openraft_0_10 as openraft;
use qpair::{Options, Store};
use qpair_openraft::{Application, Group, State, v0_10};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

openraft::declare_raft_types!(Types: D = String, R = ());
type Entry = <Types as RaftTypeConfig>::Entry;

/// The environment variable that has the store's path for the process that is killed.
const PATH: &str = "QPAIR_OPENRAFT_TEST_STORE";
const RECORDS: usize = 4_000;

/// Puts 4 MB whose values begin with the request's text.
struct Texts;

impl Application<Entry, ()> for Texts {
    fn apply(&self, state: &mut State<'_>, entry: &Entry) -> qpair::Result<()> {
        let openraft::EntryPayload::Normal(text) = &entry.payload else { return Ok(()) };
        let value = text.repeat(1_000 / text.len());
        for record in 0..RECORDS {
            state.put(format!("{record:06}").as_bytes(), value.as_bytes())?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> Store {
    Options::new(path).memory_bytes(32 << 20).buffered(true).open().unwrap()
}

/// Makes a group with a snapshot of the state after one entry, whose text is the group's name.
async fn make_source(store: &Store, name: &str, index: u64) {
    let group = Group::open(store, name).unwrap();
    let (_, mut machine) = v0_10::storage(&group, Texts);
    let entry = Entry::new_normal(log_id::<Types>(1, 0, index), name.to_owned());
    let entries = futures_util::stream::iter([Ok((entry, None))]);
    RaftStateMachine::<Types>::apply(&mut machine, entries).await.unwrap();
    let builder = RaftStateMachine::<Types>::try_create_snapshot_builder(&mut machine, true).await;
    RaftSnapshotBuilder::<Types>::build_snapshot(&mut builder.unwrap()).await.unwrap();
}

async fn install(store: &Store, from: &str, group: &Group) {
    let (_, mut source) = v0_10::storage(&Group::open(store, from).unwrap(), Texts);
    let snapshot = RaftStateMachine::<Types>::get_current_snapshot(&mut source).await.unwrap();
    let snapshot = snapshot.unwrap();
    let (_, mut machine) = v0_10::storage(group, Texts);
    RaftStateMachine::<Types>::install_snapshot(&mut machine, &snapshot.meta, snapshot.snapshot)
        .await
        .unwrap();
}

/// The process that is killed; by itself it does nothing.
#[tokio::test]
async fn installs_until_it_is_killed() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let store = open(Path::new(&path));
    let group = Group::open(&store, "a").unwrap();
    println!("begins");
    loop {
        for from in ["two", "one"] {
            install(&store, from, &group).await;
        }
    }
}

#[tokio::test]
async fn a_kill_leaves_the_old_or_the_new_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.qpair");
    let store = open(&path);
    make_source(&store, "one", 1).await;
    make_source(&store, "two", 2).await;
    let group = Group::open(&store, "a").unwrap();
    install(&store, "one", &group).await;
    drop(group);
    store.close().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut generation = 1;
    for _ in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "installs_until_it_is_killed", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("begins")), "the child ended early");
        tokio::time::sleep(Duration::from_millis(random.u64(..1_000))).await;
        child.kill().unwrap();
        child.wait().unwrap();

        let store = open(&path);
        let group = Group::open(&store, "a").unwrap();
        let (_, mut machine) = v0_10::storage(&group, Texts);
        let applied = RaftStateMachine::<Types>::applied_state(&mut machine).await.unwrap().0;
        let text = if applied == Some(log_id::<Types>(1, 0, 1)) { "one" } else { "two" };
        let mut reader = group.reader();
        let mut records = 0;
        for record in reader.range(..).unwrap() {
            let (_, value) = record.unwrap();
            assert!(value.starts_with(text.as_bytes()), "a record is not of {text}");
            records += 1;
        }
        assert_eq!(records, RECORDS);
        let current = RaftStateMachine::<Types>::get_current_snapshot(&mut machine).await.unwrap();
        assert_eq!(current.unwrap().meta.last_log_id, applied);
        let names = store.table_names().unwrap();
        let states: Vec<_> =
            names.iter().filter_map(|name| name.strip_prefix("raft/a/data.")).collect();
        assert_eq!(states.len(), 1, "{states:?}");
        let now: u64 = states[0].parse().unwrap();
        println!("{} installed, then killed; the state is that of {text}", now - generation);
        generation = now;
        let chunks = store.table("raft/a/snapshots").unwrap().range(..).unwrap().count();
        assert_eq!(chunks, 4);
        drop((reader, machine, group));
        store.close().unwrap();
    }
}
