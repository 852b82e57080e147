//! Checks the large values that the log put after the checkpoint, which the check of the
//! checkpoint's pages does not reach.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_engine::StoreOptions;
use qpair_format::Result;
use qpair_format::log::Operation;

use super::save::read_large;
use crate::offline::{Offline, read_logs};

/// Describes the large values that cannot be read. A value that a later commit replaced may be
/// gone, and does not count.
pub(super) fn unreadable(
    members: &[Arc<dyn BlockDevice>],
    options: &StoreOptions,
) -> Result<Vec<String>> {
    let Offline { mut reader, checkpoint, .. } = Offline::open(members, options, None)?;
    let Some((record, image)) = checkpoint else { return Ok(Vec::new()) };
    let mut values = BTreeMap::new();
    read_logs(&mut reader, &record, &image.logs, |_, _, _, record| {
        for operation in record.operations() {
            match operation {
                Operation::PutLarge { tree, key, descriptor } => {
                    values.insert((tree, key.to_vec()), descriptor);
                }
                Operation::Put { tree, key, .. } | Operation::Delete { tree, key } => {
                    values.remove(&(tree, key.to_vec()));
                }
                Operation::DropTable { tree } => values.retain(|(of, _), _| *of != tree),
                Operation::CreateTable { .. } | Operation::RenameTable { .. } => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut faults = Vec::new();
    for ((tree, _), descriptor) in values {
        if read_large(&mut reader, &descriptor)?.is_none() {
            faults.push(format!("a large value of tree {tree}, put by the log, cannot be read"));
        }
    }
    Ok(faults)
}
