//! Loads that end early: interrupted or killed.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Directory, interrupted};

/// Starts a load that has put records into the store, and waits for more.
fn waiting_load(directory: &Directory) -> Child {
    let mut command = directory.command("load s - --format tsv --memory 1MiB --workers 1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input: String = (0..60_000).map(|i| format!("key {i}\tvalue {i}\n")).collect();
    child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    // The input exceeds the store's memory, so the file grows once records are put.
    let deadline = Instant::now() + Duration::from_secs(20);
    let grown = || std::fs::metadata(directory.path("s")).is_ok_and(|file| file.len() > 3 << 20);
    while !grown() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn interrupted_load_keeps_what_it_has() {
    let directory = Directory::new();
    let mut child = waiting_load(&directory);
    let stdin = child.stdin.take();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    if !killed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no kill command");
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    }
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{out}{err}");
    assert!(out.starts_with("loaded ") && err.contains("closed cleanly"), "{out}{err}");
    let count: u64 = directory.run("scan s --count").done().trim().parse().unwrap();
    assert!(count > 0);
    assert!(directory.run("check s").done().contains("no damage found"));
}

#[test]
fn a_killed_load_is_recovered() {
    let directory = Directory::new();
    let mut child = waiting_load(&directory);
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
    std::fs::write(directory.path("in"), records).unwrap();
    directory.run("load s in --format tsv --memory 64MiB --quiet").done();
    // Some loads end before the signal arrives.
    for _ in 0..50 {
        let mut command = directory.command("backup s copy --memory 1MiB");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !directory.path("copy").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = interrupted(child);
        let err = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(130) {
            assert!(err.contains("interrupted") && err.contains("no store"), "{err}");
            assert!(!directory.path("copy").exists());
            assert_eq!(directory.run("scan s --count").done().trim(), "150000");
            return;
        }
        assert!(output.status.success(), "{err}");
        assert!(directory.run("check copy").done().contains("no damage found"));
        std::fs::remove_file(directory.path("copy")).unwrap();
    }
    panic!("no backup was interrupted");
}
