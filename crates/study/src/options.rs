//! The options of a study, and the settings that follow from them.

use crate::experiment::Experiment;
use crate::lab::Effort;
use crate::report::Settings;

/// The experiments of a study, and the number and length of their runs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The experiments to run.
    pub experiments: Vec<&'static Experiment>,
    /// The number of rounds of all points, and of comparisons; `None`: determined by the effort and
    /// the observed spread.
    pub repeat: Option<u32>,
    /// The time in seconds after which no further comparison begins; `None`: determined by the
    /// effort.
    pub budget_s: Option<f64>,
    /// The measured time of each run in seconds; `None`: determined by the effort.
    pub seconds_per_point: Option<f64>,
    /// The seed of the order of runs and of the requests.
    pub seed: u64,
}

impl Options {
    /// Returns the settings, with defaults of the effort for those that the caller leaves open.
    #[must_use]
    pub fn settings(&self, effort: Effort) -> Settings {
        let (rounds, seconds, budget_s) = match effort {
            Effort::Quick => (1, 0.1, 90.0),
            Effort::Usual => (1, 0.2, 300.0),
            Effort::Full => (4, 1.0, 3600.0),
        };
        let given = self.repeat.map(|repeat| repeat.max(1));
        let (repeat, blocks, compared_min, compared_max) = match given {
            Some(repeat) => (repeat, repeat, repeat, repeat),
            None => (rounds, BLOCKS, BLOCKS_MIN, COMPARED_MAX),
        };
        let seconds_per_point = self.seconds_per_point.unwrap_or(seconds);
        Settings {
            effort,
            repeat,
            blocks,
            compared_min,
            compared_max,
            budget_s: self.budget_s.unwrap_or(budget_s),
            seconds_per_point,
            ramp_s: (seconds_per_point / 4.0).clamp(0.02, 1.0),
            seed: self.seed,
        }
    }
}

/// The number of blocks of comparisons, which are spread over the time of a study.
const BLOCKS: u32 = 5;

/// The number of blocks after which a comparison may be clear.
const BLOCKS_MIN: u32 = 4;

/// The number of rounds after which a comparison is not continued, even if it is not clear.
const COMPARED_MAX: u32 = 24;

impl Settings {
    /// Estimates the duration of a plan of `points` points in seconds, without prolonged runs.
    #[must_use]
    pub fn estimate_s(&self, points: usize) -> f64 {
        // The time for opening devices and starting threads.
        const BEGIN_S: f64 = 0.03;
        points as f64 * f64::from(self.repeat) * (self.seconds_per_point + self.ramp_s + BEGIN_S)
    }
}
