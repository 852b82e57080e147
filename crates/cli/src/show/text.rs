//! Formats bytes, numbers and times for people.
//!
//! The output of [`escape_into`] has neither tabs nor line ends, and [`unescape_into`] turns it
//! back into the same bytes.

use std::fmt::Write as _;

use qpair_workload::output::words;
pub(crate) use qpair_workload::output::words::{count, counted};

/// Appends bytes as one word of a line. Printable UTF-8 is unchanged; backslashes and all other
/// bytes are escaped.
pub(crate) fn escape_into(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (valid, bad) = match std::str::from_utf8(rest) {
            Ok(valid) => (valid, 0),
            Err(error) => {
                let valid = std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default();
                (valid, error.error_len().unwrap_or(rest.len() - error.valid_up_to()))
            }
        };
        for c in valid.chars() {
            match c {
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\\' => out.extend_from_slice(b"\\\\"),
                // A byte order mark is invisible, and readers drop it at the beginning of a file.
                c if c.is_control() || c == '\u{feff}' => {
                    push_hex(out, c.encode_utf8(&mut [0; 4]).as_bytes(), "\\x");
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        let end = valid.len() + bad;
        push_hex(out, &rest[valid.len()..end], "\\x");
        rest = &rest[end..];
    }
}

pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(&mut out, bytes);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends the bytes that [`escape_into`] has turned into `word`. The error names the invalid
/// escape.
pub(crate) fn unescape_into(out: &mut Vec<u8>, word: &[u8]) -> Result<(), String> {
    let mut rest = word;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let (byte, len) = match rest[at + 1..] {
            [b't', ..] => (b'\t', 2),
            [b'n', ..] => (b'\n', 2),
            [b'r', ..] => (b'\r', 2),
            [b'\\', ..] => (b'\\', 2),
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (decode_hex(&[high, low]).map_or(0, |bytes| bytes[0]), 4)
            }
            _ => {
                let len = if rest.get(at + 1) == Some(&b'x') { 4 } else { 2 };
                let escape = &rest[at..rest.len().min(at + len)];
                let escape = String::from_utf8_lossy(escape);
                return Err(format!("{escape} is not an escape: those are \\t \\n \\r \\\\ \\x00"));
            }
        };
        out.push(byte);
        rest = &rest[at + len..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Decodes hexadecimal digits, two for each byte. Returns `None` if they are invalid.
pub(crate) fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    digits.chunks(2).map(pair).collect()
}

/// Appends bytes as hexadecimal digits, each byte after `before`.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8], before: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend_from_slice(before.as_bytes());
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// A size with three digits that matter: "3.20 GiB".
pub(crate) fn size(bytes: u64) -> String {
    words::bytes(bytes as f64)
}

/// A size for people and programs alike: "1.00 GiB (1073741824 bytes)".
pub(crate) fn size_exact(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", size(bytes))
}

/// Formats seconds since 1970 as "2025-01-31 23:59:59 UTC".
pub(crate) fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The algorithm "civil from days": years begin in March, and eras have 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let mut out = format!("{year:04}-{month:02}-{day:02}");
    let _ = write!(out, " {:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60);
    out
}

/// Formats milliseconds since 1970 as "2025-01-31 23:59:59.250 UTC".
pub(crate) fn utc_ms(ms: u64) -> String {
    utc(ms / 1000).replace(" UTC", &format!(".{:03} UTC", ms % 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(escape("a\tb\\ü\n".as_bytes()), "a\\tb\\\\ü\\n");
        assert_eq!(escape(b"\xff\x00a\xc3"), "\\xff\\x00a\\xc3");
    }

    #[test]
    fn unescapes() {
        let unescape = |word: &[u8]| {
            let mut out = Vec::new();
            unescape_into(&mut out, word).map(|()| out)
        };
        assert_eq!(unescape(br"a\tb\\t\x00\xFf\n\r"), Ok(b"a\tb\\t\0\xff\n\r".to_vec()));
        for word in [&br"C:\users"[..], br"\", br"\x", br"\x0", br"\xg0", "\\\u{fc}".as_bytes()] {
            assert!(unescape(word).unwrap_err().contains("not an escape"), "{word:?}");
        }
        let all: Vec<u8> = (0..=u8::MAX).chain("\u{feff}\u{fc}".bytes()).collect();
        assert_eq!(unescape(escape(&all).as_bytes()), Ok(all));
    }

    #[test]
    fn hexadecimal() {
        assert_eq!(decode_hex(b"00fFa0"), Some(vec![0, 255, 160]));
        assert_eq!(decode_hex(b""), Some(vec![]));
        assert_eq!(decode_hex(b"0"), None);
        assert_eq!(decode_hex(b"0g"), None);
    }

    #[test]
    fn times() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59:59 UTC");
    }
}
