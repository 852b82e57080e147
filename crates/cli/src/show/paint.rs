//! Colour and wrapping of text for people. Neither affects output for programs.

use std::env;

use super::output::Output;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Green,
    Yellow,
    Red,
    Dim,
    Bold,
}

/// Whether colour is unwanted or impossible even on a terminal.
pub(crate) fn is_unwanted() -> bool {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    unwanted || env::var_os("TERM").is_some_and(|value| value == "dumb")
}

/// Colours text, or leaves it unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    colored: bool,
}

impl Paint {
    /// Returns colour for a terminal, unless NO_COLOR is set (no-color.org).
    pub(crate) fn for_output() -> Self {
        Self { colored: Output::is_terminal() && !is_unwanted() }
    }

    pub(crate) fn paint(self, color: Color, text: &str) -> String {
        if !self.colored {
            return text.to_owned();
        }
        let code = match color {
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Red => 31,
            Color::Dim => 2,
            Color::Bold => 1,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Breaks text between words into lines of at most `width` columns.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a-word-too-long b", 4), ["a-word-too-long", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn leaves_text_alone_without_a_terminal() {
        assert_eq!(Paint { colored: false }.paint(Color::Red, "x"), "x");
        assert_eq!(Paint { colored: true }.paint(Color::Red, "x"), "\x1b[31mx\x1b[0m");
    }
}
