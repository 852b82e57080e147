//! Readers beside a writer in another process, on a real file. Writers and readers are killed at
//! any moment; checkpoints follow one another quickly and use freed space at once. Whatever is read
//! is the state of one checkpoint, and no older one than was seen before.
//!
//! `QPAIR_BESIDE_SECONDS=600 cargo test -p qpair --test qpair beside -- --nocapture` runs for
//! longer.

#![allow(clippy::print_stderr, reason = "a test that is skipped, or that runs for long, says so")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qpair::{Error, ErrorKind, Follower, Options, Result, Store};

const STORE: &str = "QPAIR_BESIDE_STORE";
const ROLE: &str = "QPAIR_BESIDE_ROLE";
const SECONDS: &str = "QPAIR_BESIDE_SECONDS";
const KEYS: u64 = 400;
const COUNTER: &[u8] = b"zz counter";

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(path: &Path) -> Options {
    Options::new(path).memory_bytes(2 << 20).workers(2)
}

/// Returns the key that a commit changes, and its value, which is large for some.
fn change(commit: u64) -> (Vec<u8>, Vec<u8>) {
    let mut rng = fastrand::Rng::with_seed(commit);
    let mut value = commit.to_be_bytes().to_vec();
    value.resize(if rng.u8(0..32) == 0 { 20_000 } else { rng.usize(8..800) }, commit as u8);
    (format!("key {:04}", rng.u64(..KEYS)).into_bytes(), value)
}

fn counter_in(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Adds the changes of the commits after `from` up to `to`.
fn advance(state: &mut State, from: u64, to: u64) {
    state.extend((from + 1..=to).map(change));
    state.insert(COUNTER.to_vec(), to.to_be_bytes().to_vec());
}

fn write(path: &Path) -> Result<()> {
    let most = if fastrand::bool() { 1 << 30 } else { 256 << 10 };
    let store = options(path).readers_bytes_max(most).checkpoint_bytes(1 << 20).open()?;
    let table = store.table("t")?;
    let mut commits = table.get(COUNTER)?.map_or(0, |value| counter_in(&value));
    loop {
        commits += 1;
        let (key, value) = change(commits);
        let mut transaction = store.begin();
        transaction.put(&table, &key, &value)?;
        transaction.put(&table, COUNTER, &commits.to_be_bytes())?;
        transaction.commit()?;
        if fastrand::u8(0..40) == 0 {
            store.checkpoint()?;
        }
        if fastrand::u16(0..2000) == 0 {
            // The parent starts another one.
            return store.close();
        }
    }
}

fn scan(store: &Store) -> Result<State> {
    match store.existing_table("t")? {
        Some(table) => table.range(..)?.collect(),
        None => Ok(State::new()),
    }
}

/// The child's side: the test binary runs itself with this one test.
#[test]
#[ignore = "it is the child process that the test of readers starts and kills"]
fn life() {
    let Some(store) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    if std::env::var(ROLE).unwrap() == "writer" {
        return write(&store).unwrap();
    }
    let follower = follow(&store);
    loop {
        let read = follower.store().and_then(|store| scan(&store));
        if let Err(error) = read {
            assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
        }
    }
}

fn begin_life(store: &Path, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["beside::life", "--exact", "--ignored", "--nocapture"])
        .env(STORE, store)
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until there is a store that can be followed.
fn follow(path: &Path) -> Follower {
    let begun = Instant::now();
    loop {
        match options(path).follow() {
            Ok(follower) => return follower,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child, and when it is killed.
struct Life {
    role: &'static str,
    child: Child,
    until: Instant,
}

impl Life {
    fn begin(path: &Path, role: &'static str) -> Self {
        let time = Duration::from_millis(fastrand::u64(20..3000));
        Self { role, child: begin_life(path, role), until: Instant::now() + time }
    }

    /// Kills the child if its time is over, and starts another one. Returns whether it did.
    fn renew(&mut self, path: &Path) -> bool {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none_or(|status| status.success()), "a {} failed", self.role);
        let is_over = ended.is_some() || Instant::now() >= self.until;
        if is_over {
            self.end();
            *self = Self::begin(path, self.role);
        }
        is_over
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
fn what_readers_see_is_one_checkpoint() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("store");
    // A store needs direct I/O, which not all file systems have.
    match options(&path).open() {
        Ok(opened) => {
            opened.table("t").unwrap();
            opened.close().unwrap();
        }
        Err(error) => {
            eprintln!("skipped: no store on this file system: {error}");
            return;
        }
    }
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
    let (time, begun) = (Duration::from_secs(seconds.unwrap_or(8)), Instant::now());
    let mut lives = [Life::begin(&path, "writer"), Life::begin(&path, "reader")];
    let follower = follow(&path);
    let (mut state, mut at) = (State::new(), 0);
    let (mut checkpoints, mut reads, mut lost, mut kills) = (0, 0, 0, 0);
    let lost_only = |error: Error| assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
    while begun.elapsed() < time || checkpoints < 5 {
        assert!(begun.elapsed() < 20 * time, "{checkpoints} checkpoints seen");
        kills += lives.iter_mut().map(|life| u32::from(life.renew(&path))).sum::<u32>();
        let read = follower.store().and_then(|store| {
            // Some reads come when the checkpoint is no longer the newest.
            std::thread::sleep(Duration::from_millis(fastrand::u64(0..20)));
            scan(&store)
        });
        match read {
            Ok(found) if found.is_empty() => assert_eq!(at, 0, "an older checkpoint was seen"),
            Ok(found) => {
                let counter = counter_in(&found[COUNTER]);
                assert!(counter >= at, "{counter} seen after {at}");
                checkpoints += u32::from(counter > at);
                advance(&mut state, at, counter);
                at = counter;
                assert!(found == state, "not the state after {at} commits");
                reads += 1;
            }
            Err(error) => {
                lost_only(error);
                lost += 1;
            }
        }
    }
    lives.iter_mut().for_each(Life::end);
    drop(follower);
    let store = options(&path).open().unwrap();
    let found = scan(&store).unwrap();
    advance(&mut state, at, counter_in(&found[COUNTER]));
    assert!(found == state, "not what the writers committed");
    store.close().unwrap();
    eprintln!("{reads} reads of {checkpoints} checkpoints, {lost} lost, {kills} lives");
}

#[test]
fn a_reader_keeps_its_checkpoint_and_a_follower_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let options = || options(&path).buffered(true);
    let writer = options().open().unwrap();
    let table = writer.table("t").unwrap();
    table.put(b"k", b"1").unwrap();
    writer.checkpoint().unwrap();
    let (reader, report) = options().read_only(true).open_with_report().unwrap();
    assert!(report.beside_writer && !report.created);
    let seen = reader.existing_table("t").unwrap().unwrap();
    assert_eq!(seen.put(b"k", b"x").unwrap_err().kind(), ErrorKind::ReadOnly);
    let follower = options().follow().unwrap();
    for number in 2..20u8 {
        table.put(b"k", &[number]).unwrap();
        writer.checkpoint().unwrap();
        let newest = follower.store().unwrap().existing_table("t").unwrap().unwrap();
        assert_eq!(newest.get(b"k").unwrap().unwrap(), [number]);
        assert_eq!(seen.get(b"k").unwrap().unwrap(), b"1");
    }
    assert!(writer.metrics().unwrap().reader_checkpoints >= 1);
    // A backup of what the reader sees.
    let copy = directory.path().join("copy");
    let to = Options::new(&copy).buffered(true);
    to.backup_of(&reader, &|_, _| std::ops::ControlFlow::Continue(())).unwrap();
    let copied = Options::new(&copy).memory_bytes(2 << 20).buffered(true).open().unwrap();
    assert_eq!(copied.existing_table("t").unwrap().unwrap().get(b"k").unwrap().unwrap(), b"1");
    assert!(reader.check(&|_, _| ()).unwrap().is_sound());
    drop((table, seen, reader));
    // A follower keeps no writer from closing, nor from opening the store again.
    writer.close().unwrap();
    let writer = options().open().unwrap();
    writer.table("t").unwrap().put(b"k", b"again").unwrap();
    writer.checkpoint().unwrap();
    let newest = follower.store().unwrap().existing_table("t").unwrap().unwrap();
    assert_eq!(newest.get(b"k").unwrap().unwrap(), b"again");
    drop((newest, follower));
    writer.close().unwrap();
}

#[test]
fn checkpoints_come_at_intervals() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let every = Duration::from_millis(20);
    let writer = options(&path).buffered(true).checkpoint_every(every).open().unwrap();
    writer.table("t").unwrap().put(b"k", b"v").unwrap();
    let follower = options(&path).buffered(true).follow().unwrap();
    let sees = || {
        let table = follower.store().unwrap().existing_table("t").unwrap();
        table.is_some_and(|table| table.get(b"k").unwrap().is_some())
    };
    let begun = Instant::now();
    while !sees() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no checkpoint came");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Without changes none comes.
    let made = || writer.metrics().unwrap().checkpoints;
    std::thread::sleep(5 * every);
    let before = made();
    std::thread::sleep(5 * every);
    assert_eq!(made(), before);
    drop(follower);
    writer.close().unwrap();
}
