//! Numbers formatted as text.

/// Formats a size for people: "23.5 GiB".
pub(crate) fn rounded(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (u64::BITS - bytes.leading_zeros()).saturating_sub(1) / 10;
    let scaled = bytes as f64 / 1024_f64.powi(power as i32);
    let decimals = usize::from(scaled.fract() >= 0.05);
    format!("{scaled:.decimals$} {}", units[power as usize])
}

/// Formats a number of things: "1 core", "2 cores".
pub(crate) fn counted(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
