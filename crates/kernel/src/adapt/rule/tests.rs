//! The rule over made-up machines: that it finds the best way, and that nothing makes it oscillate.

use super::super::way::KERNEL;
use super::*;

const WINDOW_S: f64 = 0.1;

fn machine(cores: f64) -> Means {
    Means { cores, ways: vec![Way::Libaio, Way::Polling, Way::OwnThread] }
}

/// A window of a drive that gives `iops` for `cpu_us` each.
fn window(iops: f64, cpu_us: f64) -> Window {
    let requests = (iops * WINDOW_S) as u64;
    Window {
        seconds: WINDOW_S,
        requests,
        bytes: requests * 4096,
        depth: 32.0,
        cpu_s: requests as f64 * cpu_us / 1e6,
        others: 0.0,
    }
}

struct Run {
    rule: Rule,
    now_s: f64,
    changes: Vec<f64>,
}

impl Run {
    fn new() -> Self {
        let rule = Rule::new(&KERNEL, Way::Interrupts, "it is the first".to_owned());
        Self { rule, now_s: 0.0, changes: Vec::new() }
    }

    fn step(&mut self, means: &Means, window: &Window) {
        self.now_s += window.seconds;
        if self.rule.step(means, window, self.now_s, true) {
            self.changes.push(self.now_s);
        }
    }

    fn run(&mut self, seconds: f64, means: &Means, drive: impl Fn(Way) -> Window) {
        for _ in 0..(seconds / WINDOW_S) as u32 {
            let window = drive(self.rule.way());
            self.step(means, &window);
        }
    }

    fn assert_bounded(&self) {
        for (index, first) in self.changes.iter().enumerate() {
            let after = self.changes.get(index + CHANGES_MAX);
            assert!(after.is_none_or(|after| after - first >= HOUR_S), "at {first} s");
        }
    }
}

fn polling_is_best(way: Way) -> Window {
    match way {
        Way::Polling => window(130_000.0, 6.0),
        Way::OwnThread | Way::SharedThread => window(110_000.0, 18.0),
        _ => window(100_000.0, 5.0),
    }
}

#[test]
fn the_way_with_most_requests_is_found_within_two_seconds() {
    let mut run = Run::new();
    run.run(2.0, &machine(2.0), polling_is_best);
    assert_eq!(run.rule.way(), Way::Polling, "{}", run.rule.reason());
    assert!(run.changes.len() <= 12, "{:?}", run.changes);
    run.run(600.0, &machine(2.0), polling_is_best);
    assert_eq!(run.rule.way(), Way::Polling);
    run.assert_bounded();
}

#[test]
fn of_two_that_give_as_many_the_cheaper_is_taken() {
    let drive = |way| window(60_000.0, if way == Way::Libaio { 4.0 } else { 5.0 });
    let mut run = Run::new();
    run.run(2.0, &machine(1.0), drive);
    assert_eq!(run.rule.way(), Way::Libaio, "{}", run.rule.reason());
    assert!(run.rule.reason().contains("0.80 times its processor time"), "{}", run.rule.reason());
}

#[test]
fn a_thread_needs_a_core_and_leaves_when_others_need_it() {
    let drive = |way: Way| window(if way.has_thread() { 150_000.0 } else { 100_000.0 }, 5.0);
    let one = Means { cores: 1.0, ..machine(1.0) };
    let mut run = Run::new();
    run.run(5.0, &one, drive);
    assert!(!run.rule.way().has_thread());

    let mut run = Run::new();
    run.run(5.0, &machine(2.0), drive);
    assert_eq!(run.rule.way(), Way::OwnThread);
    run.run(1.0, &machine(2.0), |way| Window { others: 1.0, ..drive(way) });
    assert_eq!(run.rule.way(), Way::Interrupts);
    assert!(run.rule.reason().contains("others use 1.0 of 2 cores"), "{}", run.rule.reason());
    // Once the others have ended, the way that was found before is taken without a trial.
    let changes = run.changes.len();
    run.run(20.0, &machine(2.0), drive);
    assert_eq!((run.rule.way(), run.changes.len()), (Way::OwnThread, changes + 1));
}

#[test]
fn what_spins_ends_with_the_load() {
    let mut run = Run::new();
    run.run(5.0, &machine(2.0), polling_is_best);
    assert_eq!(run.rule.way(), Way::Polling);
    run.run(0.5, &machine(2.0), |_| window(1000.0, 50.0));
    assert_eq!(run.rule.way(), Way::Interrupts);
    run.run(3600.0, &machine(2.0), |_| window(10.0, 50.0));
    assert_eq!(run.rule.way(), Way::Interrupts);
}

/// The ways of a driver in user space: the thread that waits polls the queue itself.
static DRIVER: Family = Family {
    name: "driver",
    name_of: |way| if way == Way::Polling { "poll" } else { "sleep" },
    polling_needs_core: true,
};

#[test]
fn a_driver_polls_under_load_and_sleeps_when_crowded_or_quiet() {
    let means = Means { cores: 2.0, ways: vec![Way::Polling] };
    let drive = |way| match way {
        Way::Polling => window(300_000.0, 3.0),
        _ => window(100_000.0, 9.0),
    };
    let rule = Rule::new(&DRIVER, Way::Interrupts, "it is the first".to_owned());
    let mut run = Run { rule, now_s: 0.0, changes: Vec::new() };
    run.run(2.0, &means, drive);
    assert_eq!(run.rule.way(), Way::Polling);
    let why = run.rule.reason();
    assert!(why.contains("poll gave 3.00 times the requests of sleep"), "{why}");
    // One of two cores is left for the thread; then others want both.
    run.run(1.0, &means, |way| Window { others: 1.0, ..drive(way) });
    assert_eq!(run.rule.way(), Way::Polling, "{}", run.rule.reason());
    run.run(1.0, &means, |way| Window { others: 1.9, ..drive(way) });
    assert_eq!(run.rule.way(), Way::Interrupts);
    let why = run.rule.reason();
    assert!(why.contains("others use 1.9 of 2 cores, so a thread that polls has none"), "{why}");
    run.run(20.0, &means, drive);
    assert_eq!(run.rule.way(), Way::Polling, "{}", run.rule.reason());
    run.run(1.0, &means, |_| window(500.0, 20.0));
    assert_eq!(run.rule.way(), Way::Interrupts, "{}", run.rule.reason());
    run.assert_bounded();
    // The kernel's polling shares its core with anybody: that rule has no crowd.
    assert!(KERNEL.needs(Way::Polling).is_none() && DRIVER.needs(Way::Polling).is_some());
}

#[test]
fn a_way_that_cannot_be_opened_is_tried_once() {
    let mut run = Run::new();
    let mut tried = 0;
    for _ in 0..10_000 {
        let window = polling_is_best(run.rule.way());
        run.step(&machine(2.0), &window);
        if run.rule.way() == Way::Polling {
            tried += 1;
            run.rule.refuse(Way::Polling, "the drive has no poll queues");
        }
    }
    assert_eq!(tried, 1);
    assert!(run.rule.way() != Way::Polling);
}

#[test]
fn equal_ways_are_tried_less_and_less_often() {
    let mut run = Run::new();
    run.run(3600.0, &machine(4.0), |_| window(100_000.0, 5.0));
    assert_eq!(run.rule.way(), Way::Interrupts);
    run.assert_bounded();
    let rare = run.changes.iter().filter(|at| **at > 1800.0).count();
    assert!(rare <= 12, "{rare} changes in the second half hour");
}

/// The drive gives the ways more and less requests as it likes; a dear one must not win by that.
#[test]
fn a_dearer_way_needs_a_clear_gain() {
    let gain = |least: f64| {
        move |way: Way| match way {
            Way::Polling => window(100_000.0 * least, 5.5),
            Way::Interrupts => window(100_000.0, 5.0),
            _ => window(50_000.0, 5.0),
        }
    };
    for (least, wanted) in [(1.04, Way::Interrupts), (1.06, Way::Polling)] {
        let mut run = Run::new();
        run.run(5.0, &machine(1.0), gain(least));
        assert_eq!(run.rule.way(), wanted, "{least}: {}", run.rule.reason());
    }
}

/// A drive that always makes the present way the worse one: the worst that windows can do.
#[test]
fn an_adversary_cannot_exceed_the_bound() {
    let mut run = Run::new();
    let means = machine(4.0);
    let mut last = run.rule.way();
    for round in 0..360_000_u32 {
        let way = run.rule.way();
        let good = way != last || run.rule.is_in_trial();
        last = way;
        let spread = f64::from(round % 7) * 10.0;
        let iops = if good { 200_000.0 } else { 100_000.0 } + spread;
        let mut window = window(iops, if good { 1.0 } else { 10.0 });
        window.depth = [1.0, 5.0, 32.0, 100.0][(round / 3 % 4) as usize];
        run.step(&means, &window);
    }
    assert!(run.changes.len() > CHANGES_MAX, "the adversary does nothing");
    run.assert_bounded();
}

#[test]
fn random_windows_keep_the_bound_and_a_way_home() {
    for seed in 0..20_u64 {
        let mut run = Run::new();
        // A linear congruential generator is random enough here, and needs no crate.
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let means = machine(2.0);
        for _ in 0..100_000 {
            let iops = [0, 10, 1999, 2001, 5000, 100_000, 1_000_000][random(7) as usize];
            let seconds = [0.0, 0.1, 0.1, 0.2, 30.0][random(5) as usize];
            let requests = (f64::from(iops) * seconds) as u64;
            run.step(
                &means,
                &Window {
                    seconds,
                    requests,
                    bytes: requests * [0, 512, 4096, 65536, 1 << 20][random(5) as usize],
                    depth: random(200) as f64,
                    cpu_s: random(1000) as f64 / 1000.0,
                    others: random(30) as f64 / 10.0,
                },
            );
            let now_s = run.now_s;
            if run.rule.way().spins() {
                assert!(run.rule.left(now_s) > 0, "no change is left to go back, seed {seed}");
            }
        }
        run.assert_bounded();
    }
}

/// Noise of 10 % must not look like a difference for long.
#[test]
fn noise_changes_little() {
    let mut run = Run::new();
    let means = machine(2.0);
    let mut state = 7_u64;
    for _ in 0..36_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = 0.9 + (state >> 33) as f64 / f64::from(u32::MAX >> 1) * 0.2;
        run.step(&means, &window(100_000.0 * noise, 5.0 / noise));
    }
    run.assert_bounded();
    assert!(run.changes.len() <= CHANGES_MAX, "{}", run.changes.len());
}
