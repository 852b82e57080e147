//! JSON lines: one object for each record, as `qpair scan --json` prints it, between lines that
//! begin and end the tables and the dump.

use std::io::BufRead;
use std::ops::Range;

use serde::Deserialize;
use serde_json::json;

use super::section::{Head, ReadDump};
use super::tally::Tally;
use crate::load::{Lines, ReadError, Record, only, parse_json};

pub(super) const VERSION: u64 = 1;
/// The first bytes of a dump.
pub(super) const START: &[u8] = b"{\"qpair_export\":";

pub(super) fn head(page_size: u64) -> String {
    // Not one object of `json!`: its fields would be in another order.
    format!("{{\"qpair_export\":{VERSION},\"page_size\":{page_size}}}\n")
}

pub(super) fn table(name: &str) -> String {
    json!({ "table": name }).to_string() + "\n"
}

pub(super) fn end_of_table(tally: &Tally) -> String {
    format!(
        "{{\"end\":\"table\",\"records\":{},\"crc32\":\"{:08x}\"}}\n",
        tally.records,
        tally.checksum()
    )
}

pub(super) fn end(tables: u64) -> String {
    format!("{{\"end\":\"export\",\"tables\":{tables}}}\n")
}

/// A line that is not a record.
#[derive(Default, Deserialize)]
struct Mark {
    qpair_export: Option<u64>,
    page_size: Option<u64>,
    table: Option<String>,
    end: Option<String>,
    records: Option<u64>,
    crc32: Option<String>,
    tables: Option<u64>,
}

pub(super) struct JsonDump<R> {
    lines: Lines<R>,
    value: [String; 1],
    page_size: Option<u64>,
    tables: u64,
    name: String,
    tally: Tally,
}

impl<R: BufRead> JsonDump<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            lines: Lines::new(input),
            value: ["value".to_owned()],
            page_size: None,
            tables: 0,
            name: String::new(),
            tally: Tally::new(),
        }
    }

    /// Reads a line that is not a record.
    fn mark(&mut self) -> Result<(u64, Mark), ReadError> {
        let truncated = || {
            ReadError::Damaged(match self.tables {
                0 => "the export is truncated: it ends before its first table".to_owned(),
                _ => format!("the export is truncated: it ends behind the table \"{}\"", self.name),
            })
        };
        let Some((line, text)) = self.lines.next()? else { return Err(truncated()) };
        if !is_whole(text) {
            return Err(truncated());
        }
        let mark = parse_mark(text).map_err(|why| ReadError::Lost { line, why })?;
        Ok((line, mark))
    }

    fn begin(&mut self) -> Result<(), ReadError> {
        let (line, mark) = self.mark()?;
        match mark.qpair_export {
            Some(VERSION) => {}
            Some(version) => {
                let why = format!("the export has version {version}, this command reads {VERSION}");
                return Err(ReadError::Lost { line, why });
            }
            None => {
                let why = "the line does not begin an export".to_owned();
                return Err(ReadError::Lost { line, why });
            }
        }
        self.page_size = mark.page_size;
        Ok(())
    }
}

/// Whether a line was written to its end.
fn is_whole(text: &[u8]) -> bool {
    text.ends_with(b"}")
}

fn parse_mark(text: &[u8]) -> Result<Mark, String> {
    serde_json::from_slice(text)
        .map_err(|error| format!("the line is not one of an export: {error}"))
}

impl<R: BufRead + Send> ReadDump for JsonDump<R> {
    fn page_size(&self) -> Option<u64> {
        self.page_size
    }

    fn next_table(&mut self) -> Result<Option<Head>, ReadError> {
        if self.page_size.is_none() && self.tables == 0 {
            self.begin()?;
        }
        let (line, mark) = self.mark()?;
        if let Some(name) = mark.table {
            self.tables += 1;
            self.tally = Tally::new();
            self.name.clone_from(&name);
            return Ok(Some(Head { name: Some(name), is_sorted: true, note: None }));
        }
        let lost = |why: &str| Err(ReadError::Lost { line, why: why.to_owned() });
        if mark.end.as_deref() != Some("export") {
            return lost("the line neither begins a table nor ends the export");
        }
        if mark.tables != Some(self.tables) {
            return lost("the export does not have as many tables as this line says");
        }
        match self.lines.next()? {
            None => Ok(None),
            Some((line, _)) => {
                let why = "the line is behind the end of the export".to_owned();
                Err(ReadError::Lost { line, why })
            }
        }
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        let truncated = || {
            ReadError::Damaged(format!(
                "the export is truncated: it ends within the table \"{}\", after record {}",
                self.name, self.tally.records
            ))
        };
        let Some((line, text)) = self.lines.next()? else { return Err(truncated()) };
        if !is_whole(text) {
            return Err(truncated());
        }
        let lost = |why| ReadError::Lost { line, why };
        if text.starts_with(b"{\"key") {
            parse_json(text, "key", &self.value, record).map_err(lost)?;
            self.tally.add(&record.key, &record.value);
            return Ok(Some(only(line)));
        }
        let mark = parse_mark(text).map_err(lost)?;
        let sum = mark.crc32.and_then(|digits| u32::from_str_radix(&digits, 16).ok());
        match (mark.end.as_deref(), mark.records, sum) {
            (Some("table"), Some(records), Some(sum)) => {
                self.tally.compare(records, sum).map_err(|why| {
                    ReadError::Damaged(format!("the table \"{}\" is damaged: {why}", self.name))
                })?;
                Ok(None)
            }
            _ => Err(lost("the line is neither a record nor the end of its table".to_owned())),
        }
    }
}
