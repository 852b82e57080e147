//! The report for people.
//!
//! The report has all results, in fio's terms (slat, clat, lat), each number with its unit. A
//! missing result is reported as missing, not as zero.

use std::time::Duration;

use super::entry::{Entry, entries, per_s};
use super::grid::{Grid, Ink, paint, wrap};
use super::plot::{bytes_per_s, cliff, plot, sparkline};
use super::{words, workload};
use crate::{
    Direction, DirectionReport, Form, Incidents, JobReport, Latencies, RunReport, Sample, Spread,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self { colour: false, width: 100 }
    }
}

const INDENT: usize = 2;
const LABEL: usize = 11;
const VERIFY_ERRORS_SHOWN: usize = 8;
const NAMES_SHOWN: usize = 6;

/// Returns the report as text for people. Lines end with a line feed.
#[must_use]
pub fn table(report: &RunReport, style: Style) -> String {
    let mut page = Page { lines: Vec::new(), style, goes_on: report.so_far.is_some() };
    if let Some(so_far) = report.so_far {
        let text = format!("state after {}: the run goes on", words::duration(so_far));
        page.lines.push(paint(&text, Ink::Bold, style.colour));
        page.lines.push(String::new());
    }
    let entries = entries(report);
    let stages = entries.iter().map(|entry| entry.all.job.stage).max().unwrap_or(0);
    for stage in 0..=stages {
        let of_stage: Vec<&Entry<'_>> =
            entries.iter().filter(|entry| entry.all.job.stage == stage).collect();
        for entry in &of_stage {
            page.entry(entry);
        }
        if of_stage.len() > 1 {
            page.together(&of_stage, (stages > 0).then_some(stage));
        }
    }
    for note in &report.notes {
        page.labelled("note", note, None);
    }
    if report.interrupted {
        let text = "stopped before its end: what was measured until then is above";
        page.labelled("interrupted", text, Some(Ink::Yellow));
    }
    let text = format!("configuration {}", report.config_hash);
    page.lines.push(paint(&text, Ink::Dim, style.colour));
    if page.goes_on {
        page.lines.push(String::new());
    }
    let mut out = page.lines.join("\n");
    out.push('\n');
    out
}

struct Page {
    lines: Vec<String>,
    style: Style,
    /// Whether the report is of a run that is still in progress.
    goes_on: bool,
}

impl Page {
    fn entry(&mut self, entry: &Entry<'_>) {
        let all = &*entry.all;
        self.head(entry);
        self.rates(entry);
        self.latencies(all);
        self.costs(entry);
        self.over_time(all);
        self.findings(entry);
        self.lines.push(String::new());
    }

    fn labelled(&mut self, label: &str, text: &str, ink: Option<Ink>) {
        let first = format!("{:INDENT$}{label:<LABEL$} ", "");
        for line in wrap(&first, text, self.style.width) {
            self.lines.push(match ink {
                Some(ink) => paint(&line, ink, self.style.colour),
                None => line,
            });
        }
    }

    fn grid(&mut self, grid: &Grid) {
        self.lines.extend(grid.lines(INDENT, self.style.width, self.style.colour));
    }

    fn head(&mut self, entry: &Entry<'_>) {
        let all = &*entry.all;
        let mut words = vec![words::duration(all.elapsed)];
        if entry.jobs.len() > 1 {
            words.push(words::counted(entry.jobs.len() as u64, "job"));
        }
        if all.in_ramp && self.goes_on {
            let ramp = words::duration(all.job.ramp);
            words.push(format!("within its ramp of {ramp}: nothing is measured yet"));
        } else if all.in_ramp {
            let ramp = words::duration(all.job.ramp);
            words.push(format!("ended within its ramp of {ramp}: nothing was measured"));
        } else if !all.job.ramp.is_zero() {
            words.push(format!("after {} of ramp", words::duration(all.job.ramp)));
        }
        let names = entry.names();
        let mut name = names[..names.len().min(NAMES_SHOWN)].join(", ");
        if names.len() > NAMES_SHOWN {
            name += &format!(" and {} more", names.len() - NAMES_SHOWN);
        }
        let name = paint(&name, Ink::Bold, self.style.colour);
        self.lines.push(format!("{name}: {}", words.join(", ")));
        if let Some(description) = &all.job.description {
            self.labelled("", description, None);
        }
        let kinds = entry.kinds();
        for kind in &kinds {
            let whose = match (entry.jobs.len(), kinds.len()) {
                (1, _) => String::new(),
                (_, 1) => "each job: ".to_owned(),
                _ => format!("{} {}: ", words::counted(kind.jobs, "job"), kind.names.join(", ")),
            };
            let work = workload::work(&kind.first.job);
            self.labelled("workload", &format!("{whose}{work}"), None);
        }
        let found = workload::interfaces(all);
        if found.is_empty() {
            self.labelled("interface", "none: no device was opened", None);
        }
        for (way, names) in found {
            self.labelled("interface", &way, None);
            let region = match kinds.len() {
                1 => workload::region(&all.job).map(|region| format!(", {region}")),
                _ => None,
            };
            let names = names.join(", ") + &region.unwrap_or_default();
            self.labelled("device", &names, None);
        }
    }

    fn rates(&mut self, entry: &Entry<'_>) {
        let all = &*entry.all;
        // Each column except the rates may be omitted if there is no room.
        let mut grid = Grid::new(
            &["", "IOPS", "bandwidth", "requests", "moved", "IOPS least", "most", "deviation"],
            &[5, 6, 4, 3, 7],
        );
        for direction in Direction::ALL {
            let did = all.direction(direction);
            if did.ios == 0 {
                continue;
            }
            let spread = all.iops(direction);
            let mut row = vec![
                direction.name().to_owned(),
                words::count(entry.per_s(did.ios).round() as u64),
                words::bandwidth(entry.per_s(did.bytes)),
                words::count(did.ios),
                words::bytes(did.bytes as f64),
            ];
            row.extend(spread_cells(spread));
            grid.row(row);
        }
        if all.flushes.ios > 0 {
            let mut row = vec![
                "flush".to_owned(),
                words::count(entry.per_s(all.flushes.ios).round() as u64),
                String::new(),
                words::count(all.flushes.ios),
            ];
            row.resize(8, String::new());
            grid.row(row);
        }
        self.lines.push(String::new());
        if grid.is_empty() {
            self.labelled("", "no request was completed", Some(Ink::Yellow));
        } else {
            self.grid(&grid);
        }
    }

    fn latencies(&mut self, all: &JobReport) {
        let mut grid = Grid::new(&["", "average", "p50", "p99", "p99.9", "p99.99", "max"], &[5, 4]);
        for direction in Direction::ALL {
            let did = all.direction(direction);
            for (kind, latencies) in kinds(did) {
                grid_latency(&mut grid, &format!("{} {kind}", direction.name()), latencies);
            }
        }
        grid_latency(&mut grid, "flush", &all.flushes.lat);
        if !grid.is_empty() {
            self.lines.push(String::new());
            self.grid(&grid);
        }
        if let (Some(depth), Some(goal)) = (all.depth_found, all.job.latency_target) {
            let text = format!(
                "{depth} in flight is the depth at which {} % of the requests take at most {}",
                goal.percent,
                words::duration(goal.latency)
            );
            self.labelled("target", &text, None);
        }
        if let (Some(found), Some(goal)) = (&all.steady, all.job.steady) {
            let unit = if goal.percent { " %" } else { "" };
            let text = format!(
                "{}: {} is {}{unit} over the last {}, the limit {}{unit}",
                if found.attained { "attained" } else { "not attained" },
                goal.name(),
                words::digits(found.criterion),
                words::duration(goal.interval * found.ios.len() as u32),
                words::trimmed(goal.limit)
            );
            let ink = (!found.attained).then_some(Ink::Yellow);
            self.labelled("steady", &text, ink);
        }
        if workload::is_open_loop(&all.job) && all.ios() > 0 {
            let late = words::time(all.late_max.as_nanos() as f64);
            let text =
                format!("lat counts from when a request was due; the latest was sent {late} late");
            // The requests were far behind schedule: the requested rate was not reached, and lat
            // includes the waiting.
            let behind = all.late_max > Duration::from_secs(1).max(all.elapsed / 10);
            self.labelled("open loop", &text, behind.then_some(Ink::Yellow));
        }
    }

    fn costs(&mut self, entry: &Entry<'_>) {
        let (all, cpu) = (&*entry.all, &entry.all.cpu);
        if all.ios() == 0 {
            return;
        }
        let us = |time: Duration| words::digits(entry.us_per_io(time));
        let mut time = format!(
            "{} us CPU: {} user, {} system",
            us(cpu.all()),
            us(cpu.user + cpu.helpers_user),
            us(cpu.system + cpu.helpers_system)
        );
        if !cpu.helpers().is_zero() {
            time += &format!("; of it {} by helper threads", us(cpu.helpers()));
        }
        let switches = cpu.switches_voluntary + cpu.switches_involuntary;
        let calls = format!(
            "{:.3} system calls, {:.3} context switches",
            entry.per_io(cpu.system_calls),
            entry.per_io(switches)
        );
        let counted = match (cpu.instructions, cpu.cycles) {
            (None, None) => "instructions and cycles: not available".to_owned(),
            (instructions, cycles) => {
                let per_io = |count: Option<u64>| {
                    count.map_or("not available".to_owned(), |count| {
                        words::count(entry.per_io(count).round() as u64)
                    })
                };
                let mut text =
                    format!("instructions {}, cycles {}", per_io(instructions), per_io(cycles));
                if let Some(count) = instructions.filter(|_| entry.bytes() > 0) {
                    let per_byte = words::digits(count as f64 / entry.bytes() as f64);
                    text += &format!("; {per_byte} instructions a byte");
                }
                text
            }
        };
        self.lines.push(String::new());
        self.labelled("each I/O", &time, None);
        self.labelled("", &calls, None);
        self.labelled("", &counted, None);
    }

    fn over_time(&mut self, all: &JobReport) {
        if all.series.len() < 2 {
            return;
        }
        let len = all.series[0].len;
        if all.job.form == Form::Stress {
            self.lines.push(String::new());
            let mut grid =
                Grid::new(&["time", "bandwidth", "IOPS", "lat average", "lat max"], &[4, 3]);
            for sample in &all.series {
                grid.row(sample_cells(sample));
            }
            self.grid(&grid);
            self.lines.push(String::new());
            self.lines.extend(plot(&all.series, 8, INDENT, self.style.width));
        } else {
            let values: Vec<f64> = all.series.iter().map(bytes_per_s).collect();
            let columns = self.style.width.saturating_sub(INDENT + LABEL + 1).clamp(8, 60);
            let line = sparkline(&values, columns);
            let spread = Spread::of(values.iter().copied());
            self.labelled("over time", &line, None);
            let text = format!(
                "{} to {} in samples of {}",
                words::bandwidth(spread.min),
                words::bandwidth(spread.max),
                words::duration(len)
            );
            self.labelled("", &text, None);
        }
        if let Some(cliff) = cliff(&all.series) {
            let text = format!(
                "throughput falls at {} from {} to {} and stays there",
                words::duration(cliff.at),
                words::bandwidth(cliff.before),
                words::bandwidth(cliff.after)
            );
            self.labelled("cliff", &text, Some(Ink::Yellow));
        }
    }

    fn findings(&mut self, entry: &Entry<'_>) {
        let all = &*entry.all;
        if all.job.verify.is_some() || all.verify.blocks > 0 {
            let blocks = words::counted(all.verify.blocks, "block");
            if all.verify.blocks == 0 {
                let text = match &all.job.verify {
                    Some(verify) if all.job.writes() && !verify.after => {
                        "written blocks can be told from others; none was read (do_verify=0)"
                    }
                    _ => "no block was read and checked",
                };
                self.labelled("verify", text, None);
            } else if all.verify.wrong == 0 {
                self.labelled("verify", &format!("{blocks} read and checked, none wrong"), None);
            } else {
                let text = format!(
                    "{} of {blocks} hold something else than was written",
                    words::count(all.verify.wrong)
                );
                self.labelled("verify", &text, Some(Ink::Red));
            }
            for error in all.verify.errors.iter().take(VERIFY_ERRORS_SHOWN) {
                let text = format!(
                    "{} at byte {}, {} long: {}",
                    error.device, error.offset_bytes, error.len_bytes, error.what
                );
                self.labelled("", &text, Some(Ink::Red));
            }
        }
        if let Some(first) = &all.passed.first {
            let errors = words::counted(all.passed.count, "error");
            let text = format!("{errors} passed over, the first: {}", first.what);
            self.labelled("errors", &text, Some(Ink::Yellow));
        }
        let Incidents { resets, timeouts_polled } = all.incidents;
        if resets > 0 {
            let times = words::counted(resets, "time");
            let text = format!("channels saw their device reset or connected anew {times}");
            self.labelled("resets", &text, Some(Ink::Yellow));
        }
        if timeouts_polled > 0 {
            let times = words::counted(timeouts_polled, "time");
            let text = format!(
                "completions were found by looking after a sleep, without an interrupt, {times}: interrupts are lost"
            );
            self.labelled("time-outs", &text, Some(Ink::Yellow));
        }
        for job in &entry.jobs {
            if let Some(error) = &job.error {
                let whose = if entry.jobs.len() > 1 {
                    format!("{} {}: ", job.job.name, job.job.clone)
                } else {
                    String::new()
                };
                self.labelled("error", &format!("{whose}{}", error.what), Some(Ink::Red));
            }
        }
    }

    fn together(&mut self, entries: &[&Entry<'_>], stage: Option<u32>) {
        let mut grid = Grid::new(&["", "IOPS", "bandwidth", "requests", "moved"], &[4, 3]);
        for direction in Direction::ALL {
            let did = |entry: &&Entry<'_>| {
                let did = entry.all.direction(direction);
                (did.ios, did.bytes, entry.all.elapsed)
            };
            let ios: u64 = entries.iter().map(did).map(|did| did.0).sum();
            if ios == 0 {
                continue;
            }
            let bytes: u64 = entries.iter().map(did).map(|did| did.1).sum();
            let iops: f64 = entries.iter().map(did).map(|(ios, _, time)| per_s(ios, time)).sum();
            let rate: f64 =
                entries.iter().map(did).map(|(_, bytes, time)| per_s(bytes, time)).sum();
            grid.row(vec![
                direction.name().to_owned(),
                words::count(iops.round() as u64),
                words::bandwidth(rate),
                words::count(ios),
                words::bytes(bytes as f64),
            ]);
        }
        let jobs: u64 = entries.iter().map(|entry| entry.jobs.len() as u64).sum();
        let name = match stage {
            Some(stage) => format!("stage {}, all together", stage + 1),
            None => "all together".to_owned(),
        };
        let name = paint(&name, Ink::Bold, self.style.colour);
        self.lines.push(format!("{name}: {}", words::counted(jobs, "job")));
        self.grid(&grid);
        self.lines.push(String::new());
    }
}

fn kinds(did: &DirectionReport) -> [(&'static str, &Latencies); 3] {
    [("slat", &did.slat), ("clat", &did.clat), ("lat", &did.lat)]
}

fn grid_latency(grid: &mut Grid, name: &str, latencies: &Latencies) {
    if latencies.is_empty() {
        return;
    }
    let mut row = vec![name.to_owned(), words::time(latencies.mean())];
    for percentile in [50.0, 99.0, 99.9, 99.99] {
        row.push(words::time(latencies.value_at_percentile(percentile) as f64));
    }
    row.push(words::time(latencies.max() as f64));
    grid.row(row);
}

/// Returns the cells for minimum, maximum and deviation in percent of the mean. They are empty if
/// there are fewer than two samples.
fn spread_cells(spread: Spread) -> Vec<String> {
    if spread.count < 2 || spread.mean <= 0.0 {
        return vec![String::new(); 3];
    }
    vec![
        words::count(spread.min.round() as u64),
        words::count(spread.max.round() as u64),
        format!("{:.1} %", 100.0 * spread.deviation / spread.mean),
    ]
}

fn sample_cells(sample: &Sample) -> Vec<String> {
    let ios: u64 = sample.ios.iter().sum();
    let lat_ns: u64 = sample.lat_ns_sum.iter().sum();
    let lat_ns_max = sample.lat_ns_max.iter().copied().max().unwrap_or(0);
    let time = |ns: f64| if ios == 0 { String::new() } else { words::time(ns) };
    vec![
        format!("{:.1} s", sample.end.as_secs_f64()),
        words::bandwidth(bytes_per_s(sample)),
        words::count(per_s(ios, sample.len).round() as u64),
        time(lat_ns as f64 / ios.max(1) as f64),
        time(lat_ns_max as f64),
    ]
}

#[cfg(test)]
mod tests;
