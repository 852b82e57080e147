//! Sizes, counts, times and rates.

use std::time::Duration;

pub(crate) const RECORDS_MAX: u64 = u32::MAX as u64;
/// The maximum number of workers: each needs a core.
pub(crate) const WORKERS_MAX: u64 = 1024;
pub(crate) const TASKS_MAX: u64 = 65_536;

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    qpair_block::parse_bytes(text).map_err(|error| error.to_string())
}

pub(crate) fn parse_count<T: TryFrom<u64>, const MAX: u64>(text: &str) -> Result<T, String> {
    let counted = text.parse::<u64>().ok().filter(|count| (1..=MAX).contains(count));
    counted
        .and_then(|count| T::try_from(count).ok())
        .ok_or_else(|| format!("'{text}' is not a whole number from 1 to {MAX}"))
}

pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds")),
    }
}

/// Parses `--seconds` of a run, which must be positive.
pub(crate) fn parse_run_seconds(text: &str) -> Result<f64, String> {
    match parse_seconds(text)? {
        0.0 => Err("a run takes more than 0 seconds".to_owned()),
        seconds => Ok(seconds),
    }
}

/// Parses seconds, or minutes with an `m`.
pub(crate) fn parse_time(text: &str) -> Result<f64, String> {
    match text.strip_suffix('m') {
        Some(minutes) => Ok(60.0 * parse_seconds(minutes)?),
        None => parse_seconds(text.strip_suffix('s').unwrap_or(text)),
    }
}

/// Parses `--ttl`: a whole number of seconds, or of what its unit says.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit_s).and_then(|(n, unit)| n.checked_mul(unit));
    match seconds {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("'{text}' is not a time: give 30s, 15m, 12h or 7d")),
    }
}

/// Parses `--rate`, in operations per second.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err(format!("'{text}' is not a rate: give more than 0 and at most 1e9")),
    }
}
