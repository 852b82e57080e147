//! A transaction's own writes in its ranges: in memory, and on the device.

use super::state::{TxState, written};
use crate::tree::{Batch, Direction, Tree};
use crate::tx::history::Part;
use crate::tx::versions::{Bounds, is_within};

/// A value, or the descriptor of a large one, and which; `None` if there is no record.
type Own<'a> = Option<(&'a [u8], bool)>;

/// Merges a transaction's own writes with the records in `seen` into `output`; returns `false` if
/// there are no writes in this part.
pub(super) fn with_writes(
    core: Option<&TxState>,
    on_device: &Part,
    tree: Tree,
    direction: Direction,
    (low, high): Bounds<'_>,
    seen: &Batch,
    output: &mut Batch,
) -> bool {
    let Some(core) = core.filter(|core| core.has_writes()) else { return false };
    let in_memory = core.writes.range(tree.id, low, high);
    let mut own: Vec<(&[u8], Own<'_>)> = in_memory.map(|item| (item.key, written(&item))).collect();
    if !on_device.images.is_empty() {
        let within = on_device.images.iter().filter(|(key, _)| is_within((low, high), key));
        own.extend(within.map(|(key, version)| (key.as_slice(), version.image.record())));
        // Of two writes to a key, the one in memory is the newer one, and stays before the other.
        own.sort_by_key(|(key, _)| *key);
        own.dedup_by_key(|(key, _)| *key);
    }
    if own.is_empty() {
        return false;
    }
    if direction == Direction::Reverse {
        own.reverse();
    }
    output.clear();
    let mut push = |key: &[u8], own: Own<'_>| {
        if let Some((value, large)) = own {
            output.push_record(key, value, large);
        }
    };
    let mut own = own.into_iter().peekable();
    for index in 0..seen.len() {
        let (key, value, large) = seen.entry(index);
        while let Some((key, own)) = own.next_if(|(own, _)| direction.comes_before(own, key)) {
            push(key, own);
        }
        match own.next_if(|(own, _)| *own == key) {
            Some((key, own)) => push(key, own),
            None => push(key, Some((value, large))),
        }
    }
    own.for_each(|(key, own)| push(key, own));
    true
}
