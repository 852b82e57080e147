//! Comma-separated values with quotes (RFC 4180).

use std::io::Read;

use csv::ByteRecord;

use super::delimited::{no_such_column, too_few};
use super::format::{Indexes, Wanted};
use super::record::{ReadError, ReadRecord, Record};

/// Reads records from CSV.
pub(crate) struct CsvReader<R> {
    reader: csv::Reader<R>,
    fields: ByteRecord,
    wanted: Wanted,
    /// Known once the header was read.
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
            .from_reader(input);
        let indexes = (!wanted.header).then(|| wanted.by_index());
        Self { reader, fields: ByteRecord::new(), wanted, indexes, columns: None, delimiter }
    }

    /// Reads the next line's fields; its number.
    fn read_fields(&mut self) -> Result<Option<u64>, ReadError> {
        let line = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.fields) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(self.fields.position().map_or(line, csv::Position::line))),
            Err(error) => match error.into_kind() {
                csv::ErrorKind::Io(error) => Err(error.into()),
                other => Err(ReadError::Bad { line, why: format!("{other:?}") }),
            },
        }
    }
}

impl<R: Read + Send> ReadRecord for CsvReader<R> {
    fn read(&mut self, record: &mut Record) -> Result<Option<u64>, ReadError> {
        if self.indexes.is_none() {
            if self.read_fields()?.is_none() {
                return Ok(None);
            }
            self.columns = Some(self.fields.len());
            let resolved = self.wanted.resolve(self.fields.iter());
            self.indexes =
                Some(resolved.map_err(|name| no_such_column(&name, self.fields.iter()))?);
        }
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
