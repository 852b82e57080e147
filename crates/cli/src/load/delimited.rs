//! Columns between delimiters, with escapes and no quotes: tab-separated values.

use std::io::BufRead;
use std::ops::Range;

use super::columns::{Indexes, Wanted};
use super::lines::Lines;
use super::record::{ReadError, ReadRecord, Record, only};
use crate::show::text::unescape_into;

pub(crate) struct DelimitedReader<R> {
    lines: Lines<R>,
    wanted: Wanted,
    /// The positions of the columns, set once the header was read. `None` for empty input.
    indexes: Option<Indexes>,
    delimiter: u8,
    /// Whether backslashes are ordinary bytes.
    raw: bool,
    /// Whether a record had an escape: people who meant backslashes get a note, once.
    escapes_told: bool,
}

impl<R: BufRead> DelimitedReader<R> {
    pub(crate) fn new(input: R, wanted: Wanted, delimiter: u8, raw: bool) -> Self {
        let indexes = (!wanted.header).then(|| wanted.by_index());
        Self { lines: Lines::new(input), wanted, indexes, delimiter, raw, escapes_told: false }
    }
}

fn fields(line: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(move |byte| *byte == delimiter)
}

pub(super) fn too_few(index: usize, count: usize) -> String {
    let columns = if count == 1 { "column" } else { "columns" };
    format!("column {} is wanted, the line has {count} {columns}", index + 1)
}

impl<R: BufRead + Send> ReadRecord for DelimitedReader<R> {
    fn begin(&mut self) -> Result<(), ReadError> {
        if self.wanted.header
            && let Some((_, header)) = self.lines.next()?
        {
            let mut titles = Vec::new();
            for field in fields(header, self.delimiter) {
                let mut title = Vec::new();
                if self.raw || unescape_into(&mut title, field).is_err() {
                    title = field.to_vec();
                }
                titles.push(title);
            }
            self.indexes = Some(self.wanted.resolve(titles.iter().map(Vec::as_slice))?);
        }
        Ok(())
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        let (delimiter, raw) = (self.delimiter, self.raw);
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        let Some(Indexes { key, values }) = &self.indexes else { return Ok(None) };
        let bad = |why: String| ReadError::Bad { lines: only(line), why };
        let field = |index: usize| {
            let found = fields(text, delimiter).nth(index);
            found.ok_or_else(|| bad(too_few(index, fields(text, delimiter).count())))
        };
        let has_escape = |index: usize| {
            fields(text, delimiter).nth(index).is_some_and(|field| field.contains(&b'\\'))
        };
        let decode = |out: &mut Vec<u8>, index: usize| {
            let field = field(index)?;
            if raw {
                out.extend_from_slice(field);
                return Ok(());
            }
            unescape_into(out, field)
                .map_err(|why| bad(format!("{why}; for columns without escapes there is --raw")))
        };
        decode(&mut record.key, *key)?;
        match values[..] {
            [] => record.value.extend_from_slice(text),
            [one] => decode(&mut record.value, one)?,
            // A value of several columns stays in this format, unchanged.
            _ => {
                for (place, index) in values.iter().enumerate() {
                    record.value.extend((place > 0).then_some(delimiter));
                    record.value.extend_from_slice(field(*index)?);
                }
            }
        }
        if !raw
            && !self.escapes_told
            && (has_escape(*key) || matches!(values[..], [one] if has_escape(one)))
        {
            self.escapes_told = true;
            eprintln!(
                "qpair: note: line {line} has escapes, read as `qpair scan` writes them; with --raw backslashes stay as they are"
            );
        }
        Ok(Some(only(line)))
    }
}
