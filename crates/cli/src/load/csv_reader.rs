//! Comma-separated values with quotes (RFC 4180).

use std::io::{Chain, Cursor, Read};

use csv::ByteRecord;

use super::delimited::{no_such_column, too_few};
use super::format::{Indexes, Wanted};
use super::record::{ReadError, ReadRecord, Record};

/// A line that is read behind the input. It is a record of its own, unless a quote was not closed before.
const END: &[u8] = b"\nend of input 0f3ac1d2-9d5e-4c8b-8a6e-qpair\n";

/// Reads records from CSV.
pub(crate) struct CsvReader<R> {
    reader: csv::Reader<Chain<R, Cursor<&'static [u8]>>>,
    fields: ByteRecord,
    wanted: Wanted,
    /// Known once the header was read; not of empty input.
    indexes: Option<Indexes>,
    /// Columns of the first line; the others have as many.
    columns: Option<usize>,
    delimiter: u8,
}

impl<R: Read> CsvReader<R> {
    pub(crate) fn new(input: R, wanted: Wanted, delimiter: u8) -> Self {
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .from_reader(input.chain(Cursor::new(END)));
        let indexes = (!wanted.header).then(|| wanted.by_index());
        Self { reader, fields: ByteRecord::new(), wanted, indexes, columns: None, delimiter }
    }

    /// Reads the next line's fields; its number.
    fn read_fields(&mut self) -> Result<Option<u64>, ReadError> {
        let line = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.fields) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let line = self.fields.position().map_or(line, csv::Position::line);
                match self.fields.iter().next_back() {
                    Some(last) if self.fields.len() == 1 && last == END.trim_ascii() => Ok(None),
                    Some(last) if last.ends_with(END) => Err(ReadError::Bad {
                        line,
                        why: "a quote is not closed: all lines from here on would be in one column"
                            .to_owned(),
                    }),
                    _ => Ok(Some(line)),
                }
            }
            Err(error) => match error.into_kind() {
                csv::ErrorKind::Io(error) => Err(error.into()),
                other => Err(ReadError::Bad { line, why: format!("{other:?}") }),
            },
        }
    }
}

impl<R: Read + Send> ReadRecord for CsvReader<R> {
    fn begin(&mut self) -> Result<(), ReadError> {
        if self.wanted.header && self.read_fields()?.is_some() {
            self.columns = Some(self.fields.len());
            let resolved = self.wanted.resolve(self.fields.iter());
            self.indexes =
                Some(resolved.map_err(|name| no_such_column(&name, self.fields.iter()))?);
        }
        Ok(())
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<u64>, ReadError> {
        let Some(line) = self.read_fields()? else { return Ok(None) };
        let count = self.fields.len();
        let columns = *self.columns.get_or_insert(count);
        if count != columns {
            let why = format!("{count} columns, where the first line has {columns}");
            return Err(ReadError::Bad { line, why });
        }
        let Some(Indexes { key, values }) = &self.indexes else { return Ok(None) };
        let field =
            |index: usize| self.fields.get(index).ok_or_else(|| too_few(line, index, count));
        record.key.extend_from_slice(field(*key)?);
        match values[..] {
            [] => write_fields(&mut record.value, self.fields.iter(), self.delimiter),
            [one] => record.value.extend_from_slice(field(one)?),
            _ => {
                let fields =
                    values.iter().map(|index| field(*index)).collect::<Result<Vec<_>, _>>()?;
                write_fields(&mut record.value, fields.into_iter(), self.delimiter);
            }
        }
        Ok(Some(line))
    }
}

/// Writes fields as CSV, with quotes where they are needed.
fn write_fields<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = &'a [u8]>, delimiter: u8) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            out.push(delimiter);
        }
        if field.iter().any(|byte| *byte == delimiter || b"\"\r\n".contains(byte)) {
            out.push(b'"');
            for byte in field {
                out.extend((*byte == b'"').then_some(b'"'));
                out.push(*byte);
            }
            out.push(b'"');
        } else {
            out.extend_from_slice(field);
        }
    }
}
