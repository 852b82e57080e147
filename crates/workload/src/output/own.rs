//! Results that have no place in fio's JSON, under the key `qpair` of each job and of the document.

use std::time::Duration;

use qpair_block::DeviceInfo;

use super::entry::{Entry, Kind};
use super::fio::{milliseconds, percentiles};
use super::json::Object;
use super::workload::work;
use crate::{Direction, JobReport, RunReport, Sample, SteadyReport, VerifyReport};

pub(super) fn run(report: &RunReport) -> Object {
    Object::new()
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("config_hash", report.config_hash.as_str())
        .with("machine", report.machine.clone())
        .with("notes", report.notes.clone())
        .with("interrupted", report.interrupted)
        .with_some("status_after_s", report.so_far.map(|so_far| so_far.as_secs_f64()))
}

pub(super) fn job(entry: &Entry<'_>) -> Object {
    let all = &*entry.all;
    let first = all.devices.first();
    let errors: Vec<Object> = entry
        .jobs
        .iter()
        .filter_map(|job| job.error.as_ref())
        .map(|error| Object::new().with("errno", error.errno).with("what", error.what.as_str()))
        .collect();
    Object::new()
        .with("interface", first.map_or("", |device| device.interface.as_str()))
        .with("mode", first.map_or("", |device| device.mode.as_str()))
        .with("asked_for", all.job.mode.to_string())
        .with("engine", all.job.engine.as_str())
        .with("devices", all.devices.iter().map(device).collect::<Vec<_>>())
        .with("stage", all.job.stage)
        .with("jobs", entry.jobs.len() as u64)
        .with("members", entry.kinds().iter().map(member).collect::<Vec<_>>())
        .with("cost", cost(entry))
        .with(
            "percentile",
            Object::from_iter(Direction::ALL.map(|at| (at.name(), other_percentiles(entry, at)))),
        )
        .with("late_ns_max", nanoseconds(all.late_max))
        .with("resets", all.incidents.resets)
        .with("timeouts_polled", all.incidents.timeouts_polled)
        .with_some("steady", all.steady.as_ref().map(|steady| self::steady(all, steady)))
        .with("verify", verify(&all.verify))
        .with("errors", errors)
        .with("series", all.series.iter().map(sample).collect::<Vec<_>>())
}

fn member(kind: &Kind<'_>) -> Object {
    let names: Vec<serde_json::Value> = kind.names.iter().map(|name| (*name).into()).collect();
    Object::new()
        .with("jobnames", serde_json::Value::from(names))
        .with("jobs", kind.jobs)
        .with("workload", work(&kind.first.job))
}

fn device(device: &DeviceInfo) -> Object {
    Object::new()
        .with("name", device.name.as_str())
        .with("interface", device.interface.as_str())
        .with("mode", device.mode.as_str())
        .with("logical_block_bytes", device.logical_block_bytes)
        .with("transfer_bytes_max", device.transfer_bytes_max)
        .with("atomic_write_bytes_min", device.atomic_write_bytes_min)
        .with("atomic_write_bytes", device.atomic_write_bytes)
        .with("volatile_write_cache", device.volatile_write_cache)
}

/// Returns the cost of each request. Counters that the machine does not have are `null`.
fn cost(entry: &Entry<'_>) -> Object {
    let cpu = &entry.all.cpu;
    let per_io = |count: Option<u64>| count.map(|count| entry.per_io(count));
    let per_byte = |count: Option<u64>| {
        count.filter(|_| entry.bytes() > 0).map(|count| count as f64 / entry.bytes() as f64)
    };
    Object::new()
        .with("cpu_us_per_io", entry.us_per_io(cpu.all()))
        .with("cpu_user_us_per_io", entry.us_per_io(cpu.user + cpu.helpers_user))
        .with("cpu_system_us_per_io", entry.us_per_io(cpu.system + cpu.helpers_system))
        .with("cpu_helpers_us_per_io", entry.us_per_io(cpu.helpers()))
        .with("system_calls", cpu.system_calls)
        .with("system_calls_per_io", entry.per_io(cpu.system_calls))
        .with("context_switches_voluntary", cpu.switches_voluntary)
        .with("context_switches_involuntary", cpu.switches_involuntary)
        .with(
            "context_switches_per_io",
            entry.per_io(cpu.switches_voluntary + cpu.switches_involuntary),
        )
        .with("instructions", cpu.instructions)
        .with("instructions_per_io", per_io(cpu.instructions))
        .with("instructions_per_byte", per_byte(cpu.instructions))
        .with("cycles", cpu.cycles)
        .with("cycles_per_io", per_io(cpu.cycles))
        .with("cycles_per_byte", per_byte(cpu.cycles))
}

/// Returns percentiles of slat and lat, which fio omits by default. In an open loop, lat is the
/// relevant latency.
fn other_percentiles(entry: &Entry<'_>, at: Direction) -> Object {
    let did = entry.all.direction(at);
    let of = |latencies: &crate::Latencies| {
        (!latencies.is_empty()).then(|| percentiles(latencies, &entry.all.job.percentiles))
    };
    Object::new().with_some("slat_ns", of(&did.slat)).with_some("lat_ns", of(&did.lat))
}

fn verify(verify: &VerifyReport) -> Object {
    let errors: Vec<Object> = verify
        .errors
        .iter()
        .map(|error| {
            Object::new()
                .with("device", error.device.as_str())
                .with("offset_bytes", error.offset_bytes)
                .with("len_bytes", error.len_bytes)
                .with("what", error.what.as_str())
        })
        .collect();
    Object::new().with("blocks", verify.blocks).with("wrong", verify.wrong).with("errors", errors)
}

/// Returns the steady state with its units, which fio's object does not state.
fn steady(all: &JobReport, found: &SteadyReport) -> Object {
    let list = |values: &[u64]| serde_json::Value::from(values.to_vec());
    let goal = all.job.steady;
    Object::new()
        .with("attained", found.attained)
        .with("of", goal.map_or("", |goal| goal.name()))
        .with("limit", goal.map_or(0.0, |goal| goal.limit))
        .with("is_percent", goal.is_some_and(|goal| goal.percent))
        .with("found", found.criterion)
        .with("window_ms", goal.map_or(0, |goal| milliseconds(goal.window)))
        .with("interval_ms", goal.map_or(0, |goal| milliseconds(goal.interval)))
        .with("ios_per_s", list(&found.ios))
        .with("bytes_per_s", list(&found.bytes))
}

fn sample(sample: &Sample) -> Object {
    let mut object = Object::new()
        .with("end_ms", milliseconds(sample.end))
        .with("len_ms", milliseconds(sample.len));
    for at in Direction::ALL.map(|direction| direction as usize) {
        if sample.ios[at] == 0 {
            continue;
        }
        let values = Object::new()
            .with("ios", sample.ios[at])
            .with("bytes", sample.bytes[at])
            .with("lat_ns_mean", sample.lat_ns_sum[at] as f64 / sample.ios[at] as f64)
            .with("lat_ns_max", sample.lat_ns_max[at]);
        object = object.with(Direction::ALL[at].name(), values);
    }
    object
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
