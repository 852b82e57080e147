//! Tests of every finding with made-up studies: one in which it holds, one in which it does not.

use std::fmt::Write as _;

use super::*;
use crate::config::{Assignment, Channels, Config, Pace};
use crate::finding::Finding;
use crate::judge::judge;
use crate::lab::{BARE_CALL, InterfaceReport, LIBAIO_CALLS, SYNC, UNREGISTERED, USER_SPACE};
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::store::{StoreFigures, StoreUse};
use crate::synthetic::{slower, speed, study, study_of};
use crate::verdict::Verdict;

type Change = fn(&Config, &mut Measure);

const ALL: [&str; 6] = ["posix", "libaio", "io_uring", "io_uring+p", "io_uring+k", USER_SPACE];

/// Returns the verdict on a study of four cores and three drives in which all interfaces are equal
/// except for `change`.
fn verdict_of(name: &str, change: Change) -> Verdict {
    let finding = tested().find(|finding| finding.name == name).unwrap();
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

fn tested() -> impl Iterator<Item = &'static Finding> {
    catalogue().filter_map(Row::tested)
}

fn is(config: &Config, interface: &str) -> bool {
    config.interface == interface
}

/// Lowers the I/Os a second in proportion if fewer than `full` requests are in flight.
fn needs(config: &Config, measure: &mut Measure, full: u32) {
    let total = config.threads * config.depth;
    slower(measure, f64::from(full) / f64::from(total.min(full)));
}

/// Changes the figures of a store's point.
fn of_store(c: &Config, m: &mut Measure, change: fn(&StoreUse, &mut StoreFigures)) {
    if let (Some(store), Some(figures)) = (&c.store, &mut m.store) {
        change(store, figures);
    }
}

#[rustfmt::skip]
const CASES: &[(&str, Change, Change)] = &[
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
    ("s1-too-few-cores",
        |c, m| if is(c, "io_uring+k") && c.drives == 3 { slower(m, 3.0) },
        |_, _| {}),
    ("s1-choice",
        |c, m| if is(c, "io_uring+k") { slower(m, if c.cores == 1 { 13.0 } else { 0.7 }) },
        |c, m| if !is(c, "io_uring") { slower(m, 1.5) }),
    ("s2-jobs-over-cores",
        |_, _| {},
        |c, m| if c.threads <= 4 { slower(m, 1.5) }),
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
        |c, m| if c.store.is_some() { m.cpu_us_per_io = 50.0 },
        |c, m| if c.store.is_some() { m.cpu_us_per_io = 25.0 }),
    ("s3-sqpoll",
        |c, m| if is(c, "io_uring+k") { slower(m, 1.2); m.cpu_us_per_io *= 1.2 },
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
        |_, m| { m.over_time = [vec![1e9; 40], vec![3e8; 40]].concat(); m.sample_s = 1.0 },
        |_, m| { m.over_time = vec![1e9; 80]; m.sample_s = 1.0 }),
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

#[test]
fn findings_hold_and_do_not() {
    for &(name, holds, does_not) in CASES {
        for (change, outcome) in [(holds, Outcome::Holds), (does_not, Outcome::DoesNotHold)] {
            let verdict = verdict_of(name, change);
            assert_eq!(verdict.outcome, outcome, "{verdict:#?}");
            assert!(!verdict.evidence.is_empty(), "{name}");
        }
    }
    for finding in tested() {
        assert!(CASES.iter().any(|case| case.0 == finding.name), "{} has no test", finding.name);
    }
}

#[test]
fn noise_decides_nothing() {
    let report = study(2, 1, &["libaio", "io_uring"], |config, round| {
        // The noise is random, but the same in every run of the test.
        let seed = u64::from(round * 1000 + config.depth) << usize::from(is(config, "libaio"));
        let wobble = (1.2 * (fastrand::Rng::with_seed(seed).f64() - 0.5)).exp();
        Some(speed(config, round, 100e3 * wobble))
    });
    let named = |verdict: &&Verdict| verdict.finding == "s1-io-uring-over-libaio";
    let verdict = report.verdicts.iter().find(named).unwrap();
    assert_eq!(verdict.outcome, Outcome::Undecided);
    assert!(verdict.why.as_ref().unwrap().contains("includes the threshold"));
    // The writes have no cliff, but the run is too short.
    let short = verdict_of("s4-cliff", |_, m| {
        m.over_time = vec![1e9; 15];
        m.sample_s = 1.0;
    });
    assert_eq!(short.outcome, Outcome::Undecided);
}

#[test]
fn what_is_missing_is_named() {
    let mut report = study(1, 1, &["libaio", "io_uring"], |config, round| {
        (!is(config, "libaio")).then(|| speed(config, round, 100e3))
    });
    report.interfaces.push(InterfaceReport {
        name: "io_uring+p".to_owned(),
        unavailable: Some("no poll queues".to_owned()),
        ..InterfaceReport::default()
    });
    report.judge();
    let why = |name: &str| {
        let verdict = report.verdicts.iter().find(|verdict| verdict.finding == name).unwrap();
        assert_eq!(verdict.outcome, Outcome::NotTestable, "{name}");
        verdict.why.clone().unwrap()
    };
    assert!(why("s1-polling-latency").contains("no poll queues"));
    assert!(why("s1-io-uring-over-libaio").contains("failed"));
    assert!(why("s1-kernel-thread-two-cores").contains("one core only"));
    assert!(why("s1-k-cpu-share").contains("was not part of this study"));
    assert!(why("s5-layer").contains("it needs"));
    assert!(why("s3-drives-add-up").contains("one device only"));
}

#[test]
fn findings_name_experiments() {
    for finding in tested() {
        assert!(find(finding.experiment).is_some(), "{}", finding.name);
    }
}

#[test]
fn nothing_is_asserted_of_nothing() {
    let report = study(1, 1, &[], |_, _| None);
    for verdict in judge(&report) {
        assert_eq!(verdict.outcome, Outcome::NotTestable, "{}", verdict.finding);
        assert!(verdict.why.is_some_and(|why| !why.is_empty()), "{}", verdict.finding);
    }
}

/// The mark before the table in the design page.
const BEGIN: &str = "<!-- findings: begin -->\n";
const END: &str = "<!-- findings: end -->";

fn table() -> String {
    let mut out = "| Finding | Where | Claim | Here |\n|---|---|---|---|\n".to_owned();
    for row in catalogue() {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            row.name(),
            row.source(),
            row.claim(),
            row.here()
        );
    }
    out
}

/// Compares the table with the page. `QPAIR_WRITE_DOCS=1 cargo test -p qpair-study the_design_page`
/// rewrites the table.
#[test]
fn the_design_page_has_the_same_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/study.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (there, after) = rest.split_once(END).unwrap();
    if std::env::var_os("QPAIR_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
        return;
    }
    assert!(there == table(), "write it anew with QPAIR_WRITE_DOCS=1");
}

#[test]
fn every_finding_has_one_row() {
    let of = |paper: &str| {
        catalogue().filter(|row| row.name().starts_with(paper) && !is_our_own(row)).count()
    };
    // These are the numbers of findings in the papers.
    assert_eq!(["s1-", "s2-", "s3-", "s4-", "s5-"].map(of), [30, 13, 45, 10, 5]);
    let rows: Vec<&Row> = catalogue().collect();
    for (at, row) in rows.iter().enumerate() {
        assert!(rows[..at].iter().all(|other| other.name() != row.name()), "{}", row.name());
        assert!(row.claim().ends_with('.') && !row.source().is_empty(), "{}", row.name());
        assert_eq!(row.tested().is_none(), row.because().is_some(), "{}", row.name());
        assert!(!table().is_empty() && !row.here().contains('|'), "{}", row.name());
    }
}

/// Whether the paper considers the question and gives no result.
fn is_our_own(row: &Row) -> bool {
    row.name() == "s4-registering-saves"
}
