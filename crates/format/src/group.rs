//! Groups: the records of a table whose keys are longer than a page takes, and begin with the same
//! bytes. See docs/design/long-keys.md.
//!
//! A group is the value of one record. It begins with a byte, its version, which is 1. The records
//! of the group follow in the order of their keys: the length of the key's rest (u16), the length
//! of the value (u32), the rest, the value. A rest is not empty. A group has one record at least.

use crate::page::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::{Error, ErrorKind, Result};

const VERSION: u8 = 1;
/// Bytes before each rest.
const RECORD_HEAD_BYTES: usize = 6;

/// Returns the key of the group that has the record of a long key. Keys longer than `whole_len_max`
/// bytes are long.
#[must_use]
pub fn group_key(key: &[u8], whole_len_max: usize) -> Vec<u8> {
    let head = &key[..whole_len_max.min(key.len())];
    let mut of_group = Vec::with_capacity(head.len() + 1);
    of_group.extend_from_slice(head);
    of_group.push(0);
    of_group
}

/// The records of a group: the rest of each key, and its value. After an error the iteration ends.
pub struct Records<'a> {
    left: &'a [u8],
    previous: Option<&'a [u8]>,
}

impl<'a> Records<'a> {
    /// Begins with the first record of a group. The empty byte string stands for no group, which
    /// has no records.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a group, or one of an unknown version.
    pub fn of(group: &'a [u8]) -> Result<Self> {
        match group.split_first() {
            None => Ok(Self { left: &[], previous: None }),
            Some((&VERSION, [])) => Err(damaged("has no records")),
            Some((&VERSION, left)) => Ok(Self { left, previous: None }),
            Some((other, _)) => Err(damaged(&format!("has version {other}; 1 was expected"))),
        }
    }

    fn take(&mut self) -> Result<(&'a [u8], &'a [u8])> {
        let split = |bytes: &'a [u8], at: usize| {
            bytes.split_at_checked(at).ok_or_else(|| damaged("ends within a record"))
        };
        let (head, left) = split(self.left, RECORD_HEAD_BYTES)?;
        let rest_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let value_len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let (rest, left) = split(left, rest_len)?;
        let (value, left) = split(left, value_len)?;
        if rest.is_empty() || self.previous.is_some_and(|previous| previous >= rest) {
            return Err(damaged("has records out of order"));
        }
        (self.previous, self.left) = (Some(rest), left);
        Ok((rest, value))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let record = self.take();
        if record.is_err() {
            self.left = &[];
        }
        Some(record)
    }
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("a group of records with long keys {what}"))
}

/// Returns the value of the key with this rest; `None` if the group has no such record.
///
/// # Errors
/// `Corrupt` if the bytes up to the record are not those of a group.
pub fn find<'a>(group: &'a [u8], rest: &[u8]) -> Result<Option<&'a [u8]>> {
    for record in Records::of(group)? {
        let (found, value) = record?;
        if found >= rest {
            return Ok((found == rest).then_some(value));
        }
    }
    Ok(None)
}

/// Appends a record to a group that is being made. The empty byte string becomes a group.
///
/// # Errors
/// `ValueTooLong` if the group would be longer than a value may be.
pub fn append(group: &mut Vec<u8>, rest: &[u8], value: &[u8]) -> Result<()> {
    let len = group.len().max(1) + RECORD_HEAD_BYTES + rest.len() + value.len();
    let (Ok(rest_len), Ok(value_len)) = (u16::try_from(rest.len()), u32::try_from(value.len()))
    else {
        return Err(too_long(len));
    };
    if len > VALUE_LEN_MAX {
        return Err(too_long(len));
    }
    if group.is_empty() {
        group.push(VERSION);
    }
    group.extend_from_slice(&rest_len.to_le_bytes());
    group.extend_from_slice(&value_len.to_le_bytes());
    group.extend_from_slice(rest);
    group.extend_from_slice(value);
    Ok(())
}

#[cold]
fn too_long(len: usize) -> Error {
    Error::with_hint(
        ErrorKind::ValueTooLong,
        format!(
            "the records whose long keys begin with the same bytes have {len} bytes together; the limit is {VALUE_LEN_MAX}"
        ),
        "use keys that differ within their first 1,024 bytes (earlier with pages below 4 KiB), or shorter values",
    )
}

/// Returns the group with these changes, which are in the order of the rests; `None` removes a
/// record. The result is empty if no record is left.
///
/// # Errors
/// `Corrupt` if the bytes are not a group; `ValueTooLong`.
pub fn changed(group: &[u8], changes: &[(&[u8], Option<&[u8]>)]) -> Result<Vec<u8>> {
    let more: usize = changes
        .iter()
        .map(|(rest, value)| value.map_or(0, |v| v.len() + rest.len() + RECORD_HEAD_BYTES))
        .sum();
    let mut new = Vec::with_capacity((group.len() + more + 1).min(VALUE_LEN_MAX));
    let mut changes = changes.iter().peekable();
    for record in Records::of(group)? {
        let (rest, value) = record?;
        while let Some((before, put)) = changes.next_if(|(changed, _)| *changed < rest) {
            put.map_or(Ok(()), |put| append(&mut new, before, put))?;
        }
        match changes.next_if(|(changed, _)| *changed == rest) {
            Some((_, put)) => put.map_or(Ok(()), |put| append(&mut new, rest, put))?,
            None => append(&mut new, rest, value)?,
        }
    }
    for (rest, put) in changes {
        put.map_or(Ok(()), |put| append(&mut new, rest, put))?;
    }
    Ok(new)
}

/// Returns the reason why bytes are not a group with this key, for a check.
#[must_use]
pub fn fault(key: &[u8], group: &[u8]) -> Option<String> {
    if group.is_empty() {
        return Some("is empty".to_owned());
    }
    let head_len = key.len().saturating_sub(1);
    let records = match Records::of(group) {
        Ok(records) => records,
        Err(error) => return Some(error.context().to_owned()),
    };
    for record in records {
        match record {
            Ok((rest, _)) if head_len + rest.len() <= KEY_LEN_MAX => {}
            Ok(_) => return Some("a group has a key that is too long".to_owned()),
            Err(error) => return Some(error.context().to_owned()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn model(group: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let own = |record: Result<(&[u8], &[u8])>| record.map(|(k, v)| (k.to_vec(), v.to_vec()));
        Records::of(group).unwrap().map(|record| own(record).unwrap()).collect()
    }

    #[test]
    fn changes_are_those_of_a_map() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut group, mut map) = (Vec::new(), BTreeMap::new());
        for _ in 0..3000 {
            let rest: Vec<u8> = (0..random.usize(1..4)).map(|_| random.u8(0..3) * 127).collect();
            let value: Option<Vec<u8>> = random.bool().then(|| vec![7; random.usize(0..5)]);
            group = changed(&group, &[(&rest, value.as_deref())]).unwrap();
            match value {
                Some(value) => drop(map.insert(rest, value)),
                None => drop(map.remove(&rest)),
            }
            assert_eq!(model(&group), map);
            assert_eq!(group.is_empty(), map.is_empty());
            let sought: Vec<u8> = (0..random.usize(1..4)).map(|_| random.u8(0..3) * 127).collect();
            assert_eq!(find(&group, &sought).unwrap(), map.get(&sought).map(Vec::as_slice));
            assert!(group.is_empty() || fault(&[0; 9], &group).is_none());
        }
    }

    #[test]
    fn several_changes_are_made_at_once() {
        let group = changed(&[], &[(b"a", Some(b"1")), (b"b", Some(b"2")), (b"d", None)]).unwrap();
        let group =
            changed(&group, &[(b"a", None), (b"b", Some(b"3")), (b"c", Some(b"4"))]).unwrap();
        let map = BTreeMap::from([(b"b".to_vec(), b"3".to_vec()), (b"c".to_vec(), b"4".to_vec())]);
        assert_eq!(model(&group), map);
        assert!(changed(&group, &[(b"b", None), (b"c", None)]).unwrap().is_empty());
    }

    #[test]
    fn bytes_that_are_no_group_are_refused() {
        let whole = changed(&[], &[(b"a", Some(b"12")), (b"bc", Some(b""))]).unwrap();
        assert_eq!(fault(b"k", &whole), None);
        for len in 0..whole.len() {
            let is_shorter_group = len == 1 + RECORD_HEAD_BYTES + 3;
            assert_eq!(fault(b"k", &whole[..len]).is_none(), is_shorter_group, "{len}");
        }
        assert!(fault(&vec![0; KEY_LEN_MAX], &whole).is_some());
        let mut other = whole.clone();
        other[0] = 2;
        assert!(fault(b"k", &other).is_some());
        let mut unsorted = whole;
        unsorted[1 + RECORD_HEAD_BYTES] = b'z';
        assert!(fault(b"k", &unsorted).is_some());
        let large = vec![0; VALUE_LEN_MAX];
        assert_eq!(
            changed(&[], &[(b"a", Some(&large))]).unwrap_err().kind(),
            ErrorKind::ValueTooLong
        );
    }
}
