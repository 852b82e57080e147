//! The states of runs in progress: `status-interval`.

use std::sync::Mutex;
use std::time::Duration;

use qpair_workload::{
    Direction, Form, Job, JobReport, Live, Observer, Rate, RunReport, Steadiness, SteadyGoal,
    SteadyOf, Verbs,
};

use super::{on, run, verify};

struct States {
    every: Duration,
    seen: Mutex<Vec<RunReport>>,
}

impl States {
    fn of(jobs: &[Job], every_ms: u64) -> (Vec<RunReport>, RunReport) {
        let every = Duration::from_millis(every_ms);
        let states = Self { every, seen: Mutex::default() };
        let report = run(jobs, &states).unwrap();
        (states.seen.into_inner().unwrap(), report)
    }
}

impl Observer for States {
    fn tick(&self, _: &Live) {}

    fn status_every(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn status(&self, report: &RunReport) {
        self.seen.lock().unwrap().push(report.clone());
    }
}

/// States grow into the report: with threads, groups, rates, a goal, and earlier stages.
#[test]
fn states_are_of_what_was_found_so_far() {
    let goal = SteadyGoal {
        of: SteadyOf::Iops,
        by: Steadiness::Deviation,
        limit: 0.0,
        percent: true,
        window: Duration::from_millis(40),
        ramp: Duration::ZERO,
        interval: Duration::from_millis(20),
    };
    let job = Job {
        steady: Some(goal),
        time_based: true,
        runtime: Some(Duration::from_millis(400)),
        group_reporting: true,
        rate: [Rate { ios_per_s: 2000, bytes_per_s: 0 }; 3],
        ..on("null:size=1GiB")
    };
    let free = Job { rate: [Rate::default(); 3], steady: None, group: 1, depth: 8, ..job.clone() };
    let later = Job { stage: 1, group: 2, form: Form::Barrier, ..free.clone() };
    let (states, report) = States::of(&[job.clone(), job, free, later], 20);
    assert!(states.len() >= 4, "{}", states.len());
    assert!(report.so_far.is_none() && report.jobs.len() == 4);
    let mut before = Duration::ZERO;
    let mut ios = [0; 4];
    for state in &states {
        let so_far = state.so_far.unwrap();
        assert!(so_far > before && !state.interrupted);
        before = so_far;
        assert_eq!((&state.config_hash, state.begun), (&report.config_hash, report.begun));
        for (at, done) in state.jobs.iter().enumerate() {
            assert!(done.ios() >= ios[at] && done.ios() <= report.jobs[at].ios());
            ios[at] = done.ios();
            assert_eq!(done.direction(Direction::Read).clat.len(), done.ios());
            assert!(done.begin + done.elapsed <= so_far && !done.in_ramp);
            assert_eq!(done.steady.is_some(), at < 2);
        }
    }
    let with_all = states.iter().filter(|state| state.jobs.len() >= 3);
    assert!(with_all.clone().any(|state| state.jobs.iter().take(3).all(|done| done.ios() > 0)));
    let last = states.last().unwrap();
    let (three, of_report) = (&last.jobs[..3], &report.jobs[..3]);
    assert!(last.jobs.len() == 4 && last.jobs[3].ios() > 0);
    for (now, then) in three.iter().zip(of_report) {
        assert_eq!((now.ios(), now.elapsed, now.cpu), (then.ios(), then.elapsed, then.cpu));
    }
}

#[test]
fn states_tell_the_ramp_and_what_was_verified() {
    let job = Job {
        time_based: true,
        runtime: Some(Duration::from_millis(100)),
        ramp: Duration::from_millis(200),
        ..on("null:size=1GiB")
    };
    let (states, report) = States::of(&[job], 20);
    let in_ramp: Vec<_> = states.iter().flat_map(|state| &state.jobs).collect();
    assert!(in_ramp.iter().any(|done| done.in_ramp));
    assert!(in_ramp.iter().all(|done| !done.in_ramp || done.ios() == 0));
    assert!(!report.jobs[0].in_ramp);

    // Reads take 5 ms, one after the other: 320 ms of verification, and hardly any of writing.
    let job = Job {
        verbs: Verbs::Write,
        verify: verify(),
        ..on("delay:read_us=5000,write_us=1:ram:size=256KiB")
    };
    let (states, report) = States::of(&[job], 20);
    let done = states.iter().flat_map(|state| &state.jobs);
    let mut halfway = done.filter(|done| (1..64).contains(&done.verify.blocks));
    let now = halfway.next().expect("no state while it verified");
    let writes = |done: &JobReport| (done.direction(Direction::Write).ios, done.elapsed);
    assert_eq!(writes(now), writes(&report.jobs[0]));
    assert_eq!(report.jobs[0].verify.blocks, 64);
}
