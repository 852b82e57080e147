//! Comma-separated values (RFC 4180): one row for each job (or group that is reported as one) and
//! each direction with requests.
//!
//! A column's name has its quantity and unit. Cells that were not measured or counted are empty.
//! CPU time, system calls and context switches are those of the whole job per request of any
//! direction, because they cannot be attributed to one direction.

use super::entry::{Entry, entries};
use super::workload::fio_word;
use crate::run::offsets::used_directions;
use crate::{BlockSizes, Direction, Latencies, RunReport};

/// The percentiles that have a column each, and their names in the header.
const PERCENTILES: [(f64, &str); 4] =
    [(50.0, "p50"), (99.0, "p99"), (99.9, "p999"), (99.99, "p9999")];

/// Returns the report as CSV with a header. Lines end with CR LF.
#[must_use]
pub fn csv(report: &RunReport) -> String {
    let mut out = String::new();
    let mut header: Vec<String> = Vec::new();
    for entry in &entries(report) {
        for direction in Direction::ALL {
            let row = row(report, entry, direction);
            if header.is_empty() {
                header = row.iter().map(|(name, _)| name.clone()).collect();
                push(&mut out, &header);
            }
            let did = entry.all.direction(direction);
            let failed = entry.jobs.iter().any(|job| job.error.is_some());
            // A job that failed at once still has a row, which reports the failure.
            if did.ios > 0 || failed && entry.all.ios() == 0 && direction == Direction::Read {
                push(&mut out, &row.into_iter().map(|(_, value)| value).collect::<Vec<_>>());
            }
        }
    }
    out
}

fn push(out: &mut String, cells: &[String]) {
    let quoted: Vec<String> = cells.iter().map(|cell| quote(cell)).collect();
    out.push_str(&quoted.join(","));
    out.push_str("\r\n");
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn row(report: &RunReport, entry: &Entry<'_>, direction: Direction) -> Vec<(String, String)> {
    let all = &*entry.all;
    let (job, did, cpu) = (&all.job, all.direction(direction), &all.cpu);
    let iops = all.iops(direction);
    let mut row: Vec<(String, String)> = Vec::new();
    let mut cell = |name: &str, value: String| row.push((name.to_owned(), value));
    let device = |of: fn(&qpair_block::DeviceInfo) -> &str| {
        let mut words: Vec<&str> = all.devices.iter().map(of).collect();
        words.dedup();
        words.join(" ")
    };
    // For a group: the smallest and the largest size among the jobs with this direction.
    let sizes = || {
        entry
            .jobs
            .iter()
            .filter(|one| used_directions(&one.job).any(|used| used == direction))
            .map(|one| &one.job.block_sizes[direction as usize])
    };
    let least = sizes().map(BlockSizes::min).min();
    let most = sizes().map(BlockSizes::max).max();
    cell("job", entry.names().join(" "));
    cell("stage", job.stage.to_string());
    cell("group", job.group.to_string());
    cell("jobs", entry.jobs.len().to_string());
    cell("direction", direction.name().to_owned());
    cell("rw", entry.values(|one| fio_word(&one.job).to_owned()));
    cell("block_bytes_min", least.map(|bytes| bytes.to_string()).unwrap_or_default());
    cell("block_bytes_max", most.map(|bytes| bytes.to_string()).unwrap_or_default());
    cell("depth", entry.values(|one| one.job.depth.to_string()));
    cell("devices", device(|device| &device.name));
    cell("interface", device(|device| &device.interface));
    cell("mode", device(|device| &device.mode));
    cell("elapsed_s", format!("{:.6}", all.elapsed.as_secs_f64()));
    cell("ios", did.ios.to_string());
    cell("bytes", did.bytes.to_string());
    cell("iops", format!("{:.3}", entry.per_s(did.ios)));
    cell("bytes_per_s", format!("{:.0}", entry.per_s(did.bytes)));
    cell("iops_samples", iops.count.to_string());
    cell("iops_min", format!("{:.3}", iops.min));
    cell("iops_max", format!("{:.3}", iops.max));
    cell("iops_deviation", format!("{:.3}", iops.deviation));
    for (kind, latencies) in [("slat", &did.slat), ("clat", &did.clat), ("lat", &did.lat)] {
        for (name, value) in latency(latencies) {
            cell(&format!("{kind}_ns_{name}"), value);
        }
    }
    let per_io = |count: u64| format!("{:.6}", entry.per_io(count));
    cell("cpu_us_per_io", format!("{:.6}", entry.us_per_io(cpu.all())));
    cell("cpu_user_us_per_io", format!("{:.6}", entry.us_per_io(cpu.user + cpu.helpers_user)));
    cell(
        "cpu_system_us_per_io",
        format!("{:.6}", entry.us_per_io(cpu.system + cpu.helpers_system)),
    );
    cell("cpu_helpers_us_per_io", format!("{:.6}", entry.us_per_io(cpu.helpers())));
    cell("system_calls_per_io", per_io(cpu.system_calls));
    cell("context_switches_per_io", per_io(cpu.switches_voluntary + cpu.switches_involuntary));
    cell("instructions_per_io", cpu.instructions.map(per_io).unwrap_or_default());
    cell("cycles_per_io", cpu.cycles.map(per_io).unwrap_or_default());
    cell("flushes", all.flushes.ios.to_string());
    cell("late_ns_max", all.late_max.as_nanos().to_string());
    cell("verified_blocks", all.verify.blocks.to_string());
    cell("wrong_blocks", all.verify.wrong.to_string());
    let errors = entry.jobs.iter().filter_map(|job| job.error.as_ref());
    cell("error", errors.map(|error| error.what.as_str()).collect::<Vec<_>>().join("; "));
    cell("config_hash", report.config_hash.clone());
    row
}

fn latency(latencies: &Latencies) -> Vec<(&'static str, String)> {
    let known = |value: String| if latencies.is_empty() { String::new() } else { value };
    let mut cells = vec![("mean", known(format!("{:.1}", latencies.mean())))];
    for (percentile, name) in PERCENTILES {
        cells.push((name, known(latencies.value_at_percentile(percentile).to_string())));
    }
    cells.push(("max", known(latencies.max().to_string())));
    cells
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_row_for_each_direction_that_did_something() {
        let mut job = samples::job("mixed, \"a\"");
        job.cpu.cycles = None;
        let text = csv(&samples::run(vec![job]));
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].starts_with("\"mixed, \"\"a\"\"\",0,0,1,read,randrw,4096,4096,32,"),
            "{text}"
        );
        // Names and modes may contain commas. Without quoted text, each line has as many cells as
        // the header.
        let cells = |line: &str| {
            let outside = line.split('"').step_by(2).collect::<String>();
            outside.split(',').map(str::to_owned).collect::<Vec<_>>()
        };
        let header = cells(lines[0]);
        for line in &lines[1..] {
            assert_eq!(cells(line).len(), header.len());
        }
        let read = cells(lines[1]);
        let at = |name: &str| &read[header.iter().position(|column| column == name).unwrap()];
        assert_eq!((at("ios").as_str(), at("iops").as_str()), ("70045", "7004.500"));
        assert_eq!(
            (at("instructions_per_io").is_empty(), at("cycles_per_io").as_str()),
            (false, "")
        );
    }

    #[test]
    fn a_job_that_failed_at_once_has_a_row() {
        let mut job = samples::job("a");
        job.directions = Default::default();
        job.error = Some(crate::JobError { errno: 2, what: "no such file".into() });
        let text = csv(&samples::run(vec![job]));
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("no such file"), "{text}");
    }
}
