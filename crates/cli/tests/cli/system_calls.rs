//! Compares the system calls that channels count with those that strace sees.

use std::process::Command;

use crate::harness::Directory;

/// The system calls by which channels submit, wait and reap.
const CALLS: &str = "io_uring_enter,io_submit,io_getevents,io_pgetevents,pread64,preadv,preadv2";
/// The maximum number of calls during set-up: opening tries each mode once.
const SET_UP_MAX: u64 = 24;

fn strace_works() -> bool {
    Command::new("strace").args(["-c", "true"]).output().is_ok_and(|output| output.status.success())
}

/// Returns the sum of strace's column of calls.
fn counted_by_strace(summary: &str) -> u64 {
    let counted = |line: &str| -> Option<u64> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.last()?;
        CALLS.split(',').any(|call| call == *name).then(|| words[3].parse().ok())?
    };
    summary.lines().filter_map(counted).sum()
}

#[test]
fn channels_count_the_calls_they_make() {
    if !strace_works() {
        eprintln!("skipped: no strace that may trace here");
        return;
    }
    let directory = Directory::new();
    // Create the file beforehand, because that takes calls too.
    directory.file("data", vec![7; 4 << 20]);
    for (mode, depth) in [
        ("io_uring", 1),
        ("io_uring", 8),
        ("io_uring:task_run=coop", 8),
        ("libaio", 8),
        ("libaio:mapped=off", 8),
        ("posix:threads=0", 1),
    ] {
        let output = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(directory.path("calls"))
            .args(["-e", &format!("trace={CALLS}")])
            .arg(env!("CARGO_BIN_EXE_qpair"))
            .args(["bench", "io", "--filename=data", "--rw=randread", "--direct=1"])
            .args(["--json", "--eta=never"])
            .arg(format!("--interface={mode}"))
            .arg(format!("--iodepth={depth}"))
            .current_dir(directory.path("."))
            .output()
            .unwrap();
        if !output.status.success() {
            eprintln!("skipped: {mode}: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let ours = json.pointer("/jobs/0/qpair/cost/system_calls").unwrap().as_u64().unwrap();
        let summary = directory.text("calls");
        let seen = counted_by_strace(&summary);
        assert!(ours >= 100, "{mode} at depth {depth}: {ours} calls for 1024 reads");
        assert!(
            (ours..=ours + SET_UP_MAX).contains(&seen),
            "{mode} at depth {depth}: {ours} counted, strace saw\n{summary}"
        );
    }
}
