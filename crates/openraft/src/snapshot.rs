//! A snapshot's bytes: a header, each record with the lengths of its key and value before it, and
//! an end with the number of records. They come from other members, so nothing in them is
//! trusted.

use qpair::{Error, ErrorKind, KEY_LEN_MAX, Result, VALUE_LEN_MAX};

const HEADER: &[u8; 8] = b"qpairsn1";
/// The length of a key that stands for the end.
const END: u32 = u32::MAX;

/// Begins a snapshot.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(HEADER);
}

pub(crate) fn push(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The store's limits are below 4 GiB.
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

pub(crate) fn end(out: &mut Vec<u8>, records: u64) {
    out.extend_from_slice(&END.to_le_bytes());
    out.extend_from_slice(&records.to_le_bytes());
}

/// The records of a snapshot. Ends with an error where the bytes are not those of a snapshot.
#[derive(Debug)]
pub struct Records<'b> {
    bytes: &'b [u8],
    at: usize,
    records: u64,
    ended: bool,
}

impl<'b> Records<'b> {
    /// Returns the records in `bytes`.
    ///
    /// # Errors
    /// `Corrupt` if the bytes do not begin as a snapshot does.
    pub fn new(bytes: &'b [u8]) -> Result<Self> {
        if !bytes.starts_with(HEADER) {
            return Err(wrong(0, "they do not begin as a snapshot does"));
        }
        Ok(Self { bytes, at: HEADER.len(), records: 0, ended: false })
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8]> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| wrong(self.at, "they are too short"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn take_u32(&mut self) -> Result<u32> {
        let taken = self.take(4)?.try_into().map_err(|_| wrong(self.at, "they are too short"))?;
        Ok(u32::from_le_bytes(taken))
    }

    fn step(&mut self) -> Result<Option<(&'b [u8], &'b [u8])>> {
        let key_len = self.take_u32()?;
        if key_len == END {
            let taken =
                self.take(8)?.try_into().map_err(|_| wrong(self.at, "they are too short"))?;
            if u64::from_le_bytes(taken) != self.records {
                return Err(wrong(self.at, "the number of records is wrong"));
            }
            if self.at != self.bytes.len() {
                return Err(wrong(self.at, "they go on after their end"));
            }
            return Ok(None);
        }
        let value_len = self.take_u32()?;
        if key_len as usize > KEY_LEN_MAX || value_len as usize > VALUE_LEN_MAX {
            return Err(wrong(self.at, "a record is larger than a store's records can be"));
        }
        let record = (self.take(key_len as usize)?, self.take(value_len as usize)?);
        self.records += 1;
        Ok(Some(record))
    }
}

impl<'b> Iterator for Records<'b> {
    type Item = Result<(&'b [u8], &'b [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}

/// Reads a snapshot to its end; returns the number of records.
///
/// # Errors
/// `Corrupt` if the bytes are not those of a whole snapshot.
pub fn check(bytes: &[u8]) -> Result<u64> {
    let mut records = Records::new(bytes)?;
    for record in &mut records {
        record?;
    }
    Ok(records.records)
}

fn wrong(at: usize, why: &str) -> Error {
    Error::with_hint(
        ErrorKind::Corrupt,
        format!("the bytes of a snapshot are wrong at {at}: {why}"),
        "let the leader send it again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes);
        push(&mut bytes, b"a", b"1");
        push(&mut bytes, b"bc", &[7; 300]);
        end(&mut bytes, 2);
        bytes
    }

    #[test]
    fn a_snapshot_has_its_records() {
        let bytes = sample();
        let records: Result<Vec<_>> = Records::new(&bytes).unwrap().collect();
        assert_eq!(records.unwrap(), [(&b"a"[..], &b"1"[..]), (b"bc", &[7; 300])]);
        assert_eq!(check(&bytes).unwrap(), 2);
    }

    #[test]
    fn no_part_of_a_snapshot_is_one() {
        let bytes = sample();
        for len in 0..bytes.len() {
            assert_eq!(check(&bytes[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        assert!(check(&[&bytes[..], &[0]].concat()).is_err());
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
            let _ = check(&bytes);
        }
    }
}
