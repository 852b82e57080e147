//! Every interface passes the one suite, on a file of the file system that the build is on.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "skips are reported")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qpair_block::BlockDevice;
use qpair_conformance::{Options, Report, run};
use qpair_kernel::{FileOptions, Interface, open};

/// A file that goes away with the test.
struct Scratch {
    path: PathBuf,
    next: AtomicU32,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("conformance-{name}-{}", std::process::id());
        Self {
            path: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name),
            next: AtomicU32::new(0),
        }
    }

    /// A new file for each check.
    fn device(&self, interface: Interface, direct: bool, read_only: bool) -> Arc<dyn BlockDevice> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.with_extension(number.to_string());
        let options = FileOptions { create: Some(4 << 20), direct, ..FileOptions::new(&path) };
        let device = open(&options, interface).unwrap();
        let device = if read_only {
            drop(device);
            let options = FileOptions { create: None, read_only, ..options };
            open(&options, interface).unwrap()
        } else {
            device
        };
        // The open file stays; its name is not needed any more.
        std::fs::remove_file(&path).unwrap();
        Arc::new(device)
    }
}

fn suite(name: &str, interface: Interface, direct: bool, read_only: bool) -> Report {
    let scratch = Scratch::new(name);
    let report = run(|| scratch.device(interface, direct, read_only), Options::default());
    println!("{report}");
    report.assert_passed();
    report
}

fn skipped(report: &Report) -> Vec<&str> {
    report.skipped().map(|(name, _)| name).collect()
}

#[test]
fn io_uring() {
    let report = suite("io_uring", Interface::IoUring, true, false);
    assert_eq!(skipped(&report), ["read_only_refuses_writes"], "{report}");
}

#[test]
fn io_uring_through_the_page_cache() {
    suite("io_uring-cached", Interface::IoUring, false, false);
}

#[test]
fn io_uring_read_only() {
    let report = suite("io_uring-read-only", Interface::IoUring, true, true);
    assert!(report.passed().any(|name| name == "read_only_refuses_writes"), "{report}");
}

#[test]
fn libaio() {
    let report = suite("libaio", Interface::Libaio, true, false);
    // Linux asynchronous I/O has no such commands.
    assert_eq!(
        skipped(&report),
        ["discard", "write_zeroes", "read_only_refuses_writes"],
        "{report}"
    );
}

#[test]
fn libaio_through_the_page_cache() {
    suite("libaio-cached", Interface::Libaio, false, false);
}

#[test]
fn libaio_read_only() {
    suite("libaio-read-only", Interface::Libaio, true, true);
}

#[test]
fn posix() {
    let report = suite("posix", Interface::Posix, true, false);
    assert_eq!(skipped(&report), ["read_only_refuses_writes"], "{report}");
}

#[test]
fn posix_through_the_page_cache() {
    suite("posix-cached", Interface::Posix, false, false);
}

#[test]
fn posix_read_only() {
    suite("posix-read-only", Interface::Posix, true, true);
}
