//! fio's JSON: the keys of fio 3.33, each with fio's meaning.
//!
//! The output has every key that fio writes, and no other except `qpair`, in each job and at the
//! top ([`super::own`]). The differences are:
//!
//! - `disk_util` is always present, and has no sums (`aggr_`) of the disks under a disk.
//! - `iodepth_level` counts as fio does, but from depth 32 on, requests are submitted and completed
//!   in batches, where fio's batches are one. Use `iodepth_batch=1` for fio's figures.
//! - `usr_cpu` and `sys_cpu` include the threads that work for a job, which fio omits; they may
//!   exceed 100.
//! - Bandwidth and IOPS have one sample for each [`crate::Job::sample`], where fio has two per
//!   second.
//! - Percentiles come from a finer histogram, and `bins` are the bins of its values.
//! - Times are UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::bins::{Classes, bins};
use super::entry::{Entry, entries};
use super::json::{Json, Object};
use super::own::{self, nanoseconds};
use crate::{Direction, DiskReport, JobReport, Latencies, RunReport, Spread, Tolerance};

/// The value of the key `fio version`: the program that wrote the document, and the fio version
/// whose layout it has. Programs show it and do not parse it.
const VERSION: &str = concat!("fio-3.33 layout, by qpair-", env!("CARGO_PKG_VERSION"));

/// Returns fio's JSON. With `plus`, returns fio's `json+`, in which latencies have the `bins` of
/// their histograms.
///
/// The keys of a [`Value`] are sorted; [`fio_json_text`] keeps fio's order.
#[must_use]
pub fn fio_json(report: &RunReport, plus: bool) -> Value {
    document(report, plus).into()
}

/// Returns [`fio_json`] as text with its keys in fio's order. It ends with a line feed.
#[must_use]
pub fn fio_json_text(report: &RunReport, plus: bool) -> String {
    // This cannot fail: all keys are strings, and the output is in memory.
    let mut text = serde_json::to_string_pretty(&document(report, plus)).unwrap_or_default();
    text.push('\n');
    text
}

fn document(report: &RunReport, plus: bool) -> Json {
    let entries = entries(report);
    let length = report.jobs.iter().map(|job| job.begin + job.elapsed).max().unwrap_or_default();
    let written = since_1970(report.begun) + length;
    let disks: Vec<Object> = report.disks.iter().map(disk).collect();
    let mut of_all: Vec<(String, String)> = Vec::new();
    for (name, value) in report.jobs.iter().flat_map(|job| &job.job.options_of_all) {
        match of_all.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => known.clone_from(value),
            None => of_all.push((name.clone(), value.clone())),
        }
    }
    let jobs: Vec<Object> = entries.iter().map(|entry| job(entry, &entries, plus)).collect();
    Object::new()
        .with("fio version", VERSION)
        .with("timestamp", written.as_secs())
        .with("timestamp_ms", u64::try_from(written.as_millis()).unwrap_or(u64::MAX))
        .with("time", date(written.as_secs()))
        .with("global options", of_all.into_iter().collect::<Object>())
        .with("jobs", jobs)
        .with("disk_util", disks)
        .with("qpair", own::run(report))
        .into()
}

fn disk(disk: &DiskReport) -> Object {
    Object::new()
        .with("name", disk.name.as_str())
        .with("read_ios", disk.read_ios)
        .with("write_ios", disk.write_ios)
        .with("read_merges", disk.read_merges)
        .with("write_merges", disk.write_merges)
        .with("read_ticks", disk.read_ms)
        .with("write_ticks", disk.write_ms)
        .with("in_queue", disk.queue_ms)
        .with("util", disk.busy_percent)
}

fn job(entry: &Entry<'_>, entries: &[Entry<'_>], plus: bool) -> Object {
    let all = &*entry.all;
    let mut options: Vec<(String, String)> = Vec::new();
    for (name, value) in &all.job.options {
        // Each key is written once; the last of repeated options counts.
        options.retain(|(known, _)| known != name);
        options.push((name.clone(), value.clone()));
    }
    // EILSEQ for wrong blocks, as in fio.
    let wrong = if all.verify.wrong > 0 { 84 } else { 0 };
    let error =
        entry.jobs.iter().find_map(|job| job.error.as_ref()).map_or(wrong, |error| error.errno);
    let mut object = Object::new()
        .with("jobname", all.job.name.as_str())
        .with("groupid", all.job.group)
        .with("error", error)
        .with("eta", 0_u64)
        .with("elapsed", (all.begin + all.elapsed).as_secs_f64().ceil() as u64)
        .with("job options", options.into_iter().collect::<Object>());
    for at in Direction::ALL {
        object = object.with(at.name(), direction(entry, entries, at, plus));
    }
    let flushes = Object::new()
        .with("total_ios", all.flushes.ios)
        .with("lat_ns", latency(&all.flushes.lat, Some(&all.job.percentiles), plus));
    let percent =
        |time: Duration| 100.0 * time.as_secs_f64() / entry.time_sum.as_secs_f64().max(1e-9);
    object = object
        .with("sync", flushes)
        .with("job_runtime", milliseconds(entry.time_sum))
        .with("usr_cpu", percent(all.cpu.user))
        .with("sys_cpu", percent(all.cpu.system))
        .with("ctx", all.cpu.switches_voluntary + all.cpu.switches_involuntary)
        .with("majf", all.cpu.faults_major)
        .with("minf", all.cpu.faults_minor)
        .with(
            "iodepth_level",
            shares(["1", "2", "4", "8", "16", "32", ">=64"], &all.depth_classes),
        );
    const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];
    object = object
        .with("iodepth_submit", shares(BATCHES, &all.submit_classes))
        .with("iodepth_complete", shares(BATCHES, &all.complete_classes));
    let mut classes = Classes::default();
    for direction in &all.directions {
        classes.add(&direction.clat);
    }
    for (unit, classes) in classes.units() {
        let ios = all.ios().max(1) as f64;
        let percents = classes.into_iter().map(|(name, count)| (name, 100.0 * count as f64 / ios));
        object = object.with(unit, percents.collect::<Object>());
    }
    let goal = all.job.latency_target;
    if all.job.tolerance != Tolerance::default() {
        let first = all.passed.first.as_ref().map_or(0, |error| error.errno);
        object = object.with("total_err", all.passed.count).with("first_error", first);
    }
    object
        .with("latency_depth", all.depth_found.unwrap_or(all.job.depth))
        .with("latency_target", goal.map_or(0, |goal| nanoseconds(goal.latency)))
        .with("latency_percentile", goal.map_or(100.0, |goal| goal.percent))
        .with("latency_window", goal.map_or(0, |goal| nanoseconds(goal.window) / 1000))
        .with_some("steadystate", steady(all))
        .with_some("desc", all.job.description.as_deref())
        .with("qpair", own::job(entry))
}

/// Returns fio's object of a steady state. `data` has only the existing values, where fio pads with
/// zeroes.
fn steady(all: &JobReport) -> Option<Object> {
    let (goal, found) = (all.job.steady?, all.steady.as_ref()?);
    let unit = if goal.percent { "%" } else { "" };
    let mean = |values: &[u64]| {
        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
        u64::try_from(sum / values.len().max(1) as u128).unwrap_or(u64::MAX)
    };
    let list = |values: &[u64]| Value::from(values.to_vec());
    let data = Object::new()
        .with("bw_mean", mean(&found.bytes))
        .with("iops_mean", mean(&found.ios))
        .with("iops", list(&found.ios))
        .with("bw", list(&found.bytes));
    let object = Object::new()
        .with("ss", format!("{}:{:.6}{unit}", goal.name(), goal.limit))
        .with("duration", goal.window.as_secs())
        .with("attained", u64::from(found.attained))
        .with("criterion", format!("{:.6}{unit}", found.criterion))
        .with("max_deviation", found.max_deviation)
        .with("slope", found.slope)
        .with("data", data);
    Some(object)
}

fn direction(entry: &Entry<'_>, entries: &[Entry<'_>], at: Direction, plus: bool) -> Object {
    let all = &*entry.all;
    let did = all.direction(at);
    let unused = did.ios == 0;
    let (bandwidth, iops) = if unused {
        (Spread::default(), Spread::default())
    } else {
        (all.bandwidth(at), all.iops(at))
    };
    // The bandwidth of all jobs that share the group.
    let of_group: f64 = entries
        .iter()
        .filter(|other| other.all.job.group == all.job.group)
        .map(|other| other.per_s(other.all.direction(at).bytes))
        .sum();
    let share = if of_group > 0.0 { (100.0 * bandwidth.mean / of_group).min(100.0) } else { 0.0 };
    let bytes_per_s = rate(did.bytes, all.elapsed);
    let kib = |bytes_per_s: f64| bytes_per_s / 1024.0;
    let runtime = if unused { 0 } else { milliseconds(all.elapsed) };
    // fio reports percentiles of these two only if the job requests them.
    let asked = |option: &str| {
        let given = all.job.option(option);
        given
            .is_some_and(|value| value != "0" && value != "false")
            .then_some(all.job.percentiles.as_slice())
    };
    Object::new()
        .with("io_bytes", did.bytes)
        .with("io_kbytes", did.bytes >> 10)
        .with("bw_bytes", bytes_per_s)
        .with("bw", bytes_per_s >> 10)
        .with("iops", entry.per_s(did.ios))
        .with("runtime", runtime)
        .with("total_ios", did.ios)
        // The block layer has no short transfers, and no request is dropped.
        .with("short_ios", 0_u64)
        .with("drop_ios", 0_u64)
        .with("slat_ns", latency(&did.slat, asked("slat_percentiles"), plus))
        .with("clat_ns", latency(&did.clat, Some(&all.job.percentiles), plus))
        .with("lat_ns", latency(&did.lat, asked("lat_percentiles"), plus))
        .with("bw_min", kib(bandwidth.min) as u64)
        .with("bw_max", kib(bandwidth.max) as u64)
        .with("bw_agg", share)
        .with("bw_mean", kib(bandwidth.mean))
        .with("bw_dev", kib(bandwidth.deviation))
        .with("bw_samples", bandwidth.count)
        .with("iops_min", iops.min as u64)
        .with("iops_max", iops.max as u64)
        .with("iops_mean", iops.mean)
        .with("iops_stddev", iops.deviation)
        .with("iops_samples", iops.count)
}

/// Returns fio's latency object, with percentiles and bins if anything was recorded.
pub(super) fn latency(latencies: &Latencies, percentiles: Option<&[f64]>, plus: bool) -> Object {
    let percentiles = percentiles.filter(|_| !latencies.is_empty());
    let object = Object::new()
        .with("min", latencies.min())
        .with("max", latencies.max())
        .with("mean", latencies.mean())
        .with("stddev", latencies.stdev())
        .with("N", latencies.len())
        .with_some("percentile", percentiles.map(|which| self::percentiles(latencies, which)));
    if !plus || percentiles.is_none() {
        return object;
    }
    let bins = bins(latencies).into_iter().map(|(ns, count)| (ns.to_string(), count));
    object.with("bins", bins.collect::<Object>())
}

/// Returns percentiles under fio's names, such as `"99.900000"`.
pub(super) fn percentiles(latencies: &Latencies, which: &[f64]) -> Object {
    let mut which = which.to_vec();
    which.sort_by(f64::total_cmp);
    which.dedup();
    which
        .iter()
        .map(|percentile| (format!("{percentile:.6}"), latencies.value_at_percentile(*percentile)))
        .collect()
}

fn shares(names: [&str; 7], counts: &[u64; 7]) -> Object {
    let total = counts.iter().sum::<u64>().max(1) as f64;
    names
        .into_iter()
        .zip(counts)
        .map(|(name, count)| (name, 100.0 * *count as f64 / total))
        .collect()
}

/// Returns a count per second, rounded down, without the rounding errors of floating point.
fn rate(count: u64, time: Duration) -> u64 {
    let per_s = u128::from(count) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(per_s).unwrap_or(u64::MAX)
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Formats seconds since 1970 as C's `asctime` does: "Thu Jan  1 00:00:00 1970".
fn date(seconds: u64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    loop {
        let len = MONTHS[month].1 + u64::from(month == 1 && is_leap(year));
        if day < len {
            break;
        }
        day -= len;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let (weekday, month) = (WEEKDAYS[(days % 7) as usize], MONTHS[month].0);
    format!("{weekday} {month} {:2} {hour:02}:{minute:02}:{:02} {year}", day + 1, second % 60)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn counts_are_exact() {
        let mut job = samples::job("a");
        job.directions[0].bytes = (1 << 62) + 1;
        job.directions[0].ios = (1 << 60) + 1;
        job.elapsed = Duration::from_secs(3);
        let value = fio_json(&samples::run(vec![job]), false);
        let read = &value["jobs"][0]["read"];
        assert_eq!(read["io_bytes"].as_u64(), Some((1 << 62) + 1));
        assert_eq!(read["total_ios"].as_u64(), Some((1 << 60) + 1));
        assert_eq!(read["bw_bytes"].as_u64(), Some(((1 << 62) + 1) / 3));
        assert_eq!(read["io_kbytes"].as_u64(), Some(1 << 52));
    }

    #[test]
    fn numbers_mean_what_fios_mean() {
        let mut job = samples::job("a");
        job.job.options.push(("bs".into(), "8k".into()));
        let value = fio_json(&samples::run(vec![job]), true);
        assert_eq!(value["timestamp_ms"], 1_750_000_010_255_u64);
        assert_eq!(value["time"], "Sun Jun 15 15:06:50 2025");
        let job = &value["jobs"][0];
        assert_eq!(
            (&job["job options"]["bs"], &job["job options"]["rw"]),
            (&"8k".into(), &"randrw".into())
        );
        let (read, write) = (&job["read"], &job["write"]);
        assert_eq!((&read["runtime"], &job["trim"]["runtime"]), (&10_000.into(), &0.into()));
        assert_eq!(read["iops"], 7004.5);
        assert_eq!((&read["bw_samples"], &job["trim"]["bw_samples"]), (&10.into(), &0.into()));
        assert_eq!((&write["bw_min"], &write["bw_mean"]), (&12_000.into(), &12_000.0.into()));
        assert!((job["usr_cpu"].as_f64().unwrap() - 0.91).abs() < 1e-9);
        assert_eq!(job["ctx"], 48_248);
        // Percentiles are in ascending order, and the bins are complete.
        let clat = &read["clat_ns"];
        let least = clat["percentile"]["1.000000"].as_u64().unwrap();
        let most = clat["percentile"]["99.990000"].as_u64().unwrap();
        assert!(clat["min"].as_u64().unwrap() <= least && least < most, "{clat}");
        let bins: u64 =
            clat["bins"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(bins, 70_045);
        let classes = ["latency_ns", "latency_us", "latency_ms"].iter().flat_map(|unit| {
            job[*unit].as_object().unwrap().values().map(|percent| percent.as_f64().unwrap())
        });
        assert!((classes.sum::<f64>() - 100.0).abs() < 1e-6);
        let depths = job["iodepth_level"].as_object().unwrap().values();
        assert!((depths.map(|v| v.as_f64().unwrap()).sum::<f64>() - 100.0).abs() < 1e-6);
    }

    #[test]
    fn text_has_the_same_in_fios_order() {
        let report = samples::run(vec![samples::job("a")]);
        let text = fio_json_text(&report, true);
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parsed(&text), parsed(&fio_json(&report, true).to_string()));
        let places =
            ["\"fio version\"", "\"jobs\"", "\"5.000000\"", "\"10.000000\"", "\"disk_util\""]
                .map(|key| text.find(key).unwrap());
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(951_782_399), "Mon Feb 28 23:59:59 2000");
        assert_eq!(date(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(date(4_107_542_400), "Mon Mar  1 00:00:00 2100");
    }
}
