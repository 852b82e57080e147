//! Single records, scans, and the reports about a store.

use std::io::Read;

use crate::harness::{Directory, Run, records};

fn letters() -> Directory {
    let directory = Directory::new();
    directory.run_on("a\t1\nb\t2\nba\t3\nbb\t4\nc\t5\n", "load s - --format tsv --value 2").done();
    directory
}

#[test]
fn put_get_delete() {
    let directory = Directory::new();
    directory.run("put s ada Lovelace").done();
    assert_eq!(directory.run("get s ada").done(), "Lovelace");
    assert_eq!(directory.run("get s ada --hex").done(), "4c6f76656c616365\n");
    assert_eq!(
        directory.run("get s ada --json").done(),
        "{\"key\":\"ada\",\"value\":\"Lovelace\"}\n"
    );
    assert_eq!(directory.run("get s --key-hex 616461").done(), "Lovelace");
    directory.run_on(b"\xff\x00", "put s bytes -").done();
    assert_eq!(directory.run("get s bytes --hex").done(), "ff00\n");
    assert_eq!(
        directory.run("get s bytes --json").done(),
        "{\"key\":\"bytes\",\"value_hex\":\"ff00\"}\n"
    );
    directory.file("value", "from a file");
    directory.run("put s ada --value-file value").done();
    assert_eq!(directory.run("get s ada").done(), "from a file");
    directory.run("get s nobody").failed(1, &["the key nobody does not exist"]);
    directory.run("delete s ada").done();
    directory.run("delete s ada").failed(1, &["the key ada does not exist"]);
    directory.run("get s ada").failed(1, &["does not exist"]);
}

#[test]
fn every_record_is_only_deleted_if_that_is_meant() {
    let directory = letters();
    for all in [&["--prefix", ""][..], &["--from", ""], &["--prefix", "", "--key-hex"]] {
        let output = directory.command("delete s").args(all).output().unwrap();
        Run::from_output(output).failed(2, &["every key", "--force"]);
    }
    assert_eq!(directory.run("scan s --count").done(), "5\n");
    let ranges =
        [(&["--from", "", "--to", "b"][..], "1"), (&["--to", ""], "0"), (&["--from", "c"], "1")];
    for (range, removed) in ranges {
        let run = directory.command("delete s").args(range).output().unwrap();
        assert!(String::from_utf8_lossy(&run.stdout).starts_with(&format!("removed {removed} ")));
    }
    assert_eq!(directory.run("delete s --force").done(), "removed 3 records\n");
    directory.run("put s a v").done();
    let run = directory.command("delete s --force --prefix").arg("").output().unwrap();
    assert_eq!(run.stdout, b"removed 1 record\n");
    directory.run("delete s a --force").failed(2, &["--force"]);
    directory.run("delete s").failed(2, &["KEY"]);
}

#[test]
fn tables_are_apart() {
    let directory = Directory::new();
    directory.run("put s key one").done();
    directory.run("put s key two --table other").done();
    assert_eq!(directory.run("get s key").done(), "one");
    assert_eq!(directory.run("get s key --table other").done(), "two");
    assert_eq!(directory.run("tables s").done(), "default\nother\n");
    directory
        .run("get s key --table third")
        .failed(1, &["no table \"third\"", "it has the tables default, other"]);
}

#[test]
fn scans() {
    let directory = letters();
    let scan = |flags: &str| directory.run(&format!("scan s {flags}")).done();
    assert_eq!(scan(""), "a\t1\nb\t2\nba\t3\nbb\t4\nc\t5\n");
    assert_eq!(scan("--prefix b --keys-only"), "b\nba\nbb\n");
    assert_eq!(scan("--prefix b --reverse --limit 2"), "bb\t4\nba\t3\n");
    assert_eq!(scan("--from b --to bb"), "b\t2\nba\t3\n");
    assert_eq!(scan("--from bb --reverse"), "c\t5\nbb\t4\n");
    assert_eq!(scan("--prefix b --count"), "3\n");
    assert_eq!(scan("--limit 1 --json"), "{\"key\":\"a\",\"value\":\"1\"}\n");
    assert_eq!(scan("--limit 0"), "");
    directory.run("scan s --from c --to a").failed(2, &["ends before it begins"]);
}

#[test]
fn scans_escape_what_would_break_a_line() {
    let directory = Directory::new();
    directory.run_on(b"tab\there\\ \xff\n", "put s k -").done();
    assert_eq!(directory.run("scan s").done(), "k\ttab\\there\\\\ \\xff\\n\n");
    assert_eq!(
        directory.run("scan s --json").done(),
        "{\"key\":\"k\",\"value_hex\":\"7461620968657265\
        5c20ff0a\"}\n"
    );
}

#[test]
fn a_scan_into_a_closed_pipe_ends_quietly() {
    let directory = Directory::new();
    directory.run_on(records(50_000), "load s - --format tsv").done();
    let mut child = directory.spawn("scan s");
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}

#[test]
fn says_what_a_store_is() {
    let directory = letters();
    let stat = directory.run("stat s").done();
    assert!(
        stat.contains("page size    4096 bytes") && stat.contains("tables       default: about "),
        "{stat}"
    );
    assert!(directory.run("stat s --json").done().contains("\"page_size\":4096"));
    let check = directory.run("check s").done();
    assert!(
        check.contains("table default: 5 records") && check.contains("no damage found"),
        "{check}"
    );
    assert!(directory.run("check s --json").done().contains("\"sound\":true"));
}

#[test]
fn stripes_over_members() {
    let directory = Directory::new();
    directory
        .run("put a k v --member b --stripe-unit 16KiB --page-size 8KiB --interface posix")
        .done();
    let stat = directory.run("stat a --member b --interface posix").done();
    assert!(stat.contains("members      2") && stat.contains("8192 bytes"), "{stat}");
    assert_eq!(directory.run("get stripe:a+b k --interface posix").done(), "v");
    directory.run("get a k").failed(3, &["has 2 members, and the number given is 1"]);
    directory.run("get b k --member a").failed(3, &["is member 1"]);
    directory.run("get a k --member c").failed(3, &["c is missing"]);
    directory.run("get a k --member a").failed(2, &["named twice"]);
}

/// A stripe sleeps on an epoll set of its members' descriptors. A regression: a DEFER_TASKRUN ring
/// never notifies such a set of its completions (Linux 6.18), so the store hung in its first wait.
#[test]
fn stripes_on_every_interface() {
    let directory = Directory::new();
    for io in ["posix", "libaio", "io_uring"] {
        let run = directory.run(&format!("put {io}-a k v --member {io}-b --interface {io}"));
        match run.code {
            Some(3) => eprintln!("skipped {io}: {}", run.err),
            _ => {
                run.done();
            }
        }
    }
}

#[test]
fn every_interface_or_a_reason() {
    let directory = letters();
    for io in ["auto", "io_uring", "libaio", "posix"] {
        let run = directory.run(&format!("get s a --interface {io}"));
        match run.code {
            Some(0) => assert_eq!(run.out, "1"),
            // If the machine lacks the interface, the error says so.
            _ => eprintln!("skipped {io}: {}", run.err),
        }
    }
    directory.run("get s a --interface spdk").failed(2, &["there is no interface"]);
    directory.run("get s a --memory lots").failed(2, &["size"]);
    directory.run("get s a --memory 4k").failed(3, &["too small", "--memory"]);
}
