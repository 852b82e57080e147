//! Backup, repair, the log, and removing many records, from the command line.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use qpair::Options;
use serde_json::Value;

use crate::harness::{
    Directory, LABEL_BYTES, crash, holds, patch, records, wait_until, waiting_load,
};

fn filled() -> Directory {
    let directory = Directory::new();
    directory.run_on(records(3000), "load s - --format tsv").done();
    directory
}

/// Damages all pages of a kind that contain `text`.
fn damage(path: &Path, kind: u8, text: &[u8]) {
    patch(path, |bytes| {
        for page in bytes[LABEL_BYTES..].chunks_exact_mut(4096) {
            if page[4] == kind && page.windows(text.len()).any(|window| window == text) {
                page[100] ^= 1;
            }
        }
    });
}

#[test]
fn a_backup_is_a_store_of_its_own() {
    let directory = filled();
    assert!(directory.run("backup s copy").done().starts_with("copied s as of commit "));
    assert!(directory.run("check copy").done().contains("no damage found"));
    assert_eq!(directory.run("scan copy").done(), directory.run("scan s").done());
    directory.run("put copy new record").done();
    directory.run("get s new").failed(1, &["does not exist"]);
    directory.run("backup s copy").failed(3, &["not blank", "--force"]);
    let json = directory.json("backup s copy --force --json");
    assert!(json["pages"].as_u64().unwrap() > 10 && json["timestamp"].as_u64().unwrap() > 0);
    directory.run("get copy new").failed(1, &["does not exist"]);
    // Back up to another number of members.
    directory.run("backup s stripe:unit=64KiB:a+b").done();
    assert_eq!(directory.run("scan stripe:unit=64KiB:a+b --count").done(), "3000\n");
    directory.run("backup nothing t").failed(3, &["there is no store"]);
    assert!(!directory.path("t").exists());
}

/// A regression: a store with pages of 512 bytes could be moved to a device with larger blocks only
/// with `scan` and `load`, table by table.
#[test]
fn a_copy_has_pages_of_another_size() {
    let directory = filled();
    directory.run("put s other value --table second").done();
    let records = directory.run("scan s").done();
    let json = directory.json("copy --page-size 16KiB s copy --json");
    assert_eq!((json["page_size"].as_u64(), json["tables"].as_u64()), (Some(16 << 10), Some(2)));
    assert_eq!(json["records"].as_u64(), Some(3001));
    assert_eq!(directory.run("scan copy").done(), records);
    assert_eq!(directory.run("get copy other --table second").done(), "value");
    assert_eq!(directory.json("stat copy --json")["page_size"].as_u64(), Some(16 << 10));
    assert!(directory.run("check copy").done().contains("no damage found"));
    assert!(directory.run("copy s smaller --page-size 512").done().contains("pages of 512 bytes"));
    assert_eq!(directory.run("scan smaller").done(), records);
    // An existing target is not overwritten, and an incomplete copy is removed.
    directory.run("copy s copy").failed(3, &["copy exists already"]);
    directory.run("copy s s").failed(2, &["to the store itself"]);
    // Records that expire are not in groups, so their keys must fit into pages.
    directory.file("long.tsv", format!("{}\t1\n", "k".repeat(600)));
    directory.run("load s long.tsv --table long --ttl 1h").done();
    directory
        .run("copy s t --page-size 512")
        .failed(3, &["too long for pages of 512 bytes", "--page-size"]);
    assert!(!directory.path("t").exists());
}

/// A regression: with a closed standard output the output was lost, and the exit code reported
/// success.
#[test]
fn a_closed_standard_output_is_an_error() {
    let directory = filled();
    for words in ["get s 'key 00001'", "scan s --count", "stat s", "tables s", "check s", "log s"] {
        let run = directory.shell(":", &format!("{words} >&-"));
        run.failed(3, &["writing to standard output: it is closed"]);
        directory.shell(":", &format!("{words} >/dev/null 2>&1 <&-")).done();
    }
}

#[test]
fn a_compacted_store_has_the_same_records() {
    let directory = filled();
    let records = directory.run("scan s").done();
    assert!(directory.run("compact s").done().starts_with("compacted s: "));
    let json = directory.json("compact s --json --limit 1GiB");
    assert!(json["bytes_after"].as_u64().unwrap() <= json["bytes_before"].as_u64().unwrap());
    let file_bytes = std::fs::metadata(directory.path("s")).unwrap().len();
    assert_eq!(json["bytes_after"].as_u64(), Some(file_bytes));
    assert_eq!(directory.run("scan s").done(), records);
    assert!(directory.run("check s").done().contains("no damage found"));
    directory.run("compact nothing").failed(3, &["there is no store"]);
}

#[test]
fn a_backup_that_fails_leaves_nothing() {
    let directory = filled();
    damage(&directory.path("s"), 2, b"value 1500");
    directory.run("backup s copy").failed(3, &["damaged", "qpair repair"]);
    assert!(!directory.path("copy").exists());
}

#[test]
fn repair_leaves_a_healthy_store_alone_and_saves_what_it_can_of_others() {
    let directory = filled();
    assert!(directory.run("repair s saved").done().contains("not damaged"));
    assert!(!directory.path("saved").exists());
    let before = directory.read("s");
    damage(&directory.path("s"), 2, b"value 1500");
    let damaged = directory.read("s");
    assert_ne!(before, damaged);
    let run = directory.run("repair s saved");
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    assert!(
        run.out.contains("lost: from key") && run.out.contains("saved the readable"),
        "{}",
        run.out
    );
    assert_eq!(directory.read("s"), damaged);
    let left: u64 = directory.run("scan saved --count").done().trim().parse().unwrap();
    assert!((2500..3000).contains(&left), "{left}");
    assert!(directory.run("check saved").done().contains("no damage found"));
    directory.run("repair s saved").failed(3, &["--force"]);
    let run = directory.run("repair s saved --force --json");
    let json: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&json["healthy"], &json["tables"][0]["records"]), (&false.into(), &left.into()));
    // The pages above the leaves are not needed.
    let directory = filled();
    damage(&directory.path("s"), 1, b"\0");
    assert!(directory.run("repair s saved").done().contains("saved all of it"));
    assert_eq!(directory.run("scan saved --count").done(), "3000\n");
    // Without any pages, the command must not report that it saved something.
    patch(&directory.path("s"), |bytes| bytes[64 << 10..].fill(0x5a));
    let run = directory.run("repair s saved --force");
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    assert!(run.out.contains("no record can be read") && !run.out.contains("saved the readable"));
    assert!(directory.run("check saved").done().contains("no damage found"));
}

/// A regression: the check ended with 0, and the repair said that the store was not damaged.
#[test]
fn a_damaged_second_copy_is_damage() {
    for place in [0, 32 << 10, 64 << 10, (64 << 10) + 4096] {
        let directory = filled();
        let before = directory.run("scan s").done();
        patch(&directory.path("s"), |bytes| bytes[place..place + 4096].fill(0));
        let run = directory.run("check s");
        assert!(!run.out.contains("no damage found"), "{}", run.out);
        let last = run.err.lines().last().unwrap();
        assert!(
            last.contains("s is damaged in 1 place") && last.contains("no data is lost"),
            "{last}"
        );
        run.failed(1, &["damage: the ", "cannot be read; its second copy can"]);
        assert!(directory.run("check s --json").out.contains("\"sound\":false"));
        let told = directory.run("repair s saved").done();
        assert!(!told.contains("not damaged") && told.contains("damage: the "), "{told}");
        assert!(told.ends_with("the next change of s writes it again\n"), "{told}");
        assert!(!directory.path("saved").exists());
        assert_eq!(directory.run("scan s").done(), before);
        // As reported, the next changes write both copies again.
        for value in 0..2 {
            directory.run(&format!("put s more {value}")).done();
        }
        assert!(directory.run("check s").done().ends_with("no damage found\n"));
    }
}

/// A regression: a repair searched for pages in the first MiB only, where a store has its log and
/// free pages.
#[test]
fn a_store_without_its_beginning_is_saved() {
    let directory = filled();
    directory.run_on(records(60_000), "load s - --format tsv --sorted --table more").done();
    let whole = directory.read("s");
    for (gone_bytes, filler) in [(80 << 10, 0), (80 << 10, 0x5a), (3 << 20, 0)] {
        let mut bytes = whole.clone();
        bytes[..gone_bytes].fill(filler);
        directory.file("broken", bytes);
        let run = directory.run("repair broken saved --force");
        assert!(run.out.contains("from its pages of 4096 bytes alone"), "{}{}", run.out, run.err);
        let tables = directory.run("tables saved").done();
        let count = |table: &str| -> u64 {
            let count = directory.run(&format!("scan saved --count --table {table}")).done();
            count.trim().parse().unwrap()
        };
        let saved: u64 = tables.lines().map(count).sum();
        assert!(saved > 20_000, "{gone_bytes}: {saved} of 63,000: {}", run.out);
        assert!(directory.run("check saved").done().contains("no damage found"));
    }
}

#[test]
fn a_closed_store_has_no_log() {
    let directory = filled();
    assert!(directory.run("log s").done().contains("it has no log"));
    assert!(directory.run("log s --verify --json").done().contains("\"closed\":true"));
    directory.run("log nothing").failed(3, &["there is no store"]);
}

/// Kills a load and leaves its store with commits in the log.
fn crashed(directory: &Directory) -> bool {
    // A write of the log has at most some thousand commits, so by then there are several writes.
    crash(directory, "", &records(60_000), || holds(&directory.path("s"), b"key 20000"))
}

/// Returns the keys that were put, as `qpair log` prints them, in the order of their commits.
fn keys_of_log(log: &str) -> Vec<String> {
    let put = |line: &str| {
        let key = line.trim().strip_prefix("put    table \"default\" \"")?;
        Some(key.split('"').next()?.to_owned())
    };
    log.lines().filter_map(put).collect()
}

#[test]
fn the_log_of_a_crash_is_printed_and_the_store_backed_up() {
    let directory = Directory::new();
    assert!(crashed(&directory));
    let before = directory.read("s");
    let log = directory.run("log s").done();
    assert!(log.contains("create tree 1 as table \"default\""), "{log:.300}");
    assert!(
        log.contains(" behind the checkpoint at commit ") && log.contains("log 0 ends at lsn ")
    );
    let two = directory.run("log s --table default --from 5 --limit 2 --json").done();
    let lines: Vec<Value> = two.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[0]["timestamp"].as_u64()), (3, Some(5)), "{two}");
    assert_eq!(lines[1]["operations"][0]["table"], "default");
    assert_eq!(lines[2], serde_json::json!({ "limited": true }), "how it ends was not looked at");
    let end = directory.json("log s --verify --json");
    assert_eq!((&end["damaged"], &end["closed"]), (&false.into(), &false.into()));
    assert!(directory.run("repair s saved").done().contains("not damaged"));
    let checked = directory.run("check s").done();
    let last = "no damage found: the store was not closed, and recovery can read all of its log\n";
    assert!(checked.ends_with(last), "{checked}");
    assert!(before == directory.read("s"), "looking changed the store");
    // Damage the log far from its end: damage in the last write would look like a write that the
    // crash cut short.
    directory.file("bad", &before);
    let keys = keys_of_log(&log);
    patch(&directory.path("bad"), |bytes| {
        // The text of a record that lies across chunks of the log is not contiguous. Use the next
        // record then.
        let hits = keys[keys.len() / 8..].iter().find_map(|text| {
            let all = bytes.windows(text.len()).enumerate();
            let hits: Vec<usize> =
                all.filter(|(_, window)| *window == text.as_bytes()).map(|(at, _)| at).collect();
            (!hits.is_empty()).then_some(hits)
        });
        hits.unwrap().into_iter().for_each(|at| bytes[at] ^= 1);
    });
    directory.run("log bad --verify").failed(1, &["damaged", "qpair repair"]);
    let checked = directory.run("check bad --json");
    let json: Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!((checked.code, &json["sound"]), (Some(1), &false.into()), "{json}");
    assert!(json["log_faults"][0].as_str().unwrap().contains("the log is damaged"), "{json}");
    directory
        .run("check bad")
        .failed(1, &["damage: the log is damaged", "bad is damaged: 1 fault"]);
    assert_eq!(directory.run("get bad key").code, Some(3), "as a reader finds");
    let run = directory.run("repair bad saved");
    assert!(run.code == Some(1) && run.out.contains("made again"), "{}{}", run.out, run.err);
    assert!(directory.run("check saved").done().contains("no damage found"));
    // A backup first recovers the store.
    directory.run("backup s copy").done();
    assert_eq!(directory.run("scan copy --count").done(), directory.run("scan s --count").done());
}

#[test]
fn ranges_and_tables_are_removed() {
    let directory = filled();
    let removed = |words: &str| directory.run(&format!("delete s {words}")).done();
    assert_eq!(removed("--prefix x"), "removed 0 records\n");
    // Arguments are split at spaces here, so keys are given as digits.
    assert_eq!(removed("--key-hex --prefix 6b6579203030"), "removed 1,000 records\n");
    assert_eq!(directory.run("scan s --count").done(), "2000\n");
    directory.run("delete s --from b --to a").failed(2, &["ends before it begins"]);
    // A long range is removed in parts.
    let many: String = (0..25_000).map(|i| format!("{i:05}\tx\n")).collect();
    directory.run_on(&many, "load many - --format tsv --sorted").done();
    let words = directory.run("delete many --from 00002 --to 24998").done();
    assert_eq!(words, "removed 24,996 records\n");
    let left: String = directory.run("scan many --keys-only").done();
    assert_eq!(left.lines().collect::<Vec<_>>(), ["00000", "00001", "24998", "24999"]);
    directory.run("delete s").failed(2, &["required"]);
    directory.run("delete s k --from k").failed(2, &["cannot be used with"]);
    assert_eq!(removed("--from a"), "removed 2,000 records\n");
    directory.run("put s k v --table other").done();
    directory.run("drop s other").done();
    directory.run("drop s other").failed(1, &["does not exist"]);
    assert_eq!(directory.run("tables s").done(), "default\n");
}

#[test]
fn a_table_gets_another_name() {
    let directory = filled();
    directory.run("put s k v --table other").done();
    let before = directory.read("s");
    directory.run("rename s none new").failed(1, &["the table none does not exist"]);
    directory.run("rename s other default").failed(1, &["the table default exists already"]);
    assert_eq!(directory.read("s"), before, "nothing was written");
    assert_eq!(directory.run("rename s other new").done(), "");
    assert_eq!(directory.run("tables s").done(), "default\nnew\n");
    assert_eq!(directory.run("get s k --table new").done(), "v");
    directory.run("rename s other new").failed(1, &["the table other does not exist"]);
    directory.run("rename s new").failed(2, &["required"]);
    // The log of a crashed store has the commits.
    let (store, copy) = (directory.path("s"), directory.path("copy"));
    let store = Options::new(&store).memory_bytes(4 << 20).workers(1).open().unwrap();
    store.rename_table("new", "newer").unwrap();
    std::fs::copy(directory.path("s"), copy).unwrap();
    store.close().unwrap();
    let log = directory.run("log copy").done();
    assert!(log.contains("rename table \"new\" to \"newer\""), "{log}");
    let json = directory.run("log copy --json").done();
    assert!(json.contains(r#""operation":"rename""#) && json.contains(r#""to":"newer""#), "{json}");
    assert_eq!(directory.run("get copy k --table newer").done(), "v");
}

#[test]
fn a_running_store_is_told_as_its_own_process_tells_it() {
    let directory = Directory::new();
    let options = Options::new(directory.path("s")).memory_bytes(4 << 20).workers(1);
    let store = options.publish_beside(true).open().unwrap();
    store.table("t").unwrap().put(b"k", b"v").unwrap();
    let told = directory.run("top s --prometheus").done();
    let own = store.metrics().unwrap().to_prometheus();
    // What `auto` took is told by the interface, not by the store.
    let told: Vec<_> = told.lines().filter(|line| !line.contains("qpair_auto_")).collect();
    let told = told.join("\n");
    // The device's counters may change between the two looks.
    let still = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with('#') || line.contains("_commit"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(still(&told), still(&own));
    assert!(own.contains("\nqpair_commit_latency_seconds_count 1\n"), "{own}");
    assert_eq!(told.lines().count(), own.lines().count());
    store.close().unwrap();
    directory.run("top s --prometheus").failed(3, &["not published"]);
    directory.run("top s --prometheus --json").failed(2, &["cannot be used with"]);
}

#[test]
fn a_running_store_is_shown() {
    let directory = Directory::new();
    directory.run("top s").failed(3, &["not published", "Options::publish"]);
    let mut child = waiting_load(&directory, "", &records(20_000));
    wait_until(|| directory.path("s.top").exists());
    let shown = directory.run("top s --once").done();
    assert!(shown.contains("commits  ") && shown.contains(" open transaction"), "{shown}");
    let told = directory.json("top s.top --once --json");
    assert_eq!(told["pid"], child.id());
    assert!(told["metrics"]["commit_latency_us"]["buckets"].is_array(), "{told}");
    // A watching command ends when the store is closed.
    let mut looking = directory.command("top s --interval 0.05").stdout(Stdio::piped()).spawn();
    let looking = looking.as_mut().unwrap();
    looking.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    drop(child.stdin.take());
    std::io::copy(looking.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
    assert!(looking.wait().unwrap().success());
    assert!(child.wait_with_output().unwrap().status.success());
    let text = directory.run("stat s --prometheus").done();
    assert!(text.contains("# TYPE qpair_commits_total counter\nqpair_commits_total "), "{text}");
}
