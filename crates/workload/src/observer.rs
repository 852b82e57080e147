//! The observer: it watches a run, and may stop it.

use std::time::Duration;

use crate::report::RunReport;

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// What is going on: "laying out FILE", "ramp", "running", "verifying".
    pub phase: String,
    /// Stage, from 0, and how many there are.
    pub stage: (u32, u32),
    /// Jobs that run.
    pub jobs: u32,
    /// Since the phase began.
    pub elapsed: Duration,
    /// How long the phase will take, if that is known.
    pub total: Option<Duration>,
    /// How far it is, 0 to 1, if that is known.
    pub fraction: Option<f64>,
    /// Requests a second since the last tick, by [`crate::Direction`].
    pub ios_per_s: [f64; 3],
    /// Bytes a second since the last tick, by [`crate::Direction`].
    pub bytes_per_s: [f64; 3],
}

/// Told a few times a second how a run goes; asked whether it should stop.
pub trait Observer: Sync {
    /// How far the run is.
    fn tick(&self, live: &Live);

    /// Something people should know now.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// How often [`Observer::status`] is to be told; `None` or zero: never. Asked once, before the
    /// first job begins.
    fn status_every(&self) -> Option<Duration> {
        None
    }

    /// What was found so far: [`RunReport::so_far`](crate::RunReport::so_far) says how long the run
    /// goes on. Jobs that have not begun are missing; of a job whose device has stalled, this is
    /// its last known state.
    fn status(&self, report: &RunReport) {
        let _ = report;
    }

    /// Whether the run should stop; what was measured until then is reported.
    fn stop(&self) -> bool {
        false
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Observer for Unwatched {
    fn tick(&self, _: &Live) {}
}
