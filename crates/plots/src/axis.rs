//! Axes: the position of a value, the choice of ticks and their labels.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use serde::{Deserialize, Serialize};

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal distances are equal differences, from zero.
    Linear,
    /// Equal distances are equal ratios.
    Log,
}

/// An axis between two values, which chooses its own ticks.
#[derive(Clone, Debug)]
pub struct Axis {
    scale: Scale,
    range: Range<f64>,
    ticks: Vec<f64>,
}

/// The maximum number of ticks on an axis.
const TICKS_MAX: usize = 9;

/// The smallest distance of two ticks as a share of the axis. Labels of closer ticks would touch.
const TICK_DISTANCE_MIN: f64 = 0.08;

impl Axis {
    /// Returns an axis for chosen values, with a tick at each value, or at as many of them as there
    /// is room for.
    #[must_use]
    pub fn of_chosen(scale: Scale, values: &[f64]) -> Self {
        let mut ticks = values.to_vec();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let every = ticks.len().div_ceil(TICKS_MAX).max(1);
        let (first, last) = match (ticks.first(), ticks.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => (0.0, 1.0),
        };
        let ticks: Vec<f64> = ticks.into_iter().step_by(every).collect();
        // The axis has room for marks at both ends.
        let range = match scale {
            Scale::Log => {
                let room = (last / first).powf(0.04).max(1.15);
                first / room..last * room
            }
            Scale::Linear => {
                let room = ((last - first) * 0.05).max(0.25);
                first - room..last + room
            }
        };
        let ticks = match scale {
            Scale::Log => apart(ticks, (range.end / range.start).ln() * TICK_DISTANCE_MIN),
            Scale::Linear => ticks,
        };
        Self { scale, range, ticks }
    }

    /// Returns an axis for measured values, with ticks at round numbers. A linear axis begins at
    /// zero.
    #[must_use]
    pub fn of_found(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if scale == Scale::Linear || !least.is_finite() {
            let most = if most > 0.0 { most * 1.05 } else { 1.0 };
            let step = step(most);
            let count = (most / step).floor() as u32;
            let ticks = (0..=count).map(|n| f64::from(n) * step).collect();
            return Self { scale: Scale::Linear, range: 0.0..most, ticks };
        }
        let (low, high) = (least / 1.3, most * 1.3);
        let decades =
            || (low.log10().floor() as i32..=high.log10().ceil() as i32).map(|n| 10_f64.powi(n));
        let inside = |tick: &f64| (low..=high).contains(tick);
        let mut ticks: Vec<f64> = decades().filter(inside).collect();
        let all = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        for factors in [&[1.0, 3.0][..], &[1.0, 2.0, 5.0], &all] {
            if ticks.len() < 3 {
                ticks = decades()
                    .flat_map(|decade| factors.iter().map(move |factor| decade * factor))
                    .filter(inside)
                    .collect();
            }
        }
        Self { scale, range: low..high, ticks: apart(ticks, (high / low).ln() * TICK_DISTANCE_MIN) }
    }

    /// Moves a value slightly to the side, so that the intervals of several series at one position
    /// stay distinct.
    #[must_use]
    pub fn beside(&self, value: f64, place: usize, places: usize) -> f64 {
        let share = 0.008 * (place as f64 - (places.max(1) - 1) as f64 / 2.0);
        match self.scale {
            Scale::Linear => value + share * (self.range.end - self.range.start),
            Scale::Log => value * (self.range.end / self.range.start).powf(share),
        }
    }

    /// Moves a value that is outside the axis to the nearer end.
    pub(crate) fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.range.start, self.range.end)
    }
}

/// Returns the ticks whose logarithms are at least `distance` apart, preferring powers of ten.
fn apart(ticks: Vec<f64>, distance: f64) -> Vec<f64> {
    let is_decade = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
    let (decades, others): (Vec<f64>, Vec<f64>) = ticks.into_iter().partition(is_decade);
    let mut kept: Vec<f64> = Vec::new();
    for tick in decades.into_iter().chain(others) {
        if kept.iter().all(|other| (tick / other).ln().abs() >= distance) {
            kept.push(tick);
        }
    }
    kept.sort_by(f64::total_cmp);
    kept
}

/// Returns a round distance for about five ticks.
fn step(most: f64) -> f64 {
    let rough = most / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= rough).unwrap_or(10.0);
    factor * decade
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        let (start, end) = (self.range.start, self.range.end);
        let share = match self.scale {
            Scale::Linear => (value - start) / (end - start),
            Scale::Log => (value.max(start / 10.0) / start).ln() / (end / start).ln(),
        };
        pixels.0 + (f64::from(pixels.1 - pixels.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        tick(*value)
    }
}

/// Formats a tick: short, exact, with binary units for large powers of two.
fn tick(value: f64) -> String {
    let whole = value.round();
    if (value - whole).abs() < 1e-9 && value.abs() < 1e15 {
        let whole = whole as i64;
        return match whole {
            0 => "0".to_owned(),
            w if w >= 4096 && w % 1024 == 0 => format!("{}Ki", w / 1024),
            w if w >= 1_000_000 && w % 100_000 == 0 => format!("{}M", value / 1e6),
            w if w >= 1000 && w % 1000 == 0 => format!("{}k", w / 1000),
            w => w.to_string(),
        };
    }
    let digits = (1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = Axis::of_found(Scale::Linear, [0.0, 171.3].into_iter());
        assert_eq!(axis.ticks, [0.0, 50.0, 100.0, 150.0]);
        for (least, most) in [(80.0, 9000.0), (1.0, 3.0), (0.001, 5.0), (7.0, 7.1)] {
            let axis = Axis::of_found(Scale::Log, [least, most].into_iter());
            assert!((1..=9).contains(&axis.ticks.len()), "{axis:?}");
            assert!(axis.ticks.iter().all(|tick| axis.range.contains(tick)), "{axis:?}");
        }
        // In a report of CI, the label 900 overlapped the label 1000.
        let axis = Axis::of_found(Scale::Log, [850.0, 3200.0].into_iter());
        assert!(axis.ticks.contains(&1000.0) && !axis.ticks.contains(&900.0), "{axis:?}");
        // In another report, the label 375 overlapped 500: the study had chosen the depths from its
        // results.
        let axis =
            Axis::of_chosen(Scale::Log, &[1.0, 4.0, 16.0, 64.0, 125.0, 375.0, 500.0, 1000.0]);
        assert_eq!(axis.ticks, [1.0, 4.0, 16.0, 64.0, 125.0, 375.0, 1000.0]);
        // Without values there is still an axis.
        assert!(Axis::of_found(Scale::Log, [0.0].into_iter()).range.end > 0.0);
        assert!(Axis::of_found(Scale::Linear, std::iter::empty()).range.end > 0.0);
    }

    #[test]
    fn values_map_in_order() {
        let axis = Axis::of_chosen(Scale::Log, &[1.0, 4.0, 16.0, 64.0]);
        let at = |value: f64| axis.map(&value, (0, 1000));
        assert!(0 < at(1.0) && at(1.0) < at(4.0) && at(64.0) < 1000);
        assert!(((at(4.0) - at(1.0)) - (at(64.0) - at(16.0))).abs() <= 1);
    }

    #[test]
    fn tick_texts() {
        let texts = [0.0, 0.05, 0.5, 1.0, 150.0, 1024.0, 20000.0, 65536.0, 2_500_000.0].map(tick);
        assert_eq!(texts, ["0", "0.05", "0.5", "1", "150", "1024", "20k", "64Ki", "2.5M"]);
    }
}
