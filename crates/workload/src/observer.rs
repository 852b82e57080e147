//! Observers, which watch a run and may stop it.

use std::time::Duration;

use crate::report::RunReport;

#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The current phase: "laying out FILE", "ramp", "running" or "verifying".
    pub phase: String,
    /// The stage, from 0, and the number of stages.
    pub stage: (u32, u32),
    pub jobs: u32,
    /// Time since the phase began.
    pub elapsed: Duration,
    pub total: Option<Duration>,
    /// The part of the phase that is done, 0 to 1, if that is known.
    pub fraction: Option<f64>,
    /// Requests per second since the last tick, by [`crate::Direction`].
    pub ios_per_s: [f64; 3],
    /// Bytes per second since the last tick, by [`crate::Direction`].
    pub bytes_per_s: [f64; 3],
}

/// Receives the progress of a run a few times a second, and decides whether the run should stop.
pub trait Observer: Sync {
    fn tick(&self, live: &Live);

    /// Called with a note that people should read now.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// Returns how often [`Observer::status`] is called; `None` or zero: never. Called once, before
    /// the first job begins.
    fn status_every(&self) -> Option<Duration> {
        None
    }

    /// Called with the results so far; [`RunReport::so_far`](crate::RunReport::so_far) is the time
    /// since the run began. Jobs that have not begun are missing. For a job whose device has
    /// stalled, the report has the last known state.
    fn status(&self, report: &RunReport) {
        let _ = report;
    }

    /// Whether the run should stop. The report then has the results up to that point.
    fn stop(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Observer for Unwatched {
    fn tick(&self, _: &Live) {}
}

/// Receives the progress of many runs that make one measurement, and can stop it.
pub trait Watcher: Sync {
    /// Called before each run: `done` runs of `total` are finished, and `next` begins.
    fn at(&self, done: u64, total: u64, next: &str);

    /// Called with a note that people should see at once.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// Whether the measurement should stop.
    fn stop(&self) -> bool {
        false
    }
}
