//! Tests of all findings.

use std::fmt::Write as _;

use super::cases::{
    CASES, CASES_OF_EVERYTHING, Change, everything, falls, is, needs, study_of_everything,
    verdict_of, verdict_of_everything,
};
use super::*;
use crate::finding::Finding;
use crate::judge::judge;
use crate::lab::{InterfaceReport, Lab, STORE_KERNEL, USER_SCSI, USER_SPACE};
use crate::outcome::Outcome;
use crate::synthetic::{slower, speed, study, study_in};
use crate::verdict::Verdict;

#[test]
fn findings_hold_and_do_not() {
    let mut wrong = Vec::new();
    for (cases, of) in [
        (CASES, verdict_of as fn(&str, Change) -> Verdict),
        (CASES_OF_EVERYTHING, verdict_of_everything),
    ] {
        for &(name, holds, does_not) in cases {
            for (change, outcome) in [(holds, Outcome::Holds), (does_not, Outcome::DoesNotHold)] {
                let verdict = of(name, change);
                if verdict.outcome != outcome || verdict.evidence.is_empty() {
                    wrong.push(format!("{outcome:?} was expected of {verdict:#?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // S4 states no result of its variants.
    for finding in catalogue().filter(|finding| finding.name != "s4-variants") {
        let mut cases = CASES.iter().chain(CASES_OF_EVERYTHING);
        assert!(cases.any(|case| case.0 == finding.name), "{} has no test", finding.name);
    }
}

/// A machine that has everything tests every finding, and no reason names something that it has.
#[test]
fn a_machine_that_has_everything_tests_every_finding() {
    let report = study_of_everything(experiments().collect(), |config, measure| {
        // Throughput grows until 16 requests are in flight, and falls a little at the greatest
        // depth.
        needs(config, measure, 16);
        if config.depth >= 128 {
            slower(measure, 1.06);
        }
        if is(config, USER_SPACE) {
            slower(measure, 0.6);
        } else if is(config, "io_uring+k") {
            slower(measure, if config.cores == 1 { 10.0 } else { 0.8 });
        }
        measure.helper_cores = 0.5;
        measure.submit_share = Some(0.9);
        measure.cache_miss_share = Some(0.05);
        measure.instructions_per_byte = Some(1.0);
        falls(measure, 0.3);
    });
    for experiment in &report.experiments {
        assert!(experiment.plan.configs().count() > 0, "{experiment:?}");
        assert!(experiment.plan.skipped.is_empty(), "{:?}", experiment.plan.skipped);
    }
    for (finding, verdict) in catalogue().zip(&report.verdicts) {
        assert_eq!(finding.lacks(&report.here()), Vec::<String>::new(), "{}", finding.name);
        assert!(!verdict.evidence.is_empty(), "{verdict:#?}");
        let parts = verdict.evidence.iter().filter_map(|part| part.untested.as_ref());
        assert_eq!(parts.collect::<Vec<_>>(), Vec::<&String>::new(), "{}", finding.name);
        let is_left_open = verdict.outcome == Outcome::NotTestable;
        assert_eq!(is_left_open, finding.name == "s4-variants", "{verdict:#?}");
    }
}

/// Each need is missed by a machine that lacks exactly that.
#[test]
fn what_a_machine_lacks_is_computed() {
    let has = everything();
    let lacks = |name: &str, change: &dyn Fn(&mut Lab)| {
        let mut lab = has.clone();
        change(&mut lab);
        let finding = catalogue().find(|finding| finding.name == name).unwrap();
        finding.lacks(&lab.here()).join("; ")
    };
    let no = |name: &'static str| {
        move |lab: &mut Lab| lab.interfaces.retain(|interface| interface.name != name)
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Lab), &'a str);
    let all: [Case<'_>; 16] = [
        ("s1-three-cores", &|lab| lab.cpus.truncate(2), "2 cores may be used, of 3"),
        ("s1-grid-2j", &|lab| lab.cpus.truncate(9), "9 cores may be used, of 10"),
        ("s1-grid-j2", &|lab| lab.devices.truncate(4), "4 devices were given, of 5"),
        ("s1-linear", &|lab| lab.devices.truncate(1), "one device only was given, of 2"),
        ("s1-grid-j", &no("io_uring+k"), "io_uring+k: the kernel does not drive the devices"),
        ("s5-user-space-core", &no(USER_SPACE), "nvme does not reach the devices"),
        ("s2-user-scsi", &no(USER_SCSI), "no device is a disk of a SCSI host adapter"),
        ("s1-cache-misses", &|lab| lab.means.counters = false, "counts no instructions"),
        ("s3-fio", &|lab| lab.means.fio = None, "fio is not installed"),
        ("s3-datasheet", &|lab| lab.means.data_sheet_ios_per_s = None, "--data-sheet N"),
        (
            "s3-peers-tpcc",
            &|lab| lab.means.peers.clear(),
            "qpair-peers (crates/peers) is not installed",
        ),
        ("s3-gap", &|lab| lab.means.peers.retain(|one| one != "lookup"), "has no workload lookup"),
        ("s3-rung-raid", &|lab| lab.means.md = None, "no device of the study is an md array"),
        ("s2-guest-reads", &|lab| lab.means.served = None, "qpair target serves to this guest"),
        ("s3-parents", &|lab| lab.means.stores.clear(), "no place for stores"),
        ("s4-cliff", &|lab| lab.devices[3].may_write = false, "--allow-writes"),
    ];
    for (name, change, why) in all {
        assert_eq!(lacks(name, &|_| {}), "", "{name}");
        let found = lacks(name, change);
        assert!(found.contains(why), "{name}: {found}");
    }
    let why = |lab: &mut Lab| lab.means.file_systems[0].unavailable = Some("no root".to_owned());
    assert_eq!(lacks("s2-cost-fs", &why), "no root");
    // A stored study of the same boot has nothing to compare.
    assert!(lacks("s3-iommu", &|_| {}).contains("--against"));
    let run = || study_in(&has, vec![find("s1-fig2").unwrap()], |c, n| Some(speed(c, n, 1e5)));
    let (mut report, mut other) = (run(), run());
    (report.machine.iommu.groups, other.machine.iommu.groups) = (Some(3), Some(4));
    report.compare_with(&other).unwrap();
    let verdict = |name| report.verdicts.iter().find(|one| one.finding == name).unwrap();
    let why = |name| verdict(name).why.clone().unwrap();
    assert!(why("s3-iommu").contains("in the same state"), "{}", why("s3-iommu"));
    assert!(why("s3-mitigations").contains("is not known"), "{}", why("s3-mitigations"));
    other.cores = 3;
    assert!(report.compare_with(&other).unwrap_err().contains("3 cores"));
}

/// Where the user-space driver has no drive, its findings are of a model, and compare processor
/// time: throughput would compare the model's speed with that of the devices.
#[test]
fn a_soft_drive_s_speed_is_not_compared() {
    let mut lab = everything();
    lab.means.stores = vec![STORE_KERNEL.to_owned(), "softnvme:profile=tlc".to_owned()];
    lab.interfaces.retain(|interface| interface.name != USER_SPACE);
    let experiments = vec![find("s3-fig15").unwrap(), find("s3-fig16").unwrap()];
    let report = study_in(&lab, experiments, |config, round| {
        let mut measure = speed(config, round, 100e3);
        // The model is ten times as slow as the devices, and costs half of the processor time.
        if config.interface.starts_with("softnvme") {
            slower(&mut measure, 10.0);
            let lookup = config.store.is_some_and(|store| store.work == crate::StoreWork::Lookup);
            measure.cpu_us_per_io /= if lookup { 1.5 } else { 1.05 };
        }
        Some(measure)
    });
    let of = |name: &str| report.verdicts.iter().find(|one| one.finding == name).unwrap();
    let rung = of("s3-rung-spdk");
    assert!(rung.of_model && rung.outcome == Outcome::Holds, "{rung:#?}");
    assert!(rung.evidence.iter().all(|part| part.what.contains("of processor time")), "{rung:#?}");
    assert!(of("s3-few-cores").of_model && of("s3-polled-engine").of_model);
    // The kernel's part of this finding is of the machine.
    let shares = of("s3-cpu-shares");
    assert!(!shares.of_model && shares.evidence[1].what.contains("on a model"), "{shares:#?}");
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
    assert!(why("s1-k-cpu-share").contains("does not drive the devices"));
    assert!(why("s2-user-scsi").contains("SCSI host adapter"));
    assert!(why("s3-drives-add-up").contains("one device only"));
}

#[test]
fn findings_name_experiments() {
    for finding in catalogue() {
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
        let (name, source, claim) = (row.name, row.source, row.claim);
        let _ = writeln!(out, "| {name} | {source} | {claim} | {} |", row.words());
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
        catalogue().filter(|row| row.name.starts_with(paper) && !is_our_own(row)).count()
    };
    // These are the numbers of findings in the papers.
    assert_eq!(["s1-", "s2-", "s3-", "s4-", "s5-"].map(of), [30, 13, 45, 10, 5]);
    let rows: Vec<&Finding> = catalogue().collect();
    for (at, row) in rows.iter().enumerate() {
        assert!(rows[..at].iter().all(|other| other.name != row.name), "{}", row.name);
        assert!(row.claim.ends_with('.') && !row.source.is_empty(), "{}", row.name);
        assert!(!row.words().contains('|') && !row.words().contains("  "), "{}", row.name);
    }
}

/// Whether the paper considers the question and gives no result, or the row is a model's second
/// verdict on a finding.
fn is_our_own(row: &Finding) -> bool {
    ["s4-registering-saves", "s4-slc-model"].contains(&row.name)
}
