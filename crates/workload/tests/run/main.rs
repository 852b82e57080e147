//! Runs jobs on real files and in memory.
//!
//! Long, because one test for each promise of a run.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod states;

use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{DeviceSpec, ErrorKind};
use qpair_drivers::Drivers;
use qpair_kernel::Mode;
use qpair_workload::{
    BlockSizes, Direction, EndsWith, Extent, FlowShare, Form, HistogramLog, Job, Observer, Order,
    Rate, RateProcess, RunReport, Steadiness, SteadyGoal, SteadyOf, Target, Tolerance, Unwatched,
    Verbs, Verify, VerifyMethod,
};

/// Runs jobs without drivers shared with other tests.
fn run(jobs: &[Job], observer: &dyn Observer) -> qpair_block::Result<RunReport> {
    qpair_workload::run(&Drivers::new(), jobs, observer)
}

/// Makes a folder in the build directory, where direct I/O is more likely to work than in /tmp.
fn folder() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn on_file(path: PathBuf, bytes: u64, mode: &str) -> Job {
    let spec = DeviceSpec::File(path);
    let mut job = Job::new("t", spec.clone(), mode.parse::<Mode>().unwrap());
    job.targets = vec![Target { spec, create_bytes: Some(bytes), sparse: false }];
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
        backlog: 0,
        backlog_batch: 0,
        dump: false,
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

    // The same on a device that returns other bytes than were written: this must be noticed.
    job.targets[0].spec =
        DeviceSpec::parse("fault:seed=1,corrupt_read_rate=0.01:ram:size=4MiB").unwrap();
    let report = run(&[job], &Unwatched).unwrap();
    assert!(report.jobs[0].verify.wrong > 0);
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    // Each request takes 2 ms, one at a time, and 1000 per second are requested: the queue grows,
    // and so does the latency.
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
    // A regression: the reads of a job that only reads also used the plan of writes, which doubled
    // the rate.
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
    let messages = |producers| Form::Messages { interval: Duration::from_micros(100), producers };
    for form in [Form::Barrier, Form::Stress, messages(1), messages(3)] {
        let report = run(&[Job { form, ..base.clone() }], &Unwatched).unwrap();
        assert_eq!(report.jobs[0].error, None);
        assert!(report.jobs[0].ios() > 8, "{form:?}");
        if form == Form::Barrier {
            assert_eq!(report.jobs[0].ios() % 8, 0);
        }
    }
    // Three producers hand over more than one can at this interval.
    let most = |form| {
        let report = run(&[Job { form, ..base.clone() }], &Unwatched).unwrap();
        report.jobs[0].ios()
    };
    assert!(most(messages(1)) <= 2001, "one request for each 100 us of 200 ms");
    let slow = Form::Messages { interval: Duration::from_millis(50), producers: 5 };
    let one = Form::Messages { interval: Duration::from_millis(50), producers: 1 };
    assert!(most(slow) > 2 * most(one), "five producers pass on five times as many");
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
        sparse: false,
    });
    let second = Job { stage: 1, ..on("null:size=4MiB") };
    let report = run(&[first, second], &Unwatched).unwrap();
    assert_eq!(report.jobs[0].ios(), 256 + 512);
    assert_eq!(report.jobs[1].ios(), 1024);
    assert!(report.jobs[1].begin >= report.jobs[0].begin + report.jobs[0].elapsed);
}

#[test]
fn what_the_submitter_itself_does_is_no_submission() {
    // A regression: the whole read counted as slat, and clat was a hundred nanoseconds.
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
    let table = qpair_workload::output::table(&report, qpair_workload::output::Style::default());
    assert!(table.contains("ended within its ramp of 60 s"), "{table}");
    assert!(!table.contains("after 60 s"), "{table}");
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

/// A regression: `verify_only` accepted any block that some run had written there, one with another
/// seed or an older one of the same run.
#[test]
fn only_the_run_that_is_named_is_found() {
    let folder = folder();
    let path = folder.path().join("file");
    // Each block is written about twice, so that the last write of each must be known.
    let wrote = Job {
        verbs: Verbs::Write,
        random_map: false,
        loops: 2,
        verify: verify(),
        depth: 8,
        ..on_file(path.clone(), 1 << 20, "auto")
    };
    run(std::slice::from_ref(&wrote), &Unwatched).unwrap();
    let only = |seed: u64| {
        let verify = Some(Verify { only: true, ..verify().unwrap() });
        let job = Job { verify, seed, ..wrote.clone() };
        run(&[job], &Unwatched).unwrap().jobs.remove(0).verify
    };
    assert_eq!(only(wrote.seed).errors, []);
    let other = only(wrote.seed + 1);
    assert_eq!(other.wrong, other.blocks);
    // Wrong blocks are among blocks that were never written, in any order.
    assert!(other.errors.iter().any(|error| error.what.contains("seed")), "{other:?}");
    // The first content of blocks that the run wrote twice.
    let newer = std::fs::read(&path).unwrap();
    run(&[Job { loops: 1, ..wrote.clone() }], &Unwatched).unwrap();
    let older = std::fs::read(&path).unwrap();
    assert_ne!(newer, older);
    let found = only(wrote.seed);
    assert!(found.wrong > 0 && found.wrong < found.blocks, "{found:?}");
    assert!(found.errors.iter().any(|error| error.what.contains("a lost write")), "{found:?}");
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
        sparse: false,
    });
    let report = run(&[job], &Unwatched).unwrap();
    // All blocks of the first target, and then the first block of the second, which cannot be read.
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
        (Job { depth: 0, ..ram() }, "depth must be"),
        (Job { depth: 1 << 30, ..ram() }, "limit"),
        (Job { time_based: true, ..ram() }, "needs a runtime"),
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
    // Another process uses and locks the file.
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

#[test]
fn histograms_over_time_count_each_request_once() {
    let every = Duration::from_millis(1);
    let log = HistogramLog { prefix: "unused".into(), every, coarseness: 0 };
    let job = Job { histogram_log: Some(log), depth: 4, loops: 20, ..on("ram:size=1MiB") };
    let report = run(&[job], &Unwatched).unwrap();
    let done = &report.jobs[0];
    let counts = done.histograms.iter().flat_map(|sample| &sample.buckets);
    assert_eq!(counts.map(|(_, count)| u64::from(*count)).sum::<u64>(), 20 * 256);
    assert!(done.histograms.is_sorted_by_key(|sample| sample.end));
}

/// The loosest limit holds as soon as the window is full, and ends the job long before its time.
#[test]
fn a_steady_state_ends_a_job_or_a_group() {
    let goal = SteadyGoal {
        of: SteadyOf::Iops,
        by: Steadiness::Deviation,
        limit: 1e9,
        percent: true,
        window: Duration::from_millis(60),
        ramp: Duration::ZERO,
        interval: Duration::from_millis(20),
    };
    let job = Job {
        steady: Some(goal),
        time_based: true,
        runtime: Some(Duration::from_secs(3600)),
        group_reporting: true,
        ..on("null:size=1MiB")
    };
    let report = run(&[job.clone(), job.clone()], &Unwatched).unwrap();
    for done in &report.jobs {
        let steady = done.steady.as_ref().unwrap();
        assert!(steady.attained && done.error.is_none() && done.ios() > 0, "{steady:?}");
        assert_eq!((steady.ios.len(), steady.bytes.len()), (3, 3));
    }
    assert_eq!(report.jobs[0].steady, report.jobs[1].steady);
    let table = qpair_workload::output::table(&report, qpair_workload::output::Style::default());
    assert!(table.contains("attained: iops is") && table.contains("the limit"), "{table}");
    let never = SteadyGoal { limit: 0.0, ..goal };
    let never = Job { steady: Some(never), runtime: Some(Duration::from_millis(200)), ..job };
    let report = run(&[never], &Unwatched).unwrap();
    assert!(report.jobs[0].steady.as_ref().is_some_and(|steady| !steady.attained));
}

#[test]
fn atomic_writes_are_refused_where_there_are_none() {
    let job =
        |spec: &str| Job { verbs: Verbs::Write, atomic: true, number_ios: Some(16), ..on(spec) };
    let done = run(&[job("null:size=1MiB")], &Unwatched).unwrap();
    assert_eq!((done.jobs[0].error.clone(), done.jobs[0].ios()), (None, 16));
    let error = run(&[job("ram:size=1MiB")], &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("has no atomic writes") && text.contains("leave atomic out"), "{text}");
    let large =
        Job { block_sizes: [const { BlockSizes::Fixed(12288) }; 3], ..job("null:size=1200KiB") };
    let text = run(&[large], &Unwatched).unwrap_err().to_string();
    assert!(text.contains("no atomic writes of 12") && text.contains("from 512"), "{text}");
    let reads = Job { verbs: Verbs::Read, ..job("ram:size=1MiB") };
    assert_eq!(run(&[reads], &Unwatched).unwrap().jobs[0].error, None);
}

/// Each block is trimmed and then written, at any depth. The content verified afterwards was
/// written after its trim. Counts match fio's: as many trims as writes.
#[test]
fn blocks_are_trimmed_and_then_written() {
    for (depth, order, random_map) in
        [(1, Order::Sequential, true), (8, Order::Random, true), (8, Order::Random, false)]
    {
        let job = Job {
            verbs: Verbs::TrimWrite,
            order,
            depth,
            random_map,
            verify: verify(),
            loops: 2,
            ..on("ram:size=256KiB")
        };
        let report = run(std::slice::from_ref(&job), &Unwatched).unwrap();
        let done = &report.jobs[0];
        let ios = done.directions.each_ref().map(|direction| direction.ios);
        assert_eq!((done.error.clone(), ios), (None, [0, 128, 128]));
        assert!(done.verify.blocks > 0 && done.verify.errors.is_empty(), "{:?}", done.verify);
        let some = Job { number_ios: Some(10), loops: 1, verify: None, ..job };
        let ios = run(&[some], &Unwatched).unwrap().jobs[0].ios();
        assert_eq!(ios, 20);
    }
}

/// With a backlog, reads come between writes, each written block is read once, and a wrong one is
/// found and dumped.
#[test]
fn a_backlog_is_read_back_while_writing() {
    let job = Job {
        verbs: Verbs::Write,
        order: Order::Sequential,
        verify: Some(Verify { backlog: 4, ..verify().unwrap() }),
        ..on("ram:size=64KiB")
    };
    let report = run(std::slice::from_ref(&job), &Unwatched).unwrap();
    let done = &report.jobs[0];
    // As in fio: 16 writes and 16 reads.
    assert_eq!((done.directions[1].ios, done.directions[0].ios), (16, 16));
    assert_eq!((done.verify.blocks, done.verify.wrong), (16, 0));
    let rest = Job { verify: Some(Verify { backlog: 5, ..verify().unwrap() }), ..job.clone() };
    let done = &run(&[rest], &Unwatched).unwrap().jobs[0];
    // The last block is read at the end, which is not measured.
    assert_eq!((done.directions[0].ios, done.verify.blocks), (15, 16));
    let deep = Job {
        order: Order::Random,
        depth: 8,
        random_map: false,
        io_size: Some(1 << 20),
        verify: Some(Verify { backlog: 16, backlog_batch: 3, ..verify().unwrap() }),
        ..job
    };
    let done = &run(&[deep], &Unwatched).unwrap().jobs[0];
    assert_eq!((done.error.clone(), done.verify.wrong), (None, 0));
    assert!(done.directions[0].ios > 100, "{}", done.directions[0].ios);
}

#[test]
fn as_many_requests_as_asked_for() {
    let job = |loops| Job { number_ios: Some(5), loops, ..on("ram:size=1MiB") };
    let report = run(&[job(1), job(2)], &Unwatched).unwrap();
    assert_eq!((report.jobs[0].ios(), report.jobs[1].ios()), (5, 10));
}

#[test]
fn errors_can_be_passed_over() {
    let failing = "fault:seed=3,read_error_rate=0.05:ram:size=1MiB";
    let tolerance = Tolerance { read: vec![5], ..Tolerance::default() };
    let bears = Job { tolerance, depth: 4, ..on(failing) };
    let done = &run(std::slice::from_ref(&bears), &Unwatched).unwrap().jobs[0];
    assert_eq!(done.error, None);
    assert!(done.passed.count > 0 && done.ios() + done.passed.count == 256, "{:?}", done.passed);
    assert!(done.passed.first.as_ref().unwrap().what.contains("reading 4096 bytes at"));
    // Another error is not in the list.
    let other = Job { tolerance: Tolerance { read: vec![28], ..Tolerance::default() }, ..bears };
    assert!(run(&[other], &Unwatched).unwrap().jobs[0].error.is_some());
}

/// A job that others wait for, a job that ends others, and one that never begins.
#[test]
fn jobs_wait_for_others_and_end_with_others() {
    let long = Duration::from_secs(600);
    let first = Job { name: "first".into(), number_ios: Some(8), ..on("ram:size=1MiB") };
    let second = Job { name: "second".into(), wait_for: Some("first".into()), ..first.clone() };
    let report = run(&[first.clone(), second.clone()], &Unwatched).unwrap();
    let [one, two] = &report.jobs[..] else { panic!() };
    assert!(two.begin >= one.begin + one.elapsed, "{:?} {:?}", one.begin, two.begin);

    let endless = Job {
        name: "endless".into(),
        time_based: true,
        runtime: Some(long),
        ..on("null:size=1MiB")
    };
    let ends = |ends| Job { ends: Some(ends), ..first.clone() };
    let begun = std::time::Instant::now();
    for which in [EndsWith::Group, EndsWith::Stage, EndsWith::All] {
        let report = run(&[endless.clone(), ends(which)], &Unwatched).unwrap();
        assert_eq!((report.jobs.len(), report.interrupted), (2, false), "{which:?}");
        assert_eq!(report.jobs[0].error, None);
    }
    let later = Job { stage: 1, group: 1, ..first.clone() };
    let jobs = [endless.clone(), ends(EndsWith::Stage), later.clone()];
    assert_eq!(run(&jobs, &Unwatched).unwrap().jobs.len(), 3);
    let report = run(&[endless.clone(), ends(EndsWith::All), later], &Unwatched).unwrap();
    assert_eq!(report.jobs.len(), 2);
    assert!(report.notes.iter().any(|note| note.contains("first did not run")), "{report:?}");
    let waits = Job { wait_for: Some("endless".into()), ..second };
    let report = run(&[endless, ends(EndsWith::All), waits], &Unwatched).unwrap();
    assert_eq!(report.jobs[2].ios(), 0);
    assert!(begun.elapsed() < long);
}

/// The requests of a flow are in the ratio of the weights, whatever the jobs could do alone.
#[test]
fn a_flow_shares_requests_out() {
    let job = |name: &str, weight| Job {
        name: name.into(),
        time_based: true,
        runtime: Some(Duration::from_millis(400)),
        flow: Some(FlowShare { weight, flow: 0, pause: Duration::ZERO }),
        ends: Some(EndsWith::All),
        ..on("null:size=1MiB")
    };
    let report = run(&[job("one", 1), job("eight", 8)], &Unwatched).unwrap();
    // The exact ratio is tested beside `Share`, because here the machine may delay a job for any
    // time.
    let ios: Vec<u64> = report.jobs.iter().map(|job| job.ios()).collect();
    assert!(ios[0] > 0 && ios[1] > ios[0], "{ios:?}");
}

#[test]
fn a_job_below_its_least_rate_fails() {
    let job = Job {
        rate: [Rate { ios_per_s: 20, bytes_per_s: 0 }; 3],
        rate_min: [Rate { ios_per_s: 1000, bytes_per_s: 0 }; 3],
        rate_cycle: Duration::from_millis(100),
        time_based: true,
        runtime: Some(Duration::from_secs(60)),
        ..on("null:size=1MiB")
    };
    let report = run(&[job], &Unwatched).unwrap();
    let error = report.jobs[0].error.as_ref().unwrap();
    assert!(error.what.contains("less than the 1000 asked for"), "{error:?}");
}

#[test]
fn a_sparse_file_has_its_size_and_no_blocks() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = folder();
    let path = folder.path().join("file");
    let mut job = on_file(path.clone(), 4 << 20, "posix");
    (job.verbs, job.number_ios, job.targets[0].sparse) = (Verbs::Write, Some(1), true);
    assert_eq!(run(&[job], &Unwatched).unwrap().jobs[0].error, None);
    let metadata = std::fs::metadata(path).unwrap();
    assert_eq!(metadata.len(), 4 << 20);
    assert!(metadata.blocks() * 512 < 1 << 20, "{}", metadata.blocks());
}

/// Two files, or a stripe of two, need as many system calls as one. A regression: the completions
/// of one of them kept its event readable while only the other had requests, so no wait slept.
#[test]
fn several_files_cost_the_system_calls_of_one() {
    let folder = folder();
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| std::fs::write(path, vec![1; 128 << 10]).unwrap());
    let [a, b] = paths.map(DeviceSpec::File);
    let stripe = DeviceSpec::parse(&format!("stripe:unit=4KiB:{a}+{b}")).unwrap();
    for mode in ["io_uring", "io_uring+k", "libaio"] {
        for (depth, rate) in [(1, 0), (1, 4000), (2, 0), (16, 0), (16, 4000)] {
            for of in [vec![a.clone(), b.clone()], vec![stripe.clone()]] {
                let mut job = Job::new("t", a.clone(), mode.parse::<Mode>().unwrap());
                job.targets = of
                    .into_iter()
                    .map(|spec| Target { spec, create_bytes: None, sparse: false })
                    .collect();
                (job.depth, job.direct, job.order) = (depth, false, Order::Random);
                job.rate = [Rate { ios_per_s: rate, bytes_per_s: 0 }; 3];
                let report = match run(&[job], &Unwatched) {
                    Ok(report) => report,
                    Err(error) => return println!("skipped: {mode}: {error}"),
                };
                let job = &report.jobs[0];
                assert!(job.error.is_none(), "{:?}", job.error);
                let (reads, calls) = (job.directions[0].ios, job.cpu.system_calls);
                assert_eq!(reads, 64);
                // Submitting and waiting. If both have requests, also a poll of each and of its
                // event.
                let most = if depth == 1 { 2 } else { 5 };
                assert!(
                    calls <= most * reads + 16,
                    "{mode} at depth {depth}, rate {rate}: {calls} system calls for {reads} reads"
                );
            }
        }
    }
}

/// Without direct I/O, a file accepts requests of any size at any offset. Sizes and offsets match
/// fio's.
#[test]
fn a_buffered_file_takes_any_size() {
    let folder = folder();
    for mode in ["posix:threads=0", "posix", "libaio", "io_uring", "io_uring:segments=3"] {
        let cases = [
            // 4 MiB hold 1823 blocks of 2300 bytes. The rest of the file is unchanged.
            (Order::Sequential, Verbs::Write, 4 << 20, 1823),
            (Order::Random, Verbs::Write, 10_000, 4),
            (Order::Random, Verbs::Read, 10_000, 4),
            (Order::Sequential, Verbs::Mixed { read_percent: 50 }, 10_000, 4),
            (Order::Random, Verbs::Trim, 10_000, 4),
        ];
        for (number, (order, verbs, bytes, ios)) in cases.into_iter().enumerate() {
            if mode == "libaio" && verbs == Verbs::Trim {
                // The interface has no such operation.
                continue;
            }
            let path = folder.path().join(format!("{}-{number}", mode.replace(':', "-")));
            let mut job = on_file(path.clone(), bytes, mode);
            (job.direct, job.order, job.verbs, job.depth) = (false, order, verbs, 4);
            job.block_sizes = [2300; 3].map(BlockSizes::Fixed);
            job.flush_blocks = 1;
            if verbs == Verbs::Write {
                job.verify = verify();
            }
            let report = match run(&[job.clone()], &Unwatched) {
                Ok(report) => report,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    println!("skipped: {mode}: {error}");
                    break;
                }
                Err(error) => panic!("{mode}, case {number}: {error}"),
            };
            let did = &report.jobs[0];
            assert_eq!(did.error, None, "{mode}, case {number}");
            assert_eq!(did.ios(), ios, "{mode}, case {number}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes, "{mode}, case {number}");
            if verbs == Verbs::Write {
                assert_eq!((did.verify.blocks, did.verify.wrong), (ios, 0), "{mode}");
                let mut held = std::fs::read(&path).unwrap();
                let end = ios as usize * 2300;
                assert!(held[end..].iter().all(|byte| *byte == 0), "{mode}");
                // Bytes beyond the last block are not verified, but a byte within a block is.
                held[2300 + 7] ^= 1;
                std::fs::write(&path, held).unwrap();
                job.verbs = Verbs::Read;
                let report = run(&[job], &Unwatched).unwrap();
                let verify = &report.jobs[0].verify;
                assert_eq!((verify.blocks, verify.wrong), (ios, 1), "{mode}");
            }
        }
    }
    let mut job = on_file(folder.path().join("offset"), 10_000, "posix");
    (job.direct, job.offset) = (false, Extent::Bytes(701));
    job.block_sizes = [2300; 3].map(BlockSizes::Fixed);
    assert_eq!(run(&[job], &Unwatched).unwrap().jobs[0].ios(), 4);
}

/// A job ends in time, and its ramp too, even while the queue is still being filled.
#[test]
fn the_clock_is_looked_at_while_the_queue_fills() {
    let job = Job { depth: 64, verbs: Verbs::Read, ..on("ram:size=1MiB") };
    let soon = Duration::from_nanos(1);
    let ends = Job { runtime: Some(soon), time_based: true, ..job.clone() };
    assert_eq!(run(&[ends], &Unwatched).unwrap().jobs[0].ios(), 1);
    let ramps = Job { ramp: soon, number_ios: Some(64), ..job };
    assert_eq!(run(&[ramps], &Unwatched).unwrap().jobs[0].ios(), 63);
}
