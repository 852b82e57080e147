//! Merges leaves that deletes left sparse, in the background: commits are acknowledged first, and
//! no checkpoint waits for more than one merge.

use std::sync::Arc;

use qpair_format::Result;
use qpair_memory::FrameIndex;

use super::{Merge, Merged, Tree};
use crate::shared::Shared;
use crate::space::Reservation;
use crate::task::{current, run, run_at_once, spawn_here, take_turn};

/// Leaves that became sparse, each by one of its keys.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    keys: Vec<(Tree, Vec<u8>)>,
    last: Option<FrameIndex>,
}

impl Sparse {
    /// Notes the leaf in a frame. The deletes of a commit come in the order of keys, so each leaf
    /// is noted once.
    pub(crate) fn note(&mut self, tree: Tree, key: &[u8], leaf: FrameIndex) {
        if self.last.replace(leaf) != Some(leaf) {
            self.keys.push((tree, key.to_vec()));
        }
    }
}

/// Merges leaves that became sparse, in a separate task. A leaf that cannot be merged merely stays
/// sparse.
pub(crate) fn merge_later(shared: &Shared, sparse: &mut Sparse) {
    let Sparse { keys, .. } = std::mem::take(sparse);
    if keys.is_empty() {
        return;
    }
    let under_way = shared.forest.merging.begin();
    drop(spawn_here(shared, move || async move {
        let _under_way = under_way;
        let Some(shared) = current(|worker| worker.shared_arc()) else { return };
        for (tree, key) in keys {
            if merge(&shared, tree, &key).await.is_err()
                && shared.lifecycle.check_writable().is_err()
            {
                return;
            }
        }
    }));
}

/// Merges the leaf of a key with a neighbour if it is still sparse, and then the pages above in the
/// same way.
async fn merge(shared: &Arc<Shared>, tree: Tree, key: &[u8]) -> Result<()> {
    let mut level = 0;
    loop {
        // Other tasks run first, because no task waits for this.
        take_turn().await;
        let mut inside = shared.checkpointing.barrier.enter().await?;
        // No task merges leaves of a tree that is being emptied.
        shared.check_table(tree)?;
        // The two merged pages, and the pages above, which may be merged with their neighbours.
        let changed = 2 + 2 * tree.levels(&shared.pool);
        shared.space.reserve_places(&mut inside, Reservation { changed, made: 0 })?;
        match run_at_once(shared, Merge::new(tree, key, level)).await? {
            Merged::Merged { parent_sparse: true } => level += 1,
            _ => return Ok(()),
        }
    }
}

/// Merges the leaf of a key with a neighbour if it is sparse, and then the pages above in the same
/// way.
pub(crate) async fn merge_sparse(shared: &Shared, tree: Tree, key: &[u8]) -> Result<()> {
    let mut level = 0;
    while let Merged::Merged { parent_sparse: true } =
        run(shared, Merge::new(tree, key, level)).await?
    {
        level += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use qpair_block::BlockDevice;
    use qpair_block::time::SimClock;
    use qpair_sim_block::{SimDevice, SimOptions};

    use super::*;
    use crate::{Durability, Runtime, Store, StoreOptions, TransactionOptions};

    const RECORDS: u32 = 4000;

    fn open(device: &SimDevice, clock: &SimClock, seed: u64, format: bool) -> Store {
        let options = StoreOptions {
            format,
            page_size: 512,
            memory_bytes: 2048 * 512,
            workers: 2,
            runtime: Runtime::Stepped { seed, clock: clock.clone() },
            ..StoreOptions::default()
        };
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device.clone())];
        Store::open(members, &options).unwrap()
    }

    /// A regression: deletes were acknowledged only after all merges, which were made inside the
    /// barrier in one go.
    #[test]
    fn deletes_are_acknowledged_before_their_merges_and_the_barrier_is_left_between_them() {
        for seed in 0..5 {
            let clock = SimClock::new();
            let device = SimDevice::new(SimOptions::new(seed, &clock)).unwrap();
            let store = open(&device, &clock, seed, true);
            let table = store.table("t").unwrap();
            let used = |store: &Store| store.report().pages - store.report().free_pages;
            let before = used(&store);
            let records = (0..RECORDS).map(|i| Ok((i.to_be_bytes().to_vec(), vec![0; 40])));
            table.bulk_load(records).unwrap();
            let leaves = used(&store) - before;
            let (tasks, of, shared) = (store.task(), table.clone(), store.inner.shared.clone());
            let deleted = store.spawn(move || async move {
                let options =
                    TransactionOptions { durability: Durability::Async, ..Default::default() };
                let mut transaction = tasks.begin_with(&options);
                for i in 0..RECORDS {
                    transaction.delete(&of, &i.to_be_bytes()).await.unwrap();
                }
                transaction.commit().await.unwrap();
                shared.forest.merging.is_busy()
            });
            assert!(deleted.join().unwrap(), "seed {seed}: merged before it was acknowledged");
            let (shared, mut left_open) = (store.inner.shared.clone(), 0);
            // The store is closed while merges are under way, and ends them.
            for _ in 0..leaves / 2 {
                let _ = store.step();
                left_open += u64::from(
                    shared.forest.merging.is_busy() && shared.checkpointing.barrier.is_empty(),
                );
            }
            assert!(left_open > 0, "seed {seed}: nobody could close the barrier");
            drop((table, shared));
            store.close().unwrap();
            let store = open(&device, &clock, seed, false);
            let left = used(&store).saturating_sub(before);
            assert!(left < leaves / 20, "seed {seed}: {left} of {leaves} pages are left");
            store.close().unwrap();
        }
    }
}
