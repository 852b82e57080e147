//! Lasting falls of throughput, such as that of a drive whose SLC cache is full.

use qpair_plots::median;

/// The largest ratio of throughput after a cliff to throughput before it.
pub(crate) const CLIFF_RATIO: f64 = 0.7;

/// A lasting fall of throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cliff {
    /// The number of samples before the fall.
    pub(crate) at: usize,
    /// The median before the fall, in bytes a second.
    pub(crate) before: f64,
    /// The median after the fall, in bytes a second.
    pub(crate) after: f64,
}

/// Returns the lasting fall that explains a series best; `None` if there is none.
///
/// A fall lasts if at least three samples and a tenth of the series are on each side. At most a
/// tenth of the samples before the fall may be as slow as the fastest tenth after it. A single slow
/// second or a slow decline is therefore not a fall. Of several candidate positions, the function
/// returns the one whose samples differ least from the median of their side.
pub(crate) fn cliff(series: &[f64]) -> Option<Cliff> {
    let margin = (series.len() / 10).max(3);
    let mut best: Option<(f64, Cliff)> = None;
    for at in margin..=series.len().checked_sub(margin)? {
        let (mut left, mut right) = (series[..at].to_vec(), series[at..].to_vec());
        let (before, after) = (median(&left)?, median(&right)?);
        if before <= 0.0 || after > CLIFF_RATIO * before {
            continue;
        }
        left.sort_by(f64::total_cmp);
        right.sort_by(f64::total_cmp);
        if left[left.len() / 10] <= right[right.len() - 1 - right.len() / 10] {
            continue;
        }
        let misfit = left.iter().map(|value| (value - before).abs()).sum::<f64>()
            + right.iter().map(|value| (value - after).abs()).sum::<f64>();
        if best.is_none_or(|(least, _)| misfit < least) {
            best = Some((misfit, Cliff { at, before, after }));
        }
    }
    best.map(|(_, cliff)| cliff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cliffs() {
        let steps = |before: usize, after: usize| -> Vec<f64> {
            let wobble = |n: usize| 1.0 + 0.05 * ((n * 7 % 5) as f64 - 2.0);
            (0..before)
                .map(|n| 1000.0 * wobble(n))
                .chain((0..after).map(|n| 300.0 * wobble(n)))
                .collect()
        };
        assert_eq!(cliff(&steps(40, 20)).unwrap().at, 40);
        assert_eq!(cliff(&steps(60, 0)), None);
        // One slow second is not a cliff, and neither is a decline without a step.
        let mut dip = steps(60, 0);
        dip[30] = 10.0;
        assert_eq!(cliff(&dip), None);
        let noisy: Vec<f64> = (0..60).map(|n| if n % 2 == 0 { 1000.0 } else { 400.0 }).collect();
        assert_eq!(cliff(&noisy), None);
        assert_eq!(cliff(&[]), None);
        assert_eq!(cliff(&[1.0, 2.0, 3.0]), None);
    }
}
