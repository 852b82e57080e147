//! Hand-made reports, for tests.

use std::time::{Duration, SystemTime};

use qpair_block::DeviceInfo;
use qpair_kernel::Mode;

use crate::{
    CpuReport, DirectionReport, DiskReport, Incidents, Job, JobReport, Passed, RunReport, Sample,
    Verbs, VerifyReport,
};

pub(super) fn direction(ios: u64, usual_ns: u64) -> DirectionReport {
    let mut report = DirectionReport { ios, bytes: ios * 4096, ..DirectionReport::default() };
    for at in 0..ios {
        // One in a hundred takes ten times as long, and one in a thousand a hundred times.
        let tail = 1 + 9 * u64::from(at % 100 == 99) + 90 * u64::from(at % 1000 == 999);
        let clat_ns = (usual_ns + at * usual_ns / ios.max(1)) * tail;
        report.slat.record(900 + at % 700);
        report.clat.record(clat_ns);
        report.lat.record(clat_ns + 900 + at % 700);
    }
    report
}

pub(super) fn device(name: &str) -> DeviceInfo {
    DeviceInfo {
        name: name.to_owned(),
        interface: "io_uring".to_owned(),
        mode: "SINGLE_ISSUER|DEFER_TASKRUN, registered buffers, file and ring".to_owned(),
        logical_block_bytes: 512,
        memory_alignment_bytes: 512,
        transfer_bytes_max: 1 << 20,
        atomic_write_bytes_min: 0,
        atomic_write_bytes: 0,
        volatile_write_cache: true,
        read_only: false,
        discards: true,
        writes_zeroes: true,
        growable: false,
        depth_max: 1024,
        shared_memory: false,
    }
}

/// Returns a report of ten seconds of 70 % reads.
pub(super) fn job(name: &str) -> JobReport {
    let mut job = Job::new(name, "file:data.bin".parse().unwrap(), Mode::default());
    job.verbs = Verbs::Mixed { read_percent: 70 };
    job.depth = 32;
    job.runtime = Some(Duration::from_secs(10));
    job.options = [("name", name), ("rw", "randrw"), ("bs", "4k"), ("iodepth", "32")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let second = |at: u64| Sample {
        end: Duration::from_secs(at + 1),
        len: Duration::from_secs(1),
        ios: [7000 + at, 3000, 0],
        bytes: [(7000 + at) * 4096, 3000 * 4096, 0],
        slat_ns_sum: [(7000 + at) * 10_000, 3000 * 5_000, 0],
        clat_ns_sum: [(7000 + at) * 140_000, 3000 * 55_000, 0],
        lat_ns_sum: [(7000 + at) * 150_000, 3000 * 60_000, 0],
        lat_ns_max: [9_000_000, 4_000_000, 0],
    };
    JobReport {
        job,
        devices: vec![device("data.bin")],
        error: None,
        begin: Duration::from_millis(5),
        elapsed: Duration::from_secs(10),
        in_ramp: false,
        directions: [
            direction(70_045, 120_000),
            direction(30_000, 50_000),
            DirectionReport::default(),
        ],
        flushes: DirectionReport::default(),
        cpu: CpuReport {
            user: Duration::from_millis(91),
            system: Duration::from_millis(312),
            helpers_user: Duration::ZERO,
            helpers_system: Duration::ZERO,
            switches_voluntary: 48_211,
            switches_involuntary: 37,
            faults_major: 0,
            faults_minor: 61,
            system_calls: 53_118,
            instructions: Some(1_234_567_890),
            cycles: Some(987_654_321),
            cache: None,
        },
        depth_classes: [1, 1, 2, 4, 8, 100_029, 0],
        submit_classes: [0, 99_000, 1000, 45, 0, 0, 0],
        complete_classes: [0, 98_000, 2000, 45, 0, 0, 0],
        verify: VerifyReport::default(),
        passed: Passed::default(),
        incidents: Incidents::default(),
        depth_found: None,
        steady: None,
        histograms: Vec::new(),
        series: (0..10).map(second).collect(),
        late_max: Duration::ZERO,
    }
}

pub(super) fn directory() -> tempfile::TempDir {
    let build = std::env::current_exe().unwrap();
    tempfile::tempdir_in(build.parent().unwrap()).unwrap()
}

pub(super) fn run(jobs: Vec<JobReport>) -> RunReport {
    RunReport {
        begun: SystemTime::UNIX_EPOCH + Duration::from_millis(1_750_000_000_250),
        so_far: None,
        jobs,
        config_hash: "0123456789abcdef".to_owned(),
        machine: serde_json::json!({"kernel": "6.12.0"}),
        disks: vec![DiskReport {
            name: "vda".to_owned(),
            read_ios: 70_045,
            ..DiskReport::default()
        }],
        notes: vec!["auto chose io_uring".to_owned()],
        interrupted: false,
    }
}
