//! Comma-separated values with quotes (RFC 4180).

use std::io::{self, Chain, Cursor, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::ByteRecord;

use super::columns::{Indexes, Wanted};
use super::delimited::too_few;
use super::lines::LINE_LEN_MAX;
use super::record::{ReadError, ReadRecord, Record};
use crate::show::text::counted;

/// Lines that are appended to the input. They form a record of their own, unless a quote was not
/// closed.
const END: &[u8] = b"\nend of input 0f3ac1d2-9d5e-4c8b-8a6e-qpair\n";

/// Input with these lines appended.
type Ended<R> = Chain<R, Cursor<&'static [u8]>>;

pub(crate) struct CsvReader<R> {
    reader: csv::Reader<Bounded<Ended<R>>>,
    /// The number of bytes that the record being read may still have.
    left: Arc<AtomicU64>,
    fields: ByteRecord,
    wanted: Wanted,
    /// The positions of the columns, set once the header was read. `None` for empty input.
    indexes: Option<Indexes>,
    /// The number of columns of the first line. All other lines must have as many.
    columns: Option<usize>,
    delimiter: u8,
}

/// Input that ends with an error if one record would take too much memory, for example after a
/// quote that is not closed.
struct Bounded<R> {
    input: R,
    left: Arc<AtomicU64>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("a record is too long"));
        }
        let count = self.input.read(buffer)?;
        self.left.store(left.saturating_sub(count as u64), Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: Read> CsvReader<R> {
    pub(crate) fn new(input: R, wanted: Wanted, delimiter: u8) -> Self {
        let left = Arc::new(AtomicU64::new(0));
        let input = Bounded { input: input.chain(Cursor::new(END)), left: left.clone() };
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .from_reader(input);
        let indexes = (!wanted.header).then(|| wanted.by_index());
        let fields = ByteRecord::new();
        Self { reader, left, fields, wanted, indexes, columns: None, delimiter }
    }

    /// Reads the next record's fields, and returns its line numbers.
    fn read_fields(&mut self) -> Result<Option<Range<u64>>, ReadError> {
        self.left.store(LINE_LEN_MAX, Ordering::Relaxed);
        let line = self.reader.position().line();
        let read = self.reader.read_byte_record(&mut self.fields);
        let end = self.reader.position().line();
        match read {
            Ok(false) => Ok(None),
            Ok(true) => {
                let line = self.fields.position().map_or(line, csv::Position::line);
                match self.fields.iter().next_back() {
                    Some(last) if self.fields.len() == 1 && last == END.trim_ascii() => Ok(None),
                    Some(last) if last.ends_with(END) => {
                        let lines = last.strip_suffix(END).unwrap_or(last);
                        let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
                        let after = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
                        Err(ReadError::Lost { line, why: unclosed(after) })
                    }
                    _ => Ok(Some(line..end.max(line + 1))),
                }
            }
            Err(error) => match error.into_kind() {
                csv::ErrorKind::Io(_) if self.left.load(Ordering::Relaxed) == 0 => {
                    let why = format!(
                        "a record of more than {LINE_LEN_MAX} bytes, as where a quote is not closed: \
                         this line and all after it are left out"
                    );
                    Err(ReadError::Lost { line, why })
                }
                csv::ErrorKind::Io(error) => Err(error.into()),
                other => Err(ReadError::Bad { lines: line..line + 1, why: format!("{other:?}") }),
            },
        }
    }
}

fn unclosed(lines_after: u64) -> String {
    let after = match lines_after {
        0 => String::new(),
        _ => format!(", and the {} after it are left out too", counted(lines_after, "line")),
    };
    format!("a quote is not closed{after}")
}

impl<R: Read + Send> ReadRecord for CsvReader<R> {
    fn begin(&mut self) -> Result<(), ReadError> {
        if self.wanted.header && self.read_fields()?.is_some() {
            self.columns = Some(self.fields.len());
            self.indexes = Some(self.wanted.resolve(self.fields.iter())?);
        }
        Ok(())
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        let Some(lines) = self.read_fields()? else { return Ok(None) };
        let count = self.fields.len();
        let columns = *self.columns.get_or_insert(count);
        let bad = |why: String| ReadError::Bad { lines: lines.clone(), why };
        if count != columns {
            return Err(bad(format!("{count} columns, where the first line has {columns}")));
        }
        let Some(Indexes { key, values }) = &self.indexes else { return Ok(None) };
        let field = |index: usize| self.fields.get(index).ok_or_else(|| bad(too_few(index, count)));
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
        Ok(Some(lines))
    }
}

/// Writes the fields of a CSV line (RFC 4180) without its end. Fields may contain any bytes, and
/// are quoted if necessary.
pub(crate) fn write_fields<'a>(
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = &'a [u8]>,
    delimiter: u8,
) {
    let start = out.len();
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
    if out.len() == start {
        // An empty line would not be a record.
        out.extend_from_slice(b"\"\"");
    }
}
