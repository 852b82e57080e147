//! Loading the leaves of a commit's writes, many at the same time. Outside of the commit barrier,
//! the commit loads as many leaves as memory has room for, so that no checkpoint waits for these
//! reads. Inside, it loads the leaves that did not fit or have left memory since.

use std::cell::Cell;

use crate::shared::Shared;
use crate::task::run_all;
use crate::tree::Reach;
use crate::tx::transaction::TxState;

/// A position in a write set, and the number of writes before it.
pub(super) type Place = ((usize, usize), usize);

/// The number of leaves that are loaded at once while others may wait for the barrier, and of
/// writes that are examined for that.
const LEAVES_INSIDE: usize = 64;
const WRITES_INSIDE: usize = 1024;
/// The share of the frames that the leaves of one commit may take outside of the barrier, as a
/// divisor.
const FRAMES_PART: usize = 8;

/// Loads leaves of the writes from a position on. Returns the number of writes up to the position
/// where it stopped.
async fn fetch(
    shared: &Shared,
    core: &TxState,
    (mut cursor, done): Place,
    leaves: usize,
    writes: usize,
) -> usize {
    let (loads, mut fetched) = (Cell::new(0), done);
    let reaches = std::iter::from_fn(|| {
        if loads.get() >= leaves || fetched - done >= writes {
            return None;
        }
        let item = core.writes.nth(&mut cursor)?;
        cursor.1 += 1;
        fetched += 1;
        Some(Reach::new(item.tree, item.key).beside(&loads))
    });
    // This is only a hint: if a leaf cannot be read, the step that needs it fails.
    let _ = run_all(shared, reaches).await;
    fetched
}

/// Loads leaves of a commit that is outside of the barrier.
pub(super) async fn fetch_outside(shared: &Shared, core: &TxState, from: Place) {
    fetch(shared, core, from, shared.pool.active() as usize / FRAMES_PART, usize::MAX).await;
}

/// The number of a commit's writes whose leaves were loaded since it entered the barrier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fetching(usize);

impl Fetching {
    /// Loads leaves, starting with the leaf of a write that is not in memory. Does nothing if this
    /// leaf was loaded before: memory may be too small for so many.
    pub(super) async fn go_on(&mut self, shared: &Shared, core: &TxState, from: Place) {
        let leaves = LEAVES_INSIDE.min(shared.pool.active() as usize / FRAMES_PART);
        if self.0 <= from.1 {
            self.0 = fetch(shared, core, from, leaves, WRITES_INSIDE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use qpair_block::time::SimClock;
    use qpair_block::{BlockDevice, FaultControl, FaultDevice, FaultOptions, Op};
    use qpair_sim_block::{SimDevice, SimLatency, SimOptions};

    use crate::{JoinHandle, Runtime, Store, StoreOptions};

    const RECORDS: u32 = 20_000;
    const READ_NS: u64 = 10_000_000;

    /// Creates a store whose memory has room for a part of its records only.
    fn filled(seed: u64) -> (Store, SimClock, FaultControl) {
        let clock = SimClock::new();
        let device = SimDevice::new(SimOptions::new(seed, &clock)).unwrap();
        let latency = SimLatency { read_ns: READ_NS, spike: 0.0, ..SimLatency::default() };
        let members =
            Arc::new(FaultDevice::new(Arc::new(device.clone()), FaultOptions::default()).unwrap());
        let control = members.control();
        let options = StoreOptions {
            format: true,
            page_size: 512,
            memory_bytes: 1024 * 512,
            workers: 1,
            log_segment_bytes: 64 << 10,
            runtime: Runtime::Stepped { seed, clock: clock.clone() },
            ..StoreOptions::default()
        };
        let store = Store::open(vec![members as Arc<dyn BlockDevice>], &options).unwrap();
        let table = store.table("t").unwrap();
        let records = (0..RECORDS).map(|i| Ok((i.to_be_bytes().to_vec(), vec![0; 40])));
        table.bulk_load(records).unwrap();
        store.checkpoint().unwrap();
        device.set_latency(latency);
        (store, clock, control)
    }

    /// Starts a commit of `writes` writes, spread over the keys. The flag is set when it has ended.
    fn commit(store: &Store, writes: u32) -> (JoinHandle<()>, Arc<AtomicBool>) {
        let over = Arc::new(AtomicBool::new(false));
        let (tasks, table, end) = (store.task(), store.table("t").unwrap(), over.clone());
        let commit = store.spawn(move || async move {
            let mut transaction = tasks.begin();
            for i in 0..writes {
                let key = (i * (RECORDS / writes)).to_be_bytes();
                transaction.put(&table, &key, &[1; 40]).await.unwrap();
            }
            transaction.commit().await.unwrap();
            end.store(true, Ordering::Relaxed);
        });
        (commit, over)
    }

    /// Returns three counts of a commit's requests of one kind: those inside the barrier, all of
    /// them, and the largest number at about the same time.
    fn asked(
        store: &Store,
        clock: &SimClock,
        control: &FaultControl,
        op: Op,
        over: &AtomicBool,
    ) -> (u64, u64, u64) {
        let barrier = &store.inner.shared.checkpointing.barrier;
        let begun = control.seen(op);
        let (mut inside, mut most, mut seen) = (0, 0, Vec::new());
        while !over.load(Ordering::Relaxed) {
            let (was_inside, before) = (!barrier.is_empty(), control.seen(op));
            let _ = store.step();
            let more = control.seen(op) - before;
            if was_inside && !barrier.is_empty() {
                inside += more;
            }
            seen.extend((0..more).map(|_| clock.now_ns()));
            let recent = seen.iter().rev().take_while(|at| clock.now_ns() - **at < READ_NS / 4);
            most = most.max(recent.count() as u64);
        }
        (inside, control.seen(op) - begun, most)
    }

    /// A regression: a commit that had read nothing loaded its leaves one after the other, while no
    /// checkpoint could begin.
    #[test]
    fn leaves_of_blind_writes_are_read_side_by_side_outside_of_the_barrier() {
        const WRITES: u32 = 64;
        for seed in 0..5 {
            let (store, clock, control) = filled(seed);
            let (commit, over) = commit(&store, WRITES);
            let (inside, reads, most) = asked(&store, &clock, &control, Op::Read, &over);
            commit.join().unwrap();
            assert!(reads >= u64::from(WRITES) / 2, "seed {seed}: {reads} reads");
            assert!(most >= 16, "seed {seed}: {most} of {reads} reads beside each other");
            assert_eq!(inside, 0, "seed {seed}: of {reads} reads");
            store.close().unwrap();
        }
    }

    /// The leaves that memory has no room for are read inside the barrier, but many at a time.
    #[test]
    fn leaves_that_memory_has_no_room_for_are_read_side_by_side_too() {
        const WRITES: u32 = 1500;
        let (store, clock, control) = filled(1);
        let (commit, over) = commit(&store, WRITES);
        let begun = clock.now_ns();
        let (_, reads, most) = asked(&store, &clock, &control, Op::Read, &over);
        commit.join().unwrap();
        assert!(most >= 48, "{most} of {reads} reads beside each other");
        let rounds = (clock.now_ns() - begun) / READ_NS;
        assert!(rounds < reads / 8, "{rounds} rounds for {reads} reads");
        store.close().unwrap();
    }

    /// A regression: pages that a commit writes beside its leaves were flushed inside the barrier.
    #[test]
    fn large_values_are_flushed_outside_of_the_barrier() {
        for seed in 0..5 {
            let (store, clock, control) = filled(seed);
            let over = Arc::new(AtomicBool::new(false));
            let (table, end) = (store.table("t").unwrap().task(), over.clone());
            let put = store.spawn(move || async move {
                table.put(&0u32.to_be_bytes(), &[1; 2000]).await.unwrap();
                end.store(true, Ordering::Relaxed);
            });
            let (inside, flushes, _) = asked(&store, &clock, &control, Op::Flush, &over);
            put.join().unwrap();
            assert_eq!((inside, flushes), (0, 1), "seed {seed}");
            store.close().unwrap();
        }
    }
}
