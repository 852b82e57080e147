//! Latencies in the percentile format of `HdrHistogram`, which its plotting tools read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use qpair_block::Result;

use super::entry::entries;
use super::files;
use crate::{Direction, Latencies, RunReport};

/// The number of steps for each halving of the distance to 100 %: the usual value.
const STEPS: u32 = 5;

/// Returns the distribution as text: microseconds, percentile, number of requests that took at most
/// as long, 1/(1-percentile).
#[must_use]
pub fn hgrm(latencies: &Latencies) -> String {
    let us = |ns: f64| ns / 1000.0;
    let mut out = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut count = 0;
    for step in latencies.iter_quantiles(STEPS) {
        count += step.count_since_last_iteration();
        let (value, quantile) = (us(step.value_iterated_to() as f64), step.quantile_iterated_to());
        let _ = write!(out, "{value:12.3} {quantile:14.12} {count:10}");
        if quantile < 1.0 {
            let _ = write!(out, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        out.push('\n');
    }
    let buckets = usize::from(latencies.buckets());
    let _ = writeln!(
        out,
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n\
         #[Max     = {:12.3}, Total count    = {:12}]\n\
         #[Buckets = {buckets:12}, SubBuckets     = {:12}]",
        us(latencies.mean()),
        us(latencies.stdev()),
        us(latencies.max() as f64),
        latencies.len(),
        2 * latencies.distinct_values() / (buckets + 1),
    );
    out
}

/// Writes each distribution that is not empty to `PREFIX_DIRECTION_KIND.N.hgrm`, and latencies of
/// flushes to `PREFIX_flush_lat.N.hgrm`. N counts jobs, or groups of jobs that are reported as one,
/// from 1. Returns the names of the files.
///
/// # Errors
/// Returns the operating system's error of writing a file.
pub fn write_hgrm(report: &RunReport, prefix: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (number, entry) in (1..).zip(entries(report)) {
        let of_directions = Direction::ALL.into_iter().flat_map(|direction| {
            let did = entry.all.direction(direction);
            [("slat", &did.slat), ("clat", &did.clat), ("lat", &did.lat)]
                .map(|(kind, latencies)| (direction.name(), kind, latencies))
        });
        for (name, kind, latencies) in
            of_directions.chain([("flush", "lat", &entry.all.flushes.lat)])
        {
            if !latencies.is_empty() {
                let suffix = format!("_{name}_{kind}.{number}.hgrm");
                written.push(files::write(prefix, &suffix, &hgrm(latencies))?);
            }
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_hdrhistogram() {
        let mut some = Latencies::default();
        for us in 1..=1000 {
            some.record(us * 1000);
        }
        let text = hgrm(&some);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[1], "");
        let rows: Vec<Vec<f64>> = lines[2..]
            .iter()
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
            .collect();
        assert!(rows.iter().is_sorted_by_key(|row| row[1]));
        let half = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((half[0] - 500.0).abs() < 1.0 && half[3] == 2.0, "{half:?}");
        let last = rows.last().unwrap();
        assert_eq!((last[1], last[2], last.len()), (1.0, 1000.0, 3));
        assert!(text.contains("#[Max     =") && text.contains("Total count    =         1000]"));
        assert!(text.contains("SubBuckets     =         2048]"), "{text}");
    }
}
