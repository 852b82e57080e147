//! Random histories of a store that is simple enough to be right must pass. With a planted anomaly,
//! the judge must find it.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod planted;
mod store;

use fastrand::Rng;
use qpair_isolation::judge;
use store::{Level, run};

const LEVELS: [Level; 4] = [Level::Serial, Level::Serializable, Level::Snapshot, Level::Mixed];

#[test]
fn histories_of_a_right_store_are_clean() {
    for seed in 0..100 {
        for level in LEVELS {
            let history = run(&mut Rng::with_seed(seed), level, 120);
            let verdict = judge(&history);
            assert!(verdict.is_clean(), "seed {seed}, {level:?}: {verdict}");
            assert!(verdict.reads > 50 && verdict.edges > 50, "seed {seed}: {verdict}");
        }
    }
}

#[test]
fn histories_of_a_store_that_lost_its_last_commits_are_clean() {
    for seed in 0..100 {
        for level in LEVELS {
            let mut rng = Rng::with_seed(seed);
            let history = store::crashed(&mut rng, level, 120);
            let verdict = judge(&history);
            assert!(verdict.is_clean(), "seed {seed}, {level:?}: {verdict}");
        }
    }
}

#[test]
fn every_planted_anomaly_is_found() {
    for planted in planted::ALL {
        let mut tried = 0;
        for seed in 0..200 {
            for level in LEVELS {
                let mut rng = Rng::with_seed(seed);
                let mut history = run(&mut rng, level, 60);
                let Some(is_found) = (planted.plant)(&mut history, &mut rng) else { continue };
                let verdict = judge(&history);
                assert!(is_found(&verdict), "{}, seed {seed}, {level:?}: {verdict}", planted.name);
                tried += 1;
            }
        }
        assert!(tried > 100, "{} was planted {tried} times", planted.name);
    }
}

/// A store that checks too little is found out, although nothing is planted in the history itself.
#[test]
fn a_store_that_does_not_check_is_found() {
    for (level, broken) in [
        (Level::Snapshot, store::Broken::LostUpdate),
        (Level::Serializable, store::Broken::UncheckedReads),
        (Level::Snapshot, store::Broken::StaleSnapshot),
        (Level::Mixed, store::Broken::LostUpdate),
        (Level::Mixed, store::Broken::UncheckedReads),
    ] {
        let found = (0..100).filter(|seed| {
            let history = store::run_broken(&mut Rng::with_seed(*seed), level, 120, Some(broken));
            !judge(&history).is_clean()
        });
        let found = found.count();
        assert!(found >= 60, "{broken:?} was found in {found} of 100 histories at {level:?}");
    }
}

/// Judging a correct history must take time in proportion to its size, measured in edges. Otherwise
/// long histories could not be judged.
#[test]
fn edges_grow_with_the_history_and_no_faster() {
    let edges = |transactions| {
        let verdict = judge(&run(&mut Rng::with_seed(1), Level::Snapshot, transactions));
        assert!(verdict.is_clean(), "{verdict}");
        verdict.edges as f64 / f64::from(transactions)
    };
    let (few, many) = (edges(200), edges(1500));
    assert!(many < 1.5 * few, "{few} edges a transaction, and {many} of a long history");
}
