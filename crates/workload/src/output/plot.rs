//! Plots values over time in characters, and finds the place where they drop lastingly.

use std::time::Duration;

use super::words;
use crate::Sample;

/// Characters of heights in eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn bytes_per_s(sample: &Sample) -> f64 {
    sample.bytes.iter().sum::<u64>() as f64 / sample.len.as_secs_f64().max(1e-9)
}

/// Returns at most `columns` values, each the mean of as many neighbours as necessary.
fn squeeze(values: &[f64], columns: usize) -> Vec<f64> {
    if values.len() <= columns.max(1) {
        return values.to_vec();
    }
    let columns = columns.max(1);
    (0..columns)
        .map(|column| {
            let (from, to) =
                (column * values.len() / columns, (column + 1) * values.len() / columns);
            values[from..to].iter().sum::<f64>() / (to - from) as f64
        })
        .collect()
}

/// Draws one line. The height of a character is in proportion to the largest value.
pub(super) fn sparkline(values: &[f64], columns: usize) -> String {
    let values = squeeze(values, columns);
    let most = values.iter().copied().fold(0.0, f64::max);
    values.iter().map(|value| EIGHTHS[eighths(*value, most, 1)]).collect()
}

/// Returns how many of the `8 * rows` eighths a value fills: at least one if the value is not 0.
fn eighths(value: f64, most: f64, rows: usize) -> usize {
    if value <= 0.0 || most <= 0.0 {
        return 0;
    }
    ((value / most * (8 * rows) as f64).round() as usize).clamp(1, 8 * rows)
}

/// Draws lines with axes: bandwidth from 0 to the largest sample, time from 0 to the last.
pub(super) fn plot(series: &[Sample], rows: usize, indent: usize, width: usize) -> Vec<String> {
    let Some(last) = series.last() else { return Vec::new() };
    let values: Vec<f64> = series.iter().map(bytes_per_s).collect();
    const LABEL: usize = 11;
    let room = width.saturating_sub(indent + LABEL + 2).clamp(8, 100);
    let columns = squeeze(&values, room);
    // Short series are drawn wider, because one column for each sample would be illegible.
    let stretch = (room / columns.len()).clamp(1, 4);
    let most = columns.iter().copied().fold(0.0, f64::max);
    let mut lines = Vec::new();
    for row in (0..rows).rev() {
        let label = if row + 1 == rows { words::bandwidth(most) } else { String::new() };
        let mut line = format!("{:indent$}{label:>LABEL$} │", "");
        for value in &columns {
            let filled = eighths(*value, most, rows).saturating_sub(8 * row).min(8);
            line.extend(std::iter::repeat_n(EIGHTHS[filled], stretch));
        }
        lines.push(line.trim_end().to_owned());
    }
    let drawn = columns.len() * stretch;
    lines.push(format!("{:indent$}{:>LABEL$} └{}", "", "0", "─".repeat(drawn)));
    let end = words::duration(last.end);
    let rest = drawn.saturating_sub(3);
    lines.push(format!("{:1$}0 s{end:>rest$}", "", indent + LABEL + 2));
    lines
}

/// A lasting drop of throughput, such as when an SLC cache is full or a drive throttles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cliff {
    /// Time at which the lower level began.
    pub(super) at: Duration,
    /// Mean bytes per second before the drop.
    pub(super) before: f64,
    /// Mean bytes per second after the drop.
    pub(super) after: f64,
}

/// Finds a cliff. Unlike noise, a cliff falls below 70 % of the level before it, and by more than
/// twice the spread on either side.
pub(super) fn cliff(series: &[Sample]) -> Option<Cliff> {
    const SIDE_MIN: usize = 3;
    let values: Vec<f64> = series.iter().map(bytes_per_s).collect();
    if values.len() < 2 * SIDE_MIN {
        return None;
    }
    // Prefix sums, so that each possible cut costs the same.
    let mut sums = vec![(0.0, 0.0)];
    for value in &values {
        let (sum, squares) = sums[sums.len() - 1];
        sums.push((sum + value, squares + value * value));
    }
    let part = |from: usize, to: usize| {
        let count = (to - from) as f64;
        let mean = (sums[to].0 - sums[from].0) / count;
        let variance = ((sums[to].1 - sums[from].1) / count - mean * mean).max(0.0);
        (mean, variance, count)
    };
    let end = values.len();
    // Choose the cut with the least spread on both sides.
    let cut = (SIDE_MIN..=end - SIDE_MIN).min_by(|a, b| {
        let rest = |cut: usize| {
            let (before, after) = (part(0, cut), part(cut, end));
            before.1 * before.2 + after.1 * after.2
        };
        rest(*a).total_cmp(&rest(*b))
    })?;
    let ((before, spread_before, _), (after, spread_after, _)) = (part(0, cut), part(cut, end));
    let spread = spread_before.max(spread_after).sqrt();
    let deep = after < 0.7 * before && before - after > 2.0 * spread;
    let at = series[cut].end.saturating_sub(series[cut].len);
    deep.then_some(Cliff { at, before, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        let len = Duration::from_secs(1);
        let sample = |(at, bytes): (usize, u64)| Sample {
            end: len * (at as u32 + 1),
            len,
            bytes: [0, bytes, 0],
            ..Sample::default()
        };
        values.into_iter().enumerate().map(sample).collect()
    }

    #[test]
    fn a_cliff_is_found_where_it_is() {
        let falls = series((0..60).map(|at| if at < 40 { 2000 + at % 7 } else { 400 + at % 50 }));
        let cliff = cliff(&falls).unwrap();
        assert_eq!(cliff.at, Duration::from_secs(40));
        assert!((2000.0..2007.0).contains(&cliff.before), "{cliff:?}");
        assert!((400.0..450.0).contains(&cliff.after), "{cliff:?}");
    }

    #[test]
    fn noise_slopes_and_rises_are_no_cliffs() {
        // Pseudo-random values: multiples of a number that shares no factor with their range.
        assert_eq!(cliff(&series((0..60).map(|at| 500 + at * 617 % 1000))), None);
        assert_eq!(cliff(&series((0..60).map(|at| 1000 - 3 * at))), None);
        assert_eq!(cliff(&series((0..60).map(|at| if at < 30 { 400 } else { 2000 }))), None);
        assert_eq!(cliff(&series([1000, 10, 10])), None);
        assert_eq!(cliff(&[]), None);
    }

    #[test]
    fn a_plot_shows_levels_and_times() {
        assert_eq!(sparkline(&[0.0, 1.0, 50.0, 100.0], 10), " ▁▄█");
        assert_eq!(sparkline(&[100.0, 100.0, 0.0, 0.0], 2), "█ ");
        let lines =
            plot(&series((0..60).map(|at| if at < 40 { 2 << 20 } else { 1 << 20 })), 4, 2, 80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        let full = |line: &str| line.chars().filter(|c| *c == '█').count();
        let counts: Vec<usize> = lines.iter().map(|line| full(line)).collect();
        assert_eq!(counts, [40, 40, 60, 60, 0, 0], "{lines:#?}");
        assert!(lines[0].contains("2.00 MiB/s") && lines[5].ends_with(" 60 s"), "{lines:#?}");
        assert!(lines[5].trim_start().starts_with("0 s"), "{lines:#?}");
        assert_eq!(lines[5].chars().count(), lines[4].chars().count(), "{lines:#?}");
    }
}
