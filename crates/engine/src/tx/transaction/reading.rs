//! Reading a row at a snapshot: from its leaf, the row table, or the sorted runs on the device.

use qpair_format::large::Descriptor;
use qpair_format::{Error, ErrorKind, Result};

use crate::canary::Canary;
use crate::overflow;
use crate::panics::guarded;
use crate::shared::Shared;
use crate::task::run_as;
use crate::tree::{CursorHint, Found, Get, Seen, Tree};
use crate::tx::Tx;
use crate::tx::versions::BeforeImage;

/// Replaces the contents of `value` from `start` on by a before-image.
pub(super) fn put_older(image: &BeforeImage, start: usize, value: &mut Vec<u8>) -> Found {
    value.truncate(start);
    match image {
        BeforeImage::Absent => Found::Nothing,
        BeforeImage::Inline(bytes) => {
            value.extend_from_slice(bytes);
            Found::Value
        }
        BeforeImage::Large(descriptor) => {
            value.extend_from_slice(descriptor);
            Found::Overflow
        }
    }
}

/// Finds a row's value at a snapshot in memory, in the leaf or in the row table. With a value of
/// the row table returns also the timestamp of the commit that replaced it.
#[inline]
fn older(
    tx: &Tx,
    tree: Tree,
    key: &[u8],
    snapshot: u64,
    Seen { found, timestamp, .. }: Seen,
    start: usize,
    value: &mut Vec<u8>,
) -> (Found, Option<u64>) {
    if timestamp <= snapshot {
        return (found, None);
    }
    let image = guarded(&tx.shared, || {
        tx.rows.at(tree.id, key, snapshot, |version| {
            (put_older(&version.image, start, value), Some(version.timestamp))
        })
    });
    image.unwrap_or((found, None))
}

/// Like [`older`], but returns `None` if the runs on the device may have the row's value at the
/// snapshot.
pub(super) fn older_now(
    tx: &Tx,
    tree: Tree,
    key: &[u8],
    snapshot: u64,
    seen: Seen,
    start: usize,
    value: &mut Vec<u8>,
) -> Option<Found> {
    let (found, _) = older(tx, tree, key, snapshot, seen, start, value);
    (seen.timestamp <= snapshot || !tx.history.is_behind(snapshot)).then_some(found)
}

/// Looks a key up at a snapshot in use, first at the position of `cursor_hint`. Appends the value,
/// or a large value's descriptor, to `value`.
pub(super) async fn find_at(
    tx: &Tx,
    tree: Tree,
    key: &[u8],
    snapshot: u64,
    value: &mut Vec<u8>,
    cursor_hint: Option<CursorHint>,
    interleave: bool,
) -> Result<Seen> {
    let shared = &tx.shared;
    let start = value.len();
    let seen = run_as(shared, Get::new(tree, key, value).at(cursor_hint), interleave).await?;
    let (mut found, replaced) = older(tx, tree, key, snapshot, seen, start, value);
    let history = &tx.history;
    // The runs are checked after the row table: a version that has left the table is in the runs.
    if seen.timestamp > snapshot
        && history.is_behind(snapshot)
        && !shared.planted.is(Canary::UnreadHistory)
        && let Some(version) = history
            .find(shared, tree.id, key, snapshot)
            .await
            .inspect_err(|_| value.truncate(start))?
        && replaced.is_none_or(|replaced| version.timestamp < replaced)
    {
        found = put_older(&version.image, start, value);
    }
    Ok(Seen { found, ..seen })
}

/// Appends the value of a key at a snapshot in use to `value`. Waits until the program may see the
/// value.
pub(super) async fn read_at(
    tx: &Tx,
    tree: Tree,
    key: &[u8],
    snapshot: u64,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let start = value.len();
    let shared = &tx.shared;
    let seen = find_at(tx, tree, key, snapshot, value, None, true).await?;
    let found = resolve(shared, seen.found, start, value).await;
    let given =
        shared.wait_to_give(shared.wal.options.reads_wait, seen.timestamp.min(snapshot)).await;
    given.inspect_err(|_| value.truncate(start))?;
    found
}

/// Replaces the descriptor of a large value, in `value` from `start` on, by the value; returns
/// whether there is a value.
pub(super) async fn resolve(
    shared: &Shared,
    found: Found,
    start: usize,
    value: &mut Vec<u8>,
) -> Result<bool> {
    match found {
        Found::Value => Ok(true),
        Found::Nothing => Ok(false),
        Found::Overflow => {
            let encoded = value.split_off(start);
            let descriptor = Descriptor::decode(&encoded, shared.page_bytes)?;
            read_large(shared, descriptor, value).await
        }
    }
}

/// Appends a large value that no commit can have replaced.
pub(super) async fn read_large(
    shared: &Shared,
    descriptor: Descriptor,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let start = value.len();
    let outcome = overflow::read(shared, descriptor, value).await;
    if !matches!(outcome, Ok(true)) {
        value.truncate(start);
    }
    if outcome? {
        return Ok(true);
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("the pages from page {} on belong to another large value", descriptor.page_id),
    ))
}
