//! S5's table: the ways to the drives on one core as drives are added, as SPDK's `perf` prints it.

use crate::config::Config;
use crate::measure::{Measure, Metric};
use crate::report::{Point, StudyReport};

/// The experiments whose points are in the table, with a note for those of a model.
const PARTS: [(&str, &str); 2] = [("s5-core", ""), ("s5-soft", ", of a model")];

/// The experiment in whose section the table is.
pub(crate) const TABLE_OF: &str = "s5-core";

/// Returns the lines of the table; none if nothing of it was measured.
pub(crate) fn perf_table(report: &StudyReport) -> Vec<String> {
    let rows: Vec<(String, Cells)> = PARTS
        .iter()
        .filter_map(|(name, note)| Some((report.experiment(name)?, note)))
        .flat_map(|(ran, note)| {
            let of = |config| row(report.point(config)?, note);
            ran.plan.configs().filter_map(of).collect::<Vec<_>>()
        })
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = ["", "", "", "latency, us", "", "", "CPU us"].map(str::to_owned);
    let names = ["drives", "IOPS", "MiB/s", "average", "min", "max", "per I/O"].map(str::to_owned);
    let head = [(String::new(), head), ("one core".to_owned(), names)];
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    head.into_iter().chain(rows).map(|(name, cells)| line(&name, width, cells)).collect()
}

type Cells = [String; 7];

fn line(name: &str, width: usize, cells: Cells) -> String {
    let cells = cells.map(|cell| format!(" {cell:>11}")).concat();
    format!("{name:<width$}{cells}").trim_end().to_owned()
}

/// Returns the name and the cells of a point; `None` if it has no runs.
fn row(point: &Point, note: &str) -> Option<(String, Cells)> {
    let mid = |metric| Some(point.interval(metric)?.mid);
    let latencies = |of: fn(&Measure) -> f64| point.runs.iter().map(of);
    let count = point.runs.len() as f64;
    let average = latencies(|run| run.mean_min_max_us.0).sum::<f64>() / count;
    let least = latencies(|run| run.mean_min_max_us.1).fold(f64::INFINITY, f64::min);
    let most = latencies(|run| run.mean_min_max_us.2).fold(0.0, f64::max);
    let (bytes, mib) = (mid(Metric::BytesPerS)?, f64::from(1 << 20));
    let cells = [
        point.config.drives.to_string(),
        format!("{:.2}", mid(Metric::IosPerS)?),
        format!("{:.2}", bytes / mib),
        format!("{average:.2}"),
        format!("{least:.2}"),
        format!("{most:.2}"),
        format!("{:.2}", mid(Metric::CpuUsPerIo)?),
    ];
    Some((format!("{}{note}", name(&point.config)), cells))
}

fn name(config: &Config) -> String {
    let each = config.depth / config.drives.max(1);
    format!("{}, depth {each}", config.interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{speed, study_of};

    #[test]
    fn three_ways_are_in_one_table() {
        let experiments = PARTS.map(|(name, _)| crate::find(name).unwrap()).into();
        let names = ["libaio", "io_uring", "nvme"];
        let report = study_of(experiments, 2, 2, &names, |config, round| {
            let mean_min_max_us = (10.0, 2.0, 30.0 + f64::from(round));
            Some(Measure { mean_min_max_us, ..speed(config, round, 100e3) })
        });
        let lines = perf_table(&report);
        // Two drives over each way, and the soft drives up to 24.
        assert_eq!(lines.len(), 2 + 3 * 2 + 6, "{lines:#?}");
        let last = lines.last().unwrap();
        // Columns end at one place, whatever the names.
        assert!(lines[1..].iter().all(|line| line.len() == last.len()), "{lines:#?}");
        assert!(last.starts_with("softnvme:profile=optane, depth 1, of a model"), "{last}");
        let row = lines.iter().find(|line| line.starts_with("nvme, depth 128")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            (cells[3], cells[6], cells[7], cells[9]),
            ("1", "10.00", "2.00", "5.00"),
            "{row}"
        );
        assert!(cells[8].parse::<f64>().unwrap() > 30.0, "{row}");
        let other = vec![crate::find("s1-fig3").unwrap()];
        let report = study_of(other, 2, 1, &names, |config, round| Some(speed(config, round, 1e5)));
        assert!(perf_table(&report).is_empty());
    }
}
