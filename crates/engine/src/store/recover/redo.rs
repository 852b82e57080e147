//! Doing again what the logs say, on all workers at once.
//!
//! What always holds: changes are made a gathering after the other, in the order of the commits, and within a gathering all
//! changes of one key by one task. They say what the key has afterwards, not how that came about, so of several changes only the
//! last need be made, and making one again does no harm.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::gather::{After, Gathered, Redo, sort};
use crate::error::Result;
use crate::log::Operation;
use crate::overflow::Descriptor;
use crate::shared::Shared;
use crate::space::Purpose;
use crate::store::{StoreInner, make_room, merge_sparse};
use crate::task::{JoinHandle, run};
use crate::tree::{Change, Leaf, Put, PutOutcome, Remove, Tree};

/// Tasks for each worker: changes that wait for pages beside each other.
const TASKS_PER_WORKER: usize = 16;
/// Parts of a gathering for each task, so that no task is busy long after the others.
const PARTS_PER_TASK: usize = 4;
/// Bytes of changes that are gathered, at most and at least. One is gathered while another is made.
const GATHERED_BYTES: std::ops::RangeInclusive<usize> = (256 << 10)..=(48 << 20);
/// The part of the memory that a gathering may have beside the pages.
const MEMORY_PART: usize = 16;

/// Changes that one task makes.
struct Part {
    changes: Vec<Redo>,
    bytes: Arc<Vec<u8>>,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Part>,
    /// Tasks that are at work on a part.
    busy: usize,
    /// No more will come.
    closed: bool,
    failed: bool,
    /// Tasks that wait for a part.
    idle: Vec<Waker>,
    /// Who waits until all parts are made.
    drained: Option<Waker>,
}

/// What there is to do.
#[derive(Default)]
struct Work(Mutex<State>);

impl Work {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what there is to do, and calls the tasks.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let woken = std::mem::take(&mut state.idle);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// The next part; none once there will be no more.
    async fn next(&self) -> Option<Part> {
        poll_fn(|context| {
            let mut state = self.lock();
            if let Some(part) = state.parts.pop_front() {
                state.busy += 1;
                return Poll::Ready(Some(part));
            }
            if state.closed {
                return Poll::Ready(None);
            }
            state.idle.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// A part is done with.
    fn done(&self, failed: bool) {
        let mut state = self.lock();
        state.busy -= 1;
        state.failed |= failed;
        let over = state.failed || (state.busy == 0 && state.parts.is_empty());
        let woken = if over { state.drained.take() } else { None };
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until all parts are made, or one could not be.
    async fn drain(&self) {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.failed || (state.busy == 0 && state.parts.is_empty()) {
                return Poll::Ready(());
            }
            state.drained = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The tasks of a recovery, and what was gathered for them.
pub(super) struct Lanes {
    inner: Arc<StoreInner>,
    work: Arc<Work>,
    gathered: Gathered,
    gathered_bytes_max: usize,
    /// The bytes of the changes that are being made.
    making: Arc<Vec<u8>>,
    running: Vec<JoinHandle<Result<()>>>,
}

impl Lanes {
    /// Starts the tasks. `large`: runs of pages that the logs put and that nothing took over.
    pub(super) fn start(inner: &Arc<StoreInner>, large: BTreeMap<u64, Descriptor>) -> Self {
        let shared = &inner.shared;
        let workers = shared.remotes.len();
        let work: Arc<Work> = Arc::default();
        let large = Arc::new(large);
        let running = (0..workers * TASKS_PER_WORKER)
            .map(|index| {
                let (inner_of, work, large) = (inner.clone(), work.clone(), large.clone());
                inner.spawn_on(index % workers, move || async move {
                    follow(&inner_of, &work, &large).await
                })
            })
            .collect();
        let memory_bytes = shared.pool.frames.len() as usize * shared.page_size;
        let gathered_bytes_max =
            (memory_bytes / MEMORY_PART).clamp(*GATHERED_BYTES.start(), *GATHERED_BYTES.end());
        Self {
            inner: inner.clone(),
            work,
            gathered: Gathered::default(),
            gathered_bytes_max,
            making: Arc::default(),
            running,
        }
    }

    /// Takes a change of a record with this stamp; one that concerns a whole table waits for all before it.
    pub(super) async fn take(&mut self, stamp: u64, operation: Operation<'_>) -> Result<()> {
        let gathered = &mut self.gathered;
        match operation {
            Operation::Put { tree, key, value } => {
                gathered.push(stamp, tree, key, After::Value, value);
            }
            Operation::PutLarge { tree, key, descriptor } => {
                gathered.push(stamp, tree, key, After::Large, &descriptor);
            }
            Operation::Delete { tree, key } => gathered.push(stamp, tree, key, After::Nothing, &[]),
            Operation::CreateTable { tree, name } => {
                self.drain().await;
                return self.inner.create_again(tree, name).await;
            }
            Operation::DropTable { tree } => {
                self.drain().await;
                return self.inner.drop_again(tree).await;
            }
        }
        if gathered.size_bytes() >= self.gathered_bytes_max {
            self.send().await;
        }
        Ok(())
    }

    /// Hands out what was gathered, once all before it is made.
    async fn send(&mut self) {
        self.work.drain().await;
        // Nobody has them any more: the memory is used again.
        let before = Arc::try_unwrap(std::mem::take(&mut self.making)).unwrap_or_default();
        let gathered = std::mem::replace(&mut self.gathered, Gathered::reusing(before));
        if gathered.is_empty() || self.work.lock().failed {
            return;
        }
        let (parts, bytes) = gathered.cut(self.running.len() * PARTS_PER_TASK);
        self.making = Arc::new(bytes);
        let part = |changes| Part { changes, bytes: self.making.clone() };
        self.work.change(|state| state.parts.extend(parts.into_iter().map(part)));
    }

    /// Waits until everything taken so far is done.
    async fn drain(&mut self) {
        self.send().await;
        self.work.drain().await;
    }

    /// The end: everything is done.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.drain().await;
        self.work.change(|state| {
            state.closed = true;
            // Left only if one before them failed.
            state.parts.clear();
        });
        let mut outcome = Ok(());
        for task in self.running {
            outcome = outcome.and(task.await.and_then(|done| done));
        }
        outcome
    }
}

/// Makes the changes of one part after the other.
async fn follow(inner: &StoreInner, work: &Work, large: &BTreeMap<u64, Descriptor>) -> Result<()> {
    while let Some(part) = work.next().await {
        let outcome = make(inner, part, large).await;
        work.done(outcome.is_err());
        outcome?;
    }
    Ok(())
}

/// Makes the last change of each key of a part.
async fn make(inner: &StoreInner, part: Part, large: &BTreeMap<u64, Descriptor>) -> Result<()> {
    let Part { mut changes, bytes } = part;
    sort(&mut changes, &bytes);
    let mut tree: Option<(u32, Option<Tree>)> = None;
    let mut near = None;
    for (index, redo) in changes.iter().enumerate() {
        if changes.get(index + 1).is_some_and(|next| next.is_of_same_key(redo, &bytes)) {
            if redo.after == After::Large {
                give_up(&inner.shared, redo.value(&bytes), large);
            }
            continue;
        }
        if tree.is_none_or(|(id, _)| id != redo.tree) {
            tree = Some((redo.tree, inner.tree_for_redo(redo.tree).await?));
            near = None;
        }
        // A table that a later commit drops may be gone from the image already.
        if let Some((_, Some(tree))) = tree {
            near = apply(inner, tree, redo, &bytes, near, large).await?;
        }
    }
    Ok(())
}

/// Frees the pages of a large value that the logs put and replaced.
fn give_up(shared: &Shared, descriptor: &[u8], large: &BTreeMap<u64, Descriptor>) {
    if let Ok(descriptor) = Descriptor::decode(descriptor, shared.page_size)
        && large.get(&descriptor.page_id) == Some(&descriptor)
    {
        shared.space.free(descriptor.page_id, descriptor.pages.into());
    }
}

/// Makes a change, `near` the leaf of the one before; the leaf that it was made in.
async fn apply(
    inner: &StoreInner,
    tree: Tree,
    redo: &Redo,
    bytes: &[u8],
    near: Option<Leaf>,
    large: &BTreeMap<u64, Descriptor>,
) -> Result<Option<Leaf>> {
    let shared = &inner.shared;
    let change = Change { stamp: redo.stamp, row: None };
    let (key, value) = (redo.key(bytes), redo.value(bytes));
    let is_large = redo.after == After::Large;
    if redo.after == After::Nothing {
        remove(inner, tree, key, change).await?;
        return Ok(None);
    }
    if is_large {
        let descriptor = Descriptor::decode(value, shared.page_size)?;
        if large.get(&descriptor.page_id) != Some(&descriptor) {
            // Its pages became another value's, which they may only after a later commit replaced this one.
            return Ok(near);
        }
        shared.space.attach(descriptor.page_id, descriptor.pages.into());
    }
    loop {
        match run(shared, Put::new(tree, key, value, is_large, change).near(near)).await? {
            PutOutcome::Done { leaf, .. } => return Ok(Some(leaf)),
            PutOutcome::Full { needed_bytes } => {
                make_room(inner, tree, key, needed_bytes, Purpose::New).await?;
            }
        }
    }
}

async fn remove(inner: &StoreInner, tree: Tree, key: &[u8], change: Change) -> Result<()> {
    let removed = run(&inner.shared, Remove::new(tree, key, change)).await?;
    if removed.sparse {
        merge_sparse(inner, tree, key).await?;
    }
    Ok(())
}
