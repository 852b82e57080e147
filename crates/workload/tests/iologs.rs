//! Logs of requests: both this program and fio replay them as they were written.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and one that skips should say so"
)]

use std::path::Path;
use std::process::Command;

use qpair_drivers::Drivers;
use qpair_workload::options::{Limits, command_line, settle};
use qpair_workload::{JobReport, Unwatched, run};

/// Makes a folder in the build directory.
fn folder() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn try_job(words: &str) -> qpair_block::Result<JobReport> {
    let words = words.split_whitespace().map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    });
    let (_, sections) = command_line([("name", Some("a"))].into_iter().chain(words))?;
    let plan = settle(&sections, Limits::default())?;
    Ok(run(&Drivers::new(), &plan.jobs, &Unwatched)?.jobs.remove(0))
}

#[track_caller]
fn job(words: &str) -> JobReport {
    let report = try_job(words).unwrap();
    assert_eq!(report.error, None);
    report
}

fn counts(report: &JobReport) -> ([u64; 3], [u64; 3], u64) {
    let of = |of: fn(&qpair_workload::DirectionReport) -> u64| report.directions.each_ref().map(of);
    (of(|did| did.ios), of(|did| did.bytes), report.flushes.ios)
}

/// Returns the requests of a log, without their times.
fn requests(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip(1).map(|line| line.split_once(' ').unwrap().1.to_owned());
    lines.filter(|line| line.split(' ').count() == 4).collect()
}

/// Runs fio and returns its JSON; `None` if fio is not installed.
fn fio(folder: &Path, options: &str) -> Option<serde_json::Value> {
    let output = Command::new("fio")
        .current_dir(folder)
        .args(["--output-format=json", "--name=a", "--ioengine=psync"])
        .args(options.split_whitespace())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: no fio here: {error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    Some(report["jobs"][0].clone())
}

fn fio_counts(job: &serde_json::Value) -> ([u64; 2], [u64; 2]) {
    let of = |key: &str| ["read", "write"].map(|at| job[at][key].as_u64().unwrap());
    (of("total_ios"), of("io_bytes"))
}

#[test]
fn a_replay_makes_the_requests_that_were_written() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (data, first, second) = (path("data"), path("first.log"), path("second.log"));
    let wrote = job(&format!(
        "filename={data} size=256k rw=randrw bsrange=4k-16k fsync=4 invalidate=0 write_iolog={first}"
    ));
    for more in ["", " replay_no_stall=1", " replay_time_scale=1000"] {
        let again = job(&format!("read_iolog={first} write_iolog={second}{more}"));
        assert_eq!(counts(&again), counts(&wrote), "{more}");
        assert_eq!(requests(Path::new(&second)), requests(Path::new(&first)), "{more}");
    }
    let flushes = requests(Path::new(&first)).iter().filter(|line| line.contains("sync")).count();
    assert!(flushes as u64 == wrote.flushes.ios && flushes > 0, "{flushes}");
    let twice =
        job(&format!("read_iolog={first} replay_no_stall=1 loops=2 replay_skip=write,sync"));
    assert_eq!(counts(&twice).0, [2 * wrote.directions[0].ios, 0, 0]);
    let few = job(&format!("read_iolog={first} replay_no_stall=1 number_ios=5"));
    assert!(few.ios() + few.flushes.ios == 5, "{}", few.ios());
}

#[test]
fn a_log_is_moved_to_another_place() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (log, out) = (path("in.log"), path("out.log"));
    std::fs::write(
        &log,
        "fio version 3 iolog\n5 /dev/none add\n9 /dev/none read 40960 1000\n9 /dev/none trim 1000 512\n",
    )
    .unwrap();
    let words = format!("read_iolog={log} write_iolog={out} replay_redirect=ram:size=1m");
    job(&format!("{words} replay_scale=4 replay_align=4k"));
    let done = requests(Path::new(&out));
    let ends: Vec<&str> = done.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(ends, ["read 8192 4096", "trim 0 4096"]);
    // Requests past the end are refused before the first one, with a hint.
    let error = try_job(&format!("{words} replay_align=4k replay_redirect=ram:size=16k"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("in.log has a request that ends at byte 45056"), "{error}");
    for (words, wanted) in [
        ("read_iolog=/missing.log", "reading the I/O log /missing.log"),
        ("replay_scale=2 filename=ram:size=1m", "replay_scale has no effect"),
    ] {
        let error = try_job(words).unwrap_err().to_string();
        assert!(error.contains(wanted), "{words}: {error}");
    }
    let error = try_job(&format!("read_iolog={log} replay_skip=read,trim")).unwrap_err();
    assert!(error.to_string().contains("has no request"), "{error}");
}

#[test]
fn a_log_of_fios_is_replayed() {
    let folder = folder();
    let options = "--filename=data --size=256k --rw=randrw --bsrange=4k-16k --fsync=4 \
                   --write_iolog=theirs.log";
    let Some(theirs) = fio(folder.path(), options) else { return };
    let log = folder.path().join("theirs.log");
    let data = folder.path().join("data");
    let words = format!("read_iolog={} replay_redirect={}", log.display(), data.display());
    let ours = job(&format!("{words} replay_no_stall=1"));
    let (ios, bytes, _) = counts(&ours);
    assert_eq!(([ios[0], ios[1]], [bytes[0], bytes[1]]), fio_counts(&theirs));
    let syncs = requests(&log).iter().filter(|line| line.contains("sync")).count() as u64;
    assert_eq!(ours.flushes.ios, syncs);
}

#[test]
fn fio_replays_a_log_of_ours() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (data, log) = (path("data"), path("ours.log"));
    let ours = job(&format!(
        "filename={data} size=256k rw=randrw bsrange=4k-16k fsync=4 invalidate=0 write_iolog={log}"
    ));
    let Some(theirs) = fio(folder.path(), "--read_iolog=ours.log --replay_no_stall=1") else {
        return;
    };
    let (ios, bytes, _) = counts(&ours);
    assert_eq!(fio_counts(&theirs), ([ios[0], ios[1]], [bytes[0], bytes[1]]));
}
