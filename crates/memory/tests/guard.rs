//! Files that are truncated while they are mapped.
//!
//! An uncaught fault ends a process, so each case runs in a process of its own: this program,
//! started again with the case's name.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "skips are reported")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;

use qpair_memory::{Mapping, mappings_cut};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap};

const CASE: &str = "QPAIR_GUARD_CASE";
const LEN: usize = 4 << 20;
/// Tells AddressSanitizer, if it is used, to leave the signal to the process.
const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "handle_sigbus=0");

fn file(kind: MemfdFlags) -> Option<OwnedFd> {
    let file = rustix::fs::memfd_create("cut", MemfdFlags::CLOEXEC | kind).ok()?;
    rustix::fs::ftruncate(&file, LEN as u64).unwrap();
    Some(file)
}

fn run(case: &str) -> ExitStatus {
    let program = std::env::current_exe().unwrap();
    Command::new(program)
        .args(["--exact", "the_case", "--nocapture"])
        .env(CASE, case)
        .env(SANITIZER.0, SANITIZER.1)
        .status()
        .unwrap()
}

#[test]
fn the_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let kind = match case.as_str() {
        "huge" => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        _ => MemfdFlags::empty(),
    };
    let Some(file) = file(kind) else { return };
    let Ok(cut) = Mapping::of_file(file.as_fd(), 0, LEN, true) else {
        println!("skipped: no huge pages are reserved on this machine");
        return;
    };
    let (_own, whole_file) = Mapping::new_file(LEN).unwrap();
    let whole = Mapping::of_file(whole_file.as_fd(), 0, LEN, true).unwrap();
    cut.bytes().store_u64(LEN - 8, 7);
    whole.bytes().store_u64(LEN - 8, 8);
    if case == "other" {
        // Other code in this process maps the file, without a guard.
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, read once.
        unsafe {
            let at = mmap(null_mut(), LEN, protection, MapFlags::SHARED, &file, 0).unwrap();
            rustix::fs::ftruncate(&file, 0).unwrap();
            let _ = at.cast::<u64>().read_volatile();
        }
        unreachable!("nobody covers it");
    }
    rustix::fs::ftruncate(&file, 0).unwrap();
    assert!(!cut.is_cut(), "nobody has touched it");
    assert_eq!(cut.bytes().load_u64(LEN - 8), 0, "zeroes are there now");
    cut.bytes().store_u64(0, 9);
    cut.bytes().zero(4096, LEN - 4096);
    assert_eq!(cut.bytes().load_u64(0), 9);
    assert!(cut.is_cut() && !whole.is_cut());
    assert_eq!(mappings_cut(), 1);
    assert_eq!(whole.bytes().load_u64(LEN - 8), 8);
}

#[test]
fn a_covered_mapping_is_replaced() {
    assert!(run("covered").success());
}

#[test]
fn one_of_huge_pages_too() {
    assert!(run("huge").success());
}

#[test]
fn others_end_the_process_as_before() {
    assert_eq!(run("other").signal(), Some(7));
}

#[test]
fn a_signal_that_is_sent_ends_the_process_as_before() {
    if std::env::var(CASE).is_ok_and(|case| case == "sent") {
        let file = file(MemfdFlags::empty()).unwrap();
        let _mapping = Mapping::of_file(file.as_fd(), 0, LEN, true).unwrap();
        // The first fault makes the handler of Rust's runtime uninstall itself, as it does without
        // a guard.
        for _ in 0..2 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::BUS).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        unreachable!("the signal was swallowed");
    }
    let program = std::env::current_exe().unwrap();
    let name = "a_signal_that_is_sent_ends_the_process_as_before";
    let status = Command::new(program)
        .args(["--exact", name])
        .env(CASE, "sent")
        .env(SANITIZER.0, SANITIZER.1)
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(7));
}
