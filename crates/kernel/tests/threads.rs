//! Tests how many submission threads there are, and on which processors. This is a separate
//! process, because it counts threads.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "skips are reported")]

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{BlockDevice, ChannelOptions, ErrorKind, Request, WaitOptions};
use qpair_kernel::{FileOptions, Mode, open};

fn submission_threads() -> usize {
    let mut threads = HashSet::new();
    for ring in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
        let info = std::fs::read_to_string(ring.unwrap().path()).unwrap_or_default();
        let thread = info.lines().find_map(|line| line.strip_prefix("SqThread:"));
        threads.extend(thread.map(|thread| thread.trim().to_owned()).filter(|id| id != "-1"));
    }
    threads.len()
}

/// Returns the number of threads while `channels` channels of `mode` are open, each on a separate
/// thread.
fn threads_of(mode: &str, channels: usize) -> Option<usize> {
    let name = format!("threads-{}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
    let device = match open(&options, mode.parse::<Mode>().unwrap()) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {mode}: {error}");
            return None;
        }
    };
    std::fs::remove_file(&path).unwrap();
    let barrier = std::sync::Barrier::new(channels + 1);
    std::thread::scope(|scope| {
        for _ in 0..channels {
            scope.spawn(|| {
                let mut channel = device.open_channel(&ChannelOptions::default()).unwrap();
                // The kernel shows a thread once it has run.
                channel.submit(Request::flush(0)).unwrap();
                let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
                assert_eq!(channel.wait(&mut Vec::new(), one), 1);
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        let count = submission_threads();
        barrier.wait();
        Some(count)
    })
}

#[test]
fn threads_are_shared_where_asked() {
    for (mode, channels, wanted) in [
        ("io_uring", 3, 0),
        ("io_uring+k:idle_ms=1", 3, 3),
        ("io_uring+k:idle_ms=1,shared=on", 3, 1),
        ("io_uring+k:idle_ms=1,cpu=0,shared=on", 2, 1),
    ] {
        if let Some(count) = threads_of(mode, channels) {
            assert_eq!(count, wanted, "{mode}, {channels} channels");
        }
    }
    // A processor number that no machine has.
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("threads-no-cpu");
    let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
    let error = open(&options, "io_uring+k:cpu=65000".parse::<Mode>().unwrap()).unwrap_err();
    assert!(!path.exists());
    if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) {
        return println!("skipped: {error}");
    }
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("processor 65000"), "{error}");
    assert!(error.way_out().unwrap().contains("online"), "{error}");
}
