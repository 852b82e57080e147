//! Classifies the lines of a job file.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// `[name]`.
    Section(&'a str),
    /// A section's name without its end.
    Open,
    /// `[]`.
    Nameless,
    /// Text after a section's name that is not a comment.
    Rest(&'a str),
    /// `include name`.
    Include(&'a str),
    /// `name=value`, or `name`.
    Option(&'a str, Option<&'a str>),
}

/// The lines with content, with their numbers from 1.
pub(super) struct Lines<'a> {
    rest: std::iter::Enumerate<std::str::Lines<'a>>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        // A byte order mark is not part of the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { rest: text.lines().enumerate() }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u32, Line<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (number, line) = self.rest.next()?;
            if let Some(line) = read(line) {
                return Some((u32::try_from(number + 1).unwrap_or(u32::MAX), line));
            }
        }
    }
}

/// As in fio, a `;` or `#` begins a comment wherever it stands.
fn without_comment(text: &str) -> &str {
    text.split([';', '#']).next().unwrap_or_default().trim()
}

fn read(line: &str) -> Option<Line<'_>> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix('[') {
        let Some((name, rest)) = name.split_once(']') else { return Some(Line::Open) };
        let (name, rest) = (name.trim(), without_comment(rest));
        return Some(match (name.is_empty(), rest.is_empty()) {
            (true, _) => Line::Nameless,
            (_, false) => Line::Rest(rest),
            _ => Line::Section(name),
        });
    }
    let line = without_comment(line);
    if line.is_empty() {
        return None;
    }
    if let Some(name) =
        line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace))
    {
        return Some(Line::Include(name.trim()));
    }
    Some(match line.split_once('=') {
        Some((name, value)) => Line::Option(name.trim(), Some(value.trim())),
        None => Line::Option(line, None),
    })
}
