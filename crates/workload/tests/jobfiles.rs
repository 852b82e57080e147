//! Typical job files, and fio's own examples if fio is installed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and one that skips should say so"
)]

use std::path::{Path, PathBuf};

use qpair_block::Result;
use qpair_workload::options::{Limits, Plan, settle};
use qpair_workload::{BlockSizes, Form, Order, RateProcess, Verbs, jobfile};

fn read(path: &Path) -> Result<Plan> {
    settle(&jobfile::read(path, &[], &[])?, Limits::default())
}

fn ours(name: &str) -> Plan {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs").join(name)).unwrap()
}

#[test]
fn a_device_is_filled_and_then_measured() {
    let plan = ours("fill-then-steady.fio");
    assert_eq!(plan.jobs.len(), 5);
    let (fill, steady) = (&plan.jobs[0], &plan.jobs[1..]);
    assert_eq!(
        (fill.verbs, fill.order, fill.stage, fill.depth),
        (Verbs::Write, Order::Sequential, 0, 16)
    );
    assert_eq!(fill.block_sizes[1], BlockSizes::Fixed(1 << 20));
    assert_eq!(fill.description.as_deref(), Some("every block once, so that none is empty"));
    for (clone, job) in steady.iter().enumerate() {
        assert_eq!((job.stage, job.group, job.clone as usize), (1, 1, clone));
        assert_eq!((job.verbs, job.order, job.depth), (Verbs::Write, Order::Random, 32));
        assert_eq!(job.logs, [("bw".to_owned(), PathBuf::from("steady"))]);
        assert!(job.direct && job.group_reporting);
    }
}

#[test]
fn a_file_server_has_many_sizes() {
    let plan = ours("file-server.fio");
    let [job] = plan.jobs.as_slice() else { panic!("{plan:?}") };
    assert_eq!(job.verbs, Verbs::Mixed { read_percent: 80 });
    let BlockSizes::Split(parts) = &job.block_sizes[0] else { panic!("{job:?}") };
    assert_eq!(parts.iter().map(|part| u32::from(part.1)).sum::<u32>(), 100);
    assert_eq!((job.block_sizes[0].min(), job.block_sizes[0].max()), (512, 64 << 10));
    assert_eq!(job.targets[0].create_bytes, Some(4 << 30));
}

#[test]
fn jobs_of_one_file_wait_for_each_other() {
    let plan = ours("four-phases.fio");
    let phases: Vec<_> =
        plan.jobs.iter().map(|job| (job.name.as_str(), job.stage, job.verbs, job.order)).collect();
    assert_eq!(
        phases,
        [
            ("seq-read", 0, Verbs::Read, Order::Sequential),
            ("rand-read", 1, Verbs::Read, Order::Random),
            ("seq-write", 2, Verbs::Write, Order::Sequential),
            ("rand-write", 3, Verbs::Write, Order::Random),
        ]
    );
    assert!(plan.jobs.iter().all(|job| job.targets[0].spec.to_string() == "/mnt/ssd/test.file"));
}

#[test]
fn passthrough_and_its_switches() {
    let plan = ours("passthrough.fio");
    let modes: Vec<_> = plan.jobs.iter().map(|job| job.mode.to_string()).collect();
    assert_eq!(
        modes,
        ["io_uring_cmd:buffers=off,file=off", "io_uring_cmd+k:cpu=0,buffers=off", "io_uring_cmd+p",]
    );
}

#[test]
fn open_loops_and_latency() {
    let plan = ours("open-loop.fio");
    let [linear, poisson, paced] = plan.jobs.as_slice() else { panic!("{plan:?}") };
    assert_eq!((linear.rate[0].ios_per_s, linear.rate_process), (1000, RateProcess::Linear));
    assert_eq!((poisson.rate[0].ios_per_s, poisson.rate_process), (50, RateProcess::Poisson));
    assert_eq!(
        paced.form,
        Form::Messages { interval: std::time::Duration::from_micros(15), producers: 1 }
    );
    assert_eq!(paced.vector_len, 4);
}

#[test]
fn writing_and_verifying() {
    let plan = ours("verify.fio");
    let [write, check] = plan.jobs.as_slice() else { panic!("{plan:?}") };
    assert!(!write.verify.as_ref().unwrap().after && check.verify.as_ref().unwrap().only);
    assert_eq!(write.targets, check.targets);
}

/// Each of fio's examples becomes jobs, or an error with its line that names the unsupported
/// feature.
#[test]
fn examples_of_fio_run_or_say_why_not() {
    let folder = std::env::var_os("FIO_EXAMPLES")
        .map_or("/usr/share/doc/fio/examples".into(), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!(
            "skipped: no examples of fio in {} (FIO_EXAMPLES names another folder)",
            folder.display()
        );
        return;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "fio"));
    files.sort();
    let mut run = 0;
    for path in &files {
        let name = path.file_name().unwrap().to_string_lossy();
        match read(path) {
            Ok(plan) => {
                run += 1;
                eprintln!("{name}: {} jobs", plan.jobs.len());
            }
            Err(error) => {
                let text = error.to_string();
                let short = text.replace(&format!("{}/", folder.display()), "");
                eprintln!("{name}: {short}");
                assert!(text.starts_with(path.to_str().unwrap()), "{name}: no line: {text}");
                let named = [
                    "fio's option",
                    "fio's engine",
                    "not supported",
                    "there is no option",
                    "has no value",
                ];
                let odd = ["does not exist", "the engine is not known"];
                assert!(
                    named.iter().chain(&odd).any(|word| text.contains(word)),
                    "{name}: what is not supported? {text}"
                );
            }
        }
    }
    eprintln!("{run} of {} run", files.len());
}
