//! `qpair bench tpcc`, `ycsb` and `commit` on small stores.

use crate::harness::{Directory, Run, interrupted, number, wait_until};

const SMALL: &str = "--memory 16MiB --workers 2 --warm-up 0";

fn tpcc(directory: &Directory, words: &str) -> Run {
    directory.run(&format!("bench tpcc {SMALL} --items 300 --customers 40 --tasks 4 {words}"))
}

#[test]
fn tpcc_loads_runs_and_checks() {
    let directory = Directory::new();
    let loaded = tpcc(&directory, "--store t --warehouses 2 --load-only --check").done();
    assert!(loaded.contains("loaded at") && loaded.contains("all twelve"), "{loaded}");
    assert!(!loaded.contains("tpmC"), "{loaded}");
    let json = tpcc(&directory, "--store t --warehouses 2 --seconds 0.3 --check --json").json();
    for path in [
        "/tx_per_s",
        "/tpmc",
        "/latency_us/new_order/p50",
        "/latency_us/payment/p95",
        "/latency_us/delivery/p99",
        "/types/new_order/count",
        "/store_bytes",
        "/cpu_us_per_tx",
    ] {
        assert!(number(&json, path) > 0.0, "{path:?} in {json}");
    }
    assert_eq!(number(&json, "/warehouses"), 2.0);
    assert!(json["tpmc_note"].as_str().unwrap().contains("not audited"), "{json}");
    assert!(json.get("commits_per_flush").is_some(), "{json}");
    // The store knows the scale with which it was loaded.
    let text = tpcc(&directory, "--store t --seconds 0.2 --durability async").done();
    for word in ["transactions", "tpmC", "no think time", "stock_level", "rolled back"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    tpcc(&directory, "--store t --warehouses 3")
        .failed(3, &["2 warehouses; 3 were asked for", "--warehouses 2"]);
    assert!(directory.run("check t").done().contains("no damage found"));
}

#[test]
fn tpcc_tells_of_what_is_broken() {
    let directory = Directory::new();
    tpcc(&directory, "--store t --warehouses 1 --load-only").done();
    // Delete the new order 30 of district 1.
    directory.run("delete t --table new_order --key-hex 00010100001e").done();
    let broken = tpcc(&directory, "--store t --warehouses 1 --load-only --check");
    assert_eq!(broken.code, Some(1), "{}{}", broken.out, broken.err);
    assert!(broken.out.contains("condition 3 does not hold"), "{}", broken.out);
    assert!(broken.out.contains("order 1/1/30"), "{}", broken.out);
}

/// A store that fits into memory is read completely before the run; a larger one as far as there is
/// room.
#[test]
fn a_store_is_read_before_the_run() {
    let directory = Directory::new();
    let ycsb = "bench ycsb --store y --records 4000 --workload c --tasks 4 --io posix";
    directory.run(&format!("{ycsb} --load-only")).done();
    let run = format!("{ycsb} --warm --warm-up 0 --seconds 0.2 --json");
    let json = directory.json(&run);
    assert!(number(&json, "/warmed/pages") > 1000.0, "{json}");
    assert_eq!(number(&json, "/device_reads_per_op"), 0.0, "{json}");
    let lookup = "bench lookup --store l --records 40000 --memory 2MiB --workers 1 --io posix";
    directory.run(&format!("{lookup} --warm-up 0 --seconds 0.1")).done();
    let text = directory.run(&format!("{lookup} --warm --warm-up 0 --seconds 0.1")).done();
    assert!(text.contains("read first") && text.contains("memory is full"), "{text}");
}

/// In an open loop, no more operations complete than arrive. If they arrive too fast, they are
/// late, and their latency counts from their scheduled time.
#[test]
fn lookups_arrive_at_a_rate() {
    let directory = Directory::new();
    let lookup = "bench lookup --store r --records 4000 --workers 1 --tasks 4 --io posix --warm-up 0 --seconds 0.5";
    let slow = directory.json(&format!("{lookup} --rate 400 --json"));
    assert!((1.0..400.0).contains(&number(&slow, "/ops")), "about 200 arrive: {slow}");
    assert_eq!(number(&slow, "/rate_per_s"), 400.0);
    let over = directory.json(&format!("{lookup} --rate 1e9 --json"));
    // Half of the run's time, with a wide margin: in a closed loop a lookup in memory takes a few
    // microseconds.
    assert!(number(&over, "/latency_us/p50") > 25_000.0, "{over}");
    assert!(number(&over, "/latency_us/mean") > 25_000.0, "{over}");
    let text = directory.run(&format!("{lookup} --rate 1e9")).done();
    assert!(text.contains("does NOT keep up"), "{text}");
    directory
        .run("bench scan --store r --records 4000 --rate 5")
        .failed(2, &["lookups and updates"]);
    directory.run("bench tpcc --store t --rate 0").failed(2, &["not a rate"]);
}

#[test]
fn tpcc_is_interrupted() {
    let directory = Directory::new();
    let words =
        format!("bench tpcc {SMALL} --store t --items 300 --customers 40 --tasks 4 --seconds 60");
    let child = directory.spawn(&words);
    // Signal handlers are installed before the store is created.
    wait_until(|| directory.path("t").exists());
    let run = interrupted(child);
    assert!(run.out.is_empty());
    run.failed(130, &[]);
    assert!(directory.run("check t").done().contains("no damage found"));
}

/// Refused arguments create no store. A regression: an empty one was left behind.
#[test]
fn wrong_arguments_leave_no_store() {
    let directory = Directory::new();
    for words in [
        "commit --clients 0",
        "commit --records 0",
        "commit --rows 0",
        "commit --seconds 0",
        "commit --workers 0",
        "ycsb --workload A --records 0",
        "ycsb --workload A --fields 0",
        "ycsb --workload A --field-bytes 0",
        "ycsb --workload A --tasks 0",
        "ycsb --workload A --operations 0",
        "tpcc --tasks 0",
        "tpcc --warehouses 0",
        "tpcc --seconds 0",
    ] {
        directory.run(&format!("bench {words} --store s")).failed(2, &["invalid value '0'"]);
        directory.run("stat s").failed(3, &["there is no store"]);
    }
}

#[test]
fn ycsb_runs_its_workloads() {
    let directory = Directory::new();
    for workload in ["A", "b", "C", "D", "E", "F"] {
        let words = format!(
            "bench ycsb {SMALL} --store y --records 2000 --operations 2000 --tasks 4 --json \
             --workload {workload}"
        );
        let json = directory.json(&words);
        assert_eq!(number(&json, "/ops"), 2000.0);
        assert!(number(&json, "/ops_per_s") > 0.0);
    }
    let run = |words: &str| directory.run(&format!("bench ycsb {SMALL} --store y {words}"));
    let text = run("--workload F --records 2000 --seconds 0.2").done();
    assert!(text.contains("read_modify_write") && text.contains("operations"), "{text}");
    let text = run("--workload C --records 2000 --seconds 0.2 --cycles").done();
    assert!(text.contains("time of the workers") && text.contains("us per operation"), "{text}");
    run("--workload A --records 7").failed(3, &["2000 records", "--records 2000"]);
    run("--workload G").failed(2, &["not a workload"]);
    run("--workload A --durability never").failed(2, &["give sync, group or async"]);
}

#[test]
fn stores_of_others_are_left_alone() {
    let directory = Directory::new();
    directory.run("put s k v").done();
    // But for the load of the machine, which is in the reason for the interface.
    let stat = || {
        let said = directory.run("stat s").done();
        let lines = said.lines().filter(|line| !line.contains(", load ")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let before = stat();
    for words in ["ycsb --workload A", "tpcc", "commit", "lookup", "insert"] {
        directory
            .run(&format!("bench {words} --store s --memory 16MiB"))
            .failed(2, &["table \"default\"", "hint: name a store that is not there"]);
    }
    assert_eq!(stat(), before);
    assert_eq!(directory.run("get s k").done(), "v");
}

#[test]
fn updates_say_what_they_wait_for() {
    let directory = Directory::new();
    let run = |words: &str| {
        let words = format!("bench {words} --store u --records 2000 --seconds 0.1 --warm-up 0");
        directory.run(&words).done()
    };
    assert!(run("update --json").contains("\"durability\": \"sync\""));
    assert!(run("update --durability async --json").contains("\"durability\": \"async\""));
    let text = run("update --durability group --workers 1 --tasks 1");
    assert!(text.contains("update, 1 worker of 1 task; commits: group"), "{text}");
    assert!(!run("lookup --json").contains("durability"));
}

#[test]
fn commits_stand_beside_the_device_alone() {
    let directory = Directory::new();
    let run = |words: &str| directory.run(&format!("bench commit {SMALL} {words}"));
    let json = run("--store c --records 1000 --seconds 0.3 --baseline 0.1 --json").json();
    for path in
        ["/commits_per_s", "/latency_us/p50", "/baseline/latency_us/p50", "/p50_over_baseline"]
    {
        assert!(number(&json, path) > 0.0, "{path:?} in {json}");
    }
    // The measurement of the baseline has changed nothing.
    assert!(directory.run("check c").done().contains("no damage found"));
    let text = run("--store c --records 1000 --seconds 0.2 --clients 8 --durability group").done();
    assert!(text.contains("8 clients") && text.contains("p99"), "{text}");
    assert!(!text.contains("time of the workers"), "nobody asked: {text}");
    let text = run("--store c --records 1000 --seconds 0.2 --cycles").done();
    assert!(text.contains("time of the workers") && text.contains("us per commit"), "{text}");
    let json =
        run("--store i --insert --records 5000 --rows 100 --clients 8 --durability async --json");
    assert_eq!(number(&json.json(), "/commits"), 50.0);
    assert_eq!(directory.run("scan i --table bench --count").done().trim(), "5000");
    run("--store i --insert --records 5000").failed(3, &["5000 records already"]);
}
