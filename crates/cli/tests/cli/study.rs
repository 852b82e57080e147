//! Small runs of `qpair study` and `qpair advise`.

use serde_json::Value;

use crate::harness::{Directory, Run, interrupted, wait_until};

/// Options of a study of memory: no drive, no kernel interface, and hardly any time.
const SMALL: &str =
    "study --device ram:size=4MiB --experiment s1-fig2 --repeat 2 --seconds-per-point 0.02";

#[test]
fn a_study_writes_a_report_and_its_numbers() {
    let directory = Directory::new();
    let said = directory.run(SMALL).done();
    assert!(said.contains("can't be tested here") && said.contains("study.html"), "{said}");
    let html = directory.text("study.html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let numbers: Value = serde_json::from_str(&directory.text("study.json")).unwrap();
    assert_eq!(numbers["format"], "qpair-study");
    assert_eq!(numbers["settings"]["repeat"], 2);
    // The report made from the numbers is the same.
    directory.run("study --render study.json --out again.html").done();
    assert_eq!(directory.text("again.html"), html);
    assert_eq!(directory.json("study --render study.json --out more.html --json"), numbers);

    // A study that replaces one is compared with it, and with any other that is named.
    let again = directory.run(SMALL).done();
    let numbers: Value = serde_json::from_str(&directory.text("study.json")).unwrap();
    assert!(numbers["against"]["outcomes"].as_array().unwrap().len() > 100, "{again}");
    directory.run(&format!("{SMALL} --against no.json")).failed(3, &["no.json"]);

    let same = directory.run("study diff study.json study.json").done();
    assert!(same.starts_with("0 points differ"), "{same}");
    let same = directory.json("study diff study.json study.json --json");
    assert!(same["alike"].as_u64().unwrap() > 5 && same["alone"] == 0, "{same}");
    directory.run("study diff study.json no.json").failed(3, &["no.json"]);

    let advice = directory.run("advise --study study.json --cores 1 --qd 16").done();
    assert!(advice.starts_with("use ram") && advice.contains("queue depth 16"), "{advice}");
    directory.run("advise --study study.json --cores 4096").failed(2, &["4096", "the study had"]);
    let advice = directory.json("advise --study study.json --json");
    assert_eq!(advice["choice"]["interface"], "ram");
}

#[test]
fn experiments_are_listed() {
    let said = Directory::new().run("study --list").done();
    for name in ["s1-fig2", "s3-fig11", "s4-writes", "s5-latency"] {
        assert!(said.contains(name), "{said}");
    }
    // Each section of the second paper's evaluation has its command.
    for command in [
        "study --experiment s2-floor --device /dev/sdb --rebind",
        "floor /dev/sdb --paper table2",
        "study --experiment s2-scsi --device /dev/sdb --rebind",
        "floor /dev/sdb --without-module --paper table3",
        "study --experiment s2-guest --device",
        "bench files --profile webserver",
    ] {
        assert!(said.contains(&format!("qpair {command}")), "{said}");
    }
}

#[test]
fn every_finding_is_listed() {
    let list = Directory::new().json("study --list --json");
    let findings = list["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 105, "103 of the papers and two of our own");
    for finding in findings {
        assert!(finding["experiment"].is_string(), "{finding}");
        // Each lack is the answer to a need.
        let count = |name: &str| finding[name].as_array().unwrap().len();
        assert!(count("lacks") <= count("needs"), "{finding}");
    }
    let of = |name: &str| findings.iter().find(|finding| finding["name"] == name).unwrap();
    assert!(of("s1-grid-j2")["lacks"].to_string().contains("one device only was given, of 5"));
    assert_eq!(of("s5-layer")["lacks"].as_array().unwrap().len(), 0);
    let words = Directory::new().run("study --list").done();
    assert!(words.contains("s5-layer") && words.contains("not here: one device only was given"));
}

#[test]
fn wrong_use_is_told_before_anything_is_measured() {
    let directory = Directory::new();
    directory.file("d.html", vec![7; 1 << 20]);
    let run = |words: &str| directory.run(words);
    run("study --experiment s9").failed(2, &["s9", "s1-fig2"]);
    run("study --out no/where/x.html").failed(2, &["folder that does not exist"]);
    run("study --out x.json").failed(2, &["HTML"]);
    run("study --out d.html --device d.html").failed(2, &["is a device of the study"]);
    run("study --budget soon").failed(2, &["soon"]);
    run("study --data-sheet 5").failed(2, &["--device"]);
    run("study --allow-writes").failed(2, &["--device"]);
    run("study --device no-such-file").failed(3, &["no-such-file"]);
    run("study --size 1EiB").failed(3, &["free", "--size"]);
    run("study --render d.html --out x.html").failed(2, &["d.html", "not a stored study"]);
    run("advise --cores 4096").failed(2, &["4096", "may be used here"]);
    run("advise --device d.html --reads 50").failed(2, &["destroys", "--allow-writes"]);
    run("advise --block 100").failed(2, &["multiple of 512"]);
    run("advise --study d.html").failed(2, &["d.html", "not a stored study"]);
    assert_eq!(directory.read("d.html"), vec![7; 1 << 20]);
    assert!(!directory.path("x.html").exists());
}

/// Whether a study ran: it does not where there is no direct I/O.
fn ran(run: Run) -> bool {
    let is_done = run.code == Some(0);
    assert!(is_done || run.err.contains("direct") || run.err.contains("O_DIRECT"), "{}", run.err);
    if !is_done {
        eprintln!("skipped: {}", run.err);
    }
    is_done
}

#[test]
fn devices_are_only_read_unless_writing_is_allowed() {
    let directory = Directory::new();
    let content: Vec<u8> = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
    directory.file("d", &content);
    let words = "study --device d --experiment s3-fig2b --experiment s4-writes --experiment s3-fig3 --quick --repeat 1";
    if !ran(directory.run(words)) {
        return;
    }
    assert!(directory.read("d") == content, "the device was written to");
    let run = directory.run(&format!("{words} --allow-writes"));
    assert!(run.err.contains("destroyed"), "{}", run.err);
    run.done();
    assert!(directory.read("d") != content, "nothing was written");
}

#[test]
fn a_store_is_part_of_a_study() {
    let directory = Directory::new();
    std::fs::create_dir(directory.path("own")).unwrap();
    let words = "study --dir own --size 64MiB --quick --repeat 1 --seconds-per-point 0.05 --experiment s3-fig13 --experiment s3-fig17";
    if !ran(directory.run(words)) {
        return;
    }
    let numbers: Value = serde_json::from_str(&directory.text("study.json")).unwrap();
    let points = numbers["points"].as_array().unwrap();
    let of = |page: u64, work: &str| {
        let is_it = |point: &&Value| {
            let store = &point["store"];
            store["page_bytes"] == page && store["work"] == work && store["rate_percent"].is_null()
        };
        points.iter().find(is_it).unwrap()["runs"][0]["store"].clone()
    };
    // Whatever part of the short run missed memory, the reads have the page size.
    let read_bytes = |page| {
        let store = of(page, "lookup");
        store["device_bytes_per_op"].as_f64().unwrap() / store["reads_per_op"].as_f64().unwrap()
    };
    let ratio = read_bytes(16384) / read_bytes(4096);
    assert!((3.5..=4.5).contains(&ratio), "{ratio}");
    assert!(of(4096, "tpcc")["writes_per_op"].as_f64().unwrap() > 0.0);
    let rates = points.iter().filter(|point| !point["store"]["rate_percent"].is_null());
    assert_eq!(rates.clone().count(), 2, "{numbers}");
    for point in rates.chain(points) {
        assert!(point["errors"].is_null(), "{point}");
    }
    assert_eq!(std::fs::read_dir(directory.path("own")).unwrap().count(), 0);
}

#[test]
fn stores_are_made_on_devices_that_may_be_written() {
    let directory = Directory::new();
    for name in ["a", "b"] {
        std::fs::File::create(directory.path(name)).unwrap().set_len(1 << 30).unwrap();
    }
    let words = "study --device a --device b --quick --repeat 1 --seconds-per-point 0.05 --experiment s3-fig16";
    // Writes of other points come between the runs of the stores.
    let all = format!("{words} --experiment s3-fig2b --allow-writes");
    if !ran(directory.run(&all)) {
        return;
    }
    directory.run(words).failed(3, &["nothing can be measured", "which takes --allow-writes"]);
    let study: Value = serde_json::from_str(&directory.text("study.json")).unwrap();
    let points = study["points"].as_array().unwrap();
    let stores: Vec<&Value> = points.iter().filter(|one| one["store"].is_object()).collect();
    assert_eq!(stores.len(), 2, "{study}");
    for point in stores {
        assert!(point["errors"].is_null() && point["runs"][0].is_object(), "{point}");
    }
    let slices = directory.json("carve list --json a");
    assert_eq!(slices["slices"].as_array().map(Vec::len), Some(0), "{slices}");
    // The next study finds the map of the last one, and no other's.
    directory.run(&all).done();
    directory.run("carve create b other --size 1MiB").done();
    directory.run(&all).failed(3, &["has the slices other"]);
    directory.run("put c k v").done();
    directory
        .run("study --device c --allow-writes --experiment s3-fig2b")
        .failed(3, &["c, which holds a qpair store"]);
}

#[test]
fn an_interrupted_study_leaves_nothing() {
    let directory = Directory::new();
    std::fs::create_dir(directory.path("own")).unwrap();
    let files = || std::fs::read_dir(directory.path("own")).unwrap().count();
    let mut child = directory.spawn("study --dir own --size 64MiB");
    wait_until(|| files() > 0 || child.try_wait().unwrap().is_some());
    let code = interrupted(child).code;
    // Without direct I/O the command ended by itself.
    assert!(matches!(code, Some(130 | 3)), "{code:?}");
    assert_eq!(files(), 0);
    assert!(!directory.path("study.html").exists());
}
