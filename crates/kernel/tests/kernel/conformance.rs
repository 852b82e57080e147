//! Every interface passes the same suite, in every mode of this machine, on a file of the build's
//! file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qpair_block::{BlockDevice, ErrorKind, Result};
use qpair_conformance::{Options, Report, run};
use qpair_kernel::{FileOptions, Mode, open};

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

    fn device(&self, mode: Mode, direct: bool, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.with_extension(number.to_string());
        let options = FileOptions { create: Some(4 << 20), direct, ..FileOptions::new(&path) };
        let device = open(&options, mode)?;
        let device = if read_only {
            drop(device);
            let options = FileOptions { create: None, read_only, ..options };
            open(&options, mode)
        } else {
            Ok(device)
        };
        // The open file stays, and its name is not needed any more.
        std::fs::remove_file(&path).unwrap();
        Ok(Arc::new(device?))
    }
}

fn suite(mode: &str, direct: bool, read_only: bool) -> Report {
    let name = mode.replace([':', ',', '='], "-");
    let scratch = Scratch::new(&format!("{name}-{direct}-{read_only}"));
    let mode: Mode = mode.parse().unwrap();
    let report = run(|| scratch.device(mode, direct, read_only).unwrap(), Options::default());
    println!("{mode}: {report}");
    report.assert_passed();
    report
}

/// Runs the suite in a mode that not every machine has.
fn suite_where_it_works(mode: &str) {
    let scratch = Scratch::new(&format!("probe-{}", mode.replace([':', ',', '='], "-")));
    match scratch.device(mode.parse().unwrap(), true, false) {
        Ok(device) => println!("{mode}: {}", device.info().mode),
        Err(error) => {
            let expected = [ErrorKind::Unsupported, ErrorKind::Denied, ErrorKind::Limit];
            assert!(expected.contains(&error.kind()), "{error}");
            assert!(error.way_out().is_some(), "{error}");
            return println!("skipped: {mode}: {error}");
        }
    }
    suite(mode, true, false);
}

fn skipped(report: &Report) -> Vec<&str> {
    report.skipped().map(|(name, _)| name).collect()
}

#[test]
fn io_uring() {
    let report = suite("io_uring", true, false);
    assert_eq!(skipped(&report), ["read_only_refuses_writes", "reset"], "{report}");
}

/// The channel that `auto` opens, which changes only under load.
#[test]
fn auto() {
    suite("auto", true, false);
    suite("auto", false, false);
}

#[test]
fn io_uring_through_the_page_cache() {
    suite("io_uring", false, false);
}

#[test]
fn io_uring_read_only() {
    let report = suite("io_uring", true, true);
    assert!(report.passed().any(|name| name == "read_only_refuses_writes"), "{report}");
}

#[test]
fn io_uring_with_nothing_registered() {
    suite("io_uring:buffers=off,file=off,ring=off", true, false);
}

#[test]
fn io_uring_task_run() {
    suite_where_it_works("io_uring:task_run=defer");
    suite_where_it_works("io_uring:task_run=coop");
    suite_where_it_works("io_uring:task_run=interrupt");
}

#[test]
fn io_uring_vectors() {
    suite("io_uring:segments=4", true, false);
    suite("io_uring:buffers=off,segments=3", true, false);
}

#[test]
fn io_uring_beside_a_thread() {
    suite_where_it_works("io_uring+k:idle_ms=20");
    // The idle time is so short that the thread sleeps between requests.
    suite_where_it_works("io_uring+k:idle_ms=1,file=off,ring=off");
}

#[test]
fn io_uring_beside_a_shared_thread() {
    suite_where_it_works("io_uring+k:idle_ms=20,shared=on");
    suite_where_it_works("io_uring+k:idle_ms=20,cpu=0,shared=on,segments=2");
}

#[test]
fn io_uring_beside_a_thread_through_the_page_cache() {
    suite("io_uring+k:idle_ms=20", false, false);
}

#[test]
fn io_uring_polled() {
    suite_where_it_works("io_uring+p");
    suite_where_it_works("io_uring+p:hybrid=on");
    suite_where_it_works("io_uring+k+p:idle_ms=20");
}

#[test]
fn libaio() {
    let report = suite("libaio", true, false);
    // Linux asynchronous I/O has no such commands, and kernel devices have no reset.
    assert_eq!(
        skipped(&report),
        ["discard", "write_zeroes", "read_only_refuses_writes", "reset"],
        "{report}"
    );
}

#[test]
fn libaio_by_calls() {
    suite("libaio:mapped=off", true, false);
}

#[test]
fn libaio_vectors() {
    suite("libaio:segments=4", true, false);
}

#[test]
fn libaio_through_the_page_cache() {
    suite("libaio", false, false);
}

#[test]
fn libaio_read_only() {
    suite("libaio", true, true);
}

#[test]
fn posix() {
    let report = suite("posix", true, false);
    assert_eq!(skipped(&report), ["read_only_refuses_writes", "reset"], "{report}");
}

#[test]
fn posix_on_one_thread() {
    suite("posix:threads=1", true, false);
}

#[test]
fn posix_by_the_submitter() {
    let report = suite("posix:threads=0", true, false);
    // Requests complete only within the submitter's calls.
    assert_eq!(
        skipped(&report),
        ["read_only_refuses_writes", "completion_fd", "reset"],
        "{report}"
    );
}

#[test]
fn posix_vectors() {
    suite("posix:segments=4", true, false);
    suite("posix:segments=4,threads=0", true, false);
}

#[test]
fn posix_through_the_page_cache() {
    suite("posix", false, false);
    suite("posix:threads=0", false, false);
}

#[test]
fn posix_read_only() {
    suite("posix", true, true);
    suite("posix:threads=0", true, true);
}
