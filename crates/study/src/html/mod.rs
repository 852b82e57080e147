//! The report: one HTML file with its style and plots inside, which fetches nothing and runs nothing.
//!
//! - `page`: what is on it; `experiment`: the part of one experiment; `plot`, `axis`: the pictures.

mod axis;
mod experiment;
mod page;
mod plot;

pub use page::to_html;

/// Text as HTML.
fn escape(text: &str) -> String {
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

/// A number with three digits that count, and its thousands apart.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let power = value.abs().log10().floor() as i32;
    if power < -3 {
        return format!("{value:.0e}");
    }
    if power < 3 {
        return format!("{value:.*}", (2 - power).max(0) as usize);
    }
    let scale = 10_f64.powi(power - 3);
    let digits = format!("{:.0}", (value / scale).round() * scale);
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
        assert_eq!(number(0.000_04), "4e-5");
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
