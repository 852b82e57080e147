//! Tests of the order of runs, with made-up results.

use super::*;
use crate::papers::experiments;
use crate::synthetic::{self, Silent};

#[test]
fn a_drive_changes_its_driver_once_a_round_and_once_a_comparison() {
    let mut lab = synthetic::lab(2, 1, &["libaio", "io_uring", "nvme"]);
    lab.devices[0].own_driver_spec = Some("nvme:0000:01:00.0/ns1".to_owned());
    let experiments = ["s1-fig2", "user-space"].map(|name| crate::find(name).unwrap()).into();
    let options = Options { experiments, ..planned_options() };
    let mut seen = Vec::new();
    let report = run_with(&lab, &options, &Silent, Clock::made_up(), |config, round| {
        seen.push((round, Driver::of(config)));
        Some(Ok(synthetic::speed(config, round, 100e3)))
    })
    .unwrap();
    let rounds = seen.iter().map(|one| one.0).max().unwrap();
    let mut both = 0;
    for round in 0..=rounds {
        let mut drivers: Vec<Driver> =
            seen.iter().filter(|one| one.0 == round).filter_map(|one| one.1).collect();
        drivers.dedup();
        assert!(drivers.len() <= 2, "{round}: {drivers:?}");
        both += usize::from(drivers.len() == 2);
    }
    assert!(both > 4, "{both}");
    // The points of both drivers form pairs.
    let (own, kernel) = (Config::new("nvme", 1).depth(128), Config::new("io_uring", 1).depth(128));
    assert!(report.ratio(crate::Metric::IosPerS, &own, &kernel).unwrap().bounds.is_some());
}

#[test]
fn every_point_once_a_round_in_an_order_of_its_own() {
    let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
    let options = Options { repeat: Some(3), ..planned_options() };
    let mut seen: Vec<Vec<Config>> = vec![Vec::new(); 3];
    let report = run_with(&lab, &options, &Silent, Clock::made_up(), |config, round| {
        if let Some(seen) = seen.get_mut(round as usize) {
            seen.push(config.clone());
        }
        Some(Ok(Measure { round, ios_per_s: 1.0, ..Measure::default() }))
    })
    .unwrap();
    let prolonged = |config: &&Config| matches!(config.pace, Pace::Prolonged { .. });
    assert_eq!(seen[0].len(), report.points.len());
    assert_eq!(seen[1].len(), report.points.iter().filter(|p| !prolonged(&&p.config)).count());
    assert_ne!(seen[1], seen[2]);
    for point in &report.points {
        let first = point.runs.iter().filter(|run| run.round < 3).count();
        let runs = if prolonged(&&point.config) { 1 } else { 3 };
        assert_eq!(first, runs, "{}", point.config);
    }
    // A point that several experiments show is in the report once.
    for (at, point) in report.points.iter().enumerate() {
        assert!(report.points[..at].iter().all(|other| other.config != point.config));
    }
}

fn planned_options() -> Options {
    Options {
        experiments: experiments().collect(),
        repeat: None,
        budget_s: None,
        seconds_per_point: Some(0.1),
        seed: 7,
    }
}

fn planned_study(noise: f64) -> (StudyReport, Vec<(u32, Config)>) {
    let lab = synthetic::lab(2, 1, &["posix", "libaio", "io_uring"]);
    let options = planned_options();
    let mut seen = Vec::new();
    let mut random = fastrand::Rng::with_seed(3);
    let report = run_with(&lab, &options, &Silent, Clock::made_up(), |config, round| {
        seen.push((round, config.clone()));
        let wobble = (noise * (random.f64() - 0.5)).exp();
        Some(Ok(synthetic::speed(config, round, 100e3 * wobble)))
    })
    .unwrap();
    (report, seen)
}

#[test]
fn compared_points_run_next_to_each_other() {
    let (report, seen) = planned_study(0.02);
    let comparisons = comparisons(&report);
    assert!(comparisons.len() > 15, "{}", comparisons.len());
    for comparison in comparisons {
        // Some round has all points of a comparison, with a few others at most that are shared.
        let last = report.points.iter().flat_map(|point| &point.runs).map(|run| run.round).max();
        let whole = (report.settings.repeat..=last.unwrap()).any(|round| {
            let at =
                |config: &Config| seen.iter().position(|one| one.0 == round && one.1 == *config);
            let places: Option<Vec<usize>> = comparison.configs.iter().map(at).collect();
            places.is_some_and(|places| {
                let (first, last) = (places.iter().min(), places.iter().max());
                let most = places.len().max(ROUND_WEIGHT_MAX as usize);
                last.zip(first).is_some_and(|(last, first)| last - first < most)
            })
        });
        assert!(whole, "{:?}", comparison.configs);
    }
    // Runs of one round that lie minutes apart do not form a pair.
    let mut report = report;
    let (above, below) = (Config::new("libaio", 1), Config::new("io_uring", 1));
    assert!(report.ratio(crate::Metric::IosPerS, &above, &below).is_some());
    for point in report.points.iter_mut().filter(|point| point.config == above) {
        point.runs.iter_mut().for_each(|run| run.at_s += 37.0);
    }
    assert!(report.ratio(crate::Metric::IosPerS, &above, &below).is_none());
}

#[test]
fn what_is_clear_stops_and_what_is_not_goes_on() {
    let runs = |noise| {
        let (report, _) = planned_study(noise);
        let runs: usize = report.points.iter().map(|point| point.runs.len()).sum();
        let open = report.verdicts.iter();
        (runs, open.filter(|one| one.outcome == crate::Outcome::Undecided).count())
    };
    let (quiet, loud) = (runs(0.01), runs(0.6));
    assert!(loud.0 > quiet.0, "{quiet:?} {loud:?}");
    assert!(quiet.1 < loud.1, "{quiet:?} {loud:?}");
    // Time also limits the comparisons: without any time, nothing is compared.
    let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
    let options = Options { budget_s: Some(0.0), ..planned_options() };
    let report = run_with(&lab, &options, &Silent, Clock::made_up(), |config, round| {
        Some(Ok(synthetic::speed(config, round, 100e3)))
    })
    .unwrap();
    let rounds = report.points.iter().flat_map(|point| &point.runs).map(|run| run.round);
    assert!(rounds.max().unwrap() < report.settings.repeat);
    assert!(report.notes.iter().any(|note| note.contains("was over")), "{:?}", report.notes);
}

#[test]
fn comparisons_run_in_blocks_over_the_time_of_the_study() {
    let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
    let experiments = vec![crate::find("s1-fig2").unwrap()];
    let options = Options { experiments, budget_s: Some(200.0), ..planned_options() };
    let run = |options: &Options, noise: f64| {
        let mut random = fastrand::Rng::with_seed(5);
        run_with(&lab, options, &Silent, Clock::made_up(), |config, round| {
            let wobble = (noise * (random.f64() - 0.5)).exp();
            Some(Ok(synthetic::speed(config, round, 100e3 * wobble)))
        })
        .unwrap()
    };
    let report = run(&options, 0.02);
    let compared = Config::new("libaio", 1).depth(16);
    let runs = &report.point(&compared).unwrap().runs;
    let begins: Vec<f64> = (0..5)
        .filter_map(|block| {
            let block = Some(report.settings.repeat + block);
            runs.iter().find(|run| run.block == block).map(|run| run.at_s)
        })
        .collect();
    assert!(begins.len() >= 4, "{begins:?}");
    for pair in begins.windows(2) {
        assert!((pair[1] - pair[0] - 40.0).abs() < 2.0, "{begins:?}");
    }
    assert!(report.took_s <= 201.0, "{}", report.took_s);
    // A comparison that is not clear runs several times in a block, which counts once.
    let loud = run(&options, 0.8);
    let point = loud.point(&compared).unwrap();
    let blocks = point.by_block(crate::Metric::IosPerS).len();
    assert!(point.runs.len() > 2 * blocks && blocks == 6, "{blocks}: {}", point.runs.len());
    // A given number of rounds waits for nothing.
    let report = run(&Options { repeat: Some(3), ..options }, 0.02);
    assert!(report.took_s < 5.0 && report.point(&compared).unwrap().runs.len() >= 6);
}

#[test]
fn no_point_differs_from_itself_in_twenty_studies() {
    let lab = synthetic::lab(2, 1, &["posix", "libaio", "io_uring"]);
    let mut random = fastrand::Rng::with_seed(11);
    for seed in 0..20 {
        let experiments = vec![crate::find("s1-fig2").unwrap()];
        let options = Options { experiments, seed, ..planned_options() };
        let report = run_with(&lab, &options, &Silent, Clock::made_up(), |config, round| {
            let wobble = (0.2 * (random.f64() - 0.5)).exp();
            Some(Ok(synthetic::speed(config, round, 100e3 * wobble)))
        })
        .unwrap();
        let resolution = report.resolution().unwrap();
        assert!(resolution.pairs >= 4 && !resolution.differs, "{seed}: {resolution:?}");
        assert!(resolution.of_the_mean < resolution.of_a_pair, "{resolution:?}");
    }
    // The report tells if the second run is always slower.
    let mut report = planned_study(0.02).0;
    report.twins.iter_mut().for_each(|twins| twins.ios_per_s.1 *= 0.5);
    assert!(report.resolution().unwrap().differs);
}

#[test]
fn failures_are_told_and_the_rest_goes_on() {
    let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
    let experiments = experiments().take(1).collect();
    let options = Options { experiments, repeat: Some(2), ..planned_options() };
    let report = run_with(&lab, &options, &Silent, Clock::made_up(), |config, round| {
        Some(match config.interface.as_str() {
            "libaio" => Err("out of order".to_owned()),
            _ => Ok(Measure { round, ios_per_s: 1.0, ..Measure::default() }),
        })
    })
    .unwrap();
    for point in &report.points {
        match point.config.interface.as_str() {
            "libaio" => assert_eq!((point.runs.len(), point.errors.len()), (0, 1)),
            _ => assert!(point.runs.len() >= 2 && point.errors.is_empty()),
        }
    }
    assert!(run_with(&lab, &options, &Silent, Clock::made_up(), |_, _| None).is_err());
}

#[test]
fn comparisons_that_share_points_are_one_round() {
    let of = |depths: &[u32]| Comparison {
        configs: depths.iter().map(|depth| Config::new("libaio", 1).depth(*depth)).collect(),
        clear: false,
    };
    let all = joined(vec![of(&[1, 2]), of(&[3, 4]), of(&[2, 5]), of(&[1, 2]), of(&[4])]);
    let depths = |one: &Comparison| one.configs.iter().map(|c| c.depth).collect::<Vec<_>>();
    assert_eq!(all.iter().map(depths).collect::<Vec<_>>(), [vec![1, 2, 5], vec![3, 4]]);
    // A round has an end, and points of stores take longer.
    let many: Vec<u32> = (1..=12).collect();
    assert_eq!(joined(vec![of(&many), of(&[12, 13])]).len(), 2);
    let store = |percent| {
        let store = crate::StoreUse {
            data_percent: percent,
            ..crate::StoreUse::new(crate::StoreWork::Lookup)
        };
        store.on("libaio", 1)
    };
    let stores = |percents: &[u32]| Comparison {
        configs: percents.iter().copied().map(store).collect(),
        clear: false,
    };
    assert_eq!(joined(vec![stores(&[1, 2]), stores(&[2, 3])]).len(), 1);
    assert_eq!(joined(vec![stores(&[1, 2, 3]), stores(&[3, 4])]).len(), 2);
}
