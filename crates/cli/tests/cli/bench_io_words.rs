//! `qpair bench io`: options of fio that change what a run does or writes, each tested by its
//! effect.

use serde_json::Value;

use crate::harness::{Directory, number};

/// Returns the documents in an output.
fn documents(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().unwrap()
}

/// Runs a job and returns its only document.
fn json(directory: &Directory, words: &str) -> Value {
    directory.json(&format!("bench io --json --eta=never {words}"))
}

/// Each state is a complete document with the results so far. The last one is the report.
#[test]
fn states_are_documents_that_grow() {
    let directory = Directory::new();
    let words = "bench io --name=a --filename=null:size=1g --rw=randread --numjobs=2 \
                 --rate_iops=1000 --runtime=1.2 --time_based --status-interval=200ms --eta=never";
    let out = directory.run(&format!("{words} --json")).done();
    let all = documents(&out);
    assert!(all.len() >= 3, "{} documents", all.len());
    let (report, states) = all.split_last().unwrap();
    assert!(report.pointer("/qpair/status_after_s").is_none());
    let mut before = (0.0, 0.0);
    for state in states {
        let after = number(state, "/qpair/status_after_s");
        let ios = |at: u32| match state.pointer(&format!("/jobs/{at}/read/total_ios")) {
            Some(ios) => ios.as_f64().unwrap(),
            None => 0.0,
        };
        let ios = ios(0) + ios(1);
        assert!(after > before.0 && ios >= before.1, "{state}");
        before = (after, ios);
    }
    let all_ios: f64 = (0..2).map(|at| number(report, &format!("/jobs/{at}/read/total_ios"))).sum();
    assert!(before.1 > 0.0 && before.1 <= all_ios && all_ios > 1000.0, "{before:?} {all_ios}");

    // The report replaces the file's content.
    directory.file("report", "old");
    let out = directory.run(&format!("{words} --output=report --output-format=normal,csv")).done();
    assert_eq!(out, "");
    let text = directory.text("report");
    assert!(text.starts_with("state after "), "{text}");
    let states = text.matches("the run goes on").count();
    assert!(states >= 2, "{text}");
    assert_eq!(text.matches("config_hash").count(), states + 1, "{text}");

    assert!(
        !directory
            .run("bench io --filename=null:size=1m --status-interval=0")
            .done()
            .contains("state")
    );
    let wrong = "bench io --filename=null:size=1m --status-interval=soon";
    directory.run(wrong).failed(2, &["status-interval", "is not a time"]);
}

/// A device without atomic writes is refused before anything is written. A device with atomic
/// writes executes them.
#[test]
fn atomic_writes_are_done_or_refused() {
    let directory = Directory::new();
    let report =
        json(&directory, "--name=a --filename=null:size=1m --rw=write --bs=16k --atomic=1");
    assert_eq!(number(&report, "/jobs/0/write/total_ios"), 64.0);
    assert!(number(&report, "/jobs/0/qpair/devices/0/atomic_write_bytes") >= 16384.0);
    let table = directory.run("bench io --name=a --filename=null:size=1m --rw=write --atomic=1");
    assert!(table.done().contains("writes atomic"));
    directory.file("data", vec![7; 1 << 20]);
    let on_file = "bench io --name=a --filename=data --rw=write --bs=4k --atomic=1";
    for engine in ["psync", "libaio", "io_uring"] {
        let run = directory.run(&format!("{on_file} --ioengine={engine} --json"));
        if run.code == Some(0) {
            let known = &documents(&run.out)[0]["jobs"][0]["qpair"]["devices"][0];
            assert!(known["atomic_write_bytes"].as_u64() > Some(0), "{known}");
            eprintln!("skipped: this file system has atomic writes");
            return;
        }
        if run.err.contains("direct I/O") {
            eprintln!("skipped: there is no direct I/O here");
            return;
        }
        run.failed(3, &["data has no atomic writes", "atomic_write_unit_max_bytes"]);
    }
    assert_eq!(directory.read("data"), vec![7; 1 << 20]);
    directory
        .run(&format!("{on_file} --direct=0"))
        .failed(2, &["atomic writes bypass the page cache", "direct=1"]);
}

#[test]
fn folders_of_logs_are_looked_at_before_the_run() {
    let directory = Directory::new();
    directory.file("data", vec![1; 1 << 20]);
    for option in [
        "--write_hist_log=missing/h --log_hist_msec=100",
        "--write_hist_log=data/h --log_hist_msec=100",
        "--write_iolog=missing/log",
        "--write_iolog=data/log",
    ] {
        let run = format!("bench io --name=a --filename=data --rw=write {option}");
        let place = if option.contains("missing") { "missing/" } else { "data/" };
        directory.run(&run).failed(3, &[place, "writing"]);
        assert_eq!(directory.read("data"), vec![1; 1 << 20], "{option}");
    }
}

#[test]
fn a_steady_state_ends_the_job() {
    let directory = Directory::new();
    let report = json(
        &directory,
        "--name=a --filename=null:size=1g --runtime=3600 --time_based --rate_iops=1000 \
         --steadystate=iops:1000% --steadystate_duration=0.4 --steadystate_check_interval=0.1",
    );
    assert_eq!(number(&report, "/jobs/0/steadystate/attained"), 1.0);
    assert!(number(&report, "/jobs/0/elapsed") < 3600.0);
}

/// A second run replays the request log of the first, with as many reads and writes at the same
/// offsets.
#[test]
fn a_log_of_requests_is_replayed() {
    let directory = Directory::new();
    directory.file("data", vec![0; 256 << 10]);
    let first = json(
        &directory,
        "--name=a --filename=data --size=256k --rw=randrw --bs=16k --write_iolog=log",
    );
    let log = directory.text("log");
    assert!(log.starts_with("fio version 3 iolog\n"), "{log}");
    let logged = log.lines().filter(|line| line.contains(" read ") || line.contains(" write "));
    assert_eq!(logged.count(), 16);
    let again =
        json(&directory, "--name=b --read_iolog=log --replay_no_stall=1 --write_iolog=again");
    for path in ["/jobs/0/read/total_ios", "/jobs/0/write/total_ios"] {
        assert_eq!(number(&first, path), number(&again, path));
    }
    let again = directory.text("again");
    let what = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_once(' ').map(|(_, what)| what.to_owned());
        text.lines().skip(1).filter(|line| line.contains(" 16384")).filter_map(words).collect()
    };
    assert_eq!(what(&again), what(&log));
}

#[test]
fn histograms_are_logged() {
    let directory = Directory::new();
    let words = "--name=a --filename=ram:size=1m --write_hist_log=h --log_hist_msec=1";
    json(&directory, words);
    let log = directory.text("h_clat_hist.1.log");
    let counts = log.lines().flat_map(|line| line.split(", ").skip(3));
    assert_eq!(counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), 256);
}

/// Writes 64 blocks of 4 KiB and returns the file's content.
fn written(options: &str) -> Vec<u8> {
    let directory = Directory::new();
    let words = format!("--name=a --filename=data --size=256k --rw=write --bs=4k {options}");
    json(&directory, &words);
    directory.read("data")
}

#[test]
fn content_is_as_compressible_as_asked_for() {
    let zeroes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 0).count() * 100 / bytes.len();
    assert!(zeroes(&written("")) < 5);
    let half = zeroes(&written("--buffer_compress_percentage=50"));
    assert!((45..=55).contains(&half), "{half} %");
}

#[test]
fn content_repeats_as_often_as_asked_for() {
    let repeats = |bytes: &[u8]| {
        let blocks: Vec<&[u8]> = bytes.chunks(4096).collect();
        blocks.windows(2).filter(|pair| pair[0] == pair[1]).count()
    };
    assert_eq!(repeats(&written("")), 0);
    assert_eq!(repeats(&written("--dedupe_percentage=100")), 63);
    let half = repeats(&written("--dedupe_percentage=50"));
    assert!((10..54).contains(&half), "{half} of 63");
}

/// Each block is trimmed before it is written, so there are as many trims as writes.
#[test]
fn blocks_are_trimmed_and_written() {
    let directory = Directory::new();
    let report = json(&directory, "--name=a --filename=ram:size=256k --rw=trimwrite --bs=4k");
    let ios = |direction: &str| number(&report, &format!("/jobs/0/{direction}/total_ios"));
    assert_eq!((ios("trim"), ios("write"), ios("read")), (64.0, 64.0, 0.0));
}

#[test]
fn times_have_decimals() {
    let directory = Directory::new();
    let words = "--name=a --filename=null:size=1g --time_based --rate_iops=100";
    let shown = |time: &str| {
        directory.run(&format!("bench io {words} --runtime={time} --parse-only")).done()
    };
    assert!(shown("1.5").contains("for 1.5s") && shown("0.25m").contains("for 15s"));
    let report = json(&directory, &format!("{words} --runtime=1.5"));
    let ms = number(&report, "/jobs/0/job_runtime");
    assert!(ms >= 1500.0, "{ms}");
}
