//! The binary format: lengths and bytes. All integers are little-endian.
//!
//! ```text
//! "QPEXPORT"  u32 version  u32 page size
//! then items, each with a u32 first:
//!   up to 2^24        the length of a key; u32 length of the value, key, value
//!   TABLE             u32 length of the name, name
//!   END_OF_TABLE      u64 records, u32 checksum
//!   END               u64 tables
//! ```

use std::io::{self, BufRead, Read};
use std::ops::Range;

use qpair::VALUE_LEN_MAX;

use super::section::{Head, ReadDump};
use super::tally::Tally;
use crate::load::{ReadError, Record, only};

pub(super) const START: &[u8] = b"QPEXPORT";
const VERSION: u32 = 1;
const TABLE: u32 = 0xffff_fff0;
const END_OF_TABLE: u32 = 0xffff_fff1;
const END: u32 = 0xffff_fff2;
/// The maximum length of a key or a name in a dump, in bytes: far more than a store takes, so that
/// the store's limit is the one that people are told.
const KEY_LEN_MAX: u32 = 1 << 24;

pub(super) fn head(page_size: u64) -> Vec<u8> {
    let mut out = START.to_vec();
    for number in [VERSION, page_size as u32] {
        out.extend(number.to_le_bytes());
    }
    out
}

pub(super) fn table(name: &str) -> Vec<u8> {
    let mut out = TABLE.to_le_bytes().to_vec();
    out.extend((name.len() as u32).to_le_bytes());
    out.extend(name.as_bytes());
    out
}

pub(super) fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend((key.len() as u32).to_le_bytes());
    out.extend((value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

pub(super) fn end_of_table(tally: &Tally) -> Vec<u8> {
    let mut out = END_OF_TABLE.to_le_bytes().to_vec();
    out.extend(tally.records.to_le_bytes());
    out.extend(tally.checksum().to_le_bytes());
    out
}

pub(super) fn end(tables: u64) -> Vec<u8> {
    let mut out = END.to_le_bytes().to_vec();
    out.extend(tables.to_le_bytes());
    out
}

pub(super) struct BinaryDump<R> {
    input: R,
    page_size: Option<u64>,
    tables: u64,
    name: String,
    tally: Tally,
}

impl<R: BufRead> BinaryDump<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, page_size: None, tables: 0, name: String::new(), tally: Tally::new() }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|error| self.cut(error))?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Appends `len` bytes of input. Memory grows with the bytes that arrive.
    fn bytes(&mut self, out: &mut Vec<u8>, len: u32) -> Result<(), ReadError> {
        let count = (&mut self.input).take(u64::from(len)).read_to_end(out)?;
        if count as u64 == u64::from(len) {
            return Ok(());
        }
        Err(self.cut(io::ErrorKind::UnexpectedEof.into()))
    }

    fn cut(&self, error: io::Error) -> ReadError {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            return error.into();
        }
        ReadError::Damaged(match self.tables {
            0 => "the export is truncated: it ends before its first table".to_owned(),
            _ => format!(
                "the export is truncated: it ends in or behind the table \"{}\", after record {}",
                self.name, self.tally.records
            ),
        })
    }

    fn damaged<T>(&self, why: impl std::fmt::Display) -> Result<T, ReadError> {
        Err(ReadError::Damaged(format!(
            "the export is damaged behind record {} of the table \"{}\": {why}",
            self.tally.records, self.name
        )))
    }

    fn begin(&mut self) -> Result<(), ReadError> {
        let start: [u8; START.len()] = self.array()?;
        if start != START {
            return Err(ReadError::Damaged("the input is no binary export".to_owned()));
        }
        let version = self.u32()?;
        if version != VERSION {
            let why = format!("the export has version {version}, this command reads {VERSION}");
            return Err(ReadError::Damaged(why));
        }
        self.page_size = Some(u64::from(self.u32()?));
        Ok(())
    }
}

impl<R: BufRead + Send> ReadDump for BinaryDump<R> {
    fn page_size(&self) -> Option<u64> {
        self.page_size
    }

    fn next_table(&mut self) -> Result<Option<Head>, ReadError> {
        if self.page_size.is_none() {
            self.begin()?;
        }
        match self.u32()? {
            TABLE => {
                let len = self.u32()?;
                if len > KEY_LEN_MAX {
                    return self.damaged(format_args!("a table's name has {len} bytes"));
                }
                let mut name = Vec::new();
                self.bytes(&mut name, len)?;
                let Ok(name) = String::from_utf8(name) else {
                    return self.damaged("a table's name is not UTF-8");
                };
                self.tables += 1;
                self.tally = Tally::new();
                self.name.clone_from(&name);
                Ok(Some(Head { name: Some(name), is_sorted: true, note: None }))
            }
            END => {
                let tables = self.u64()?;
                if tables != self.tables {
                    return self.damaged(format_args!("its end says {tables} tables"));
                }
                if !self.input.fill_buf()?.is_empty() {
                    return self.damaged("bytes follow its end");
                }
                Ok(None)
            }
            item => self.damaged(format_args!("no item {item:#x} is between tables")),
        }
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        match self.u32()? {
            END_OF_TABLE => {
                let (records, sum) = (self.u64()?, self.u32()?);
                self.tally.compare(records, sum).map_err(|why| {
                    ReadError::Damaged(format!("the table \"{}\" is damaged: {why}", self.name))
                })?;
                Ok(None)
            }
            key_len @ ..=KEY_LEN_MAX => {
                let value_len = self.u32()?;
                if value_len as usize > VALUE_LEN_MAX {
                    return self.damaged(format_args!("the next value has {value_len} bytes"));
                }
                self.bytes(&mut record.key, key_len)?;
                self.bytes(&mut record.value, value_len)?;
                self.tally.add(&record.key, &record.value);
                Ok(Some(only(self.tally.records)))
            }
            item => self.damaged(format_args!("no item {item:#x} is in a table")),
        }
    }

    fn unit(&self) -> &'static str {
        "record"
    }
}
