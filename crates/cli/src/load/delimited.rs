//! Columns between delimiters, with no quotes: tab-separated values.

use std::io::BufRead;

use super::format::{Indexes, Wanted};
use super::lines::Lines;
use super::record::{ReadError, ReadRecord, Record};
use crate::text::escape;

/// Reads records from lines of columns.
pub(crate) struct DelimitedReader<R> {
    lines: Lines<R>,
    wanted: Wanted,
    /// Known once the header was read; not of empty input.
    indexes: Option<Indexes>,
    delimiter: u8,
}

impl<R: BufRead> DelimitedReader<R> {
    pub(crate) fn new(input: R, wanted: Wanted, delimiter: u8) -> Self {
        let indexes = (!wanted.header).then(|| wanted.by_index());
        Self { lines: Lines::new(input), wanted, indexes, delimiter }
    }
}

fn fields(line: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(move |byte| *byte == delimiter)
}

/// What is wrong if a header lacks a column.
pub(crate) fn no_such_column<'a>(name: &str, header: impl Iterator<Item = &'a [u8]>) -> ReadError {
    let titles: Vec<String> = header.map(escape).collect();
    ReadError::Layout {
        why: format!("no column is called \"{name}\""),
        hint: format!("the first line names these: {}", titles.join(", ")),
    }
}

/// What is wrong if a line lacks a column.
pub(crate) fn too_few(line: u64, index: usize, count: usize) -> ReadError {
    let columns = if count == 1 { "column" } else { "columns" };
    let why = format!("column {} is wanted, the line has {count} {columns}", index + 1);
    ReadError::Bad { line, why }
}

impl<R: BufRead + Send> ReadRecord for DelimitedReader<R> {
    fn begin(&mut self) -> Result<(), ReadError> {
        let delimiter = self.delimiter;
        if self.wanted.header
            && let Some((_, header)) = self.lines.next()?
        {
            let resolved = self.wanted.resolve(fields(header, delimiter));
            self.indexes =
                Some(resolved.map_err(|name| no_such_column(&name, fields(header, delimiter)))?);
        }
        Ok(())
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<u64>, ReadError> {
        let delimiter = self.delimiter;
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        let Some(Indexes { key, values }) = &self.indexes else { return Ok(None) };
        let field = |index: usize| {
            fields(text, delimiter)
                .nth(index)
                .ok_or_else(|| too_few(line, index, fields(text, delimiter).count()))
        };
        record.key.extend_from_slice(field(*key)?);
        if values.is_empty() {
            record.value.extend_from_slice(text);
        }
        for (place, index) in values.iter().enumerate() {
            if place > 0 {
                record.value.push(delimiter);
            }
            record.value.extend_from_slice(field(*index)?);
        }
        Ok(Some(line))
    }
}
