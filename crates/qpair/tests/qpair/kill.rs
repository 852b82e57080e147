//! A process that works on a real file is killed at any moment, even during recovery, again and
//! again: every acknowledged commit is there, no commit is there in part, and every page is sound.
//!
//! This test proves nothing about flushes, since the kernel outlives the process. `cargo xtask sim`
//! and `guest/tests/power` test flushes.
//!
//! `QPAIR_KILL_SECONDS=600 cargo test -p qpair --test qpair kill -- --nocapture` runs for longer;
//! `QPAIR_KILL_SEED=N` begins with that seed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and say what it did"
)]

#[path = "../../examples/survivor/work.rs"]
mod work;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qpair::Options;

const STORE: &str = "QPAIR_KILL_STORE";
const SEED: &str = "QPAIR_KILL_SEED";
const SECONDS: &str = "QPAIR_KILL_SECONDS";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn options(path: &Path) -> Options {
    Options::new(path).memory_bytes(2 << 20).workers(2)
}

fn journal(store: &Path) -> PathBuf {
    store.with_extension("journal")
}

/// The child's side: the test binary runs itself with this one test.
#[test]
#[ignore = "it is the child process that the test of kills starts and kills"]
fn life() {
    let Some(store) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let journal = OpenOptions::new().append(true).create(true).open(journal(&store)).unwrap();
    let acknowledged = move |task: u32, number: u64| {
        let line = format!("ack {task} {number}\n");
        assert_eq!((&journal).write(line.as_bytes()).unwrap(), line.len());
    };
    work::work(&options(&store), number(SEED).unwrap(), acknowledged).unwrap();
}

fn begin_life(store: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::life", "--exact", "--ignored", "--nocapture"])
        .env(STORE, store)
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(store.with_extension("said")).unwrap())
        .spawn()
        .unwrap()
}

/// Judges the content of the store, and checks every page.
fn judge(store: &Path) -> work::State {
    let lines = std::fs::read(journal(store)).unwrap_or_default();
    let opened = work::open(&options(store)).unwrap();
    let state = work::judge(&opened, &work::read_journal(&lines)).unwrap();
    opened.close().unwrap();
    let opened = work::open(&options(store)).unwrap();
    let report = opened.check(&|_, _| ()).unwrap();
    assert!(report.is_sound() && report.leaked_pages == 0, "{report:?}");
    opened.close().unwrap();
    state
}

/// Returns a pseudo-random number derived from another one.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = directory.path().join("store");
    // A store needs direct I/O, which not all file systems have.
    match options(&store).open() {
        Ok(opened) => opened.close().unwrap(),
        Err(error) => {
            eprintln!("skipped: no store on this file system: {error}");
            return;
        }
    }
    let time = Duration::from_secs(number(SECONDS).unwrap_or(8));
    let mut seed = number(SEED).unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_nanos() as u64 % 1_000_000
    });
    let began = Instant::now();
    let (mut kills, mut judged, mut transactions) = (0, 0, 0);
    while began.elapsed() < time || transactions == 0 {
        seed += 1;
        let random = mix(seed);
        // Half of the kills come early, during recovery; the others at any later time.
        let most_ms = 16 << (random % 6);
        let lives_ms = 2 + mix(random) % most_ms;
        eprintln!("seed {seed}: killed after {lives_ms} ms");
        let mut child = begin_life(&store, seed);
        std::thread::sleep(Duration::from_millis(lives_ms));
        if let Some(status) = child.try_wait().unwrap() {
            let said = std::fs::read_to_string(store.with_extension("said")).unwrap();
            panic!("it ended by itself, {status}: {said}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if random >> 40 & 1 == 0 {
            let state = judge(&store);
            eprintln!("  {state}");
            transactions = state.transactions;
            judged += 1;
        }
        assert!(began.elapsed() < 10 * time, "no life was long enough to commit anything");
    }
    eprintln!("{kills} kills, {judged} states judged, {}", judge(&store));
}
