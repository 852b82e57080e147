//! Runs profiles over the files of a folder.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::time::Duration;

use qpair_block::ErrorKind;
use qpair_workload::{FilesOptions, FilesReport, Profile, Unwatched, run_files};

fn options(folder: &tempfile::TempDir, name: &str, loops: u64) -> FilesOptions {
    let mut profile = Profile::named(name).unwrap();
    profile.files = profile.files.min(60);
    profile.file_bytes = profile.file_bytes.min(64 << 10);
    for role in &mut profile.roles {
        role.threads = role.threads.min(4);
    }
    FilesOptions {
        profile,
        folder: folder.path().to_owned(),
        runtime: Duration::from_secs(3600),
        loops: Some(loops),
        drop_caches: false,
        seed: 7,
    }
}

fn counts(report: &FilesReport) -> Vec<(&'static str, u64)> {
    report.operations.iter().map(|(name, did)| (*name, did.count)).collect()
}

#[test]
fn each_thread_goes_through_its_flow() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| run_files(&options(&folder, name, 5), &Unwatched).unwrap();
    // Four threads, five passes each.
    let whole = run("read-files");
    assert_eq!(counts(&whole), [("close", 20), ("open", 20), ("read", 20)]);
    assert_eq!((whole.bytes, whole.operations["read"].bytes), (60 << 14, 20 << 14));
    assert_eq!(run("write-files").operations["write"].bytes, 20 << 14);
    let web = run("webserver");
    assert_eq!(counts(&web), [("close", 200), ("log-append", 20), ("open", 200), ("read", 200)]);
    // Sizes have a gamma distribution with the same mean.
    assert!(
        web.bytes != 60 << 14 && web.bytes > 30 << 14 && web.bytes < 120 << 14,
        "{}",
        web.bytes
    );
    assert_eq!(
        counts(&run("fileserver")),
        [
            ("append", 20),
            ("close", 60),
            ("create", 20),
            ("delete", 20),
            ("open", 40),
            ("read", 20),
            ("stat", 20),
            ("write", 20)
        ]
    );
    assert_eq!(
        counts(&run("varmail")),
        [
            ("append", 40),
            ("close", 60),
            ("create", 20),
            ("delete", 20),
            ("fsync", 40),
            ("open", 40),
            ("read", 40)
        ]
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn writers_of_a_database_write_as_its_readers_read() {
    let folder = tempfile::tempdir().unwrap();
    let report = run_files(&options(&folder, "oltp", 2000), &Unwatched).unwrap();
    let did = &report.operations;
    assert_eq!(did["record-read"].count, 8000);
    // A round of 100 for each 1000 reads, and a block of the log for each 3200.
    assert_eq!((did["record-write"].count, did["log-write"].count), (800, 2));
    assert_eq!(did["log-write"].bytes, did["log-write"].count * (256 << 10));
}

#[test]
fn what_cannot_run_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut many = options(&folder, "read-files", 1);
    many.profile.files = 3;
    assert_eq!(run_files(&many, &Unwatched).unwrap_err().kind(), ErrorKind::Invalid);
    std::fs::create_dir(folder.path().join("qpair-varmail")).unwrap();
    let error = run_files(&options(&folder, "varmail", 1), &Unwatched).unwrap_err();
    assert!(error.to_string().contains("qpair-varmail") && error.way_out().is_some(), "{error}");
}
