//! Text of reports: escaped, capitalized, and short numbers.

/// Escapes text for HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Capitalizes the first letter of the text.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Formats a number with three significant digits and separated thousands.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let power = value.abs().log10().floor() as i32;
    if power < -5 {
        return format!("{value:.0e}");
    }
    if power < 3 {
        return format!("{value:.*}", (2 - power).max(0) as usize);
    }
    let scale = 10_f64.powi(power - 3);
    thousands((value / scale).round() * scale)
}

/// Formats the ends of an interval, divided by `scale`, to follow its middle: " [1.00 to 2.00]".
#[must_use]
pub fn range(bounds: Option<(f64, f64)>, scale: f64) -> String {
    let words = |(low, high)| format!(" [{} to {}]", number(low / scale), number(high / scale));
    bounds.map(words).unwrap_or_default()
}

/// Formats a whole number with separated thousands.
#[must_use]
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.012_34, 0.5, 1.0, 42.42, 999.4, 1234.6, 182_345.0].map(number);
        assert_eq!(texts, ["0", "0.0123", "0.500", "1.00", "42.4", "999", "1,235", "182,300"]);
        assert_eq!(number(0.000_004), "4e-6");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
