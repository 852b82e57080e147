//! Doing again what the logs say, on all workers at once.
//!
//! What always holds: all changes of one key go to the same lane, in the order of their commits. They say what the key has
//! afterwards, not how that came about, so of several changes only the last need be made, and making one again does no harm.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::error::Result;
use crate::log::Operation;
use crate::overflow::Descriptor;
use crate::shared::Shared;
use crate::store::{StoreInner, make_room, merge_sparse};
use crate::task::run;
use crate::tree::{Change, Put, PutOutcome, Remove, Tree};

/// Lanes for each worker: changes that wait for pages beside each other.
const LANES_PER_WORKER: usize = 16;
/// Bytes of changes that go down a lane together; they are sorted by key first.
const BATCH_BYTES: usize = 1 << 20;
/// Batches that wait in a lane at most.
const WAITING_MAX: usize = 2;

/// What a key has after a change.
enum After {
    Value(Vec<u8>),
    Large([u8; Descriptor::BYTES]),
    Nothing,
}

/// A change of one key.
struct Redo {
    tree: u32,
    key: Vec<u8>,
    stamp: u64,
    after: After,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Vec<Redo>>,
    /// A batch is being worked on.
    busy: bool,
    /// No more will come.
    closed: bool,
    failed: bool,
    waiters: Vec<Waker>,
}

/// The queue to one task.
#[derive(Default)]
struct Lane(Mutex<State>);

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and lets all who wait look at it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let woken = std::mem::take(&mut state.waiters);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until `ready` has something to say of the state.
    async fn when<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        poll_fn(|context| {
            let mut state = self.lock();
            if let Some(answer) = ready(&mut state) {
                let woken = std::mem::take(&mut state.waiters);
                drop(state);
                woken.into_iter().for_each(Waker::wake);
                return Poll::Ready(answer);
            }
            state.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The lanes of a recovery.
pub(super) struct Lanes {
    inner: Arc<StoreInner>,
    lanes: Vec<Arc<Lane>>,
    filling: Vec<(Vec<Redo>, usize)>,
    running: Vec<crate::task::JoinHandle<Result<()>>>,
}

impl Lanes {
    /// Starts the tasks. `large`: runs of pages that the logs put and that nothing took over.
    pub(super) fn start(inner: &Arc<StoreInner>, large: BTreeMap<u64, Descriptor>) -> Self {
        let workers = inner.shared.remotes.len();
        let lanes: Vec<Arc<Lane>> =
            (0..workers * LANES_PER_WORKER).map(|_| Arc::default()).collect();
        let large = Arc::new(large);
        let running = lanes
            .iter()
            .enumerate()
            .map(|(index, lane)| {
                let (inner_of, lane, large) = (inner.clone(), lane.clone(), large.clone());
                inner.spawn_on(index % workers, move || async move {
                    let outcome = follow(&inner_of, &lane, &large).await;
                    if outcome.is_err() {
                        lane.change(|state| state.failed = true);
                    }
                    outcome
                })
            })
            .collect();
        let filling = lanes.iter().map(|_| (Vec::new(), 0)).collect();
        Self { inner: inner.clone(), lanes, filling, running }
    }

    /// Takes a change of a record with this stamp; one that concerns a whole table waits for all before it.
    pub(super) async fn take(&mut self, stamp: u64, operation: Operation<'_>) -> Result<()> {
        let (tree, key, after) = match operation {
            Operation::Put { tree, key, value } => (tree, key, After::Value(value.to_vec())),
            Operation::PutLarge { tree, key, descriptor } => (tree, key, After::Large(descriptor)),
            Operation::Delete { tree, key } => (tree, key, After::Nothing),
            Operation::CreateTable { tree, name } => {
                self.drain().await;
                return self.inner.create_again(tree, name).await;
            }
            Operation::DropTable { tree } => {
                self.drain().await;
                return self.inner.drop_again(tree).await;
            }
        };
        // FNV-1a: any hash does, as long as it is the same for a key each time.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325 ^ u64::from(tree), |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        let lane = (hash >> 32) as usize % self.lanes.len();
        let (batch, bytes) = &mut self.filling[lane];
        *bytes += key.len() + 64 + if let After::Value(value) = &after { value.len() } else { 0 };
        batch.push(Redo { tree, key: key.to_vec(), stamp, after });
        if *bytes >= BATCH_BYTES {
            self.send(lane).await;
        }
        Ok(())
    }

    async fn send(&mut self, lane: usize) {
        let (batch, _) = std::mem::take(&mut self.filling[lane]);
        if batch.is_empty() {
            return;
        }
        let mut batch = Some(batch);
        self.lanes[lane]
            .when(|state| {
                if state.failed {
                    return Some(());
                }
                (state.batches.len() < WAITING_MAX).then(|| state.batches.extend(batch.take()))
            })
            .await;
    }

    /// Waits until everything taken so far is done.
    async fn drain(&mut self) {
        for lane in 0..self.lanes.len() {
            self.send(lane).await;
        }
        for lane in &self.lanes {
            lane.when(|state| {
                (state.failed || (state.batches.is_empty() && !state.busy)).then_some(())
            })
            .await;
        }
    }

    /// The end: everything is done.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.drain().await;
        for lane in &self.lanes {
            lane.change(|state| state.closed = true);
        }
        let mut outcome = Ok(());
        for task in self.running {
            outcome = outcome.and(task.await.and_then(|done| done));
        }
        outcome
    }
}

/// Works on what comes down a lane.
async fn follow(inner: &StoreInner, lane: &Lane, large: &BTreeMap<u64, Descriptor>) -> Result<()> {
    loop {
        let batch = lane
            .when(|state| {
                if let Some(batch) = state.batches.pop_front() {
                    state.busy = true;
                    return Some(Some(batch));
                }
                state.closed.then_some(None)
            })
            .await;
        let Some(mut batch) = batch else { return Ok(()) };
        // In the order of keys each leaf is visited once.
        batch.sort_by(|a, b| (a.tree, &a.key, a.stamp).cmp(&(b.tree, &b.key, b.stamp)));
        let mut changes = batch.into_iter().peekable();
        while let Some(redo) = changes.next() {
            let last =
                changes.peek().is_none_or(|next| next.tree != redo.tree || next.key != redo.key);
            if last {
                apply(inner, &redo, large).await?;
            } else if let After::Large(descriptor) = &redo.after {
                give_up(&inner.shared, descriptor, large);
            }
        }
        lane.change(|state| state.busy = false);
    }
}

/// Frees the pages of a large value that the logs put and replaced.
fn give_up(shared: &Shared, descriptor: &[u8], large: &BTreeMap<u64, Descriptor>) {
    if let Ok(descriptor) = Descriptor::decode(descriptor, shared.page_size)
        && large.get(&descriptor.page_id) == Some(&descriptor)
    {
        shared.space.free(descriptor.page_id, descriptor.pages.into());
    }
}

async fn apply(inner: &StoreInner, redo: &Redo, large: &BTreeMap<u64, Descriptor>) -> Result<()> {
    let shared = &inner.shared;
    // A table that a later commit drops may be gone from the image already.
    let Some(tree) = inner.tree_for_redo(redo.tree).await? else { return Ok(()) };
    let change = Change { stamp: redo.stamp, row: None };
    let (value, is_large) = match &redo.after {
        After::Value(value) => (value.as_slice(), false),
        After::Large(descriptor) => (descriptor.as_slice(), true),
        After::Nothing => return remove(inner, tree, redo, change).await,
    };
    if is_large {
        let descriptor = Descriptor::decode(value, shared.page_size)?;
        if large.get(&descriptor.page_id) != Some(&descriptor) {
            // Its pages became another value's, which they may only after a later commit replaced this one.
            return Ok(());
        }
        shared.space.attach(descriptor.page_id, descriptor.pages.into());
    }
    loop {
        match run(shared, Put::new(tree, &redo.key, value, is_large, change)).await? {
            PutOutcome::Done { .. } => return Ok(()),
            PutOutcome::Full { needed_bytes } => {
                make_room(inner, tree, &redo.key, needed_bytes).await?;
            }
        }
    }
}

async fn remove(inner: &StoreInner, tree: Tree, redo: &Redo, change: Change) -> Result<()> {
    let removed = run(&inner.shared, Remove::new(tree, &redo.key, change)).await?;
    if removed.sparse {
        merge_sparse(inner, tree, &redo.key).await?;
    }
    Ok(())
}
