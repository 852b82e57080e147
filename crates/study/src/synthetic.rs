//! Studies with made-up results, for tests.

use qpair_workload::Watcher;

use crate::config::{Config, Mix};
use crate::experiment::Experiment;
use crate::lab::{Device, Effort, InterfaceReport, Lab, STORE_KERNEL, USER_SPACE};
use crate::means::{FILE_SYSTEMS, FileSystem, Means};
use crate::measure::{Measure, QUANTILES, digits};
use crate::options::Options;
use crate::papers::experiments;
use crate::report::StudyReport;
use crate::session::{Clock, run_with};
use crate::store::StoreFigures;

/// Returns a lab with this number of cores and devices, these interfaces, and all means except
/// those that are special devices.
pub(crate) fn lab(cores: usize, devices: usize, interfaces: &[&str]) -> Lab {
    Lab {
        cpus: (0..cores).collect(),
        drivers: qpair_drivers::Drivers::new(),
        devices: (0..devices)
            .map(|n| Device::of(&format!("ram:size={}MiB", n + 1), true, false).unwrap())
            .collect(),
        interfaces: interfaces
            .iter()
            .map(|name| InterfaceReport { name: (*name).to_owned(), ..InterfaceReport::default() })
            .collect(),
        effort: Effort::Usual,
        means: means(),
        folder: std::env::temp_dir(),
        mix: Mix::default(),
    }
}

fn means() -> Means {
    let of = |name: &str| FileSystem { name: name.to_owned(), unavailable: None };
    let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Means {
        fio: Some("fio-3".to_owned()),
        counters: true,
        file_systems: FILE_SYSTEMS.map(of).into(),
        peers: words(&["lookup", "tpcc"]),
        stores: words(&[STORE_KERNEL, USER_SPACE]),
        no_stores: None,
        no_user_space_stores: None,
        no_peers: None,
        no_md: None,
        md: None,
        served: None,
        data_sheet_ios_per_s: Some(5e4),
    }
}

pub(crate) struct Silent;

impl Watcher for Silent {
    fn at(&self, _: u64, _: u64, _: &str) {}
}

/// Returns a study of all experiments in which a function measures each point; `None`: the point
/// fails.
pub(crate) fn study(
    cores: usize,
    devices: usize,
    interfaces: &[&str],
    measure: impl Fn(&Config, u32) -> Option<Measure>,
) -> StudyReport {
    study_of(experiments().collect(), cores, devices, interfaces, measure)
}

/// Returns a study of some experiments.
pub(crate) fn study_of(
    experiments: Vec<&'static Experiment>,
    cores: usize,
    devices: usize,
    interfaces: &[&str],
    measure: impl Fn(&Config, u32) -> Option<Measure>,
) -> StudyReport {
    study_in(&lab(cores, devices, interfaces), experiments, measure)
}

/// Returns a study of Figure 2 of S1 with other requests, on two cores.
pub(crate) fn study_of_mix(
    mix: Mix,
    interfaces: &[&str],
    measure: impl Fn(&Config, u32) -> Option<Measure>,
) -> StudyReport {
    let lab = Lab { mix, ..lab(2, 1, interfaces) };
    study_in(&lab, vec![crate::find("s1-fig2").unwrap()], measure)
}

pub(crate) fn study_in(
    lab: &Lab,
    experiments: Vec<&'static Experiment>,
    measure: impl Fn(&Config, u32) -> Option<Measure>,
) -> StudyReport {
    let seconds_per_point = Some(0.1);
    let options =
        Options { experiments, repeat: Some(5), budget_s: None, seconds_per_point, seed: 1 };
    run_with(lab, &options, &Silent, Clock::made_up(), |config, round| {
        Some(measure(config, round).ok_or_else(|| "failed".to_owned()))
    })
    .unwrap()
}

/// Makes a measure `factor` times as slow.
pub(crate) fn slower(measure: &mut Measure, factor: f64) {
    measure.ios_per_s /= factor;
    measure.bytes_per_s /= factor;
}

/// Returns a measure with about `ios_per_s` I/Os a second, varied slightly by round, and the
/// figures that follow from it.
pub(crate) fn speed(config: &Config, round: u32, ios_per_s: f64) -> Measure {
    // The drift is the same for all points of a round, and a little noise differs, as on a real
    // device.
    let drift = 1.0 + 0.2 * f64::from(round % 3);
    let noise = 1.0 + 0.002 * f64::from((round * 7 + config.depth) % 5);
    let ios_per_s = digits(ios_per_s * drift * noise);
    let latency_us = digits(f64::from(config.depth * config.threads) / ios_per_s * 1e6);
    Measure {
        round,
        seconds: 0.1,
        ios_per_s,
        bytes_per_s: digits(ios_per_s * f64::from(config.block_bytes)),
        p50_us: latency_us,
        p99_us: digits(3.0 * latency_us),
        cpu_us_per_io: 5.0,
        system_calls_per_io: 1.0,
        switches_per_io: 1.0,
        quantiles_us: QUANTILES.map(|share| digits(latency_us * (0.5 + share))).to_vec(),
        store: config.store.map(|_| StoreFigures {
            mean_us: 110.0,
            reads_per_op: 3.0,
            writes_per_op: 2.0,
            device_bytes_per_op: 4096.0,
            device_read_us: 100.0,
            eviction_share: 0.14,
            submission_share: Some(if config.interface == USER_SPACE { 0.02 } else { 0.16 }),
        }),
        ..Measure::default()
    }
}
