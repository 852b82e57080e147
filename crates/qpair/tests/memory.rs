//! A store in a process that can map no more memory. It is a separate process, because the test
//! changes its limit.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use qpair::Options;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A regression: a checkpoint that found no memory made the store read-only.
#[test]
fn a_checkpoint_needs_no_memory_that_was_not_mapped_before() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("s");
    let store = Options::new(&path).memory_bytes(16 << 20).workers(2).open().unwrap();
    let table = store.table("t").unwrap();
    let change = |value: u8| {
        for key in 0..3000u32 {
            table.put(&key.to_be_bytes(), &[value; 100]).unwrap();
        }
    };
    change(1);
    store.checkpoint().unwrap();
    change(2);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let now = Some(pages * rustix::param::page_size() as u64);
    setrlimit(Resource::As, Rlimit { current: now, maximum: before.maximum }).unwrap();
    let outcome = store.checkpoint();
    setrlimit(Resource::As, before).unwrap();
    outcome.unwrap();
    assert!(!store.is_read_only());
    change(3);
    drop(table);
    store.close().unwrap();
}
