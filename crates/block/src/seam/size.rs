//! Sizes in bytes in text form.

use crate::seam::error::{Error, ErrorKind, Result};

/// Binary units, the largest first.
const UNITS: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Parses a size in bytes: "1000000", "512B", "4k", "64KiB", "1.5GiB", "2TB".
///
/// `k`, `Ki` and `KiB` are 1024 bytes, `kB` is 1000 bytes, and so on up to E. Case does not matter.
///
/// # Errors
/// `Invalid` if the text is not a size, not a whole number of bytes, or over 2^64 - 1.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let invalid = |why: &str| {
        Error::new(ErrorKind::Invalid, format!("size \"{text}\" {why}"))
            .hint("write bytes, or a number and a unit: 512, 4k, 64KiB, 1.5GiB, 2TB")
    };
    let trimmed = text.trim();
    let digits_end =
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    let unit_bytes = unit_bytes(unit.trim_start()).ok_or_else(|| invalid("has an unknown unit"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(invalid("does not begin with a number"));
    }
    let too_large = || invalid("is too large or too precise");
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    // At most 18 digits, so that nothing below overflows 128 bits.
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 18 {
        return Err(too_large());
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let parts = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
    let fraction_bytes: u128 = parts * unit_bytes;
    if !fraction_bytes.is_multiple_of(scale) {
        return Err(invalid("is not a whole number of bytes"));
    }
    whole
        .checked_mul(unit_bytes)
        .and_then(|bytes| bytes.checked_add(fraction_bytes / scale))
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(too_large)
}

fn unit_bytes(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_lowercase();
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let power = "kmgtpe".find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "i" | "ib" => Some(1024_u128.pow(power)),
        "b" => Some(1000_u128.pow(power)),
        _ => None,
    }
}

/// Formats a size in bytes exactly, so that [`parse_bytes`] returns the same number.
///
/// Uses the largest unit that needs at most three decimals: 65536 is "64KiB", 1610612736 is
/// "1.5GiB".
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    for (name, unit_bytes) in UNITS {
        let thousandths = u128::from(bytes) * 1000;
        if bytes >= unit_bytes && thousandths.is_multiple_of(u128::from(unit_bytes)) {
            let thousandths = thousandths / u128::from(unit_bytes);
            let (whole, rest) = (thousandths / 1000, thousandths % 1000);
            if rest == 0 {
                return format!("{whole}{name}");
            }
            let decimals = format!("{rest:03}");
            return format!("{whole}.{}{name}", decimals.trim_end_matches('0'));
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("512B", 512),
            ("4k", 4096),
            ("64KiB", 65536),
            ("64 kib", 65536),
            ("1.5GiB", 3 << 29),
            ("1.50g", 3 << 29),
            ("2TB", 2_000_000_000_000),
            ("15.5E", 31 << 59),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            " ",
            "k",
            ".",
            ".5k",
            "1.",
            "1..5k",
            "1.2.3k",
            "-1",
            "4kk",
            "4 q",
            "1.5",
            "0.3k",
            "16E",
            "18446744073709551616",
            "1.0000000000000000001k",
            "4é",
            "é",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(parse_bytes(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn writes_exactly() {
        assert_eq!(format_bytes(65536), "64KiB");
        assert_eq!(format_bytes(3 << 29), "1.5GiB");
        assert_eq!(format_bytes(1025), "1025B");
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let bytes = rng.u64(..) >> rng.u32(0..64);
            assert_eq!(parse_bytes(&format_bytes(bytes)).unwrap(), bytes);
            let round = bytes & !((1 << rng.u32(0..40)) - 1);
            assert_eq!(parse_bytes(&format_bytes(round)).unwrap(), round);
        }
    }
}
