//! Formats of input, and the choice of the columns for key and value.

use std::path::Path;

use clap::ValueEnum;

use super::csv_reader::CsvReader;
use super::delimited::DelimitedReader;
use super::input::Input;
use super::json::JsonReader;
use super::record::{ReadError, ReadRecord};
use crate::failure::{Failure, Result};
use crate::text::escape;

/// A format of input.
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

/// The columns or fields for key and value, as the user names them.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) key: Option<String>,
    /// The columns of the value; empty for the whole line.
    pub(crate) values: Vec<String>,
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
    /// Returns a reader of records.
    pub(crate) fn reader(&self, input: Input) -> Result<Box<dyn ReadRecord>> {
        if self.raw && self.format != Format::Tsv {
            return Err(Failure::usage(
                "--raw is for TSV: neither CSV nor JSON can do without its quotes",
            ));
        }
        if self.format == Format::Json {
            let Some(key) = &self.columns.key else {
                return Err(Failure::usage("the key's field is not named")
                    .hint("name it: --key FIELD, or --key OUTER.INNER"));
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
            return Err(Failure::usage("columns by name without a header line")
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
                    return Err(Failure::usage("backslashes are escapes, and no delimiter")
                        .hint("--raw reads columns without escapes"));
                }
                Box::new(DelimitedReader::new(input.into_reader(), wanted, delimiter, self.raw))
            }
        })
    }
}

/// A column by position or name.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    /// The position, from 0.
    Index(usize),
    Name(String),
}

impl Column {
    fn parse(text: &str) -> Result<Self> {
        match text.parse::<usize>() {
            Ok(0) => Err(Failure::usage("column 0").hint("columns are numbered from 1")),
            Ok(number) => Ok(Self::Index(number - 1)),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// The columns wanted, by position or name.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    key: Column,
    values: Vec<Column>,
    pub(crate) header: bool,
}

/// The columns wanted, by position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) key: usize,
    /// The columns of the value; empty for the whole line.
    pub(crate) values: Vec<usize>,
}

impl Wanted {
    /// Finds the positions of the columns in the header.
    ///
    /// # Errors
    /// `Layout` for a name that no column has, or more than one.
    pub(crate) fn resolve<'a>(
        &self,
        header: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> std::result::Result<Indexes, ReadError> {
        let place = |column: &Column| match column {
            Column::Index(index) => Ok(*index),
            Column::Name(name) => place(name, header.clone()),
        };
        Ok(Indexes {
            key: place(&self.key)?,
            values: self.values.iter().map(place).collect::<std::result::Result<_, _>>()?,
        })
    }

    /// Returns the positions of the columns in lines without a header.
    pub(crate) fn by_index(&self) -> Indexes {
        self.resolve(std::iter::empty()).unwrap_or_default()
    }
}

/// Returns the position of the only column with this name.
fn place<'a>(
    name: &str,
    header: impl Iterator<Item = &'a [u8]> + Clone,
) -> std::result::Result<usize, ReadError> {
    let has_name = |(_, title): &(usize, &[u8])| *title == name.as_bytes();
    let places: Vec<usize> =
        header.clone().enumerate().filter(has_name).map(|(at, _)| at).collect();
    match places[..] {
        [place] => Ok(place),
        [] => {
            let titles: Vec<String> = header.map(escape).collect();
            Err(ReadError::Layout {
                why: format!("no column is called \"{name}\""),
                hint: format!("the first line names these: {}", titles.join(", ")),
            })
        }
        _ => {
            let numbers: Vec<String> = places.iter().map(|place| (place + 1).to_string()).collect();
            Err(ReadError::Layout {
                why: format!("{} columns are called \"{name}\"", places.len()),
                hint: format!("take it by its number, {}, with --header", numbers.join(" or ")),
            })
        }
    }
}

/// Parses a delimiter.
pub(crate) fn parse_delimiter(text: &str) -> std::result::Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [byte] if !matches!(byte, b'\n' | b'\r' | b'"') => Ok(*byte),
        _ => Err("a delimiter is one byte, or \\t; no line end, no quote".to_owned()),
    }
}
