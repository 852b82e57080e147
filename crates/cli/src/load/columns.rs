//! The columns of the input that are key and value.

use super::record::ReadError;
use crate::failure::{Failure, Result};
use crate::show::text::escape;

/// The columns or fields for key and value, as the user names them.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) key: Option<String>,
    /// The columns of the value; empty for the whole line.
    pub(crate) values: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Column {
    /// The position, from 0.
    Index(usize),
    Name(String),
}

impl Column {
    pub(super) fn parse(text: &str) -> Result<Self> {
        match text.parse::<usize>() {
            Ok(0) => {
                Err(Failure::usage("column 0 does not exist").hint("columns are numbered from 1"))
            }
            Ok(number) => Ok(Self::Index(number - 1)),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(super) key: Column,
    pub(super) values: Vec<Column>,
    pub(super) header: bool,
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
                why: format!("no column has the name \"{name}\""),
                hint: format!("the first line names these: {}", titles.join(", ")),
            })
        }
        _ => {
            let numbers: Vec<String> = places.iter().map(|place| (place + 1).to_string()).collect();
            Err(ReadError::Layout {
                why: format!("{} columns have the name \"{name}\"", places.len()),
                hint: format!("take it by its number, {}, with --header", numbers.join(" or ")),
            })
        }
    }
}
