//! Lines that RocksDB's tools print with keys and values as hexadecimal digits.
//!
//! ```text
//! 0x6B31 : 0x7631                    ldb scan --hex
//! 0x6B31 ==> 0x7631                  ldb dump --hex, and newer versions of scan
//! Keys in range: 1                   the last line of ldb dump
//! '6B31' seq:4, type:1 => 7631       sst_dump --command=scan --output_hex, of one file
//! ```
//!
//! Nothing but the last line of `ldb dump` says that all is there.

use std::io::BufRead;
use std::ops::Range;

use super::section::{Head, ReadDump};
use crate::load::{Lines, ReadError, Record, only};
use crate::show::text::decode_hex;

/// The types of internal keys, in RocksDB's numbers.
const VALUE: &str = "1";
const DELETION: &str = "0";
const SINGLE_DELETION: &str = "7";

/// Whether input that begins with these bytes is the output of a tool of RocksDB.
pub(super) fn is_start(start: &[u8]) -> bool {
    [&b"0x"[..], b"'", b"options.env", b"Process ", b"from [", b"Keys in range: "]
        .iter()
        .any(|known| start.starts_with(known))
}

pub(super) struct RocksDump<R> {
    lines: Lines<R>,
    begun: bool,
    records: u64,
    /// The last key of `sst_dump`. Lines of the same key that follow are older.
    last: Option<Vec<u8>>,
}

/// One line of output.
enum Line {
    Record {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// A line of an SST file: a value, or `None` if the key was deleted.
    Version {
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    },
    Count(u64),
    Remark,
}

impl<R: BufRead> RocksDump<R> {
    pub(super) fn new(input: R) -> Self {
        Self { lines: Lines::new(input), begun: false, records: 0, last: None }
    }
}

fn parse(text: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(text).map_err(|_| NOT_HEX.to_owned())?;
    let digits = |text: &str| decode_hex(text.as_bytes()).ok_or_else(|| NOT_HEX.to_owned());
    if let Some(rest) = text.strip_prefix("0x") {
        let (key, value) = rest
            .split_once(" ==> 0x")
            .or_else(|| rest.split_once(" : 0x"))
            .ok_or("the line has no value: scan without --no_value")?;
        return Ok(Line::Record { key: digits(key)?, value: digits(value)? });
    }
    if let Some((key, rest)) = text.strip_prefix('\'').and_then(|rest| rest.split_once("' seq:")) {
        let kind = rest.split_once("type:").map(|(_, rest)| rest);
        let (kind, value) =
            kind.and_then(|rest| rest.split_once(" => ")).ok_or_else(|| NOT_HEX.to_owned())?;
        let key = digits(key)?;
        return match kind {
            VALUE => Ok(Line::Version { key, value: Some(digits(value)?) }),
            DELETION | SINGLE_DELETION => Ok(Line::Version { key, value: None }),
            _ => Err(format!(
                "the line has an entry of type {kind}, which only RocksDB can apply: use ldb scan \
                 --hex, which prints the whole database"
            )),
        };
    }
    if let Some(count) = text.strip_prefix("Keys in range: ") {
        return count.trim().parse().map(Line::Count).map_err(|_| NOT_HEX.to_owned());
    }
    match ["options.env", "Process ", "Sst file format", "from ["]
        .iter()
        .any(|known| text.starts_with(known))
    {
        true => Ok(Line::Remark),
        false => Err(NOT_HEX.to_owned()),
    }
}

const NOT_HEX: &str =
    "the line is not one of ldb scan --hex, ldb dump --hex or sst_dump --output_hex";

impl<R: BufRead + Send> ReadDump for RocksDump<R> {
    fn next_table(&mut self) -> Result<Option<Head>, ReadError> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(None);
        }
        Ok(Some(Head { name: None, is_sorted: true, note: None }))
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        while let Some((line, text)) = self.lines.next()? {
            let lost = |why| ReadError::Lost { line, why };
            match parse(text).map_err(lost)? {
                Line::Record { key, value } => (record.key, record.value) = (key, value),
                Line::Version { key, value } => {
                    if self.last.as_ref() == Some(&key) {
                        continue;
                    }
                    self.last = Some(key.clone());
                    let Some(value) = value else { continue };
                    (record.key, record.value) = (key, value);
                }
                Line::Count(count) if count != self.records => {
                    return Err(lost(format!(
                        "the dump says {count} keys, but has {}: lines are missing",
                        self.records
                    )));
                }
                Line::Count(_) | Line::Remark => continue,
            }
            self.records += 1;
            return Ok(Some(only(line)));
        }
        Ok(None)
    }
}
