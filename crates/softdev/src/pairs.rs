//! `key=value,key=value`: how profiles and fault plans are written.

use std::fmt::Display;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind, Result, parse_bytes};

/// Splits `key=value,key=value`.
pub(crate) fn split<'a>(what: &str, text: &'a str) -> Result<Vec<(&'a str, &'a str)>> {
    text.split(',')
        .filter(|_| !text.is_empty())
        .map(|pair| {
            pair.split_once('=').ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("option \"{pair}\" of {what} has no value"))
                    .hint("write key=value,key=value")
            })
        })
        .collect()
}

/// Refuses options that no device took.
pub(crate) fn finish(what: &str, rest: &[(&str, &str)], known: &[&str]) -> Result<()> {
    let Some((key, _)) = rest.first() else { return Ok(()) };
    let context = format!("{what} has no option \"{key}\"");
    Err(Error::new(ErrorKind::Invalid, context)
        .hint(format!("the options are {}", known.join(", "))))
}

pub(crate) fn invalid(key: &str, value: impl Display, wanted: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("option {key}={value} is not valid"))
        .hint(format!("{key} is {wanted}"))
}

pub(crate) fn value<T: FromStr>(key: &str, text: &str, wanted: &str) -> Result<T> {
    text.parse().map_err(|_| invalid(key, text, wanted))
}

pub(crate) fn bytes(key: &str, text: &str) -> Result<u64> {
    parse_bytes(text).map_err(|cause| invalid(key, text, "a size such as 64KiB").caused_by(cause))
}

pub(crate) fn rate(key: &str, text: &str) -> Result<f64> {
    let wanted = "a number from 0 to 1";
    let rate: f64 = value(key, text, wanted)?;
    if (0.0..=1.0).contains(&rate) { Ok(rate) } else { Err(invalid(key, text, wanted)) }
}

/// Longest time that can be written: 1,000 s. Sums of many of them still fit.
const NS_MAX: f64 = 1e12;

/// A time in units of `unit_ns` with decimals, as nanoseconds.
pub(crate) fn time_ns(key: &str, text: &str, unit_ns: u32) -> Result<u64> {
    let wanted = "a time below 1000 s";
    let time: f64 = value(key, text, wanted)?;
    let ns = (time * f64::from(unit_ns)).round();
    if (0.0..=NS_MAX).contains(&ns) { Ok(ns as u64) } else { Err(invalid(key, text, wanted)) }
}

/// Writes nanoseconds in units of `unit_ns`, exactly.
pub(crate) fn format_time(ns: u64, unit_ns: u64) -> String {
    let (whole, rest) = (ns / unit_ns, ns % unit_ns);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit_ns.ilog10() as usize;
    format!("{whole}.{rest:0width$}").trim_end_matches('0').to_owned()
}
