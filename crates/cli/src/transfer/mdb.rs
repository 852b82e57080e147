//! The text of LMDB's `mdb_dump` and `mdb_load`, which is also that of Berkeley DB's `db_dump`.
//!
//! Each table has header lines up to `HEADER=END`, then keys and values in lines that begin with a
//! space, then `DATA=END`. Nothing says that more tables follow, so only a table that was cut is
//! noticed, not a table that is missing.

use std::io::BufRead;
use std::ops::Range;

use super::section::{Head, ReadDump};
use crate::load::{Lines, ReadError, Record};
use crate::show::text::{decode_hex, push_hex};

pub(super) const START: &[u8] = b"VERSION=3\n";

/// `map_bytes` is the size of the LMDB environment that `mdb_load` makes for the table.
pub(super) fn table(name: &str, map_bytes: u64) -> String {
    format!(
        "VERSION=3\nformat=bytevalue\ndatabase={name}\ntype=btree\nmapsize={map_bytes}\nHEADER=END\n"
    )
}

pub(super) fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    for bytes in [key, value] {
        out.push(b' ');
        push_hex(out, bytes, "");
        out.push(b'\n');
    }
}

pub(super) const END_OF_TABLE: &str = "DATA=END\n";

pub(super) struct MdbDump<R> {
    lines: Lines<R>,
    /// Whether bytes are written as characters where they can be printed.
    is_print: bool,
    name: String,
    records: u64,
}

impl<R: BufRead> MdbDump<R> {
    pub(super) fn new(input: R) -> Self {
        Self { lines: Lines::new(input), is_print: false, name: String::new(), records: 0 }
    }

    fn cut(&self) -> ReadError {
        ReadError::Damaged(format!(
            "the dump is truncated: it ends within the table \"{}\", after record {}",
            self.name, self.records
        ))
    }

    /// Reads a line of data into `out`. Returns its number, or `None` for the end of the table.
    fn bytes(&mut self, out: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        let Some((line, text)) = self.lines.next()? else { return Err(self.cut()) };
        let lost = |why: &str| ReadError::Lost { line, why: why.to_owned() };
        let Some(text) = text.strip_prefix(b" ") else {
            return match text {
                b"DATA=END" => Ok(None),
                _ => Err(lost("the line neither begins with a space nor ends the table")),
            };
        };
        if self.is_print {
            unescape(out, text).map_err(|why| lost(&why))?;
        } else {
            let bytes = decode_hex(text);
            let no_digits = || lost("the line is not an even number of hexadecimal digits");
            out.extend(bytes.ok_or_else(no_digits)?);
        }
        Ok(Some(line))
    }
}

/// Appends the bytes of a line with `format=print`.
fn unescape(out: &mut Vec<u8>, text: &[u8]) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let len = if rest.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            2
        } else {
            let byte = rest.get(at + 1..at + 3).and_then(decode_hex);
            // Older versions of mdb_dump print a backslash as it is.
            out.extend(byte.ok_or(
                "a backslash is not followed by two hexadecimal digits; dump without -p, which is exact",
            )?);
            3
        };
        rest = &rest[at + len..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

impl<R: BufRead + Send> ReadDump for MdbDump<R> {
    fn next_table(&mut self) -> Result<Option<Head>, ReadError> {
        let mut head = Head { name: None, is_sorted: true, note: None };
        let mut begun = false;
        self.records = 0;
        self.name.clear();
        while let Some((line, text)) = self.lines.next()? {
            begun = true;
            let lost = |why: String| Err(ReadError::Lost { line, why });
            let text = String::from_utf8_lossy(text);
            match text.split_once('=').unwrap_or((&text, "")) {
                ("VERSION", "3") => {}
                ("VERSION", version) => {
                    return lost(format!("the dump has version {version}, not 3"));
                }
                ("HEADER", "END") => return Ok(Some(head)),
                ("format", "bytevalue") => self.is_print = false,
                ("format", "print") => self.is_print = true,
                ("format", format) => return lost(format!("the format {format} is not known")),
                ("database", name) => {
                    name.clone_into(&mut self.name);
                    head.name = Some(name.to_owned());
                }
                ("type", "btree") => {}
                ("type", "hash") => head.is_sorted = false,
                ("type", kind) => {
                    return lost(format!("a database of type {kind} does not have keys of bytes"));
                }
                ("duplicates" | "dupsort", "1") => {
                    return lost(
                        "the database has several values for a key, which a table cannot have: \
                         add the value, or a number, to the key before it is dumped"
                            .to_owned(),
                    );
                }
                (order @ ("integerkey" | "reversekey"), "1") => {
                    let keys = match order {
                        "integerkey" => "are integers of the machine",
                        _ => "were compared from their ends",
                    };
                    head.is_sorted = false;
                    head.note =
                        Some(format!("its keys {keys}; here they are in the order of their bytes"));
                }
                _ if text.starts_with(' ') => {
                    return lost("the line is data, but no header is before it".to_owned());
                }
                // Sizes of the environment that was dumped.
                _ => {}
            }
        }
        if begun { Err(self.cut()) } else { Ok(None) }
    }

    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        let Some(line) = self.bytes(&mut record.key)? else { return Ok(None) };
        if self.bytes(&mut record.value)?.is_none() {
            let why = "the table ends behind a key without a value".to_owned();
            return Err(ReadError::Lost { line, why });
        }
        self.records += 1;
        Ok(Some(line..line + 2))
    }
}
