//! Settles processors, memory and measurements.

use std::path::PathBuf;
use std::time::Duration;

use qpair_block::Result;

use super::reader::Reader;
use crate::job::{CpuPolicy, HistogramLog, Measured, PERCENTILES};
use crate::options::value::{self, TimeUnit};

pub(super) fn cpus(reader: &Reader<'_>) -> Result<(Vec<usize>, CpuPolicy)> {
    let list = reader.with("cpus_allowed", value::cpu_list)?;
    let mask = reader.with("cpumask", value::cpu_mask)?;
    let last = reader.last(&["cpus_allowed", "cpumask"]).map(|given| given.option.name);
    let cpus = if last == Some("cpumask") { mask } else { list };
    let policy = match reader.word("cpus_allowed_policy")? {
        Some("split") => CpuPolicy::Split,
        _ => CpuPolicy::Shared,
    };
    Ok((cpus.unwrap_or_default(), policy))
}

/// Settles options of memory. The requested kind of memory is used, or the result is an error.
/// Returns whether it is reserved huge pages.
pub(super) fn memory(reader: &Reader<'_>) -> Result<bool> {
    let huge = reader.word("mem")? == Some("mmaphuge");
    let align = reader.bytes("iomem_align")?.unwrap_or(0);
    if align > 4096 || (align > 0 && !align.is_power_of_two()) {
        let what =
            format!("iomem_align={align} is not supported: buffers begin at multiples of 4096");
        return Err(reader.contradiction("iomem_align", what));
    }
    Ok(huge)
}

pub(super) fn measured(reader: &Reader<'_>) -> Result<Measured> {
    for name in ["lat_percentiles", "clat_percentiles", "slat_percentiles"] {
        reader.flag(name)?;
    }
    reader.flag("disable_bw_measurement")?;
    let none = reader.is_set("gtod_reduce")?;
    Ok(Measured {
        slat: !none & !reader.is_set("disable_slat")?,
        clat: !none & !reader.is_set("disable_clat")?,
        lat: !none & !reader.is_set("disable_lat")?,
    })
}

pub(super) fn percentiles(reader: &Reader<'_>) -> Result<Vec<f64>> {
    let list = reader.with("percentile_list", |text| {
        let mut list = value::float_list(text)?;
        if list.len() > 20 || list.iter().any(|p| *p <= 0.0 || *p > 100.0) {
            return Err("must be a list of at most 20 numbers over 0, up to 100".to_owned());
        }
        list.sort_by(f64::total_cmp);
        list.dedup();
        Ok(list)
    })?;
    Ok(list.unwrap_or_else(|| PERCENTILES.to_vec()))
}

pub(super) fn sample(reader: &Reader<'_>) -> Result<Option<Duration>> {
    let mut shortest: Option<Duration> = None;
    for name in ["log_avg_msec", "bwavgtime", "iopsavgtime"] {
        let Some(time) = reader.time(name, TimeUnit::Milliseconds)? else { continue };
        if time < Duration::from_millis(1) {
            let what = format!("{name} cannot log every request: samples are 1 ms or longer");
            return Err(reader.contradiction(name, what));
        }
        shortest = Some(shortest.map_or(time, |shortest| shortest.min(time)));
    }
    Ok(shortest)
}

/// Settles `write_hist_log` and its switches.
pub(super) fn histogram_log(
    reader: &Reader<'_>,
    job: &str,
    measured: Measured,
) -> Result<Option<HistogramLog>> {
    let Some(given) = reader.last(&["write_hist_log"]) else { return Ok(None) };
    let prefix = given.value.as_deref().filter(|prefix| !prefix.is_empty()).unwrap_or(job);
    let every = reader.time("log_hist_msec", TimeUnit::Milliseconds)?.unwrap_or_default();
    if every < Duration::from_millis(1) {
        let what = "write_hist_log without log_hist_msec has no interval to write";
        let error = reader.contradiction("write_hist_log", what);
        return Err(error.hint("give log_hist_msec=1000, for example"));
    }
    if !measured.clat {
        let what = "write_hist_log needs clat, which disable_clat or gtod_reduce turns off";
        return Err(reader.contradiction("write_hist_log", what));
    }
    let coarseness = reader.number("log_hist_coarseness", 0, 6)?.unwrap_or(0);
    Ok(Some(HistogramLog { prefix: PathBuf::from(prefix), every, coarseness }))
}

pub(super) fn logs(reader: &Reader<'_>, job: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut logs = Vec::new();
    let kinds: [(&str, &[&str]); 3] = [
        ("write_bw_log", &["bw"]),
        ("write_iops_log", &["iops"]),
        ("write_lat_log", &["slat", "clat", "lat"]),
    ];
    for (option, kinds) in kinds {
        let Some(given) = reader.last(&[option]) else { continue };
        let prefix = given.value.as_deref().filter(|prefix| !prefix.is_empty()).unwrap_or(job);
        logs.extend(kinds.iter().map(|kind| ((*kind).to_owned(), PathBuf::from(prefix))));
    }
    if reader.flag("per_job_logs")? == Some(false) {
        let what = "per_job_logs=0 is not supported: each job has a log of its own";
        return Err(reader.contradiction("per_job_logs", what));
    }
    if !logs.is_empty() && reader.last(&["log_avg_msec"]).is_none() {
        reader.note(
            "logs have a line a second, not one for every request (log_avg_msec sets another time)",
        );
    }
    Ok(logs)
}
