//! Formats of input, and the choice of the columns for key and value.

use std::path::Path;

use clap::ValueEnum;

use super::columns::{Column, Columns, Wanted};
use super::csv_reader::CsvReader;
use super::delimited::DelimitedReader;
use super::input::Input;
use super::json::JsonReader;
use super::record::ReadRecord;
use crate::failure::{Failure, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tab-separated columns; escapes \t \n \r \\ \x00, no quotes
    Tsv,
    /// Comma-separated columns; quotes, no escapes
    Csv,
    /// One JSON object per line; F_hex holds field F as hexadecimal digits
    Json,
}

impl Format {
    /// Returns the format for a file name.
    pub(crate) fn guess(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" | "tab" => Some(Self::Tsv),
            "csv" => Some(Self::Csv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            _ => None,
        }
    }
}

/// All settings for reading records.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) format: Format,
    pub(crate) columns: Columns,
    /// Whether the first line names the columns; `None` for the format's default.
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: Option<u8>,
    /// TSV without escapes.
    pub(crate) raw: bool,
}

impl Layout {
    pub(crate) fn reader(&self, input: Input) -> Result<Box<dyn ReadRecord>> {
        if self.raw && self.format != Format::Tsv {
            return Err(Failure::usage(
                "--raw is for TSV: neither CSV nor JSON can do without its quotes",
            ));
        }
        if self.format == Format::Json {
            let Some(key) = &self.columns.key else {
                return Err(Failure::usage("JSON input needs the name of the key's field")
                    .hint("give --key FIELD, or --key OUTER.INNER"));
            };
            if self.delimiter.is_some() || self.header == Some(true) {
                return Err(Failure::usage("JSON has neither delimiters nor a header line"));
            }
            let values = &self.columns.values;
            if let Some(twice) = (1..values.len()).find(|&at| values[..at].contains(&values[at])) {
                let what = format!("field \"{}\" is asked for twice in one value", values[twice]);
                return Err(Failure::usage(what));
            }
            return Ok(Box::new(JsonReader::new(input.into_reader(), key, &self.columns.values)));
        }
        let key = Column::parse(self.columns.key.as_deref().unwrap_or("1"))?;
        let values = self
            .columns
            .values
            .iter()
            .map(|name| Column::parse(name))
            .collect::<Result<Vec<_>>>()?;
        let named =
            std::iter::once(&key).chain(&values).any(|column| matches!(column, Column::Name(_)));
        let header = self.header.unwrap_or(named || self.format == Format::Csv);
        if named && !header {
            return Err(Failure::usage("columns cannot be named without a header line")
                .hint("give their numbers, from 1, or leave --no-header out"));
        }
        let wanted = Wanted { key, values, header };
        Ok(match self.format {
            Format::Csv => Box::new(CsvReader::new(
                input.into_reader(),
                wanted,
                self.delimiter.unwrap_or(b','),
            )),
            _ => {
                let delimiter = self.delimiter.unwrap_or(b'\t');
                if delimiter == b'\\' && !self.raw {
                    return Err(Failure::usage(
                        "backslashes are escapes and cannot be a delimiter",
                    )
                    .hint("give --raw, which reads columns without escapes"));
                }
                Box::new(DelimitedReader::new(input.into_reader(), wanted, delimiter, self.raw))
            }
        })
    }
}

/// Parses a delimiter.
pub(crate) fn parse_delimiter(text: &str) -> std::result::Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [byte] if !matches!(byte, b'\n' | b'\r' | b'"') => Ok(*byte),
        _ => Err("a delimiter is one byte, or \\t, and neither a line end nor a quote".to_owned()),
    }
}
