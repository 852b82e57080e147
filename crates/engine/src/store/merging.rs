//! Merging leaves that deletes left sparse, in the background: a commit is acknowledged before, and no checkpoint waits for more than one merge.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use qpair_memory::FrameIndex;

use crate::error::Result;
use crate::shared::Shared;
use crate::space::Promised;
use crate::sync::{Ticket, Waiters};
use crate::task::{current, run_at_once, spawn_here, take_turn};
use crate::tree::{Merge, Merged, Tree};

/// Leaves that became sparse, by a key of each.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    keys: Vec<(Tree, Vec<u8>)>,
    last: Option<FrameIndex>,
}

impl Sparse {
    /// Notes the leaf in a frame. The deletes of a commit come in the order of keys, so each leaf is noted once.
    pub(crate) fn note(&mut self, tree: Tree, key: &[u8], leaf: FrameIndex) {
        if self.last.replace(leaf) != Some(leaf) {
            self.keys.push((tree, key.to_vec()));
        }
    }
}

/// The merges that are under way.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    begun: AtomicU64,
    ended: AtomicU64,
    waiters: Waiters,
}

/// Counts as under way until it is dropped.
struct UnderWay(Arc<Merging>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let ended = self.0.ended.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.waiters.wake_up_to(ended);
    }
}

impl Merging {
    /// Whether there are any.
    pub(crate) fn is_busy(&self) -> bool {
        self.ended.load(Ordering::SeqCst) != self.begun.load(Ordering::SeqCst)
    }

    /// Waits until as many have ended as are under way now.
    pub(crate) async fn wait(&self) {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut ticket = Ticket::default();
        let is_over = || self.ended.load(Ordering::SeqCst) >= begun;
        poll_fn(|context| {
            if is_over() {
                return Poll::Ready(());
            }
            self.waiters.wait(&mut ticket, begun, context.waker());
            // The last may have ended in between.
            if is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Merges leaves that became sparse, in a task of its own. One that cannot be merged is only emptier than it might be.
pub(crate) fn merge_later(shared: &Shared, sparse: &mut Sparse) {
    let Sparse { keys, .. } = std::mem::take(sparse);
    if keys.is_empty() {
        return;
    }
    shared.merging.begun.fetch_add(1, Ordering::SeqCst);
    let under_way = UnderWay(shared.merging.clone());
    drop(spawn_here(shared, move || async move {
        let _under_way = under_way;
        let Some(shared) = current(|worker| worker.shared_arc()) else { return };
        for (tree, key) in keys {
            if merge(&shared, tree, &key).await.is_err() && shared.check_writable().is_err() {
                return;
            }
        }
    }));
}

/// Merges the leaf of a key, if it is sparse still, with a neighbour, and the pages above likewise.
async fn merge(shared: &Arc<Shared>, tree: Tree, key: &[u8]) -> Result<()> {
    let mut level = 0;
    loop {
        // Others run while nobody waits for this.
        take_turn().await;
        let mut inside = shared.gate.enter().await?;
        // Nobody merges leaves of a tree that is being emptied.
        shared.check_table(tree)?;
        // Two pages that become one, and those above, which may come back for others.
        let changed = 2 + 2 * tree.levels(&shared.pool);
        shared.space.promise(&mut inside, Promised { changed, made: 0 })?;
        match run_at_once(shared, Merge::new(tree, key, level)).await? {
            Merged::Merged { parent_sparse: true } => level += 1,
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::BlockDevice;
    use qpair_block::sim::{SimClock, SimDevice, SimOptions};

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

    /// Deletes were acknowledged after all merges, and these were made inside the gate in one go.
    #[test]
    fn deletes_are_acknowledged_before_their_merges_and_the_gate_is_left_between_them() {
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
                shared.merging.is_busy()
            });
            assert!(deleted.join().unwrap(), "seed {seed}: merged before it was acknowledged");
            let (shared, mut left_open) = (store.inner.shared.clone(), 0);
            // It is closed while they are under way, and ends them.
            for _ in 0..leaves / 2 {
                let _ = store.step();
                left_open += u64::from(shared.merging.is_busy() && shared.gate.is_empty());
            }
            assert!(left_open > 0, "seed {seed}: nobody could close the gate");
            drop((table, shared));
            store.close().unwrap();
            let store = open(&device, &clock, seed, false);
            let left = used(&store).saturating_sub(before);
            assert!(left < leaves / 20, "seed {seed}: {left} of {leaves} pages are left");
            store.close().unwrap();
        }
    }
}
