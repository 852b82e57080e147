//! The report of a repair about records with long keys, which are saved and replayed in groups: see
//! docs/design/long-keys.md.

use std::ops::Bound;

use qpair_engine::{KeyBounds, Prefix, Store};
use qpair_format::Result;

use super::report::{KeyRange, RepairedTable};

/// Counts the records of groups, and tells of a lost group the range of keys that it had. Keys of
/// more than `whole_len_max` bytes are those of groups.
pub(super) fn tell_records(
    target: &Store,
    saved: &mut RepairedTable,
    whole_len_max: usize,
) -> Result<()> {
    let keys = std::mem::take(&mut saved.large_keys_lost);
    for key in keys {
        if key.len() <= whole_len_max {
            saved.large_keys_lost.push(key);
            continue;
        }
        let to = match Prefix(&key[..whole_len_max]).key_bounds().1 {
            Bound::Excluded(end) => Some(end),
            _ => None,
        };
        saved.large_values_lost -= 1;
        saved.lost.push(KeyRange {
            from: key,
            to,
            why: "a group of records with long keys cannot be read".to_owned(),
        });
    }
    if let Some(table) = target.existing_table(&saved.name)?
        && table.ttl().is_none()
    {
        saved.records = table.count()?;
    }
    Ok(())
}
