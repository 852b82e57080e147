//! Values as fio writes them: sizes, times, ranges, lists.
//!
//! Invariant: a value is parsed to its end, or it is an error. fio itself parses as far as it can
//! (it takes `1.5g` as one byte). Errors are reasons without the name of the option: the caller
//! knows its name and position.

use std::time::Duration;

use super::arithmetic;

/// A result with a reason.
pub(super) type Read<T> = Result<T, String>;

/// The meaning of a size's suffix: fio's `kb_base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KbBase {
    /// `k` is 1024 and `ki` is 1000: fio's default, which it calls compatibility.
    #[default]
    Binary,
    /// `k` is 1000 and `ki` is 1024.
    Decimal,
}

/// An amount of bytes, or a part of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(u64),
    /// A percentage, from 1 to 100.
    Percent(u8),
}

const NO_NUMBER: &str = "is not a number";
const TOO_LARGE: &str = "is too large";

/// Parses bytes, or a plain number with a suffix: `4096`, `0x1000`, `4k`, `1g`, `(4*1024)`.
pub(super) fn bytes(text: &str, base: KbBase) -> Read<u64> {
    let text = text.trim();
    if text.starts_with('(') {
        return whole(arithmetic::evaluate(text, |suffix| factor(suffix, base).map(|f| f as f64))?);
    }
    let (digits, suffix, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
            (&rest[..end], &rest[end..], 16)
        }
        None => {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            (&text[..end], &text[end..], 10)
        }
    };
    if digits.is_empty() {
        return Err(NO_NUMBER.to_owned());
    }
    if suffix.starts_with('.') {
        return Err("has a fraction; write it in a smaller unit".to_owned());
    }
    let number = u64::from_str_radix(digits, radix).map_err(|_| TOO_LARGE.to_owned())?;
    let factor = factor(suffix.trim_start(), base)
        .ok_or_else(|| format!("ends with \"{suffix}\", which is not a unit of size"))?;
    number.checked_mul(factor).ok_or_else(|| TOO_LARGE.to_owned())
}

/// Whether a size has a suffix that means powers of 1000 here and of 1024 everywhere else.
pub(super) fn has_inverted_suffix(text: &str, base: KbBase) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    base == KbBase::Binary
        && matches!(unit.as_bytes(), [b'k' | b'm' | b'g' | b't' | b'p', b'i', ..])
}

fn factor(suffix: &str, base: KbBase) -> Option<u64> {
    let suffix = suffix.to_ascii_lowercase();
    if suffix.is_empty() || suffix == "b" {
        return Some(1);
    }
    let power = "kmgtp".find(suffix.chars().next()?)? as u32 + 1;
    let iec = match &suffix[1..] {
        "" | "b" => false,
        "i" | "ib" => true,
        _ => return None,
    };
    let step: u64 = if iec == (base == KbBase::Decimal) { 1024 } else { 1000 };
    step.checked_pow(power)
}

fn whole(value: f64) -> Read<u64> {
    match value {
        value if value < 0.0 => Err("is below zero".to_owned()),
        value if value >= 9.0e18 => Err(TOO_LARGE.to_owned()),
        value => Ok(value as u64),
    }
}

/// Parses bytes, or a percentage of the whole: `1g`, `20%`.
pub(super) fn amount(text: &str, base: KbBase) -> Read<Amount> {
    match text.trim().strip_suffix('%') {
        None => bytes(text, base).map(Amount::Bytes),
        Some(number) => match number.trim().parse::<u8>() {
            Ok(percent @ 1..=100) => Ok(Amount::Percent(percent)),
            _ => Err("is not a percentage from 1% to 100%".to_owned()),
        },
    }
}

/// The maximum number of decimal places of a time.
const DECIMALS_MAX: usize = 6;

/// The unit of a time without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
}

impl TimeUnit {
    fn us(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1000,
            Self::Microseconds => 1,
        }
    }
}

/// Parses a time, in seconds if no unit is given: `10`, `1.5`, `500ms`.
///
/// # Errors
/// Returns a message about the fault, to be printed after the text.
pub fn seconds(text: &str) -> std::result::Result<Duration, String> {
    time(text, TimeUnit::Seconds)
}

/// Parses a time: `10`, `1.5`, `90s`, `2m`, `500ms`, `20us`, `1h`, `1d`. A number without a unit is
/// in `default`. Fractions of a microsecond are dropped.
pub(super) fn time(text: &str, default: TimeUnit) -> Read<Duration> {
    let text = text.trim();
    if text.starts_with('(') {
        // As in fio, times inside an expression are in microseconds.
        let us = arithmetic::evaluate(text, |suffix| time_factor(suffix).map(|us| us as f64))?;
        return Ok(Duration::from_micros(whole(us)?));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Err("is not a time: write a number and a unit, as in 500us, 30s or 2h".to_owned());
    }
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            if !(1..=DECIMALS_MAX).contains(&end) {
                return Err(format!("has {end} digits after its point, not 1 to {DECIMALS_MAX}"));
            }
            rest.split_at(end)
        }
        None => ("", rest),
    };
    let number: u64 = digits.parse().map_err(|_| TOO_LARGE.to_owned())?;
    let us = match suffix.trim_start() {
        "" => default.us(),
        suffix => time_factor(suffix).ok_or_else(|| {
            format!("ends with \"{suffix}\", which is not one of d, h, m, s, ms and us")
        })?,
    };
    // The limit of a century is enough for a measurement, and leaves room for additions.
    let part: u64 = fraction.parse().unwrap_or(0);
    let part_us = part.saturating_mul(us) / 10_u64.pow(fraction.len() as u32);
    match number.checked_mul(us).and_then(|us| us.checked_add(part_us)) {
        Some(us) if us < 100 * 366 * 86_400 * 1_000_000 => Ok(Duration::from_micros(us)),
        _ => Err(TOO_LARGE.to_owned()),
    }
}

fn time_factor(suffix: &str) -> Option<u64> {
    Some(match suffix.to_ascii_lowercase().as_str() {
        "" | "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "s" | "sec" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    })
}

/// Parses a yes or no: `1` or `0`. No value means yes.
pub(super) fn boolean(text: Option<&str>) -> Read<bool> {
    match text.map(str::trim) {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err("must be 0 or 1".to_owned()),
    }
}

/// Parses two bounds, the smaller one first: `4k-16k` or `4k:16k`. One value alone is both bounds.
pub(super) fn range<T: Ord + Copy>(text: &str, read: impl Fn(&str) -> Read<T>) -> Read<(T, T)> {
    let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (low, high) = (read(low)?, read(high)?);
    Ok((low.min(high), low.max(high)))
}

/// Parses values for reads, writes and trims.
///
/// `a` is for all directions, `a,b` for reads and for the others, and `a,` for reads only. An empty
/// value means the default.
pub(super) fn directions(text: &str) -> Read<[Option<&str>; 3]> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 4 || (parts.len() == 4 && !parts[3].is_empty()) {
        return Err("has more than three values: reads, writes, trims".to_owned());
    }
    let of = |at: usize| parts.get(at).or(parts.last()).copied().filter(|part| !part.is_empty());
    Ok([of(0), of(1), of(2)])
}

/// Parses a list of processors: `0,5,8-15`.
pub(super) fn cpu_list(text: &str) -> Read<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let cpu =
            |text: &str| match text.trim().parse::<usize>() {
                Ok(cpu) if cpu < 4096 => Ok(cpu),
                _ => Err("is not a list of processors: write numbers and ranges, as in 0,5,8-15"
                    .to_owned()),
            };
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(cpu(first)?..=cpu(last)?);
    }
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.is_empty() {
        return Err("names no processor".to_owned());
    }
    Ok(cpus)
}

/// Parses a mask of processors, and returns the numbers of its set bits: `3`, `0xff`.
pub(super) fn cpu_mask(text: &str) -> Read<Vec<usize>> {
    match bytes(text, KbBase::Binary)? {
        0 => Err("names no processor".to_owned()),
        mask => Ok((0..64).filter(|bit| mask >> bit & 1 == 1).collect()),
    }
}

/// Parses numbers separated by colons: `50:99:99.9`.
pub(super) fn float_list(text: &str) -> Read<Vec<f64>> {
    text.split(':').map(float).collect()
}

pub(super) fn float(text: &str) -> Read<f64> {
    let value: f64 = text.trim().parse().map_err(|_| NO_NUMBER.to_owned())?;
    if value.is_finite() { Ok(value) } else { Err(NO_NUMBER.to_owned()) }
}

/// The maximum length of a pattern in bytes, as in fio.
const PATTERN_BYTES_MAX: usize = 512;

/// Parses bytes to be repeated: `0xdeadface`, `"text"`, `-12`, or several of these one after the
/// other.
pub(super) fn pattern(text: &str) -> Read<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        rest = if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').ok_or("has a \" that is not closed")?;
            out.extend_from_slice(&quoted.as_bytes()[..end]);
            &quoted[end + 1..]
        } else if let Some(hex) = rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            push_hex(&hex[..end], &mut out)?;
            &hex[end..]
        } else if rest.starts_with('\'') {
            return Err("takes its bytes from a file, which is not supported".to_owned());
        } else if rest.starts_with('%') {
            return Err("has a format (%o), which is not supported".to_owned());
        } else {
            let sign = usize::from(rest.starts_with('-'));
            let digits = rest[sign..].find(|c: char| !c.is_ascii_digit());
            let end = digits.map_or(rest.len(), |end| end + sign);
            push_decimal(&rest[..end], &mut out)?;
            &rest[end..]
        };
    }
    match out.len() {
        0 => Err("is an empty pattern".to_owned()),
        1..=PATTERN_BYTES_MAX => Ok(out),
        _ => Err(format!("is longer than {PATTERN_BYTES_MAX} bytes")),
    }
}

/// Appends digits in the order in which they are written. An odd number of digits gets a leading 0.
fn push_hex(digits: &str, out: &mut Vec<u8>) -> Read<()> {
    if digits.is_empty() {
        return Err("has 0x without digits".to_owned());
    }
    let nibbles = digits.chars().filter_map(|c| c.to_digit(16));
    let mut high = (digits.len() % 2 == 1).then_some(0);
    for nibble in nibbles {
        match high.take() {
            None => high = Some(nibble),
            Some(high) => out.push((high << 4 | nibble) as u8),
        }
    }
    Ok(())
}

/// Appends a number in little-endian order, in as few bytes as possible. A negative number has four
/// bytes.
fn push_decimal(text: &str, out: &mut Vec<u8>) -> Read<()> {
    let number: i64 = text
        .parse()
        .map_err(|_| format!("has \"{text}\", which is not 0xHEX, \"text\" or a decimal number"))?;
    if number < 0 {
        let number = i32::try_from(number).map_err(|_| TOO_LARGE.to_owned())?;
        out.extend_from_slice(&number.to_le_bytes());
        return Ok(());
    }
    let bytes = number.to_le_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    out.extend_from_slice(&bytes[..len]);
    Ok(())
}

/// Parses sizes with their percentages: `4k/10:64k/50:32k/`. Omitted percentages divide the rest.
pub(super) fn split(text: &str, base: KbBase) -> Read<Vec<(u64, u8)>> {
    let mut parts: Vec<(u64, Option<u8>)> = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share.trim() {
            "" => None,
            share => {
                Some(share.parse().ok().filter(|share| *share <= 100).ok_or_else(|| {
                    format!("has the share \"{share}\", which is not from 0 to 100")
                })?)
            }
        };
        parts.push((bytes(size, base)?, share));
    }
    if parts.len() > 64 {
        return Err("has more than 64 sizes".to_owned());
    }
    let given: u32 = parts.iter().filter_map(|part| part.1).map(u32::from).sum();
    let blank = parts.iter().filter(|part| part.1.is_none()).count() as u32;
    if given > 100 || (blank == 0 && given < 100) {
        return Err(format!("has shares that add up to {given}, not 100"));
    }
    let mut rest = 100 - given;
    let mut blanks = blank;
    let shared = parts.into_iter().map(|(size, share)| {
        let share = share.unwrap_or_else(|| {
            let share = rest.div_ceil(blanks.max(1));
            (rest, blanks) = (rest - share, blanks - 1);
            share as u8
        });
        (size, share)
    });
    Ok(shared.filter(|part| part.1 > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_fios() {
        for (text, expected) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4kib", 4000),
            ("1Mi", 1_000_000),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
            ("1p", 1 << 50),
            ("0x1000", 4096),
            ("0x10k", 16384),
            ("512B", 512),
            ("(4k*2+512)", 8704),
            ("(2^10)", 1024),
        ] {
            assert_eq!(bytes(text, KbBase::Binary), Ok(expected), "{text}");
        }
        assert_eq!(bytes("4k", KbBase::Decimal), Ok(4000));
        assert_eq!(bytes("4KiB", KbBase::Decimal), Ok(4096));
        assert!(has_inverted_suffix("4KiB", KbBase::Binary));
        assert!(!has_inverted_suffix("4k", KbBase::Binary));
        for text in
            ["", "k", "1.5g", "4q", "4kk", "99999999999t", "-1", "(1", "(1/0)", "0x", "é", "4é"]
        {
            assert!(bytes(text, KbBase::Binary).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        let s = TimeUnit::Seconds;
        for (text, us) in [
            ("10", 10_000_000),
            ("90s", 90_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
            ("1d", 86_400_000_000),
            ("250ms", 250_000),
            ("20us", 20),
            ("20USEC", 20),
            ("(2*500)", 1000),
            ("1.5", 1_500_000),
            ("0.25m", 15_000_000),
            ("2.5ms", 2500),
            ("1.9us", 1),
        ] {
            assert_eq!(time(text, s), Ok(Duration::from_micros(us)), "{text}");
        }
        assert_eq!(time("7", TimeUnit::Milliseconds), Ok(Duration::from_millis(7)));
        for text in [
            "",
            "s",
            "2m30s",
            "1y",
            "-1",
            "99999999999999999999",
            "9999999999d",
            "1.",
            ".5",
            "1.5.5",
            "1.0000001",
        ] {
            assert!(time(text, s).is_err(), "{text}");
        }
    }

    #[test]
    fn directions_have_fios_defaults() {
        let (a, b) = (Some("a"), Some("b"));
        for (text, expected) in [
            ("a", [a, a, a]),
            ("a,b", [a, b, b]),
            ("a,b,", [a, b, None]),
            (",b", [None, b, b]),
            (",b,", [None, b, None]),
            ("a,", [a, None, None]),
            ("a,,b", [a, None, b]),
        ] {
            assert_eq!(directions(text), Ok(expected), "{text}");
        }
        assert!(directions("a,b,a,b").is_err());
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(cpu_list("0,5,8-10,5"), Ok(vec![0, 5, 8, 9, 10]));
        assert_eq!(cpu_mask("0x22"), Ok(vec![1, 5]));
        assert_eq!(float_list("50:99.9"), Ok(vec![50.0, 99.9]));
        let read = |text: &str| bytes(text, KbBase::Binary);
        assert_eq!(range("4k-8k", read), Ok((4096, 8192)));
        assert_eq!(range("8k:4k", read), Ok((4096, 8192)));
        for text in ["", "a", "3-", "9999999"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
        assert!(cpu_mask("0").is_err() && float("nan").is_err() && float_list("1::2").is_err());
    }

    #[test]
    fn shares_fill_up_to_a_hundred() {
        let read = |text| split(text, KbBase::Binary);
        assert_eq!(read("4k/10:64k/50:32k/40"), Ok(vec![(4096, 10), (65536, 50), (32768, 40)]));
        assert_eq!(read("4k/50:1k/:32k/"), Ok(vec![(4096, 50), (1024, 25), (32768, 25)]));
        assert_eq!(read("1k:2k:3k"), Ok(vec![(1024, 34), (2048, 33), (3072, 33)]));
        assert_eq!(read("1k/0:2k/100"), Ok(vec![(2048, 100)]));
        for text in ["", "4k/101", "4k/60:8k/60", "4k/10:8k/20", "4k/x"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_are_fios_bytes() {
        for (text, expected) in [
            ("-12", &[0xf4, 0xff, 0xff, 0xff][..]),
            ("255", &[0xff]),
            ("256", &[0, 1]),
            ("0xabc", &[0x0a, 0xbc]),
            ("0xdeadface\"ab\"-1", &[0xde, 0xad, 0xfa, 0xce, b'a', b'b', 255, 255, 255, 255]),
            ("\"a\"300", &[b'a', 0x2c, 1]),
        ] {
            assert_eq!(pattern(text), Ok(expected.to_vec()), "{text}");
        }
        for text in ["", "'file'", "%o", "\"a", "0x", "abc", "-", &"0x00".repeat(600)] {
            assert!(pattern(text).is_err(), "{text}");
        }
    }
}
