//! Jobs over real files and over memory.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{DeviceSpec, ErrorKind};
use qpair_kernel::Mode;
use qpair_workload::{
    BlockSizes, Direction, Extent, Form, Job, Order, Rate, RateProcess, Target, Unwatched, Verbs,
    Verify, VerifyMethod, run,
};

/// A folder next to the build, where direct I/O is likelier to work than in /tmp.
fn folder() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn on_file(path: PathBuf, bytes: u64, mode: &str) -> Job {
    let spec = DeviceSpec::File(path);
    let mut job = Job::new("t", spec.clone(), mode.parse::<Mode>().unwrap());
    job.targets = vec![Target { spec, create_bytes: Some(bytes) }];
    job
}

fn on(spec: &str) -> Job {
    Job::new("t", DeviceSpec::parse(spec).unwrap(), Mode::default())
}

fn verify() -> Option<Verify> {
    Some(Verify {
        method: VerifyMethod::Crc32c,
        pattern: Vec::new(),
        interval_bytes: 0,
        after: true,
        only: false,
        fatal: false,
    })
}

#[test]
fn every_interface_moves_every_byte_once() {
    let folder = folder();
    for mode in ["io_uring", "libaio", "posix", "posix:threads=0"] {
        for (verbs, order) in [
            (Verbs::Read, Order::Random),
            (Verbs::Write, Order::Sequential),
            (Verbs::Mixed { read_percent: 70 }, Order::Random),
        ] {
            let job = Job {
                verbs,
                order,
                depth: 8,
                ..on_file(folder.path().join("file"), 4 << 20, mode)
            };
            let report = run(&[job], &Unwatched).unwrap();
            let [job] = &report.jobs[..] else { panic!() };
            assert_eq!(job.error, None, "{mode}");
            assert_eq!(job.ios(), 1024, "{mode}");
            let bytes: u64 = job.directions.iter().map(|direction| direction.bytes).sum();
            assert_eq!(bytes, 4 << 20);
            for direction in &job.directions {
                assert_eq!(direction.clat.len(), direction.ios);
                assert_eq!(direction.lat.len(), direction.ios);
            }
            assert!(job.cpu.system_calls > 0);
            let in_series: u64 =
                job.series.iter().map(|sample| sample.ios.iter().sum::<u64>()).sum();
            assert!(in_series <= 1024);
        }
    }
}

#[test]
fn what_was_written_is_verified_and_a_corrupted_block_is_found() {
    let folder = folder();
    let path = folder.path().join("file");
    let write = Job {
        verbs: Verbs::Write,
        depth: 8,
        verify: verify(),
        ..on_file(path.clone(), 1 << 20, "auto")
    };
    let report = run(&[write], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].verify.blocks, 256);
    assert_eq!(report.jobs[0].verify.wrong, 0);

    let read = Job { depth: 4, verify: verify(), ..on_file(path.clone(), 1 << 20, "auto") };
    let report = run(std::slice::from_ref(&read), &Unwatched).unwrap();
    assert_eq!((report.jobs[0].verify.blocks, report.jobs[0].verify.wrong), (256, 0));

    let mut bytes = std::fs::read(&path).unwrap();
    bytes[77 * 4096 + 1234] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let report = run(&[read], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].verify.wrong, 1);
    assert_eq!(report.jobs[0].verify.errors[0].offset_bytes, 77 * 4096);
}

#[test]
fn overlapping_writes_of_many_sizes_verify() {
    let sizes = BlockSizes::Split(vec![(4096, 40), (8192, 40), (65536, 20)]);
    let mut job = Job {
        verbs: Verbs::Mixed { read_percent: 30 },
        block_sizes: [sizes.clone(), sizes.clone(), sizes],
        depth: 32,
        random_map: false,
        io_size: Some(64 << 20),
        verify: verify(),
        ..on("ram:size=4MiB")
    };
    let report = run(&[job.clone()], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].error, None);
    assert!(report.jobs[0].verify.blocks > 1000);
    assert_eq!(report.jobs[0].verify.errors, []);

    // The same on a device that returns other bytes than it was given: it must be seen.
    job.targets[0].spec =
        DeviceSpec::parse("fault:seed=1,corrupt_read_rate=0.01:ram:size=4MiB").unwrap();
    let report = run(&[job], &Unwatched).unwrap();
    assert!(report.jobs[0].verify.wrong > 0);
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    // 2 ms a request, one at a time, 1000 a second asked for: the queue grows, and so does the latency.
    let job = Job {
        rate: [Rate { ios_per_s: 1000, bytes_per_s: 0 }; 3],
        rate_process: RateProcess::Poisson,
        runtime: Some(Duration::from_millis(400)),
        time_based: true,
        ..on("delay:read_us=2000:ram:size=1MiB")
    };
    let report = run(&[job], &Unwatched).unwrap();
    let read = report.jobs[0].direction(Direction::Read);
    assert!(read.lat.max() > 2 * read.clat.max(), "{} {}", read.lat.max(), read.clat.max());
    assert!(report.jobs[0].late_max > Duration::from_millis(50));
}

#[test]
fn a_rate_is_not_exceeded_whatever_is_read_or_written() {
    // Reads of a job that only reads once took the writes' plan as well: twice the rate.
    for (verbs, most) in
        [(Verbs::Read, 101), (Verbs::Write, 101), (Verbs::Mixed { read_percent: 50 }, 202)]
    {
        let job = Job {
            verbs,
            depth: 4,
            rate: [Rate { ios_per_s: 500, bytes_per_s: 0 }; 3],
            runtime: Some(Duration::from_millis(200)),
            time_based: true,
            ..on("ram:size=1MiB")
        };
        let ios = run(&[job], &Unwatched).unwrap().jobs[0].ios();
        assert!(ios > 1 && ios <= most, "{verbs:?}: {ios}");
    }
}

#[test]
fn messages_and_barriers_and_flushes() {
    let base = Job {
        runtime: Some(Duration::from_millis(200)),
        time_based: true,
        depth: 8,
        ..on("ram:size=1MiB")
    };
    for form in
        [Form::Barrier, Form::Stress, Form::Messages { interval: Duration::from_micros(100) }]
    {
        let report = run(&[Job { form, ..base.clone() }], &Unwatched).unwrap();
        assert_eq!(report.jobs[0].error, None);
        assert!(report.jobs[0].ios() > 8, "{form:?}");
        if form == Form::Barrier {
            assert_eq!(report.jobs[0].ios() % 8, 0);
        }
    }
    let job =
        Job { verbs: Verbs::Write, flush_blocks: 4, flush_at_end: true, ..on("ram:size=1MiB") };
    let report = run(&[job], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].flushes.ios, 256 / 4 + 1);
}

#[test]
fn stages_follow_each_other_and_several_devices_share_a_job() {
    let mut first = Job { depth: 4, ..on("ram:size=1MiB") };
    first.targets.push(Target {
        spec: DeviceSpec::parse("delay:read_us=50:ram:size=2MiB").unwrap(),
        create_bytes: None,
    });
    let second = Job { stage: 1, ..on("null:size=4MiB") };
    let report = run(&[first, second], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].ios(), 256 + 512);
    assert_eq!(report.jobs[1].ios(), 1024);
    assert!(report.jobs[1].begin >= report.jobs[0].begin + report.jobs[0].elapsed);
}

#[test]
fn what_the_submitter_itself_does_is_no_submission() {
    // The whole read was slat, and clat a hundred nanoseconds.
    let folder = folder();
    let job = on_file(folder.path().join("file"), 1 << 20, "posix:threads=0");
    let report = run(&[job], &Unwatched).unwrap();
    let read = report.jobs[0].direction(Direction::Read);
    assert_eq!((read.slat.len(), read.clat.len()), (0, 256));
    assert_eq!(read.clat.max(), read.lat.max());
}

#[test]
fn a_job_that_ends_in_its_ramp_has_measured_nothing() {
    let job = Job { ramp: Duration::from_secs(60), ..on("ram:size=1MiB") };
    let report = run(&[job], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].ios(), 0);
    assert_eq!(report.jobs[0].cpu.system_calls, 0);
}

#[test]
fn only_what_was_written_is_verified() {
    let folder = folder();
    let mixed = Job {
        verbs: Verbs::Mixed { read_percent: 50 },
        verify: verify(),
        ..on_file(folder.path().join("file"), 1 << 20, "auto")
    };
    let wrote = run(std::slice::from_ref(&mixed), &Unwatched).unwrap();
    assert_eq!(wrote.jobs[0].verify.wrong, 0);
    let only = Verify { only: true, ..verify().unwrap() };
    let again = run(&[Job { verify: Some(only), ..mixed }], &Unwatched).unwrap();
    assert_eq!(again.jobs[0].verify.errors, []);
    assert_eq!(again.jobs[0].verify.blocks, wrote.jobs[0].direction(Direction::Write).ios);
}

#[test]
fn two_that_write_to_one_file_lose_nothing() {
    let folder = folder();
    let job = Job {
        verbs: Verbs::Write,
        verify: verify(),
        ..on_file(folder.path().join("file"), 1 << 20, "auto")
    };
    let second = Job { clone: 1, ..job.clone() };
    let report = run(&[job, second], &Unwatched).unwrap();
    for job in &report.jobs {
        assert_eq!(job.verify.errors, []);
    }
}

#[test]
fn one_file_after_the_other() {
    let mut job = Job {
        target_order: qpair_workload::TargetOrder::Sequential,
        order: Order::Sequential,
        io_size: Some(3 << 20),
        ..on("ram:size=1MiB")
    };
    job.targets.push(Target {
        spec: DeviceSpec::parse("fault:seed=1,read_error_rate=1:ram:size=1MiB").unwrap(),
        create_bytes: None,
    });
    let report = run(&[job], &Unwatched).unwrap();
    // All of the first, and then the first block of the second, which cannot be read.
    assert_eq!(report.jobs[0].ios(), 256);
    assert!(report.jobs[0].error.is_some());
}

#[test]
fn a_failing_device_ends_its_job_with_the_place() {
    let job = Job { depth: 4, ..on("fault:seed=3,read_error_rate=0.05:ram:size=1MiB") };
    let report = run(&[job, on("ram:size=1MiB")], &Unwatched).unwrap();
    let error = report.jobs[0].error.as_ref().unwrap();
    assert!(error.what.contains("reading 4096 bytes at"), "{}", error.what);
    assert_eq!(report.jobs[1].error, None);
    assert_eq!(report.jobs[1].ios(), 256);
}

#[test]
fn impossible_jobs_are_refused_before_anything_is_touched() {
    let fail = |job: Job| {
        let error = run(&[job], &Unwatched).unwrap_err();
        (error.kind(), error.to_string())
    };
    let ram = || on("ram:size=1MiB");
    let fixed = |bytes| [const { BlockSizes::Fixed(0) }; 3].map(|_| BlockSizes::Fixed(bytes));
    for (job, what) in [
        (Job { block_sizes: fixed(1000), ..ram() }, "multiple"),
        (Job { block_sizes: fixed(2 << 20), ..ram() }, "do not fit"),
        (Job { size: Some(Extent::Bytes(2 << 20)), ..ram() }, "less than the"),
        (Job { depth: 0, ..ram() }, "depth of 0"),
        (Job { depth: 1 << 30, ..ram() }, "limit"),
        (Job { time_based: true, ..ram() }, "without runtime"),
        (Job { verbs: Verbs::Write, read_only: true, ..ram() }, "only reading"),
    ] {
        let (kind, text) = fail(job);
        assert_eq!(kind, ErrorKind::Invalid, "{text}");
        assert!(text.contains(what), "{text}");
    }
    let folder = folder();
    let (kind, _) =
        fail(Job::new("t", DeviceSpec::File(folder.path().join("missing")), Mode::default()));
    assert_eq!(kind, ErrorKind::NotFound);
    // A file in use by somebody who locked it.
    let path = folder.path().join("held");
    let held = qpair_kernel::open(
        &qpair_kernel::FileOptions {
            create: Some(1 << 20),
            ..qpair_kernel::FileOptions::new(&path)
        },
        qpair_kernel::Interface::Posix,
    )
    .unwrap();
    let write = Job { verbs: Verbs::Write, ..on_file(path, 1 << 20, "auto") };
    let (kind, text) = fail(write.clone());
    assert_eq!(kind, ErrorKind::Busy);
    assert!(text.contains("--force"), "{text}");
    assert!(run(&[Job { force: true, ..write }], &Unwatched).is_ok());
    drop(held);
}
