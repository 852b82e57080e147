//! Statistics of few runs: medians and intervals.
//!
//! Invariants:
//! - An interval is a 95 % interval by Student's t, around the mean of the runs' logarithms, and
//!   always includes the median. Student's t suits few runs with about equal noise; a bootstrap of
//!   three values has only ten samples to draw. Logarithms suit disturbances, which divide the
//!   speed of a run and multiply its latency. If a run has the value zero, which has no logarithm,
//!   the interval is around the mean.
//! - Two configurations are compared by the ratio within each round. The runs of a round are close
//!   together in time, so the drift of a device cancels. The interval is that of the ratios'
//!   logarithms.

/// The middle of several runs, with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median; for ratios, the geometric mean.
    pub mid: f64,
    /// The lower and upper end; `None` with fewer than two runs.
    pub bounds: Option<(f64, f64)>,
}

/// The confidence of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confidence {
    /// 95 %: intervals in reports.
    #[default]
    Shown,
    /// 99 %: a comparison that is clear enough to end, although it is tested repeatedly.
    Clear,
    /// 99.9 %: an alarm that must not occur by chance in many studies.
    Alarm,
}

impl Confidence {
    /// Returns the quantile of Student's t for `freedom` degrees of freedom, at least one.
    fn quantile(self, freedom: usize) -> f64 {
        // These are the quantiles of the normal distribution; a series converts them to Student's
        // t. The result is a few percent too low below four degrees of freedom.
        let z: f64 = match self {
            Self::Shown => return STUDENT_T_975.get(freedom - 1).copied().unwrap_or(NORMAL_975),
            Self::Clear => 2.5758,
            Self::Alarm => 3.2905,
        };
        let n = freedom as f64;
        z + (z.powi(3) + z) / (4.0 * n)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
            + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z)
                / (384.0 * n.powi(3))
    }
}

/// 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
const STUDENT_T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The quantile for more degrees of freedom than the table has.
const NORMAL_975: f64 = 1.960;

/// Returns the middle value, or the mean of the two middle values; `None` if `values` is empty.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (below, above) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted[below] + sorted[above]) / 2.0)
}

/// Returns the mean, and half the width of the interval around it.
fn student(values: &[f64], confidence: Confidence) -> Option<(f64, f64)> {
    let count = values.len();
    if count < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64).sqrt();
    let t = confidence.quantile(count - 1);
    Some((mean, t * deviation / (count as f64).sqrt()))
}

impl Interval {
    /// Returns the interval of the runs of one configuration, whose values must not be negative;
    /// `None` if `values` is empty.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        Self::of_at(values, Confidence::Shown)
    }

    /// Returns the interval of the runs of one configuration with this confidence.
    #[must_use]
    pub fn of_at(values: &[f64], confidence: Confidence) -> Option<Self> {
        let mid = median(values)?;
        let bounds = if values.iter().all(|value| *value > 0.0) {
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            student(&logs, confidence)
                .map(|(mean, half)| ((mean - half).exp(), (mean + half).exp()))
        } else {
            student(values, confidence).map(|(mean, half)| ((mean - half).max(0.0), mean + half))
        };
        Some(Self { mid, bounds: bounds.map(|(low, high)| (low.min(mid), high.max(mid))) })
    }

    /// Returns the interval of the ratios of first to second values, each pair from one round.
    /// Pairs with a zero are left out; `None` if no pair is left.
    #[must_use]
    pub fn of_ratios(pairs: &[(f64, f64)]) -> Option<Self> {
        Self::of_ratios_at(pairs, Confidence::Shown)
    }

    /// Returns the interval of ratios with this confidence.
    #[must_use]
    pub fn of_ratios_at(pairs: &[(f64, f64)], confidence: Confidence) -> Option<Self> {
        let logs: Vec<f64> = pairs
            .iter()
            .filter(|(above, below)| *above > 0.0 && *below > 0.0)
            .map(|(above, below)| (above / below).ln())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let bounds = student(&logs, confidence)
            .map(|(mean, half)| ((mean - half).exp(), (mean + half).exp()));
        Some(Self { mid: mean.exp(), bounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3 * b.abs().max(1.0)
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn intervals_are_student_s() {
        // The values 1 to 5: mean 3, deviation sqrt(2.5), t(4) = 2.776: 3 +- 1.963. There are no
        // logarithms around zero.
        let (mean, half) = student(&[1.0, 2.0, 3.0, 4.0, 5.0], Confidence::Shown).unwrap();
        assert!(near(mean, 3.0) && near(half, 1.963), "{mean} {half}");
        let interval = Interval::of(&[0.0, 10.0, 20.0]).unwrap();
        assert!(interval.mid == 10.0 && interval.bounds.unwrap().0 == 0.0, "{interval:?}");
        assert!(near(interval.bounds.unwrap().1, 10.0 + 4.303 * 10.0 / 3_f64.sqrt()));
        // Logarithms of 1, e and e^2: 1 +- 4.303 / sqrt(3), t(2) = 4.303.
        let e = std::f64::consts::E;
        let interval = Interval::of(&[1.0, e, e * e]).unwrap();
        let half = 4.303 / 3_f64.sqrt();
        let (low, high) = interval.bounds.unwrap();
        assert!(
            near(interval.mid, e)
                && near(low, (1.0 - half).exp())
                && near(high, (1.0 + half).exp())
        );
        assert_eq!(Interval::of(&[7.0]).unwrap().bounds, None);
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[0.0, 0.0, 0.0]).unwrap().bounds, Some((0.0, 0.0)));
        // The values are not negative, and the median is always inside the interval.
        let interval = Interval::of(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0]).unwrap();
        assert!(interval.bounds.unwrap().0 <= interval.mid);
    }

    #[test]
    fn surer_is_wider() {
        // Tables give these values of Student's t for four degrees of freedom and for nine.
        assert!((Confidence::Clear.quantile(4) - 4.604).abs() < 0.1);
        assert!((Confidence::Clear.quantile(9) - 3.250).abs() < 0.01);
        assert!((Confidence::Alarm.quantile(9) - 4.781).abs() < 0.05);
        assert!((Confidence::Shown.quantile(4) - 2.776).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // The device drifts by a factor of four; the ratio does not.
        let interval = Interval::of_ratios(&[(2.0, 1.0), (4.0, 2.0), (8.0, 4.0)]).unwrap();
        assert!(near(interval.mid, 2.0) && near(interval.bounds.unwrap().0, 2.0));
        // ln 2 +- t(1) * s / sqrt(2), s = ln 4 / sqrt(2) over pairs at 1 and 4.
        let interval = Interval::of_ratios(&[(1.0, 1.0), (4.0, 1.0)]).unwrap();
        let half = 12.706 * (4_f64.ln() / 2_f64.sqrt()) / 2_f64.sqrt();
        assert!(near(interval.mid, 2.0));
        assert!(near(interval.bounds.unwrap().1.ln(), 2_f64.ln() + half));
        assert_eq!(Interval::of_ratios(&[(0.0, 1.0), (1.0, 0.0)]), None);
        assert_eq!(Interval::of_ratios(&[(3.0, 1.0)]).unwrap().bounds, None);
    }
}
