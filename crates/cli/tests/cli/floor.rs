//! `qpair floor` on emulated drives, and the devices that it refuses. For hardware drives see
//! guest/tests/floor.

use std::time::{Duration, Instant};

use crate::harness::{Directory, interrupted};

const SMALL: &str = "floor --user softnvme:size=16MiB,mdts=6 --seconds 0.02 --repeat 2";

#[test]
fn the_ways_are_compared_and_percentages_have_bases() {
    let directory = Directory::new();
    let text = directory.run(&format!("{SMALL} --iodepth 1,4 --out floor.html")).done();
    for word in [
        "4KiB random read, depth 1",
        "128KiB sequential read, depth 4",
        "256KiB sequential read",
        "gap, % of the floor",
        "gap, % of its own",
        "plots: floor.html",
    ] {
        assert!(text.contains(word), "no \"{word}\" in: {text}");
    }
    assert!(!text.contains("write"), "{text}");
    let html = directory.text("floor.html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg role=\"img\""));
}

#[test]
fn json_has_counts() {
    let words = "--rw randwrite --allow-writes --iodepth 8 --numjobs 2 --json";
    let run = Directory::new().run(&format!("{SMALL} {words}"));
    assert!(run.err.contains("destroyed"), "{}", run.err);
    let report = run.json();
    assert_eq!(report["format"], "qpair-floor");
    let point = &report["points"][0];
    assert_eq!(
        (&point["depth"], &point["jobs"], &point["write"]),
        (&8.into(), &2.into(), &true.into())
    );
    let ways: Vec<&str> =
        point["ways"].as_array().unwrap().iter().map(|it| it["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["floor", "driver", "stack"]);
    let turns = point["ways"][0]["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 2);
    for turn in turns {
        let counts = &turn["commands_and_doorbells"];
        assert!(counts[0] == counts[1] && counts[0].as_u64().unwrap() > 0, "{turn}");
    }
    assert!(point["ways"][2]["gap"]["percent_of_own"].is_number());
}

#[test]
fn papers_settings_by_name() {
    let words = "floor --user softnvme:size=64MiB --paper table2 --seconds 0.02 --repeat 1 --json";
    let report = Directory::new().json(words);
    let points = report["points"].as_array().unwrap();
    let loads: Vec<(u64, u64, u64)> = points
        .iter()
        .map(|point| ["block_bytes", "depth", "jobs"].map(|name| point[name].as_u64().unwrap()))
        .map(|[bytes, depth, jobs]| (bytes, depth, jobs))
        .collect();
    assert_eq!(loads, [(4096, 1, 1), (131_072, 1, 16)], "and no writes");
}

#[test]
fn wrong_use_is_told_before_anything_is_measured() {
    let run = |words: &str| Directory::new().run(words);
    run("floor").failed(2, &["DEVICE"]);
    run("floor /dev/null").failed(2, &["neither an NVMe drive", "hint: qpair nvme list"]);
    run("floor fffe:00:00.0").failed(3, &["fffe:00:00.0"]);
    run("floor /dev/null --rw randwrite").failed(2, &["not allowed", "--allow-writes"]);
    run("floor /dev/null --user softnvme:size=1MiB").failed(2, &["cannot be used with"]);
    run("floor --recover fffe:00:00.0").failed(3, &["taken by no program"]);
    run("floor --recover nvme0").failed(2, &["not the address"]);
    run("floor --build made --headers /dev").failed(3, &["no kernel headers", "linux-headers"]);
    run("floor --user ram:size=1MiB").failed(2, &["NVMe or SCSI driver", "hint: name softnvme:"]);
    run("floor --user softnvme:size=1MiB --rw randwrite")
        .failed(2, &["not allowed", "--allow-writes"]);
    run("floor --user softnvme:size=1MiB --rw tea").failed(2, &["randread, randwrite"]);
    run("floor --user softnvme:size=1MiB --paper table9").failed(2, &["table2, table3"]);
    run("floor --user softnvme:size=1MiB --paper table2 --iodepth 4")
        .failed(2, &["cannot be used with"]);
    run("floor --user softnvme:size=1MiB --iodepth 0").failed(2, &["0"]);
    run("floor --user softnvme:size=1MiB,mdts=1 --rw read128k").failed(3, &["MDTS"]);
    run("floor --user softnvme:size=1MiB --out no/where.html")
        .failed(2, &["folder that does not exist"]);
    run("floor --user nvme:fffe:00:00.0").failed(3, &["fffe:00:00.0"]);
}

#[test]
fn an_interrupt_keeps_whole_rounds() {
    let directory = Directory::new();
    let words = "floor --user softnvme:size=16MiB --rw randread --iodepth 1 --seconds 0.05 --repeat 10000 --out f.html";
    let (child, begun) = (directory.spawn(words), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let run = interrupted(child);
    assert!(begun.elapsed() < Duration::from_secs(60), "it ran on");
    assert!(run.out.contains("stack") && directory.path("f.html").exists(), "{}", run.out);
    run.failed(130, &[]);
}
