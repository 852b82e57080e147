//! `--log-device`: a store with its log on a separate device.

use crate::harness::{Directory, LABEL_BYTES, crash, holds, records};

#[test]
fn a_store_with_a_log_device() {
    let directory = Directory::new();
    directory.run_on(records(20_000), "load s - --format tsv --log-device s.log").done();
    assert!(holds(&directory.path("s.log"), b"qlgc") && !holds(&directory.path("s"), b"qlgc"));
    // The store was closed, so reading needs no log.
    assert_eq!(directory.run("scan s --count").done(), "20000\n");
    assert!(directory.run("check s").done().contains("no damage found"));
    let stat = directory.run("stat s").done();
    assert!(stat.lines().any(|line| line.starts_with("log device") && line.contains("s.log")));
    assert!(directory.run("log s").done().contains("it has no log"));
    // Writing requires the log device.
    directory
        .run("put s a 1")
        .failed(3, &["a device of its own, which was not given", "s.log", "--log-device none"]);
    directory.run("put s a 1 --log-device s.log").done();
    assert_eq!(directory.run("get s a --log-device s.log").done(), "1");
    directory.run("delete s a --log-device s.log").done();
    directory.run("backup s copy --log-device s.log").done();
    directory.run("put copy a 1").done();
    // Refuse the log device of another store, or a file with other content.
    directory.run_on(records(20_000), "load t - --format tsv --log-device t.log").done();
    directory.run("put s a 1 --log-device t.log").failed(3, &["of another store"]);
    directory.run("put s a 1 --log-device copy").failed(3, &["is a member of a store"]);
    directory.run("put s a 1 --log-device s").failed(2, &["a member of the store and as its log"]);
    directory.file("notes", vec![b'x'; 2 * LABEL_BYTES]);
    directory.run("put s a 1 --log-device notes").failed(3, &["not blank"]);
    directory.run("put new a 1 --log-device notes").failed(3, &["not blank"]);
    assert!(!directory.path("new").exists());
    directory
        .run("get s key --log-device nowhere")
        .failed(3, &["the log device nowhere does not exist"]);
    // Move the log to another file, into the store, and back.
    for place in ["moved.log", "none", "s.log"] {
        directory.run(&format!("put s a {place} --log-device {place}")).done();
        assert_eq!(directory.run("get s a").done(), place);
    }
    assert!(directory.path("moved.log").exists());
}

#[test]
fn a_log_device_that_is_too_small() {
    let directory = Directory::new();
    directory
        .run("put s a 1 --workers 2 --log-device ram:size=1MiB,growable=false")
        .failed(3, &["too few for the logs of 2 workers", "at least 8454144 bytes"]);
    assert!(!directory.path("s").exists());
}

#[test]
fn a_crashed_store_needs_its_log_device() {
    let directory = Directory::new();
    let has_some = || holds(&directory.path("s.log"), b"key 15000");
    assert!(crash(&directory, "--log-device s.log", &records(20_000), has_some));
    for words in ["get s key", "put s a 1", "put s a 1 --log-device none", "log s"] {
        directory.run(words).failed(3, &["s.log", "--log-device"]);
    }
    directory.run("put s a 1 --log-device other.log").failed(3, &["not the log device", "s.log"]);
    assert!(!directory.path("other.log").exists());
    // The store cannot be read without the log either. A check says so, and checks the log if it is
    // named.
    directory.run("check s").failed(1, &["the log is missing", "s.log", "s is damaged: 1 fault"]);
    let checked = directory.run("check s --log-device s.log").done();
    assert!(checked.ends_with("recovery can read all of its log\n"), "{checked}");
    let log = directory.run("log s --limit 3 --log-device s.log").done();
    assert!(log.contains("create tree 1 as table \"default\""), "{log:.300}");
    assert!(directory.run("repair s saved --log-device s.log").done().contains("not damaged"));
    // Without the log, the data of the last checkpoint is saved, and the report says what is
    // missing.
    let run = directory.run("repair s saved");
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    assert!(run.out.contains("the log is missing"), "{}", run.out);
    directory.run("backup s copy --log-device s.log").done();
    // The last commit may be missing.
    let left: u32 = directory.run("scan s --count").done().trim().parse().unwrap();
    assert!(left > 5000, "{left}");
    assert_eq!(directory.run("scan copy --count").done(), format!("{left}\n"));
}

#[test]
fn benchmarks_take_a_log_device() {
    let directory = Directory::new();
    let told = directory
        .run("bench commit --store b --log-device b.log --clients 4 --seconds 0.1 --warm-up 0 --json")
        .done();
    assert!(told.contains("b.log"), "{told}");
    let words =
        "bench update --store u --log-device u.log --records 2000 --seconds 0.1 --warm-up 0";
    directory.run(words).done();
    assert!(holds(&directory.path("u.log"), b"qlgc"));
}
