//! Every finding over made-up studies: one in which it holds, one in which it does not.

use super::*;
use crate::config::{Assignment, Pace};
use crate::experiment;
use crate::lab::{UNREGISTERED, USER_SPACE};
use crate::measure::Measure;
use crate::synthetic::{speed, study};

type Change = fn(&Config, &mut Measure);

const ALL: [&str; 6] = ["posix", "libaio", "io_uring", "io_uring+p", "io_uring+k", USER_SPACE];

/// Four cores and three drives, all interfaces alike but for what `change` says.
fn verdict_of(name: &str, change: Change) -> Verdict {
    let report = study(4, 3, &ALL, |config, round| {
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

fn slower(measure: &mut Measure, factor: f64) {
    measure.ios_per_s /= factor;
    measure.bytes_per_s /= factor;
}

fn is(config: &Config, interface: &str) -> bool {
    config.interface == interface
}

/// Fewer I/Os the more is outstanding under `full`.
fn needs(config: &Config, measure: &mut Measure, full: u32) {
    let total = config.threads * config.depth;
    slower(measure, f64::from(full) / f64::from(total.min(full)));
}

#[rustfmt::skip]
const CASES: [(&str, Change, Change); 28] = [
    ("s1-user-space-first",
        |c, m| if !is(c, USER_SPACE) { slower(m, 1.5) },
        |c, m| if is(c, USER_SPACE) { slower(m, 1.5) }),
    ("s1-kernel-thread-two-cores",
        |c, m| if is(c, "io_uring") { slower(m, 1.4) },
        |_, _| {}),
    ("s1-kernel-thread-collapses",
        |c, m| if is(c, "io_uring+k") && c.cores == 1 { slower(m, 13.0) },
        |_, _| {}),
    ("s1-polling-latency",
        |c, m| if is(c, "io_uring+p") { m.p50_us = 70.0 },
        |c, m| if is(c, "io_uring+p") { m.p50_us = 120.0 }),
    ("s1-io-uring-over-libaio",
        |c, m| if is(c, "libaio") { slower(m, 1.1) },
        |c, m| if is(c, "io_uring") { slower(m, 1.1) }),
    ("s1-libaio-calls",
        |c, m| if is(c, "libaio") { m.system_calls_per_io = 2.0 / f64::from(c.depth) },
        |c, m| if is(c, "libaio") { m.system_calls_per_io = 2.0 }),
    ("s1-io-uring-calls",
        |_, m| m.system_calls_per_io = 0.9,
        |_, m| m.system_calls_per_io = 1.4),
    ("s1-polling-calls",
        |c, m| if is(c, "io_uring+p") { m.system_calls_per_io = 3.0 },
        |c, m| if is(c, "io_uring+p") { m.system_calls_per_io = 0.5 }),
    ("s1-kernel-thread-calls",
        |c, m| if is(c, "io_uring+k") { m.system_calls_per_io = 0.0 },
        |c, m| if is(c, "io_uring+k") { m.system_calls_per_io = 0.5 }),
    ("s1-more-cores",
        |c, m| if is(c, "io_uring+k") && c.cores == 3 { slower(m, 2.0) },
        |_, _| {}),
    ("s1-too-few-cores",
        |c, m| if is(c, "io_uring+k") { slower(m, if c.drives == 3 { 3.0 } else { 0.7 }) },
        |c, m| if is(c, "io_uring+k") && c.drives == 2 { slower(m, 3.0) }),
    ("s1-choice",
        |c, m| if is(c, "io_uring+k") { slower(m, if c.cores == 1 { 13.0 } else { 0.7 }) },
        |c, m| if !is(c, "io_uring") { slower(m, 1.5) }),
    ("s3-drives-add-up",
        |c, m| slower(m, 1.0 / f64::from(c.drives)),
        |_, _| {}),
    ("s3-writes-cost",
        |c, m| if c.writes() { slower(m, 1.4) },
        |_, _| {}),
    ("s3-four-kib",
        |c, m| if c.block_bytes > 4096 { slower(m, f64::from(c.block_bytes) / 4096.0) },
        |_, _| {}),
    ("s3-thousand-outstanding",
        |c, m| needs(c, m, 1024),
        |c, m| needs(c, m, 64)),
    ("s3-all-reach",
        |_, _| {},
        |c, m| if is(c, "libaio") { slower(m, 1.5) }),
    ("s3-polling-reaches-more",
        |c, m| if is(c, "io_uring") { slower(m, 1.25) },
        |_, _| {}),
    ("s3-all-to-all",
        |_, _| {},
        |c, m| if c.assignment == Assignment::All { slower(m, 1.2) }),
    ("s4-plateau",
        |c, m| needs(c, m, 128),
        |c, m| needs(c, m, 1024)),
    ("s4-cost-falls",
        |c, m| m.cpu_us_per_io = f64::from(c.block_bytes.max(65536)) / 65536.0,
        |c, m| m.cpu_us_per_io = f64::from(c.block_bytes)),
    ("s4-registering-saves",
        |c, m| if is(c, UNREGISTERED) { m.cpu_us_per_io *= 1.2 },
        |_, _| {}),
    ("s4-switches",
        |c, m| m.switches_per_io = match c.interface.as_str() { "libaio" => 1.0, "io_uring" => 0.8, _ => 0.0 },
        |_, _| {}),
    ("s4-interval-costs",
        |c, m| if let Pace::Interval { us } = c.pace { slower(m, f64::from(us.max(10))) },
        |_, _| {}),
    ("s4-interval-levels",
        |_, _| {},
        |c, m| if is(c, "posix") { slower(m, 1.2) }),
    ("s4-cliff",
        |_, m| { m.over_time = [vec![1e9; 40], vec![3e8; 40]].concat(); m.sample_s = 1.0 },
        |_, m| { m.over_time = vec![1e9; 80]; m.sample_s = 1.0 }),
    ("s5-user-space-latency",
        |c, m| if is(c, USER_SPACE) { m.p50_us = 40.0 },
        |_, _| {}),
    ("s5-user-space-core",
        |c, m| if !is(c, USER_SPACE) { slower(m, 5.0) },
        |_, _| {}),
];

#[test]
fn findings_hold_and_do_not() {
    for (name, holds, does_not) in CASES {
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
        let wobble = if is(config, "libaio") && round % 2 == 0 { 1.3 } else { 0.9 };
        Some(speed(config, round, 100e3 * wobble))
    });
    let named = |verdict: &&Verdict| verdict.finding == "s1-io-uring-over-libaio";
    let verdict = report.verdicts.iter().find(named).unwrap();
    assert_eq!(verdict.outcome, Outcome::Undecided);
    assert!(verdict.why.as_ref().unwrap().contains("includes the threshold"));
    // Writes without a cliff, but for too short a time.
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
    report.interfaces.push(crate::InterfaceReport {
        name: "io_uring+p".to_owned(),
        about: String::new(),
        ran_as: None,
        unavailable: Some("no poll queues".to_owned()),
        way_out: None,
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
    assert!(why("s1-kernel-thread-collapses").contains("was not part of this study"));
    assert!(why("s3-drives-add-up").contains("one device only"));
}

#[test]
fn findings_name_experiments() {
    for finding in tested() {
        assert!(experiment::find(finding.experiment).is_some(), "{}", finding.name);
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
