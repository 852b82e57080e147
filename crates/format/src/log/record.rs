//! Commit records: a timestamp and the operations of one transaction.
//!
//! A record that decodes is complete: its checksum is right, and its operations fill it exactly.
//! Lengths are checked against the available bytes before they are used.

use super::{get_u16, get_u32, get_u64};
use crate::error::{Error, ErrorKind, Result};
use crate::large::Descriptor;

/// Bytes before a record's first operation: length u32, checksum of what follows u32, timestamp
/// u64, number of operations u32, flags u32.
pub(super) const RECORD_HEADER_BYTES: usize = 24;
pub const RECORD_BYTES_MAX: usize = 1 << 30;
/// Bytes before an operation's key or name: kind u8, zero u8, length of the key u16, tree u32.
const OPERATION_HEAD_BYTES: usize = 8;

/// Flag: the next record of the log belongs to the same commit.
const CONTINUES: u32 = 1;

const PUT: u8 = 1;
const PUT_LARGE: u8 = 2;
const DELETE: u8 = 3;
const CREATE_TABLE: u8 = 4;
const DROP_TABLE: u8 = 5;
const RENAME_TABLE: u8 = 6;

/// One change of a transaction. It states the result, so that applying it twice does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    Put {
        tree: u32,
        key: &'a [u8],
        value: &'a [u8],
    },
    /// A key gets the large value of this descriptor, whose pages are on the device already.
    PutLarge {
        tree: u32,
        key: &'a [u8],
        descriptor: [u8; Descriptor::BYTES],
    },
    Delete {
        tree: u32,
        key: &'a [u8],
    },
    CreateTable {
        tree: u32,
        name: &'a str,
    },
    DropTable {
        tree: u32,
    },
    RenameTable {
        tree: u32,
        name: &'a str,
    },
}

impl<'a> Operation<'a> {
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        OPERATION_HEAD_BYTES
            + match self {
                Self::Put { key, value, .. } => 4 + key.len() + value.len(),
                Self::PutLarge { key, .. } => key.len() + Descriptor::BYTES,
                Self::Delete { key, .. } => key.len(),
                Self::CreateTable { name, .. } | Self::RenameTable { name, .. } => name.len(),
                Self::DropTable { .. } => 0,
            }
    }

    /// Decodes the operation at the start of `bytes`, and returns its size.
    #[inline]
    fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let key_len = usize::from(get_u16(bytes, 2)?);
        let tree = get_u32(bytes, 4)?;
        if bytes[1] != 0 {
            return None;
        }
        let rest = &bytes[OPERATION_HEAD_BYTES..];
        let name = || std::str::from_utf8(rest.get(..key_len)?).ok();
        let operation = match bytes[0] {
            PUT => {
                let value_len = get_u32(rest, 0)? as usize;
                let (key, rest) = rest[4..].split_at_checked(key_len)?;
                Self::Put { tree, key, value: rest.get(..value_len)? }
            }
            PUT_LARGE => {
                let (key, rest) = rest.split_at_checked(key_len)?;
                Self::PutLarge { tree, key, descriptor: *rest.first_chunk()? }
            }
            DELETE => Self::Delete { tree, key: rest.get(..key_len)? },
            CREATE_TABLE => Self::CreateTable { tree, name: name()? },
            RENAME_TABLE => Self::RenameTable { tree, name: name()? },
            DROP_TABLE if key_len == 0 => Self::DropTable { tree },
            _ => return None,
        };
        Some((operation, operation.encoded_bytes()))
    }
}

/// Appends one record to a vector. If it is dropped before [`finish`](Self::finish), it removes
/// what it appended.
pub struct RecordBuilder<'a> {
    output: &'a mut Vec<u8>,
    /// The offset in `output` at which the record begins.
    start: usize,
    operations: u32,
    /// Whether a key or name was too long for the format.
    too_long: bool,
    finished: bool,
}

impl<'a> RecordBuilder<'a> {
    /// Begins a record at the end of `output`.
    #[inline]
    pub fn new(output: &'a mut Vec<u8>, timestamp: u64) -> Self {
        let start = output.len();
        let mut header = [0; RECORD_HEADER_BYTES];
        super::set(&mut header, 8, &timestamp.to_le_bytes());
        output.extend_from_slice(&header);
        Self { output, start, operations: 0, too_long: false, finished: false }
    }

    /// Makes the record a part of its commit: the next record has the rest, or more of it.
    #[inline]
    pub fn continues(&mut self) {
        super::set(&mut self.output[self.start..], 20, &CONTINUES.to_le_bytes());
    }

    #[inline]
    pub fn push(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Put { tree, key, value } => {
                self.head(PUT, tree, key.len());
                // Values are far shorter than this. A longer one makes the record too long anyway.
                let value_len = u32::try_from(value.len()).unwrap_or(u32::MAX);
                self.output.extend_from_slice(&value_len.to_le_bytes());
                self.output.extend_from_slice(key);
                self.output.extend_from_slice(value);
            }
            Operation::PutLarge { tree, key, descriptor } => {
                self.head(PUT_LARGE, tree, key.len());
                self.output.extend_from_slice(key);
                self.output.extend_from_slice(&descriptor);
            }
            Operation::Delete { tree, key } => {
                self.head(DELETE, tree, key.len());
                self.output.extend_from_slice(key);
            }
            Operation::CreateTable { tree, name } => {
                self.head(CREATE_TABLE, tree, name.len());
                self.output.extend_from_slice(name.as_bytes());
            }
            Operation::DropTable { tree } => self.head(DROP_TABLE, tree, 0),
            Operation::RenameTable { tree, name } => {
                self.head(RENAME_TABLE, tree, name.len());
                self.output.extend_from_slice(name.as_bytes());
            }
        }
        self.operations += 1;
    }

    #[inline]
    fn head(&mut self, kind: u8, tree: u32, key_len: usize) {
        let key_len = u16::try_from(key_len).unwrap_or_else(|_| {
            self.too_long = true;
            0
        });
        let [k0, k1] = key_len.to_le_bytes();
        let [t0, t1, t2, t3] = tree.to_le_bytes();
        self.output.extend_from_slice(&[kind, 0, k0, k1, t0, t1, t2, t3]);
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.output.len() - self.start
    }

    /// Ends the record and returns its length in bytes. A record that is longer than allowed is
    /// removed again, and the error is `Invalid`.
    #[inline]
    pub fn finish(mut self) -> Result<usize> {
        let len = self.bytes();
        if self.too_long || len > RECORD_BYTES_MAX {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                format!(
                    "a commit record of {len} bytes exceeds the limit of {RECORD_BYTES_MAX} bytes, or one of its keys is too long"
                ),
                "commit in smaller transactions",
            ));
        }
        let record = &mut self.output[self.start..];
        super::set(record, 0, &(len as u32).to_le_bytes());
        super::set(record, 16, &self.operations.to_le_bytes());
        let sum = crc_fast::crc32_iscsi(&record[8..]);
        super::set(record, 4, &sum.to_le_bytes());
        self.finished = true;
        Ok(len)
    }
}

impl Drop for RecordBuilder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.output.truncate(self.start);
        }
    }
}

/// A valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub timestamp: u64,
    pub operation_count: u32,
    /// Whether the next record of the log belongs to the same commit.
    pub continues: bool,
    /// The encoded operations, which were checked.
    operations: &'a [u8],
}

impl<'a> Record<'a> {
    /// Decodes the record that fills `bytes` exactly, or returns the fault.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let record = Self::checked(bytes)?;
        let (mut rest, mut count) = (record.operations, 0);
        while !rest.is_empty() {
            let (_, len) = Operation::decode(rest).ok_or("an operation cannot be decoded")?;
            rest = &rest[len..];
            count += 1;
        }
        if count != record.operation_count {
            return Err("the number of operations is wrong");
        }
        Ok(record)
    }

    /// Checks the length and the checksum of the record that fills `bytes` exactly, but not its
    /// operations.
    fn checked(bytes: &'a [u8]) -> Result<Self, &'static str> {
        const SHORT: &str = "the record is shorter than its header";
        let len = get_u32(bytes, 0).ok_or(SHORT)?;
        let sum = get_u32(bytes, 4).ok_or(SHORT)?;
        let timestamp = get_u64(bytes, 8).ok_or(SHORT)?;
        let operation_count = get_u32(bytes, 16).ok_or(SHORT)?;
        let flags = get_u32(bytes, 20).ok_or(SHORT)?;
        if len as usize != bytes.len() {
            return Err("the record's length is wrong");
        }
        if crc_fast::crc32_iscsi(&bytes[8..]) != sum {
            return Err("the record's checksum is wrong");
        }
        if flags & !CONTINUES != 0 {
            return Err("the record has unknown flags");
        }
        let continues = flags & CONTINUES != 0;
        Ok(Self {
            timestamp,
            operation_count,
            continues,
            operations: &bytes[RECORD_HEADER_BYTES..],
        })
    }

    /// Returns a record whose bytes were decoded before and have not changed since.
    #[inline]
    pub(super) fn again(bytes: &'a [u8]) -> Option<Self> {
        Some(Self {
            timestamp: get_u64(bytes, 8)?,
            operation_count: get_u32(bytes, 16)?,
            continues: get_u32(bytes, 20)? & CONTINUES != 0,
            operations: bytes.get(RECORD_HEADER_BYTES..)?,
        })
    }

    /// Returns the operations, in the order in which they must be applied.
    #[inline]
    pub fn operations(&self) -> impl Iterator<Item = Operation<'a>> + use<'a> {
        let mut rest = self.operations;
        std::iter::from_fn(move || {
            let (operation, len) = Operation::decode(rest)?;
            rest = rest.get(len..)?;
            Some(operation)
        })
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.operations.len()
    }
}

/// Returns the length in bytes of the record that begins here, if the length is available and
/// valid.
#[inline]
pub(super) fn record_bytes(bytes: &[u8]) -> Option<Result<usize, &'static str>> {
    let len = get_u32(bytes, 0)? as usize;
    let possible = (RECORD_HEADER_BYTES..=RECORD_BYTES_MAX).contains(&len);
    Some(if possible { Ok(len) } else { Err("a record's length is impossible") })
}
