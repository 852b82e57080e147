//! Loads that end early: interrupted or killed.

use std::process::Child;
use std::time::Duration;

use crate::harness::{Directory, interrupted, records, wait_until, waiting_load};

/// Starts a load that has put records into the store, and waits for more.
fn full_load(directory: &Directory) -> Child {
    let child = waiting_load(directory, "", &records(60_000));
    // The input exceeds the store's memory, so the file grows once records are put.
    wait_until(|| std::fs::metadata(directory.path("s")).is_ok_and(|file| file.len() > 3 << 20));
    child
}

#[test]
fn interrupted_load_keeps_what_it_has() {
    let directory = Directory::new();
    let mut child = full_load(&directory);
    let stdin = child.stdin.take();
    let run = interrupted(child);
    drop(stdin);
    assert!(run.out.starts_with("loaded "), "{}", run.out);
    run.failed(130, &["closed cleanly"]);
    let count: u64 = directory.run("scan s --count").done().trim().parse().unwrap();
    assert!(count > 0);
    assert!(directory.run("check s").done().contains("no damage found"));
}

#[test]
fn a_killed_load_is_recovered() {
    let directory = Directory::new();
    let mut child = full_load(&directory);
    child.kill().unwrap();
    child.wait().unwrap();
    // The check changes nothing, and reports what it could not check.
    for _ in 0..2 {
        let out = directory.run("check s").done();
        assert!(out.contains("was not closed") && out.contains("no damage found"), "{out}");
        assert!(directory.run("check s --json").done().contains(r#""at_checkpoint":true"#));
    }
    directory.run("scan s --count").done();
    directory.run("put s k v").done();
    assert_eq!(directory.run("get s k").done().trim_end(), "v");
    let out = directory.run("check s").done();
    assert!(!out.contains("was not closed") && out.contains("no damage found"), "{out}");
}

#[test]
fn an_interrupted_backup_leaves_nothing() {
    let directory = Directory::new();
    let records: String = (0..150_000).map(|i| format!("key {i}\tvalue {i}\n")).collect();
    directory.file("in", records);
    directory.run("load s in --format tsv --memory 64MiB --quiet").done();
    // Some loads end before the signal arrives.
    for _ in 0..50 {
        let mut child = directory.spawn("backup s copy --memory 1MiB");
        while !directory.path("copy").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let run = interrupted(child);
        if run.code == Some(130) {
            run.failed(130, &["interrupted", "no store"]);
            assert!(!directory.path("copy").exists());
            assert_eq!(directory.run("scan s --count").done().trim(), "150000");
            return;
        }
        run.done();
        assert!(directory.run("check copy").done().contains("no damage found"));
        std::fs::remove_file(directory.path("copy")).unwrap();
    }
    panic!("no backup was interrupted");
}
