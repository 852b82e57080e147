//! The time series as fio's log files.
//!
//! A line is `time (ms), value, direction (0 read, 1 write, 2 trim), 0, 0`: fio's format of a log
//! that is averaged over windows (`log_avg_msec`), where block size and offset are 0. Values are
//! KiB/s in `bw`, requests a second in `iops`, and the mean in nanoseconds in `slat`, `clat` and
//! `lat`. A direction without requests in a window has no line there.

use std::fmt::Write as _;
use std::path::PathBuf;

use qpair_block::{Error, ErrorKind, Result};

use super::entry::per_s;
use super::files;
use super::fio::milliseconds;
use super::histogram_log;
use crate::{Direction, JobReport, RunReport, Sample};

/// Writes the files of [`crate::Job::logs`], such as `PREFIX_bw.N.log`, and of
/// [`crate::Job::histogram_log`], `PREFIX_clat_hist.N.log`. N is the job's number in the run, from
/// 1. Returns the names of the files.
///
/// # Errors
/// Returns `Invalid` for an unknown kind of log, or the operating system's error of writing a file.
pub fn write_logs(report: &RunReport) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (number, job) in (1..).zip(&report.jobs) {
        for (kind, prefix) in &job.job.logs {
            let content = log(job, kind)?;
            written.push(files::write(prefix, &format!("_{kind}.{number}.log"), &content)?);
        }
        if let Some(log) = &job.job.histogram_log {
            let content = histogram_log::log(job, log.coarseness);
            let suffix = format!("_clat_hist.{number}.log");
            written.push(files::write(&log.prefix, &suffix, &content)?);
        }
    }
    Ok(written)
}

fn log(job: &JobReport, kind: &str) -> Result<String> {
    let value = match kind {
        "bw" => |sample: &Sample, at: usize| per_s(sample.bytes[at], sample.len) / 1024.0,
        "iops" => |sample: &Sample, at: usize| per_s(sample.ios[at], sample.len),
        "lat" => |sample: &Sample, at: usize| mean(sample.lat_ns_sum[at], sample.ios[at]),
        "slat" => |sample: &Sample, at: usize| mean(sample.slat_ns_sum[at], sample.ios[at]),
        "clat" => |sample: &Sample, at: usize| mean(sample.clat_ns_sum[at], sample.ios[at]),
        _ => {
            let what = format!("there is no log of \"{kind}\"");
            return Err(Error::new(ErrorKind::Invalid, what)
                .hint("the logs are bw, iops, slat, clat and lat"));
        }
    };
    let mut out = String::new();
    for sample in &job.series {
        for at in Direction::ALL.map(|direction| direction as usize) {
            if sample.ios[at] > 0 {
                let (end_ms, value) = (milliseconds(sample.end), value(sample, at).round() as u64);
                let offset = if job.job.log_offset { ", 0" } else { "" };
                let _ = writeln!(out, "{end_ms}, {value}, {at}, 0{offset}, 0");
            }
        }
    }
    Ok(out)
}

fn mean(sum: u64, count: u64) -> f64 {
    sum as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn logs_are_fios() {
        let job = samples::job("a");
        let first = |kind| log(&job, kind).unwrap().lines().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(first("bw"), "1000, 28000, 0, 0, 0\n1000, 12000, 1, 0, 0");
        assert_eq!(first("iops"), "1000, 7000, 0, 0, 0\n1000, 3000, 1, 0, 0");
        assert_eq!(first("lat"), "1000, 150000, 0, 0, 0\n1000, 60000, 1, 0, 0");
        assert_eq!(first("slat"), "1000, 10000, 0, 0, 0\n1000, 5000, 1, 0, 0");
        assert_eq!(first("clat"), "1000, 140000, 0, 0, 0\n1000, 55000, 1, 0, 0");
        assert!(
            log(&job, "temperature")
                .unwrap_err()
                .to_string()
                .contains("bw, iops, slat, clat and lat")
        );
    }

    /// A line has as many columns as fio's (compared if fio is installed), and all requests are
    /// counted.
    #[test]
    fn histograms_have_fios_columns() {
        for coarseness in [0, 3, 6] {
            let directory = samples::directory();
            let mut job = samples::job("a");
            let prefix = directory.path().join("h");
            let every = std::time::Duration::from_millis(100);
            job.job.histogram_log = Some(crate::HistogramLog { prefix, every, coarseness });
            job.histograms = vec![crate::HistogramSample {
                end: every,
                direction: Direction::Write,
                block_bytes: 4096,
                buckets: vec![(8, 2), (9, 3), (1855, 1)],
            }];
            let written = write_logs(&samples::run(vec![job])).unwrap();
            assert_eq!(written, [directory.path().join("h_clat_hist.1.log")]);
            let text = std::fs::read_to_string(&written[0]).unwrap();
            let columns: Vec<u64> =
                text.trim_end().split(", ").map(|word| word.parse().unwrap()).collect();
            assert_eq!(columns[..3], [100, 1, 4096]);
            assert_eq!(columns.len(), 3 + (1856 >> coarseness));
            assert_eq!(columns[3..].iter().sum::<u64>(), 6);
            let theirs = std::process::Command::new("fio")
                .current_dir(directory.path())
                .args(["--name=f", "--ioengine=null", "--size=1m", "--bs=4k", "--rate_iops=1000"])
                .args(["--write_hist_log=f", "--log_hist_msec=50"])
                .arg(format!("--log_hist_coarseness={coarseness}"))
                .output();
            if theirs.is_err() {
                eprintln!("skipped: no fio here");
                continue;
            }
            let theirs = std::fs::read_to_string(directory.path().join("f_clat_hist.1.log"));
            let theirs = theirs.unwrap();
            let line = theirs.lines().next().unwrap();
            assert_eq!(line.split(", ").count(), columns.len(), "{line}");
        }
    }

    #[test]
    fn files_are_numbered_by_job() {
        let directory = samples::directory();
        let mut job = samples::job("a");
        job.job.logs =
            ["bw", "lat"].map(|kind| (kind.to_owned(), directory.path().join("x"))).to_vec();
        let report = samples::run(vec![job.clone(), job]);
        let names: Vec<String> = write_logs(&report)
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["x_bw.1.log", "x_lat.1.log", "x_bw.2.log", "x_lat.2.log"]);
        let mut report = report;
        report.jobs[0].job.logs[0].1 = directory.path().join("none/x");
        let error = write_logs(&report).unwrap_err();
        assert!(error.to_string().contains("none/x_bw.1.log"), "{error}");
    }
}
