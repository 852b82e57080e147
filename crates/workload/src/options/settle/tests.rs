//! Tests.
//!
//! Long, because one kind of input, many options.

use std::time::Duration;

use super::*;
use crate::job::{
    BlockSizes, Content, CpuPolicy, Distribution, Form, Measured, Order, Rate, RateProcess,
    TargetOrder, Verify, VerifyMethod,
};
use crate::options::definition::Takes;
use crate::options::{OPTIONS, command_line};

/// Parses options such as those of a command line: `rw=read bs=4k thread`.
fn sections(words: &str) -> Result<Vec<Section>> {
    let words = words.split_whitespace().map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    });
    Ok(command_line(words)?.1)
}

fn try_plan(words: &str) -> Result<Plan> {
    settle(&sections(words)?, Limits::default())
}

#[track_caller]
fn plan(words: &str) -> Plan {
    try_plan(words).unwrap()
}

#[track_caller]
fn job(words: &str) -> Job {
    let plan = plan(&format!("name=a filename=/dev/a {words}"));
    assert_eq!(plan.jobs.len(), 1);
    plan.jobs.into_iter().next().unwrap()
}

#[track_caller]
fn fails(words: &str, wanted: &[&str]) {
    let error = match try_plan(&format!("name=a filename=/dev/a {words}")) {
        Ok(plan) => panic!("{words}: {plan:?}"),
        Err(error) => error.to_string(),
    };
    for word in wanted {
        assert!(error.contains(word), "{words}: no \"{word}\" in: {error}");
    }
}

fn names(job: &Job) -> Vec<String> {
    job.targets.iter().map(|target| target.spec.to_string()).collect()
}

#[test]
fn defaults_are_fios() {
    let job = job("");
    assert_eq!((job.verbs, job.order, job.direct), (Verbs::Read, Order::Sequential, false));
    assert_eq!(job.block_sizes, [const { BlockSizes::Fixed(4096) }; 3]);
    assert_eq!((job.depth, job.batch_submit), (1, 1));
    assert_eq!((job.batch_complete_min, job.batch_complete_max), (1, 1));
    assert_eq!(self::job("iodepth=128 ioengine=libaio").batch_submit, 8);
    assert_eq!((job.mode.to_string(), job.engine.as_str()), ("posix:threads=0".into(), "psync"));
    assert!(job.invalidate && job.random_map && !job.time_based);
    assert_eq!((job.loops, job.size, job.io_size), (1, None, None));
    assert_eq!(job.percentiles.len(), 17);
}

#[test]
fn a_full_job_is_settled() {
    let job = job(
        "rw=randrw rwmixread=70 bs=4k,8k iodepth=32 iodepth_batch=8 direct=1 size=1g io_size=4g \
                   ioengine=io_uring fixedbufs registerfiles=1 sqthread_poll sqthread_poll_cpu=3 runtime=30 \
                   time_based ramp_time=500ms rate_iops=100,200 rate_process=poisson thinktime=5 \
                   thinktime_blocks=4 thinktime_spin=2 random_distribution=zipf:1.2 fsync=16 end_fsync=1 \
                   cpus_allowed=0,2-3 cpus_allowed_policy=split percentile_list=50:99.9 log_avg_msec=250 \
                   write_bw_log=run group_reporting offset=10% loops=2 disable_slat=1 zero_buffers",
    );
    assert_eq!((job.verbs, job.order), (Verbs::Mixed { read_percent: 70 }, Order::Random));
    assert_eq!(
        (&job.block_sizes[0], &job.block_sizes[1]),
        (&BlockSizes::Fixed(4096), &BlockSizes::Fixed(8192))
    );
    assert_eq!(job.mode.to_string(), "io_uring+k:cpu=3");
    assert_eq!((job.depth, job.batch_submit), (32, 8));
    assert_eq!((job.size, job.io_size), (Some(Extent::Bytes(1 << 30)), Some(4 << 30)));
    assert_eq!(job.offset, Extent::Percent(10));
    assert_eq!(
        (job.runtime, job.ramp),
        (Some(Duration::from_secs(30)), Duration::from_millis(500))
    );
    assert_eq!(job.rate.map(|rate| rate.ios_per_s), [100, 200, 200]);
    assert_eq!(job.rate_process, RateProcess::Poisson);
    assert_eq!((job.think_time, job.think_time_blocks), (Duration::from_micros(5), 4));
    assert_eq!(job.think_time_spin, Duration::from_micros(2));
    assert_eq!(
        (job.distribution.clone(), job.random_map),
        (Distribution::Zipf { theta: 1.2 }, false)
    );
    assert_eq!((job.flush_blocks, job.flush_at_end), (16, true));
    assert_eq!((job.cpus.clone(), job.cpu_policy), (vec![0, 2, 3], CpuPolicy::Split));
    assert_eq!(
        (job.percentiles.clone(), job.sample),
        (vec![50.0, 99.9], Some(Duration::from_millis(250)))
    );
    assert_eq!(job.logs, [("bw".to_owned(), "run".into())]);
    assert_eq!(job.measured, Measured { slat: false, clat: true, lat: true });
    assert_eq!((job.content.clone(), job.loops, job.group_reporting), (Content::Zeroes, 2, true));
    assert_eq!(job.options[0], ("name".to_owned(), "a".to_owned()));
    assert_eq!(job.option("rwmixread"), Some("70"));
    assert!(job.options.contains(&("registerfiles".to_owned(), "1".to_owned())));
}

/// fio accepts a decimal time but reads only its whole part: 0.5 means no time.
#[test]
fn times_may_have_decimals() {
    let words = "name=a filename=/dev/a rw=read direct=1 runtime=1.5 ramp_time=0.25 startdelay=0.5";
    let plan = plan(words);
    let job = &plan.jobs[0];
    assert_eq!(job.runtime, Some(Duration::from_millis(1500)));
    assert_eq!(job.ramp, Duration::from_millis(250));
    assert_eq!(job.start_delay, Duration::from_millis(500));
    let notes = plan.notes.join("\n");
    assert!(notes.contains("runtime=1.5 is read as written; fio 3.33 reads 1 of it"), "{notes}");
    fails("runtime=1.", &["runtime=1.", "0 digits after its point"]);
}

#[test]
fn trims_and_writes_may_alternate() {
    let job = self::job("rw=randtrimwrite bs=4k,4k,8k");
    assert_eq!((job.verbs, job.order), (Verbs::TrimWrite, Order::Random));
    assert_eq!(job.block_sizes[1], BlockSizes::Fixed(8192));
    assert_eq!(self::job("rw=trimwrite").order, Order::Sequential);
    fails("rw=trimwrite ioengine=libaio", &["libaio", "io_uring"]);
}

#[test]
fn steady_states_have_fios_words() {
    let goal = self::job("ss=bw_slope:0.5% ss_dur=60 ss_ramp=10 ss_interval=2").steady.unwrap();
    assert_eq!((goal.name(), goal.limit, goal.percent), ("bw_slope", 0.5, true));
    let times = [goal.window, goal.ramp, goal.interval].map(|time| time.as_secs());
    assert_eq!(times, [60, 10, 2]);
    let goal = self::job("steadystate=iops:100 steadystate_duration=2").steady.unwrap();
    assert_eq!((goal.name(), goal.limit, goal.percent), ("iops", 100.0, false));
    // As in fio: a duration alone implies a criterion, and a criterion alone has no effect.
    assert_eq!(self::job("steadystate_duration=5").steady.unwrap().name(), "iops_slope");
    fails("steadystate=iops:1%", &["steadystate has no effect here", "--steadystate_duration"]);
    fails("ss=lat:1% ss_dur=5", &["is not known: choose iops, iops_slope, bw or bw_slope"]);
    fails("ss=iops ss_dur=5", &["has no limit"]);
    fails("ss=iops:0% ss_dur=5", &["not above 0"]);
    fails("ss_dur=1", &["room for 1 values", "2 to"]);
}

#[test]
fn content_may_be_compressible_and_repeat() {
    let shape = |words: &str| match self::job(&format!("rw=write {words}")).content {
        Content::Shaped(shape) => shape,
        other => panic!("{words}: {other:?}"),
    };
    let job = shape("buffer_compress_percentage=50");
    assert_eq!((job.compress_percent, job.chunk_bytes, job.dedupe_percent), (50, 512, 0));
    let job = shape("dedupe_percentage=30 buffer_compress_chunk=4k buffer_compress_percentage=10");
    assert_eq!((job.compress_percent, job.chunk_bytes, job.dedupe_percent), (10, 4096, 30));
    assert_eq!(shape("dedupe_percentage=100 buffer_pattern=0xa5").fixed, [0xa5]);
    assert_eq!(self::job("rw=write dedupe_percentage=0").content, Content::Unique);
    fails("rw=write buffer_compress_percentage=101", &["is over 100"]);
    fails("rw=write dedupe_percentage=10 dedupe_mode=working_set", &["choose one of repeat"]);
}

#[test]
fn engines_become_modes() {
    for (words, mode) in [
        ("ioengine=psync", "posix:threads=0"),
        ("ioengine=pvsync2", "posix:segments=1,threads=0"),
        ("ioengine=libaio", "libaio"),
        ("ioengine=libaio userspace_reap=0", "libaio:mapped=off"),
        ("ioengine=io_uring", "io_uring:buffers=off,file=off"),
        ("ioengine=io_uring hipri direct=1", "io_uring+p:buffers=off,file=off"),
        ("ioengine=io_uring hipri sqthread_poll fixedbufs direct=1", "io_uring+k+p"),
        ("ioengine=io_uring nonvectored=0", "io_uring:buffers=off,file=off,segments=1"),
        ("ioengine=io_uring_cmd cmd_type=nvme hipri fixedbufs", "io_uring_cmd+p:file=off"),
        ("ioengine=posix", "posix"),
        ("interface=io_uring+k:idle_ms=50", "io_uring+k:idle_ms=50"),
        ("interface=posix:threads=8", "posix:threads=8"),
        ("ioengine=libaio interface=auto", "auto"),
        ("ioengine=libaio vsize=4", "libaio:segments=4"),
    ] {
        assert_eq!(job(words).mode.to_string(), mode, "{words}");
    }
    let null = job("ioengine=null size=1g filename=/dev/b");
    assert_eq!(names(&null), ["null:size=1GiB"]);
    assert_eq!(job("ioengine=psync vsize=4").vector_len, 4);
}

#[test]
fn impossible_engines_are_refused() {
    fails("ioengine=posixaio", &["fio's engine posixaio is not supported", "--ioengine=posix"]);
    fails("ioengine=mmap", &["fio's engine mmap is not supported"]);
    fails("ioengine=libaoi", &["the engine is not known", "did you mean libaio"]);
    fails("ioengine=libaio hipri", &["hipri has no effect here", "io_uring"]);
    fails("ioengine=pvsync2 hipri", &["hipri is not supported with ioengine=pvsync2"]);
    fails("ioengine=io_uring hipri", &["IOPOLL", "direct=1"]);
    fails("interface=io_uring+p", &["IOPOLL", "direct=1"]);
    fails("interface=io_uring+k:task_run=defer", &["cannot be combined"]);
    fails("interface=io_uring fixedbufs", &["fixedbufs has no effect here"]);
    fails("interface=zvol", &["there is no interface"]);
    fails(
        "ioengine=io_uring sqthread_poll_cpu=1",
        &["sqthread_poll_cpu has no effect", "--sqthread_poll"],
    );
    fails("ioengine=io_uring_cmd vsize=4", &["segments"]);
    fails("ioengine=null", &["needs a size"]);
}

#[test]
fn clones_have_files_seeds_and_offsets_of_their_own() {
    let made = plan(
        "name=a rw=write size=1m numjobs=2 nrfiles=2 directory=x:y filesize=512k startdelay=1-9",
    );
    assert_eq!(names(&made.jobs[0]), ["x/a.0.0", "x/a.0.1"]);
    assert_eq!(names(&made.jobs[1]), ["y/a.1.0", "y/a.1.1"]);
    assert_eq!(made.jobs[1].targets[0].create_bytes, Some(512 << 10));
    assert_ne!(made.jobs[0].seed, made.jobs[1].seed);
    assert_ne!(made.jobs[0].start_delay, made.jobs[1].start_delay);
    assert!(made.jobs.iter().all(|job| (1.0..=9.0).contains(&job.start_delay.as_secs_f64())));
    assert_eq!(made.jobs[0].seed, plan("name=a size=1m").jobs[0].seed);
    assert_ne!(made.jobs[0].seed, plan("name=a size=1m randseed=7").jobs[0].seed);
    assert_ne!(
        plan("name=a size=1m randrepeat=0").jobs[0].seed,
        plan("name=a size=1m randrepeat=0").jobs[0].seed
    );

    let shared =
        plan("name=a filename=f rw=write size=1m offset=64k offset_increment=2m numjobs=2");
    let offsets: Vec<Extent> = shared.jobs.iter().map(|job| job.offset).collect();
    assert_eq!(offsets, [Extent::Bytes(64 << 10), Extent::Bytes((64 << 10) + (2 << 20))]);
    // There is one file, large enough for both jobs.
    let bytes: Vec<_> = shared.jobs.iter().map(|job| job.targets[0].create_bytes).collect();
    assert_eq!(bytes, [Some((3 << 20) + (64 << 10)); 2]);

    let split = plan("name=a filename=f1:f2 size=1m");
    assert_eq!(split.jobs[0].size, Some(Extent::Bytes(512 << 10)));
    assert_eq!(
        names(&plan("name=a size=1m filename_format=t.$filenum-$jobname").jobs[0]),
        ["t.0-a"]
    );
    assert_eq!(
        plan("name=a filename=f1:f2 size=1m file_service_type=random").jobs[0].target_order,
        TargetOrder::Random
    );
    assert_eq!(names(&plan("name=a filename=ram:size=1m size=50%").jobs[0]), ["ram:size=1MiB"]);
    assert_eq!(
        names(&plan("name=a filename=stripe:unit=64KiB:/dev/x+/dev/y direct=1").jobs[0]),
        ["stripe:unit=64KiB:/dev/x+/dev/y"]
    );
    assert_eq!(
        names(&plan("name=a filename=carve:name=s:/dev/x direct=1").jobs[0]),
        ["carve:name=s:/dev/x"]
    );
    // The parser of specifiers, and the code that splits names at colons, use the same list.
    for kind in ["iothread", "onelock"] {
        let name = format!("{kind}:ram:size=1MiB");
        assert_eq!(names(&plan(&format!("name=a filename={name} size=50%")).jobs[0]), [&*name]);
    }
}

#[test]
fn stages_and_groups() {
    let plan =
        plan("size=1m name=a stonewall name=b new_group name=c numjobs=2 name=d stonewall name=e");
    let places: Vec<_> =
        plan.jobs.iter().map(|job| (job.name.as_str(), job.stage, job.group, job.clone)).collect();
    assert_eq!(
        places,
        [
            ("a", 0, 0, 0),
            ("b", 0, 1, 0),
            ("c", 0, 1, 0),
            ("c", 0, 1, 1),
            ("d", 1, 2, 0),
            ("e", 1, 2, 0)
        ]
    );
}

/// As in fio, atomic writes imply direct I/O. A job that requests them through the page cache
/// contradicts itself.
#[test]
fn atomic_writes_are_direct_and_aligned() {
    let atomic = job("atomic=1 rw=write bs=8k");
    assert!(atomic.atomic && atomic.direct);
    assert!(!job("atomic=1 rw=read").atomic && !job("atomic=0 rw=write").atomic);
    assert!(job("atomic=1 rw=randrw bs=16k,4k").atomic);
    fails("atomic=1 rw=write direct=0", &["atomic writes bypass the page cache", "direct=1"]);
    fails("atomic=1 rw=write bsrange=4k-8k", &["atomic writes have one length"]);
    fails("atomic=1 rw=write bs=12k", &["a power of two, but bs is 12288"]);
    fails("atomic=1 rw=randrw bs=4k,16k", &["a multiple of its length", "bs of reads"]);
    fails("atomic=1 rw=write bs=8k offset=4k", &["a multiple of its length", "offset is 4096"]);
    fails("atomic=1 rw=write:4k bs=8k", &["a multiple of its length", "step"]);
    let plan = plan("name=a filename=/dev/a rw=read atomic=1");
    assert!(plan.notes.iter().any(|note| note.contains("atomic has no effect")), "{plan:?}");
}

#[test]
fn later_and_stronger_options_win() {
    assert_eq!(job("bs=4k bsrange=8k-16k").block_sizes[0], BlockSizes::Range(8192, 16384));
    assert_eq!(
        job("bssplit=4k/60:8k/40 bs=16k").block_sizes[0],
        BlockSizes::Split(vec![(4096, 60), (8192, 40)])
    );
    assert_eq!(job("bs=4k bs=8k").block_sizes[0], BlockSizes::Fixed(8192));
    assert!(job("direct=1").direct && job("buffered=0").direct && !job("direct=1 direct=0").direct);
    assert_eq!(
        job("rw=randrw rwmixread=70 rwmixwrite=40").verbs,
        Verbs::Mixed { read_percent: 60 }
    );
    assert_eq!(job("rw=randread percentage_random=0").order, Order::Sequential);
    assert!(job("rw=randread norandommap random_generator=lfsr").random_map);
    assert!(!job("rw=randread norandommap").random_map);
    assert!(job("sync=dsync rw=write").force_unit_access);
    assert_eq!(job("rate=1m,").rate[0], Rate { ios_per_s: 0, bytes_per_s: 1 << 20 });
    assert_eq!(job("rate=1m,").rate[1], Rate::default());
    assert_eq!(job("iodepth=8 ioengine=libaio iodepth_batch=0").batch_submit, 8);
    assert_eq!(job("iodepth=8 ioengine=libaio iodepth_batch_complete=0").batch_complete_min, 0);
    assert_eq!(job("iodepth=64 ioengine=libaio").batch_complete_max, 4);
    assert_eq!(job("iodepth=64 ioengine=libaio mode=normal runtime=1").batch_complete_max, 0);
    assert_eq!(job("gtod_reduce=1").measured, Measured { slat: false, clat: false, lat: false });
    assert_eq!(job("kb_base=1000 bs=4KiB").block_sizes[0], BlockSizes::Fixed(4096));
}

#[test]
fn verification_is_settled() {
    let verify = |words: &str| -> Verify { job(words).verify.unwrap() };
    let written = verify("rw=write verify=crc32c-intel verify_interval=512 verify_fatal=1");
    assert_eq!((written.method, written.interval_bytes), (VerifyMethod::Crc32c, 512));
    assert!(written.after && written.fatal && !written.only);
    assert!(!verify("rw=write verify=crc64 do_verify=0").after);
    assert!(!verify("rw=read verify=meta").after);
    let only = verify("rw=write verify=pattern verify_pattern=0xa5 verify_only");
    assert!(only.only && !only.after && only.pattern == [0xa5]);
    assert!(job("rw=write verify=0").verify.is_none());
    fails("rw=write verify=crc7", &["verify=crc7", "is not supported", "crc32c"]);
    fails("rw=write verify=pattern", &["needs a pattern"]);
    fails("rw=write verify=crc32c verify_pattern=1", &["verify_pattern has no effect"]);
    fails("rw=write verify=crc32c verify_interval=3000", &["does not divide"]);
    fails("rw=read verify=crc32c verify_only", &["only reads"]);
    fails("rw=write verify=crc32c verify_only time_based runtime=1", &["exclude"]);
    fails("rw=write verify_backlog=4", &["verify_backlog has no effect", "--verify"]);
    let hashed = verify("rw=write verify=sha3-512 verify_backlog=8 verify_backlog_batch=2");
    assert_eq!(hashed.method, VerifyMethod::Sha3_512);
    assert_eq!((hashed.backlog, hashed.backlog_batch), (8, 2));
    assert_eq!(verify("rw=write verify=md5 verify_backlog=8 do_verify=0").backlog, 0);
    fails("rw=trim verify=crc32c", &["nothing to verify"]);
}

#[test]
fn places_are_fios() {
    let steps = |words: &str| job(words).steps;
    assert_eq!(steps("rw=write:112k").skip_bytes, 112 << 10);
    assert_eq!(steps("rw=read:-8k").skip_bytes, -8192);
    let runs = job("rw=randread:8 rw_sequencer=identical");
    assert!(runs.steps.random_every == 8 && runs.steps.repeat && !runs.random_map);
    let aligned = job("rw=randrw blockalign=4k bs=512");
    assert_eq!((aligned.align_bytes, aligned.random_map), (4096, false));
    let zones = |words: &str| match job(words).distribution {
        Distribution::Zoned(zones) => zones,
        other => panic!("{other:?}"),
    };
    let zone = |access_percent, size| crate::job::Zone { access_percent, size };
    let percent = Extent::Percent;
    assert_eq!(
        zones("rw=randread random_distribution=zoned:50/5:30/15:20/"),
        [zone(50, percent(5)), zone(30, percent(15)), zone(20, percent(80))]
    );
    assert_eq!(
        zones("rw=randread random_distribution=zoned_abs:60/2m:40/1m"),
        [zone(60, Extent::Bytes(2 << 20)), zone(40, Extent::Bytes(1 << 20))]
    );
    let stride = job("zonemode=strided zonesize=256m zoneskip=2g").stride.unwrap();
    assert_eq!((stride.move_bytes, stride.part_bytes), (256 << 20, 256 << 20));
    assert_eq!(stride.skip_bytes, 2 << 30);
}

#[test]
fn ends_and_errors_are_settled() {
    use crate::job::EndsWith;
    assert_eq!(job("exitall").ends, Some(EndsWith::Group));
    assert_eq!(job("exitall exit_what=all").ends, Some(EndsWith::All));
    let io = job("continue_on_error=io").tolerance;
    assert_eq!((io.read, io.write, io.wrong_blocks), (vec![5, 84], vec![5, 84], false));
    let listed = job("continue_on_error=all ignore_error=,ENOSPC:5,84").tolerance;
    assert_eq!((listed.read, listed.write), (vec![5, 84], vec![28, 5]));
    assert!(listed.wrong_blocks);
    let waits = plan("filename=/dev/a name=a name=b wait_for=a flow=2 flow_sleep=1000");
    assert_eq!(waits.jobs[1].wait_for.as_deref(), Some("a"));
    assert_eq!(waits.jobs[1].flow.unwrap().weight, 2);
    let sparse = plan("name=a filename=no/file rw=write size=1m fallocate=none");
    assert!(sparse.jobs[0].targets[0].sparse);
}

#[test]
fn forms_are_s4s() {
    assert_eq!(job("mode=normal").form, Form::Barrier);
    assert_eq!(job("mode=stress").form, Form::Stress);
    assert_eq!(
        job("mode=msg mininterval=20 runtime=1").form,
        Form::Messages { interval: Duration::from_micros(20), producers: 1 }
    );
    let several = job("mode=msg producers=3 runtime=1").form;
    assert_eq!(several, Form::Messages { interval: Duration::ZERO, producers: 3 });
    fails("mode=msg producers=0 runtime=1", &["producers", "below 1"]);
    fails("producers=2", &["producers has no effect", "--mode=msg"]);
    fails("mininterval=20", &["mininterval has no effect", "--mode=msg"]);
    fails("mode=msg", &["needs a runtime"]);
}

#[test]
fn contradictions_are_refused() {
    fails("rw=read rwmixread=70", &["job a", "rwmixread has no effect", "--rw=rw"]);
    fails("rw=raednrad", &["rw=raednrad", "randread"]);
    fails("rw=read:x", &["rw=read:x", "the step"]);
    fails("rw=randread:0", &["random place"]);
    fails("rw=read:100 direct=1", &["step", "512"]);
    fails("rw=read:8k rw_sequencer=identical", &["rw_sequencer has no effect", "--rw=randread:N"]);
    fails("rw=read blockalign=8k", &["blockalign has no effect"]);
    fails("rw=randrw blockalign=8k,4k", &["between reads and writes"]);
    fails("zonemode=strided", &["needs zonesize"]);
    fails("zonemode=strided zonesize=6k", &["not whole requests"]);
    fails("zonemode=zbd", &["zonemode=zbd", "strided"]);
    fails("zonesize=1m", &["zonesize has no effect", "--zonemode=strided"]);
    fails("flow=2 mode=msg runtime=1", &["exclude mode=msg"]);
    fails("latency_target=20us", &["needs latency_window"]);
    fails("latency_run=1", &["latency_run has no effect", "--latency_target"]);
    fails("wait_for=b", &["does not come before it"]);
    fails("ignore_error=EIO", &["ignore_error has no effect", "--continue_on_error"]);
    fails("continue_on_error=all ignore_error=EWHAT", &["EWHAT"]);
    fails("rate_min=1m rate_iops_min=5", &["exclude each other"]);
    fails("direct=1 buffered=1", &["contradict"]);
    fails("direct=1 bs=1000", &["multiples of 512"]);
    fails("direct=1 offset=100", &["multiple of 512"]);
    fails("size=4k bs=8k", &["do not fit"]);
    fails("time_based", &["time_based needs a runtime"]);
    fails("rate=1m rate_iops=5", &["exclude each other"]);
    fails("rw=randread percentage_random=50", &["must be 0 or 100"]);
    fails("rw=randread random_distribution=zoned:50/50:30/10", &["add up to 80"]);
    fails("rw=randread random_distribution=zoned:50/60:50/50", &["add up to 110"]);
    fails("rw=randread random_distribution=zoned_abs:100/", &["without a length"]);
    fails("rw=randread random_distribution=zipf:1", &["not 1"]);
    fails("iodepth=0", &["below 1"]);
    fails("iodepth=x", &["iodepth=x", "is not a number", "for example iodepth=32"]);
    fails("iodepth_low=4", &["fio's option iodepth_low is not supported"]);
    fails("numjobs=5000", &["is over 4096"]);
    fails("offset=10% offset_increment=4k", &["not both"]);
    fails("offset_increment=60% numjobs=3", &["120 %"]);
    fails("overwrite=1 filename=no/such/file rw=write size=1m", &["does not exist", "rw=write"]);
    fails("filename=no/such/file", &["does not exist", "size"]);
    fails("filename=-", &["standard input"]);
    fails("filename=ram:sise=1m", &["sise"]);
    fails("per_job_logs=0", &["per_job_logs"]);
    fails("log_avg_msec=0", &["every request"]);
    fails("iomem_align=1m", &["iomem_align"]);
    fails("fallocate=keep", &["fallocate=keep", "native"]);
    fails("thread=2", &["must be 0 or 1"]);
}

#[test]
fn what_fio_lets_pass_is_noted() {
    let note = |words: &str, wanted: &str| {
        let notes = plan(&format!("filename=/dev/a {words}")).notes.join("\n");
        assert!(notes.contains(wanted), "{words}: no \"{wanted}\" in: {notes}");
    };
    note("name=a", "buffered, fio's default");
    note("name=a direct=1 iodepth=16", "psync makes one call at a time: iodepth=16");
    note("name=a rw=read norandommap", "norandommap has no effect");
    note("rwmixread=70 name=a rw=read", "rwmixread has no effect: it needs --rw=rw");
    note("name=a bs=4KiB", "counts by 1000");
    note("name=a rw=write sync=1", "sync=dsync");
    note("name=a rw=randread:8", "blocks may come again");
    note("name=a rw=randtrim ioengine=libaio", "libaio has no trims");
    note("name=a rw=read fsync=1", "fsync has no effect: the job only reads");
    note("name=a rw=read end_fsync=1", "end_fsync has no effect: the job only reads");
    note("name=a iodepth_batch=8", "one call at a time: iodepth_batch has no effect");
    note("name=a number_ios=4 time_based runtime=1", "number_ios has no effect");
    note("name=a rw=write verify=md5 verify_async=4", "verify_async is done without");
    let soft = |words: &str, wanted: &str| {
        let notes = plan(&format!("name=a {words}")).notes.join("\n");
        assert!(notes.contains(wanted), "{words}: no \"{wanted}\" in: {notes}");
    };
    soft("filename=ram:size=1m ioengine=io_uring", "ioengine has no effect: ram:");
    soft(
        "filename=null:size=1m ioengine=io_uring sqthread_poll fixedbufs",
        "ioengine, sqthread_poll, fixedbufs have no effect: null:",
    );
    soft("filename=ram:size=1m direct=0", "direct has no effect: there is no page cache");
    assert!(plan("name=a ioengine=null size=1m").notes.is_empty());
    note("name=a rw=randrw rwmixread=70 rwmixwrite=40", "60 % reads");
    // A plain job has no notes.
    assert!(
        plan("name=a filename=/dev/a direct=1 thread exitall=0 zonemode=none nice=0")
            .notes
            .is_empty()
    );
    // Memory is not accessed by calls, so the depth stays.
    let memory = plan("name=a filename=ram:size=1m iodepth=16");
    assert!(memory.notes.is_empty() && memory.jobs[0].depth == 16);
}

#[test]
fn read_only_and_force_hold_for_all() {
    let limits = Limits { read_only: true, force: true };
    let error =
        settle(&sections("name=a filename=/dev/a rw=randwrite").unwrap(), limits).unwrap_err();
    assert!(error.to_string().contains("only reading is allowed"), "{error}");
    let plan =
        settle(&sections("name=a filename=no/file rw=read size=1m").unwrap(), limits).unwrap();
    assert!(
        plan.jobs[0].read_only
            && plan.jobs[0].force
            && plan.jobs[0].targets[0].create_bytes.is_none()
    );
    assert!(
        settle(
            &sections("name=a filename=/dev/a rw=write verify=crc32c verify_only").unwrap(),
            limits
        )
        .is_ok()
    );
}

#[test]
fn files_that_are_made_are_removed() {
    let plan = plan("name=a filename=no/such:Cargo.toml rw=write size=1m unlink=1");
    assert_eq!(plan.unlink, [PathBuf::from("no/such")]);
}

/// Each option's example in the table is accepted, and takes effect without a note.
#[test]
fn every_example_works() {
    let needs = |name: &str| match name {
        "rwmixread" | "rwmixwrite" => "rw=randrw",
        "random_distribution" | "norandommap" | "percentage_random" | "random_generator" => {
            "rw=randread"
        }
        "hipri" | "sqthread_poll" | "fixedbufs" | "registerfiles" | "nonvectored" => {
            "ioengine=io_uring"
        }
        "sqthread_poll_cpu" => "ioengine=io_uring sqthread_poll",
        "cmd_type" => "ioengine=io_uring_cmd",
        "userspace_reap" | "iodepth" => "ioengine=libaio",
        "mininterval" | "producers" => "mode=msg runtime=1",
        "time_based" => "runtime=1",
        "mode" => "runtime=1",
        "rate_process" => "rate_iops=5",
        "thinktime_blocks" | "thinktime_spin" => "thinktime=20",
        "verify_pattern" => "rw=write verify=pattern",
        "verify_interval" | "verify_fatal" | "do_verify" | "verify_only" => {
            "rw=write verify=crc32c"
        }
        "verify" | "sync" | "atomic" | "scramble_buffers" => "rw=write",
        "offset_increment" => "numjobs=2",
        "verify_backlog" | "verify_dump" | "verify_async" => "rw=write verify=crc32c",
        "verify_backlog_batch" => "rw=write verify=crc32c verify_backlog=64",
        "blockalign" => "rw=randread",
        "rw_sequencer" => "rw=randread:4",
        "zonemode" => "zonesize=1m",
        "zonesize" => "zonemode=strided",
        "zonerange" | "zoneskip" => "zonemode=strided zonesize=16m",
        "flow_id" | "flow_sleep" => "flow=1",
        "latency_target" => "latency_window=1s",
        "latency_window" => "latency_target=20us",
        "latency_percentile" | "latency_run" => "latency_target=20us latency_window=1s",
        "log_offset" => "write_bw_log=run",
        "steadystate" | "steadystate_ramp_time" | "steadystate_check_interval" => "ss_dur=60",
        "write_hist_log" => "log_hist_msec=100",
        "log_hist_msec" => "write_hist_log=run",
        "log_hist_coarseness" => "write_hist_log=run log_hist_msec=100",
        "buffer_compress_chunk" => "rw=write buffer_compress_percentage=50",
        "exit_what" => "exitall",
        "ignore_error" => "continue_on_error=all",
        "rate_cycle" => "rate_min=1k",
        "fsync" | "fdatasync" | "end_fsync" | "fsync_on_close" | "fill_device" => "rw=write",
        "iodepth_batch" | "iodepth_batch_complete_min" | "iodepth_batch_complete_max" => {
            "ioengine=libaio"
        }
        "filename" => "size=1g",
        "directory" | "filename_format" | "nrfiles" | "overwrite" => "filename=",
        _ => "",
    };
    // A log that is read must exist.
    let reads_log = |name: &str| name == "read_iolog" || name.starts_with("replay_");
    for option in OPTIONS.iter().filter(|option| !reads_log(option.name)) {
        let mut words: Vec<(&str, Option<&str>)> =
            vec![("name", Some("a")), ("filename", Some("/dev/a")), ("direct", Some("1"))];
        for word in needs(option.name).split_whitespace() {
            let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
            match (name, value) {
                ("filename", Some("")) => words[1] = ("size", Some("1g")),
                other => words.push(other),
            }
        }
        if matches!(option.name, "direct" | "buffered") {
            words.remove(2);
        }
        words.retain(|word| word.0 != option.name);
        words.push((option.name, Some(option.example)));
        if option.name == "wait_for" {
            words[0] = ("name", Some(option.example));
            words.splice(2..2, [("name", Some("b")), ("filename", Some("/dev/b"))]);
        }
        if option.name == "name" {
            words.rotate_right(1);
        }
        if option.name == "size" || option.name == "overwrite" {
            words.push(("filename", Some("/dev/b")));
        }
        let given =
            command_line(words).and_then(|(_, sections)| settle(&sections, Limits::default()));
        let plan = given.unwrap_or_else(|error| panic!("{}: {error}", option.name));
        let notes = plan.notes.join("\n");
        assert!(!notes.contains("no effect"), "{}: {notes}", option.name);
        assert!(!option.help.is_empty() && !option.help.ends_with('.'), "{}", option.name);
        if let Takes::Word(known) = option.takes {
            assert!(known.contains(&option.example), "{}", option.name);
            assert!(
                known.contains(&option.default) || matches!(option.name, "verify"),
                "{}",
                option.name
            );
        }
    }
}

#[test]
fn any_mix_of_examples_ends() {
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = pattern::mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (state >> 16) as usize % below
    };
    let values = [
        "0",
        "1",
        "4k",
        "100%",
        "x",
        "-1",
        "1-2",
        "99999999999999999999",
        "read",
        "1,2,3",
        ":",
        "",
    ];
    let mut settled = 0;
    for _ in 0..20_000 {
        let mut words = vec![("name", Some("a")), ("filename", Some("ram:size=1m"))];
        for _ in 0..next(6) {
            let option = &OPTIONS[next(OPTIONS.len())];
            let value = if next(3) > 0 { option.example } else { values[next(values.len())] };
            if !matches!(option.name, "numjobs" | "filename" | "directory" | "nrfiles") {
                words.push((option.name, Some(value)));
            }
        }
        let plan =
            command_line(words).and_then(|(_, sections)| settle(&sections, Limits::default()));
        settled += u32::from(plan.is_ok());
    }
    assert!(settled > 2_000, "{settled}");
}
