//! Settles `steadystate` and its times.

use std::time::Duration;

use qpair_block::Result;

use super::reader::Reader;
use crate::job::{Steadiness, SteadyGoal, SteadyOf};
use crate::options::value::{self, Read, TimeUnit};

/// fio's default if only a duration is given.
const DEFAULT: &str = "iops_slope:0.01%";

/// The maximum number of values that are kept at once.
const VALUES_MAX: u128 = 1_000_000;

pub(super) fn goal(reader: &Reader<'_>) -> Result<Option<SteadyGoal>> {
    let second = TimeUnit::Seconds;
    let window = reader.time("steadystate_duration", second)?.unwrap_or_default();
    if window.is_zero() {
        return Ok(None);
    }
    let read = reader.with("steadystate", criterion)?;
    let (of, by, limit, percent) = match read {
        Some(read) => read,
        None => criterion(DEFAULT).map_err(|why| reader.contradiction("steadystate", why))?,
    };
    let ramp = reader.time("steadystate_ramp_time", second)?.unwrap_or_default();
    let interval = reader.time("steadystate_check_interval", second)?;
    let interval = interval.unwrap_or(Duration::from_secs(1));
    if interval < Duration::from_millis(1) {
        let what = "steadystate_check_interval is below 1 ms";
        return Err(reader.contradiction("steadystate_check_interval", what));
    }
    let values = window.as_nanos() / interval.as_nanos();
    if !(2..=VALUES_MAX).contains(&values) {
        let what = format!(
            "steadystate_duration has room for {values} values, one a steadystate_check_interval; \
             a judgement takes 2 to {VALUES_MAX}"
        );
        return Err(reader
            .contradiction("steadystate_duration", what)
            .hint("give steadystate_duration=60, for example"));
    }
    Ok(Some(SteadyGoal { of, by, limit, percent, window, ramp, interval }))
}

/// Parses a criterion such as `iops:2%` or `bw_slope:100`.
fn criterion(text: &str) -> Read<(SteadyOf, Steadiness, f64, bool)> {
    let (name, limit) = text
        .split_once(':')
        .ok_or("has no limit; write CRITERION:LIMIT, or CRITERION:LIMIT% of the mean")?;
    let (of, by) = match name.trim() {
        "iops" => (SteadyOf::Iops, Steadiness::Deviation),
        "iops_slope" => (SteadyOf::Iops, Steadiness::Slope),
        "bw" => (SteadyOf::Bandwidth, Steadiness::Deviation),
        "bw_slope" => (SteadyOf::Bandwidth, Steadiness::Slope),
        _ => return Err("is not known: choose iops, iops_slope, bw or bw_slope".to_owned()),
    };
    let limit = limit.trim();
    let (number, percent) = match limit.strip_suffix('%') {
        Some(number) => (number, true),
        None => (limit, false),
    };
    match value::float(number)? {
        limit if limit > 0.0 => Ok((of, by, limit, percent)),
        _ => Err("has a limit that is not above 0".to_owned()),
    }
}
