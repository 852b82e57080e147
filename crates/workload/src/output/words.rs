//! Formats numbers for people: three significant digits, and the unit.

/// Formats a time in nanoseconds: "850 ns", "1.25 us", "12.3 ms", "4.20 s".
pub(super) fn time(ns: f64) -> String {
    let (scaled, unit) = match ns {
        ns if ns < 999.5 => return format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(scaled))
}

/// Formats a number with three significant digits, but never drops digits before the point.
pub(super) fn digits(number: f64) -> String {
    match number {
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => count(n.round() as u64),
    }
}

#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// "1 block", "2,000 blocks".
#[must_use]
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// Formats a rounded amount of bytes: "3.20 GiB".
#[must_use]
pub fn bytes(amount: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = amount;
    let mut unit = 0;
    while scaled >= 1023.5 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let number = if unit == 0 { format!("{scaled:.0}") } else { digits(scaled) };
    format!("{number} {}", units[unit])
}

/// Formats a size that the user chose, exactly: "4 KiB", "1000 B".
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).trailing_zeros() / 10).min(units.len() as u32 - 1);
    format!("{} {}", bytes >> (10 * power), units[power as usize])
}

pub(super) fn bandwidth(bytes_per_s: f64) -> String {
    format!("{}/s", bytes(bytes_per_s))
}

/// Formats a duration that the user chose: "10 s", "0.5 s", "250 us".
pub(super) fn duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_nanos() {
        0 => "0 s".to_owned(),
        ns if ns < 100_000_000 => {
            let (scaled, unit) = if ns < 1_000_000 { (1e6, "us") } else { (1e3, "ms") };
            format!("{} {unit}", trimmed(seconds * scaled))
        }
        _ => format!("{} s", trimmed(seconds)),
    }
}

/// Formats a number with at most two decimals and no trailing zeroes.
pub(super) fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn units_change_where_digits_would_be_too_many() {
        let times = [0.0, 999.4, 999.6, 12_345.0, 999_600.0, 4_200_000_000.0, 123e9];
        let words = times.map(time);
        assert_eq!(words, ["0 ns", "999 ns", "1.00 us", "12.3 us", "1.00 ms", "4.20 s", "123 s"]);
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(1024.0 * 1023.9), "1.00 MiB");
        assert_eq!(bandwidth(1.5 * 1024.0 * 1024.0), "1.50 MiB/s");
        assert_eq!(
            (size(4096), size(1000), size(3 << 20)),
            ("4 KiB".to_owned(), "1000 B".to_owned(), "3 MiB".to_owned())
        );
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn durations_keep_what_was_chosen() {
        let words = [0, 3_000, 250_000, 5_000_000, 500_000_000, 90_000_000_000]
            .map(|ns| duration(Duration::from_nanos(ns)));
        assert_eq!(words, ["0 s", "3 us", "250 us", "5 ms", "0.5 s", "90 s"]);
    }
}
