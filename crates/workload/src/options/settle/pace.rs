//! Settles queue depth, rates and run time.

use std::time::Duration;

use qpair_block::Result;

use super::pattern::mix;
use super::reader::Reader;
use crate::job::{FlowShare, Form, LatencyGoal, Rate, RateProcess};
use crate::options::value::{self, TimeUnit};

/// The default number of batches in which a queue is filled.
const DEFAULT_BATCHES: u32 = 16;

pub(super) struct Depth {
    pub(super) depth: u32,
    pub(super) submit: u32,
    pub(super) complete_min: u32,
    pub(super) complete_max: u32,
}

/// The largest queue depth that an option accepts. Devices have their own limits.
const DEPTH_MAX: u32 = 1 << 20;

/// Settles the queue depth. `one_by_one` says that calls are made one after the other, whatever the
/// depth.
pub(super) fn depth(reader: &Reader<'_>, one_by_one: bool, engine: &str) -> Result<Depth> {
    let mut depth = reader.number("iodepth", 1, DEPTH_MAX)?.unwrap_or(1);
    if one_by_one && depth > 1 {
        reader.note(format!(
            "{engine} makes one call at a time: iodepth={depth} has no effect (ioengine=posix has threads)"
        ));
        depth = 1;
    }
    let submit = match reader.number("iodepth_batch", 0, DEPTH_MAX)? {
        // fio's default is 1. Submitting a few at once saves calls; with too many, the queue drains
        // and fills in bursts.
        None => (depth / DEFAULT_BATCHES).max(1),
        Some(0) => depth,
        Some(batch) => batch.min(depth),
    };
    if one_by_one {
        for name in ["iodepth_batch", "iodepth_batch_complete_min", "iodepth_batch_complete_max"] {
            if reader.last(&[name]).is_some_and(|given| given.value.as_deref() != Some("1")) {
                reader.note(format!("{engine} makes one call at a time: {name} has no effect"));
            }
        }
    }
    let complete_min =
        reader.number("iodepth_batch_complete_min", 0, DEPTH_MAX)?.unwrap_or(1).min(depth);
    let complete_max = match reader.number("iodepth_batch_complete_max", 0, DEPTH_MAX)? {
        // Wait for a batch: the queue stays nearly full, as fio's does with its default batch of
        // one.
        None if matches!(reader.word("mode")?, Some("normal" | "stress")) => 0,
        None => submit.max(complete_min),
        Some(0) => complete_min,
        Some(max) => max.max(complete_min),
    };
    Ok(Depth { depth, submit, complete_min, complete_max })
}

/// The maximum number of threads that pass requests to one job.
const PRODUCERS_MAX: u32 = 1024;

pub(super) fn form(reader: &Reader<'_>) -> Result<Form> {
    Ok(match reader.word("mode")? {
        Some("normal") => Form::Barrier,
        Some("stress") => Form::Stress,
        Some("msg") => {
            let interval = reader.time("mininterval", TimeUnit::Microseconds)?;
            let producers = reader.number("producers", 1, PRODUCERS_MAX)?.unwrap_or(1);
            Form::Messages { interval: interval.unwrap_or_default(), producers }
        }
        _ => Form::Full,
    })
}

pub(super) fn rate(reader: &Reader<'_>) -> Result<([Rate; 3], RateProcess)> {
    let bytes = reader.each("rate", |text| reader.size(text))?;
    let ios = reader.each("rate_iops", |text| value::bytes(text, value::KbBase::Binary))?;
    if reader.last(&["rate"]).is_some() && reader.last(&["rate_iops"]).is_some() {
        let what = "rate and rate_iops exclude each other";
        return Err(reader.contradiction("rate_iops", what));
    }
    if reader.word("io_submit_mode")? == Some("offload") {
        reader.note(
            "io_submit_mode=offload has no threads of its own here: with a rate, latency counts from the intended start",
        );
    }
    let mut rates = [Rate::default(); 3];
    for (at, rate) in rates.iter_mut().enumerate() {
        rate.bytes_per_s = bytes[at].unwrap_or(0);
        rate.ios_per_s = ios[at].unwrap_or(0);
    }
    let limited = rates.iter().any(|rate| *rate != Rate::default());
    let process = match limited && reader.word("rate_process")? == Some("poisson") {
        true => RateProcess::Poisson,
        false => RateProcess::Linear,
    };
    Ok((rates, process))
}

pub(super) fn rate_min(reader: &Reader<'_>) -> Result<([Rate; 3], Duration)> {
    let bytes = reader.each("rate_min", |text| reader.size(text))?;
    let ios = reader.each("rate_iops_min", |text| value::bytes(text, value::KbBase::Binary))?;
    if reader.last(&["rate_min"]).is_some() && reader.last(&["rate_iops_min"]).is_some() {
        let what = "rate_min and rate_iops_min exclude each other";
        return Err(reader.contradiction("rate_iops_min", what));
    }
    let mut rates = [Rate::default(); 3];
    for (at, rate) in rates.iter_mut().enumerate() {
        rate.bytes_per_s = bytes[at].unwrap_or(0);
        rate.ios_per_s = ios[at].unwrap_or(0);
    }
    let mut cycle = Duration::from_secs(1);
    if rates.iter().any(|rate| *rate != Rate::default()) {
        cycle = reader.time("rate_cycle", TimeUnit::Milliseconds)?.unwrap_or(cycle);
    }
    Ok((rates, cycle))
}

/// Settles `latency_target` and the options of its search.
pub(super) fn latency_target(reader: &Reader<'_>) -> Result<Option<LatencyGoal>> {
    let latency = reader.time("latency_target", TimeUnit::Microseconds)?.unwrap_or_default();
    if latency.is_zero() {
        return Ok(None);
    }
    let window = reader.time("latency_window", TimeUnit::Microseconds)?.unwrap_or_default();
    if window.is_zero() {
        let what = "latency_target needs latency_window";
        return Err(reader
            .contradiction("latency_target", what)
            .hint("give latency_window=1s, for example: how long each depth is tried"));
    }
    let percent = reader.with("latency_percentile", value::float)?.unwrap_or(100.0);
    if !(percent > 0.0 && percent <= 100.0) {
        let what = format!("latency_percentile={percent} is not over 0, up to 100");
        return Err(reader.contradiction("latency_percentile", what));
    }
    let goes_on = reader.is_set("latency_run")?;
    Ok(Some(LatencyGoal { latency, window, percent, goes_on }))
}

pub(super) fn flow(reader: &Reader<'_>) -> Result<Option<FlowShare>> {
    let weight = reader.number("flow", 0, 1 << 20)?.unwrap_or(0);
    if weight == 0 {
        return Ok(None);
    }
    let flow = reader.number("flow_id", 0, u32::MAX)?.unwrap_or(0);
    let pause = reader.time("flow_sleep", TimeUnit::Microseconds)?.unwrap_or_default();
    Ok(Some(FlowShare { weight, flow, pause }))
}

/// Settles the pause, the number of requests before it, and the part of it that is spent computing.
pub(super) fn think(reader: &Reader<'_>) -> Result<(Duration, u32, Duration)> {
    let pause = reader.time("thinktime", TimeUnit::Microseconds)?.unwrap_or_default();
    if pause.is_zero() {
        return Ok((pause, 1, Duration::ZERO));
    }
    let blocks = reader.number("thinktime_blocks", 1, u32::MAX)?.unwrap_or(1);
    let spin = reader.time("thinktime_spin", TimeUnit::Microseconds)?.unwrap_or_default();
    Ok((pause, blocks, spin.min(pause)))
}

pub(super) struct Times {
    pub(super) runtime: Option<Duration>,
    pub(super) time_based: bool,
    pub(super) ramp: Duration,
    pub(super) start_delay: Duration,
}

pub(super) fn times(reader: &Reader<'_>, seed: u64) -> Result<Times> {
    let runtime = reader.time("runtime", TimeUnit::Seconds)?.filter(|time| !time.is_zero());
    let time_based = reader.is_set("time_based")?;
    if time_based && runtime.is_none() {
        let what = "time_based needs a runtime: the job would never end";
        return Err(reader.contradiction("time_based", what).hint("give runtime=30, for example"));
    }
    let delay = reader.with("startdelay", |text| {
        value::range(text, |text| value::time(text, TimeUnit::Seconds))
    })?;
    let start_delay = delay.map_or(Duration::ZERO, |(low, high)| {
        let part = (mix(seed ^ 0x5d) >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low).mul_f64(part)
    });
    let ramp = reader.time("ramp_time", TimeUnit::Seconds)?.unwrap_or_default();
    Ok(Times { runtime, time_based, ramp, start_delay })
}
