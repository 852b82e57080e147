//! Made-up studies for the tests of every finding: one in which it holds, one in which it does not.

use super::{Experiment, catalogue, find};
use crate::config::{Assignment, Channels, Config, Pace};
use crate::lab::{
    BARE_CALL, DURABLE_RAW, EMPTY_POLL, FIO, FLOOR, LIBAIO_CALLS, Lab, SOFT_DRIVE, SYNC,
    TASK_SWITCH, THREAD_SWITCH, UNREGISTERED, USER_SCSI, USER_SPACE,
};
use crate::measure::Measure;
use crate::report::StudyReport;
use crate::store::{StoreFigures, StoreUse};
use crate::synthetic::{lab, slower, speed, study_in, study_of};
use crate::verdict::Verdict;

pub(super) type Change = fn(&Config, &mut Measure);

pub(super) const ALL: [&str; 6] =
    ["posix", "libaio", "io_uring", "io_uring+p", "io_uring+k", USER_SPACE];

/// Returns the verdict on a study of four cores and three drives in which all interfaces are equal
/// except for `change`.
pub(super) fn verdict_of(name: &str, change: Change) -> Verdict {
    let finding = catalogue().find(|finding| finding.name == name).unwrap();
    let mut experiments = vec![finding.experiment, "s1-fig2"];
    experiments.dedup();
    let experiments = experiments.into_iter().filter_map(find).collect();
    let report = study_of(experiments, 4, 3, &ALL, |config, round| {
        let mut measure = speed(config, round, 100e3);
        measure.p50_us = 100.0;
        change(config, &mut measure);
        Some(measure)
    });
    report.verdicts.into_iter().find(|verdict| verdict.finding == name).unwrap()
}

/// The number of drives of the lab that has everything. The md array over them is one more device.
pub(super) const DRIVES: u32 = 20;

/// Returns a lab in which every need of a finding is met, except those of another boot.
pub(super) fn everything() -> Lab {
    let names = [&ALL[..], &[USER_SCSI]].concat();
    let mut lab = lab(20, DRIVES as usize + 1, &names);
    (lab.means.md, lab.means.served) = (Some(DRIVES), Some(1));
    lab
}

/// Returns a study in the lab that has everything, and in a boot without mitigations and with the
/// IOMMU. `change` changes its results, but not those of a stored study of the other boot.
pub(super) fn study_of_everything(
    experiments: Vec<&'static Experiment>,
    change: impl Fn(&Config, &mut Measure),
) -> StudyReport {
    let run = |change: &dyn Fn(&Config, &mut Measure)| {
        study_in(&everything(), experiments.clone(), |config, round| {
            let mut measure = speed(config, round, 100e3);
            measure.p50_us = 100.0;
            change(config, &mut measure);
            Some(measure)
        })
    };
    let (mut report, mut other) = (run(&change), run(&|_, _| {}));
    let bug = |state: &str| qpair_machine::Mitigation {
        name: "spectre_v2".to_owned(),
        state: state.to_owned(),
    };
    report.machine.processors.mitigations = vec![bug("Vulnerable")];
    other.machine.processors.mitigations = vec![bug("Mitigation: Retpolines")];
    (report.machine.iommu.groups, other.machine.iommu.groups) = (Some(9), Some(0));
    report.compare_with(&other).unwrap();
    report
}

pub(super) fn verdict_of_everything(name: &str, change: Change) -> Verdict {
    let finding = catalogue().find(|finding| finding.name == name).unwrap();
    let mut experiments = vec![finding.experiment, "s1-fig2"];
    experiments.dedup();
    let experiments = experiments.into_iter().filter_map(find).collect();
    let report = study_of_everything(experiments, change);
    report.verdicts.into_iter().find(|verdict| verdict.finding == name).unwrap()
}

pub(super) fn is(config: &Config, interface: &str) -> bool {
    config.interface == interface
}

/// Lowers the I/Os a second in proportion if fewer than `full` requests are in flight.
pub(super) fn needs(config: &Config, measure: &mut Measure, full: u32) {
    let total = config.threads * config.depth;
    slower(measure, f64::from(full) / f64::from(total.min(full)));
}

/// Changes the figures of a store's point.
pub(super) fn of_store(c: &Config, m: &mut Measure, change: fn(&StoreUse, &mut StoreFigures)) {
    if let (Some(store), Some(figures)) = (&c.store, &mut m.store) {
        change(store, figures);
    }
}

/// Makes a run of 80 s that falls to a share of its throughput after 40 s.
pub(super) fn falls(measure: &mut Measure, share: f64) {
    measure.over_time = [vec![1e9; 40], vec![share * 1e9; 40]].concat();
    measure.sample_s = 1.0;
}

pub(super) fn is_lookup(c: &Config) -> bool {
    c.store.is_some_and(|store| store.work == crate::StoreWork::Lookup)
}

pub(super) fn is_peer(c: &Config) -> bool {
    is(c, "rocksdb") || is(c, "wiredtiger")
}

pub(super) fn is_fio(c: &Config) -> bool {
    c.interface.starts_with(FIO)
}

#[rustfmt::skip]
pub(super) const CASES: &[(&str, Change, Change)] = &[
    ("s1-user-space-first",
        |c, m| if !is(c, USER_SPACE) { slower(m, 1.5) },
        |c, m| if is(c, USER_SPACE) { slower(m, 1.5) }),
    ("s1-only-spdk-saturates",
        |c, m| if !is(c, USER_SPACE) { slower(m, if c.cores == 1 { 1.5 } else { 1.02 }) },
        |_, _| {}),
    ("s1-k-latency-two",
        |c, m| { if c.depth < 64 { slower(m, 2.0) }; if is(c, "io_uring+k") { m.p50_us = 104.0 } },
        |c, m| { if c.depth < 64 { slower(m, 2.0) }; if is(c, "io_uring+k") { m.p50_us = 150.0 } }),
    ("s1-p-equals-spdk",
        |c, m| { if c.depth < 64 { slower(m, 4.0) }; if is(c, "io_uring+p") { slower(m, 1.3) } },
        |c, m| if c.depth < 64 { slower(m, 4.0) }),
    ("s1-three-cores",
        |_, _| {},
        |c, m| if is(c, "libaio") && c.cores == 2 { slower(m, 1.2) }),
    ("s1-u-worst",
        |c, m| if is(c, "io_uring") { slower(m, 1.3) },
        |c, m| if is(c, "io_uring+p") { slower(m, 1.3) }),
    ("s2-gap-depth",
        |c, m| if is(c, "libaio") && c.depth == 1 { slower(m, 1.3) },
        |c, m| if is(c, "libaio") { slower(m, 1.3) }),
    ("s3-bypass",
        |c, m| if is(c, "io_uring+p") { m.cpu_us_per_io *= 3.0 },
        |_, _| {}),
    ("s1-kernel-thread-collapses",
        |c, m| if is(c, "io_uring+k") && c.cores == 1 { slower(m, 13.0) },
        |_, _| {}),
    ("s1-k-latency-flat",
        |c, m| if is(c, "io_uring+k") && c.cores == 1 { m.p50_us = 8000.0 },
        |_, _| {}),
    ("s1-k-cpu-share",
        |_, m| m.helper_cores = 0.5,
        |_, m| m.helper_cores = 1.0),
    ("s1-kernel-thread-two-cores",
        |c, m| if is(c, "io_uring") { slower(m, 1.4) },
        |c, m| if is(c, "io_uring+k") { slower(m, 1.4) }),
    ("s1-k-twice-cpu",
        |c, m| if is(c, "io_uring+k") { m.cpu_us_per_io *= 2.0 },
        |_, _| {}),
    ("s1-second-core",
        |_, _| {},
        |c, m| if c.cores == 1 { slower(m, 1.5) }),
    ("s1-polling-latency",
        |c, m| if is(c, "io_uring+p") { m.p50_us = 70.0 },
        |c, m| if is(c, "io_uring+p") { m.p50_us = 120.0 }),
    ("s1-shallow-alike",
        |_, _| {},
        |c, m| if is(c, "libaio") && c.depth <= 16 { slower(m, 1.5) }),
    ("s1-io-uring-over-libaio",
        |c, m| if is(c, "libaio") { slower(m, 1.1) },
        |c, m| if is(c, "io_uring") { slower(m, 1.1) }),
    ("s1-hook",
        |c, m| if c.depth == 128 { slower(m, 1.1); m.p50_us = 300.0 },
        |c, m| if c.depth == 128 { slower(m, 1.1) }),
    ("s1-libaio-calls",
        |c, m| if is(c, LIBAIO_CALLS) { m.system_calls_per_io = 2.0 },
        |_, _| {}),
    ("s1-polling-calls",
        |c, m| if is(c, "io_uring+p") { m.system_calls_per_io = 3.0 },
        |c, m| if is(c, "io_uring+p") { m.system_calls_per_io = 0.5 }),
    ("s1-io-uring-calls",
        |_, m| m.system_calls_per_io = 0.9,
        |_, m| m.system_calls_per_io = 1.4),
    ("s1-kernel-thread-calls",
        |c, m| if is(c, "io_uring+k") || is(c, USER_SPACE) { m.system_calls_per_io = 0.0 },
        |_, m| m.system_calls_per_io = 0.5),
    ("s1-libaio-buffered",
        |c, m| m.submit_share = c.cached.then_some(0.95),
        |c, m| m.submit_share = c.cached.then_some(0.2)),
    ("s1-more-cores",
        |c, m| if is(c, "io_uring+k") && c.cores == 3 { slower(m, 2.0) },
        |_, _| {}),
    ("s1-choice",
        |c, m| if is(c, "io_uring+k") { slower(m, if c.cores == 1 { 13.0 } else { 0.7 }) },
        |c, m| if !is(c, "io_uring") { slower(m, 1.5) }),
    ("s2-jobs-over-cores",
        |_, _| {},
        |c, m| if c.threads <= 8 { slower(m, 1.5) }),
    ("s2-cost-switch",
        |c, m| if is(c, BARE_CALL) { m.cpu_us_per_io = 0.5 },
        |c, m| if is(c, BARE_CALL) { m.cpu_us_per_io = 4.0 }),
    ("s2-cost-stack",
        |_, m| m.cpu_us_per_io = 20.0,
        |_, m| m.cpu_us_per_io = 5.0),
    ("s3-drives-add-up",
        |c, m| slower(m, 1.0 / f64::from(c.drives)),
        |_, _| {}),
    ("s3-writes-cost",
        |c, m| if c.writes() { slower(m, 2.0) },
        |_, _| {}),
    ("s3-four-kib",
        |c, m| slower(m, if c.block_bytes > 4096 { f64::from(c.block_bytes) / 4096.0 } else if c.block_bytes < 4096 { 1.5 } else { 1.0 }),
        |_, _| {}),
    ("s3-sync",
        |c, m| if is(c, "posix") && c.depth == 1 { slower(m, 10.0) },
        |_, _| {}),
    ("s3-thousand-outstanding",
        |c, m| if c.threads * c.depth < 400 { slower(m, 1.2) },
        |_, _| {}),
    ("s3-polling-reaches-more",
        |c, m| if is(c, "io_uring") || is(c, "libaio") { slower(m, 1.25) },
        |_, _| {}),
    ("s3-all-reach",
        |_, _| {},
        |c, m| if is(c, "libaio") { slower(m, 1.5) }),
    ("s3-all-to-all",
        |_, _| {},
        |c, m| if c.assignment == Assignment::All { slower(m, 1.2) }),
    ("s3-one-io-thread",
        |c, m| if c.channels == Channels::OneThread { m.cpu_us_per_io *= 1.3 },
        |_, _| {}),
    ("s3-partitions",
        |c, m| if c.channels == Channels::OneLock { m.cpu_us_per_io *= 1.3 },
        |_, _| {}),
    ("s3-batching",
        |_, _| {},
        |c, m| if c.batch > 1 { slower(m, 1.2) }),
    ("s3-bare",
        |c, m| if c.cached { slower(m, 2.0) },
        |_, _| {}),
    ("s3-oversubscribed",
        |_, m| m.kernel_share = 0.8,
        |_, m| m.kernel_share = 0.1),
    ("s3-amplification",
        |c, m| of_store(c, m, |s, f| f.device_bytes_per_op = f64::from(s.page_bytes)),
        |_, _| {}),
    ("s3-cycles",
        |_, m| m.kernel_share = 0.5,
        |_, m| m.kernel_share = 0.9),
    ("s3-sqpoll",
        |c, m| if c.interface.starts_with("io_uring+k") { slower(m, 1.2); m.cpu_us_per_io *= 1.2 },
        |c, m| if is(c, "io_uring") { slower(m, 1.2) }),
    ("s3-uring-libaio",
        |c, m| if is(c, "io_uring") { m.cpu_us_per_io *= 1.02 } else if is(c, "io_uring+p") { m.cpu_us_per_io /= 1.06 },
        |c, m| if is(c, "io_uring") { m.cpu_us_per_io *= 1.3 }),
    ("s3-one-core",
        |c, m| slower(m, 2.0 / f64::from(c.threads)),
        |c, m| slower(m, 3.0 / f64::from(c.threads * c.threads))),
    ("s3-rung-page",
        |c, m| if c.block_bytes > 4096 { slower(m, 2.0) },
        |_, _| {}),
    ("s3-parents",
        |c, m| if c.store.is_some_and(|s| s.parents_from_root) { m.cpu_us_per_io *= 1.2 },
        |_, _| {}),
    ("s3-io-per-tx",
        |_, _| {},
        |c, m| of_store(c, m, |_, f| f.writes_per_op = 20.0)),
    ("s3-growth-10",
        |c, m| if c.store.is_some_and(|s| s.data_percent >= 1000) { slower(m, 2.0) },
        |c, m| if c.store.is_some_and(|s| s.data_percent >= 1000) { slower(m, 5.0) }),
    ("s3-growth-40",
        |c, m| if c.store.is_some_and(|s| s.data_percent >= 4000) { slower(m, 2.0) },
        |c, m| if c.store.is_some_and(|s| s.data_percent >= 4000) { slower(m, 5.0) }),
    ("s3-cpu-shares",
        |_, _| {},
        |c, m| of_store(c, m, |_, f| f.eviction_share = 0.5)),
    ("s3-latency-lookup",
        |_, _| {},
        |c, m| of_store(c, m, |_, f| f.mean_us = 200.0)),
    ("s3-latency-tx",
        |c, m| of_store(c, m, |_, f| f.mean_us = 900.0),
        |_, _| {}),
    ("s4-async",
        |c, m| if is(c, SYNC) { slower(m, 3.0) },
        |_, _| {}),
    ("s4-plateau",
        |c, m| needs(c, m, 128),
        |c, m| needs(c, m, 1024)),
    ("s4-cost-falls",
        |c, m| m.cpu_us_per_io = f64::from(c.block_bytes.max(65536)) / 65536.0,
        |c, m| m.cpu_us_per_io = f64::from(c.block_bytes)),
    ("s4-instructions",
        |c, m| if is(c, "libaio") { m.cpu_us_per_io *= 1.2 },
        |_, _| {}),
    ("s4-registering-saves",
        |c, m| if is(c, UNREGISTERED) { m.cpu_us_per_io *= 1.2 },
        |_, _| {}),
    ("s4-switches",
        |c, m| if is(c, "io_uring") { m.switches_per_io = 0.8 },
        |_, _| {}),
    ("s4-interval-costs",
        |_, _| {},
        |c, m| if let Pace::Interval { .. } = c.pace { slower(m, 10.0) }),
    ("s4-interval-levels",
        |c, m| if is(c, SYNC) && c.pace == (Pace::Interval { us: 10 }) { slower(m, 2.0) },
        |c, m| if is(c, SYNC) { slower(m, 2.0) }),
    ("s4-cliff",
        |c, m| falls(m, if is(c, SYNC) { 1.0 } else { 0.3 }),
        |_, m| falls(m, 1.0)),
    ("s4-spare",
        |c, m| if c.interface.ends_with("0.07") { slower(m, 2.0) },
        |_, _| {}),
    ("s5-user-space-latency",
        |c, m| if is(c, USER_SPACE) { m.p50_us = 40.0 },
        |_, _| {}),
    ("s5-user-space-core",
        |c, m| if !is(c, USER_SPACE) { slower(m, 5.0) },
        |_, _| {}),
    ("s5-scale-up",
        |c, m| slower(m, 1.0 / f64::from(c.drives.min(4))),
        |_, _| {}),
    ("s5-four-jobs",
        |_, _| {},
        |c, m| if is(c, "libaio") && c.threads == 4 { slower(m, 1.5) }),
];

/// Findings that need more than four cores and three drives.
#[rustfmt::skip]
pub(super) const CASES_OF_EVERYTHING: &[(&str, Change, Change)] = &[
    ("s1-cache-misses",
        |c, m| m.cache_miss_share = Some(if is(c, "io_uring+p") { 0.05 } else { 0.006 }),
        |_, m| m.cache_miss_share = Some(0.01)),
    ("s1-grid-2j",
        |c, m| slower(m, if is(c, "io_uring+k") { 1.0 } else if is(c, USER_SPACE) { 0.9 } else { 1.5 }),
        |_, _| {}),
    ("s1-grid-j2",
        |c, m| if is(c, "io_uring+k") && c.cores == 7 { slower(m, 1.3) },
        |_, _| {}),
    ("s1-grid-j",
        |c, m| if is(c, "io_uring+k") && c.cores == 5 { slower(m, 3.0) },
        |_, _| {}),
    ("s1-linear",
        |c, m| { slower(m, 1.0 / f64::from(c.drives)); if !is(c, "io_uring+k") && !is(c, USER_SPACE) { slower(m, 1.3) } },
        |_, _| {}),
    ("s1-too-few-cores",
        |c, m| if is(c, "io_uring+k") && c.drives >= 16 { slower(m, 3.0) },
        |c, m| if is(c, "io_uring+k") && c.drives == 20 { slower(m, 3.0) }),
    ("s1-steady",
        |c, m| { slower(m, 1.0 / f64::from(c.drives)); if is(c, "libaio") { slower(m, 1.1) } else if is(c, USER_SPACE) { slower(m, 0.66) } },
        |_, _| {}),
    ("s2-cost-fs",
        |c, m| m.p50_us = match c.interface.as_str() { DURABLE_RAW => 100.0, "durable:ext4" => 200.0, _ => 400.0 },
        |_, _| {}),
    ("s2-floor-write",
        |c, m| if is(c, FLOOR) { m.p50_us = 75.0 },
        |_, _| {}),
    ("s2-floor-read",
        |c, m| if is(c, FLOOR) { m.p50_us = 75.0 },
        |_, _| {}),
    ("s2-floor-iops",
        |c, m| if is_fio(c) { slower(m, 1.3) },
        |c, m| if is_fio(c) && !c.writes() { slower(m, 1.3) }),
    ("s2-floor-128k",
        |_, _| {},
        |c, m| if is_fio(c) { slower(m, 1.3) }),
    ("s2-user-scsi",
        |c, m| if is(c, "libaio") { slower(m, 1.3) },
        |_, _| {}),
    ("s2-user-128k",
        |_, _| {},
        |c, m| if is(c, "libaio") { slower(m, 1.3) }),
    ("s2-guest-reads",
        |c, m| if c.first == 0 { slower(m, 1.03) },
        |_, _| {}),
    ("s2-guest-writes",
        |_, _| {},
        |c, m| if c.first == 0 { slower(m, 1.1) }),
    ("s3-datasheet",
        |_, _| {},
        |_, m| slower(m, 10.0)),
    ("s3-state",
        |c, m| if c.interface.ends_with("filled=1") { slower(m, 2.0) },
        |_, _| {}),
    ("s3-iommu",
        |_, m| slower(m, 1.1),
        |_, _| {}),
    ("s3-mitigations",
        |_, m| slower(m, 1.0 / 1.04),
        |_, _| {}),
    ("s3-threads",
        |c, m| { let full = if is(c, USER_SPACE) { 2 } else { 16 }; slower(m, f64::from(full) / f64::from(c.threads.min(full))) },
        |_, _| {}),
    ("s3-fio",
        |c, m| if is_fio(c) { slower(m, 1.2) },
        |_, _| {}),
    ("s3-task-switch",
        |c, m| m.cpu_us_per_io = if is(c, TASK_SWITCH) { 0.01 } else { 1.0 },
        |c, m| m.cpu_us_per_io = if is(c, THREAD_SWITCH) { 0.5 } else { 1.0 }),
    ("s3-poll-cost",
        |c, m| if is(c, EMPTY_POLL) { m.cpu_us_per_io = 0.05 },
        |_, _| {}),
    ("s3-rung-cpu",
        |c, m| if c.channels == Channels::OneLock { slower(m, 1.3) },
        |_, _| {}),
    ("s3-rung-tasks",
        |c, m| if c.depth == 1 { slower(m, 1.3) },
        |_, _| {}),
    ("s3-rung-raid",
        |c, m| if c.first == DRIVES { slower(m, 1.3) },
        |_, _| {}),
    ("s3-rung-spdk",
        |c, m| if is(c, "libaio") && is_lookup(c) { slower(m, 1.3) },
        |_, _| {}),
    ("s3-polled-engine",
        |c, m| if is(c, "io_uring+p") && is_lookup(c) { slower(m, 1.08) },
        |c, m| if is(c, "io_uring+p") { slower(m, 2.0) }),
    ("s3-few-cores",
        |c, m| if !is(c, USER_SPACE) { slower(m, if c.threads == 1 { 1.5 } else { 1.2 }) },
        |_, _| {}),
    ("s3-gap",
        |c, m| if is_peer(c) { slower(m, 4.0) },
        |_, _| {}),
    ("s3-peers-lookup",
        |c, m| if is_peer(c) { slower(m, 3.0) },
        |_, _| {}),
    ("s3-peers-tpcc",
        |c, m| if is_peer(c) { slower(m, 5.0) },
        |_, _| {}),
    ("s3-wt-page",
        |c, m| if c.block_bytes > 4096 { slower(m, 1.5) },
        |_, _| {}),
    ("s4-slc-model",
        |_, m| falls(m, 0.3),
        |_, m| falls(m, 1.0)),
    ("s5-layer",
        |_, _| {},
        |c, m| if is(c, SOFT_DRIVE) { m.p50_us = 200.0 }),
];
