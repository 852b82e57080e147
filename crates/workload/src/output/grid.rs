//! Text in columns and lines, within a width.

#[derive(Clone, Copy)]
pub(super) enum Ink {
    Bold,
    Dim,
    Red,
    Yellow,
}

pub(super) fn paint(text: &str, ink: Ink, colour: bool) -> String {
    if !colour || text.is_empty() {
        return text.to_owned();
    }
    let code = match ink {
        Ink::Bold => 1,
        Ink::Dim => 2,
        Ink::Red => 31,
        Ink::Yellow => 33,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A table of columns. The first is aligned to the left, the others to the right.
pub(super) struct Grid {
    rows: Vec<Vec<String>>,
    /// Columns that are omitted if the width is too small, in this order.
    pub(super) spare: &'static [usize],
}

impl Grid {
    pub(super) fn new(header: &[&str], spare: &'static [usize]) -> Self {
        Self { rows: vec![header.iter().map(|&word| word.to_owned()).collect()], spare }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether the grid has only a header.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Returns the grid's lines, indented, with a dim header.
    pub(super) fn lines(&self, indent: usize, width: usize, colour: bool) -> Vec<String> {
        let columns = self.rows[0].len();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max())
            .map(Option::unwrap_or_default)
            .collect();
        let mut shown: Vec<usize> = (0..columns).collect();
        let total = |shown: &[usize]| {
            indent + shown.iter().map(|&column| widths[column] + 2).sum::<usize>() - 2
        };
        for column in self.spare {
            if total(&shown) > width {
                shown.retain(|shown| shown != column);
            }
        }
        let line = |(at, row): (usize, &Vec<String>)| {
            let mut line = " ".repeat(indent);
            for (place, &column) in shown.iter().enumerate() {
                let (cell, width) = (&row[column], widths[column]);
                if place == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            let line = line.trim_end();
            if at == 0 { paint(line, Ink::Dim, colour) } else { line.to_owned() }
        };
        self.rows.iter().enumerate().map(line).collect()
    }
}

/// Breaks text at spaces into lines of at most `width`. The first line follows `first`; the others
/// are indented to the same column.
pub(super) fn wrap(first: &str, text: &str, width: usize) -> Vec<String> {
    let indent = first.chars().count();
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut used = indent;
    for word in text.split(' ') {
        let len = word.chars().count();
        if used > indent && used + 1 + len > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            used = indent;
        }
        if used > indent {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += len;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_where_there_is_no_room() {
        let mut grid = Grid::new(&["", "least", "most"], &[1]);
        grid.row(vec!["read".into(), "1".into(), "12,345".into()]);
        assert_eq!(grid.lines(2, 80, false), ["        least    most", "  read      1  12,345"]);
        assert_eq!(grid.lines(2, 20, false), ["          most", "  read  12,345"]);
    }

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap("a: ", "bb cc dd", 8), ["a: bb cc", "   dd"]);
        assert_eq!(wrap("a: ", "toolongaword b", 8), ["a: toolongaword", "   b"]);
    }
}
