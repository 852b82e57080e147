//! A snapshot's bytes: a header, each record with the lengths of its key and value before it, and
//! an end with the number of records. They come from other members, so nothing in them is
//! trusted.

use qpair::{Error, ErrorKind, KEY_LEN_MAX, Result, VALUE_LEN_MAX};
use std::io::{self, Read, Write};

const HEADER: &[u8; 8] = b"qpairsn1";
/// The length of a key that stands for the end.
const END: u32 = u32::MAX;

/// Writes the header of a snapshot.
pub(crate) fn begin(out: &mut impl Write) -> io::Result<()> {
    out.write_all(HEADER)
}

pub(crate) fn push(out: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    // The store's limits are below 4 GiB.
    out.write_all(&(key.len() as u32).to_le_bytes())?;
    out.write_all(&(value.len() as u32).to_le_bytes())?;
    out.write_all(key)?;
    out.write_all(value)
}

pub(crate) fn end(out: &mut impl Write, records: u64) -> io::Result<()> {
    out.write_all(&END.to_le_bytes())?;
    out.write_all(&records.to_le_bytes())
}

/// Reads the records of a snapshot. Holds one record at a time.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    at: u64,
    records: u64,
    ended: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Begins to read the records of the snapshot whose bytes `input` has.
    ///
    /// # Errors
    /// `Corrupt` if the bytes do not begin as a snapshot does, and errors of `input`.
    pub fn new(input: R) -> Result<Self> {
        let (key, value) = (Vec::new(), Vec::new());
        let mut records = Self { input, at: 0, records: 0, ended: false, key, value };
        let mut header = [0; HEADER.len()];
        records.fill(&mut header)?;
        if header != *HEADER {
            return Err(wrong(0, "they do not begin as a snapshot does"));
        }
        Ok(records)
    }

    /// Returns the next record's key and value, or `None` after the last one.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not those of a whole snapshot, and errors of the input.
    pub fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.ended {
            return Ok(None);
        }
        // Stays so after an error.
        self.ended = true;
        let mut len = [0; 4];
        self.fill(&mut len)?;
        let key_len = u32::from_le_bytes(len);
        if key_len == END {
            self.check_end()?;
            return Ok(None);
        }
        self.fill(&mut len)?;
        let value_len = u32::from_le_bytes(len);
        if key_len as usize > KEY_LEN_MAX || value_len as usize > VALUE_LEN_MAX {
            return Err(wrong(self.at, "a record is larger than a store's records can be"));
        }
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        self.take(key_len, &mut key)?;
        self.take(value_len, &mut value)?;
        (self.key, self.value) = (key, value);
        self.records += 1;
        self.ended = false;
        Ok(Some((&self.key, &self.value)))
    }

    /// Returns the number of records that were read.
    pub fn count(&self) -> u64 {
        self.records
    }

    fn check_end(&mut self) -> Result<()> {
        let mut records = [0; 8];
        self.fill(&mut records)?;
        if u64::from_le_bytes(records) != self.records {
            return Err(wrong(self.at, "the number of records is wrong"));
        }
        match self.input.read(&mut [0]).map_err(from_io)? {
            0 => Ok(()),
            _ => Err(wrong(self.at, "they do not end where they should")),
        }
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        self.input.read_exact(out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong(self.at, "they are too short"),
            _ => from_io(error),
        })?;
        self.at += out.len() as u64;
        Ok(())
    }

    /// Reads `len` bytes into `out`, whose memory grows with the bytes that arrive.
    fn take(&mut self, len: u32, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let read = (&mut self.input).take(len.into()).read_to_end(out).map_err(from_io)?;
        if read < len as usize {
            return Err(wrong(self.at, "they are too short"));
        }
        self.at += u64::from(len);
        Ok(())
    }
}

/// Reads a snapshot to its end; returns the number of records.
///
/// # Errors
/// `Corrupt` if the bytes are not those of a whole snapshot, and errors of the input.
pub fn check(input: impl Read) -> Result<u64> {
    let mut records = Records::new(input)?;
    while records.next_record()?.is_some() {}
    Ok(records.count())
}

fn wrong(at: u64, why: &str) -> Error {
    Error::with_hint(
        ErrorKind::Corrupt,
        format!("the bytes of a snapshot are wrong at {at}: {why}"),
        "let the leader send it again",
    )
}

/// The error of a store that an [`io::Error`] stands for.
pub(crate) fn from_io(error: io::Error) -> Error {
    error.downcast().unwrap_or_else(|error| {
        Error::new(ErrorKind::Io, format!("the snapshot's bytes cannot be read: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes).unwrap();
        push(&mut bytes, b"a", b"1").unwrap();
        push(&mut bytes, b"bc", &[7; 300]).unwrap();
        end(&mut bytes, 2).unwrap();
        bytes
    }

    #[test]
    fn a_snapshot_has_its_records() {
        let bytes = sample();
        let mut records = Records::new(&bytes[..]).unwrap();
        assert_eq!(records.next_record().unwrap(), Some((&b"a"[..], &b"1"[..])));
        assert_eq!(records.next_record().unwrap(), Some((&b"bc"[..], &[7; 300][..])));
        assert_eq!(records.next_record().unwrap(), None);
        assert_eq!(records.next_record().unwrap(), None);
        assert_eq!(check(&bytes[..]).unwrap(), 2);
    }

    #[test]
    fn no_part_of_a_snapshot_is_one() {
        let bytes = sample();
        for len in 0..bytes.len() {
            assert_eq!(check(&bytes[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        assert!(check(&[&bytes[..], &[0]].concat()[..]).is_err());
    }

    #[test]
    fn changed_bytes_do_not_panic() {
        let whole = sample();
        for round in 0..20_000 {
            let mut bytes = whole.clone();
            let mut random = fastrand::Rng::with_seed(round);
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            let _ = check(&bytes[..]);
        }
    }
}
