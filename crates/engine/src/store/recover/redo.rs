//! Doing again what the logs say, on all workers at once.
//!
//! What always holds: changes are made a gathering after the other, in the order of the commits, and within a gathering all
//! changes of one key by one task. They say what the key has afterwards, not how that came about, so of several changes only the
//! last need be made, and making one again does no harm.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use qpair_format::Result;
use qpair_format::large::Descriptor;
use qpair_format::log::{Operation, Record};
use qpair_memory::prefetch_bytes;

use super::gather::{After, Gathered, Redo, Step, sort};
use super::large::LargeValues;
use super::stages::{self, Room};
use crate::shared::Shared;
use crate::space::Purpose;
use crate::store::StoreInner;
use crate::task::{JoinHandle, run, spawn_to, yield_now};
use crate::tree::{
    Change, Fill, FillRecord, FillSpace, Filled, NoUndo, Put, PutOutcome, Remove, Tree, make_room,
    make_room_at, merge_sparse,
};

/// Tasks for each worker: changes that wait for pages beside each other.
const TASKS_PER_WORKER: usize = 16;
/// Parts of a gathering for each task, so that no task is busy long after the others.
const PARTS_PER_TASK: usize = 4;
/// Bytes of changes that are gathered, at most and at least. One is gathered while another is made.
const GATHERED_BYTES: RangeInclusive<usize> = (4 << 10)..=(1 << 30);
/// The part of the memory that what the first pass keeps may have beside the pages.
const KEPT_MEMORY_PART: usize = 4;
/// The part of the memory that a later gathering may have beside the pages.
const MEMORY_PART: usize = 8;
/// Records that are put at once.
const RECORDS: usize = 512;
/// Pages that a task allocates at once.
const PAGES: u64 = 64;

/// Bytes that the store's memory has beside the pages for so small a part of it.
fn part_of_memory(shared: &Shared, part: usize) -> usize {
    let memory_bytes = shared.pool.frames.len() as usize * shared.page_size;
    (memory_bytes / part).clamp(*GATHERED_BYTES.start(), *GATHERED_BYTES.end())
}

/// Bytes that the first pass over the logs may keep.
pub(super) fn kept_bytes_max(shared: &Shared) -> usize {
    part_of_memory(shared, KEPT_MEMORY_PART)
}

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
    /// The waker of the task that waits until all parts are done.
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
    room: Room,
}

impl Lanes {
    /// Starts the tasks. `large`: runs of pages that the logs put and that nothing took over.
    pub(super) fn start(inner: &Arc<StoreInner>, large: LargeValues, room: Room) -> Self {
        let shared = &inner.shared;
        let workers = shared.worker_handles.len();
        let work: Arc<Work> = Arc::default();
        let large = Arc::new(large);
        let running = (0..workers * TASKS_PER_WORKER)
            .map(|index| {
                let (inner_of, work, large) = (inner.clone(), work.clone(), large.clone());
                spawn_to(&inner.shared, index % workers, move || async move {
                    follow(&inner_of, &work, &large).await
                })
            })
            .collect();
        let gathered_bytes_max = part_of_memory(shared, MEMORY_PART);
        Self {
            inner: inner.clone(),
            work,
            gathered: Gathered::default(),
            gathered_bytes_max,
            making: Arc::default(),
            running,
            room,
        }
    }

    /// Takes the changes of a commit; one that concerns a whole table waits for all before it.
    pub(super) async fn take(&mut self, record: &Record<'_>) -> Result<()> {
        for operation in record.operations() {
            match operation {
                Operation::CreateTable { tree, name } => self.create(tree, name).await?,
                Operation::DropTable { tree } => self.drop(tree).await?,
                Operation::RenameTable { tree, name } => self.rename(tree, name).await?,
                change => self.gathered.take(record.timestamp, change),
            }
        }
        if self.gathered.size_bytes() >= self.gathered_bytes_max {
            self.send().await?;
        }
        Ok(())
    }

    /// Takes what was kept, before anything else.
    pub(super) async fn take_kept(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Changes(gathered) => self.hand_out(gathered).await.map(drop),
            Step::CreateTable(tree, name) => self.create(tree, &name).await,
            Step::DropTable(tree) => self.drop(tree).await,
            Step::RenameTable(tree, name) => self.rename(tree, &name).await,
        }
    }

    async fn create(&mut self, tree: u32, name: &str) -> Result<()> {
        self.drain().await?;
        self.inner.create_again(tree, name).await
    }

    async fn drop(&mut self, tree: u32) -> Result<()> {
        self.drain().await?;
        self.inner.drop_again(tree).await
    }

    async fn rename(&mut self, tree: u32, name: &str) -> Result<()> {
        self.drain().await?;
        self.inner.rename_again(tree, name).await
    }

    /// Hands out what was gathered, once all before it is made.
    async fn send(&mut self) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.gathered = Gathered::reusing(self.hand_out(gathered).await?);
        Ok(())
    }

    /// The same; the memory of what was made before, which no task has any more.
    async fn hand_out(&mut self, gathered: Gathered) -> Result<Vec<u8>> {
        if self.room == Room::Little {
            self.work.drain().await;
            if !gathered.is_empty() && !self.work.lock().failed {
                self.make_in_stages(gathered).await?;
            }
            return Ok(Vec::new());
        }
        // Cut while what came before is still being made.
        let (parts, bytes) = gathered.cut(self.running.len() * PARTS_PER_TASK);
        self.work.drain().await;
        let before = std::mem::replace(&mut self.making, Arc::new(bytes));
        if !self.work.lock().failed {
            let parts = parts.into_iter().filter(|changes| !changes.is_empty());
            let part = |changes| Part { changes, bytes: self.making.clone() };
            self.work.change(|state| state.parts.extend(parts.map(part)));
        }
        Ok(Arc::try_unwrap(before).unwrap_or_default())
    }

    /// Makes what was gathered, with checkpoints between commits where the device has little room left.
    async fn make_in_stages(&mut self, gathered: Gathered) -> Result<()> {
        let (stages, bytes) = gathered.into_stages(stages::changes_max(&self.inner));
        let bytes = Arc::new(bytes);
        for changes in stages {
            let Some(timestamp) = changes.last().map(|last| last.timestamp) else { continue };
            // One task: each takes some pages more than it needs.
            let part = Part { changes, bytes: bytes.clone() };
            self.work.change(|state| state.parts.push_back(part));
            self.work.drain().await;
            if self.work.lock().failed {
                return Ok(());
            }
            stages::end(&self.inner, timestamp).await?;
        }
        Ok(())
    }

    /// Waits until everything taken so far is done.
    async fn drain(&mut self) -> Result<()> {
        self.send().await?;
        self.work.drain().await;
        Ok(())
    }

    /// The end: everything is done.
    pub(super) async fn finish(mut self) -> Result<()> {
        let drained = self.drain().await;
        self.work.change(|state| {
            state.closed = true;
            // Left only if one before them failed.
            state.parts.clear();
        });
        let mut outcome = drained;
        for task in self.running {
            outcome = outcome.and(task.await.and_then(|done| done));
        }
        outcome
    }
}

/// Makes the changes of one part after the other.
async fn follow(inner: &StoreInner, work: &Work, large: &LargeValues) -> Result<()> {
    let mut maker = Maker { inner, large, space: FillSpace::default() };
    while let Some(part) = work.next().await {
        let outcome = maker.make(part).await;
        maker.give_pages_back();
        work.done(outcome.is_err());
        outcome?;
    }
    Ok(())
}

/// What a task makes changes with.
struct Maker<'a> {
    inner: &'a StoreInner,
    large: &'a LargeValues,
    space: FillSpace,
}

impl Maker<'_> {
    /// Makes the last change of each key of a part.
    async fn make(&mut self, part: Part) -> Result<()> {
        let Part { mut changes, bytes } = part;
        sort(&mut changes, &bytes);
        let mut tree: Option<(u32, Option<Tree>)> = None;
        let mut records: Vec<FillRecord<'_>> = Vec::with_capacity(RECORDS);
        for (index, redo) in changes.iter().enumerate() {
            if changes.get(index + 1).is_some_and(|next| next.is_of_same_key(redo, &bytes)) {
                if redo.after == After::Large {
                    self.give_up(redo.value(&bytes));
                }
                continue;
            }
            let other = tree.is_none_or(|(id, _)| id != redo.tree);
            if let Some((_, Some(tree))) = tree
                && (other || records.len() == RECORDS || redo.after == After::Nothing)
            {
                self.put(tree, &records).await?;
                records.clear();
                // The task that reads the logs needs its turn before all its reads have ended.
                yield_now().await;
            }
            if other {
                tree = Some((redo.tree, self.inner.tree_for_redo(redo.tree).await?));
            }
            // A table that a later commit drops may be gone from the image already.
            let Some((_, Some(tree))) = tree else { continue };
            let (key, value) = (redo.key(&bytes), redo.value(&bytes));
            let overflow = redo.after == After::Large;
            if redo.after == After::Nothing {
                remove(self.inner, tree, key, Change { timestamp: redo.timestamp, undo: NoUndo })
                    .await?;
            } else if !overflow || self.take(value)? {
                // The bytes lie in the order of the commits: each record would be waited for.
                prefetch_bytes(key);
                prefetch_bytes(value);
                records.push(FillRecord { key, value, overflow, timestamp: redo.timestamp });
            }
        }
        match tree {
            Some((_, Some(tree))) => self.put(tree, &records).await,
            _ => Ok(()),
        }
    }

    /// Puts records in the order of keys.
    async fn put(&mut self, tree: Tree, mut records: &[FillRecord<'_>]) -> Result<()> {
        let shared = &self.inner.shared;
        while let Some(first) = records.first() {
            if self.space.pages.is_empty() {
                self.space.pages = shared.space.allocate_some(PAGES, Purpose::New)?;
            }
            match run(shared, Fill::new(tree, records, &mut self.space)).await? {
                Filled::Made(count) => records = &records[count..],
                Filled::ParentFull { needed_bytes } => {
                    let at = (tree, first.key, false);
                    make_room_at(shared, at, 1, needed_bytes, Purpose::New).await?;
                }
                Filled::Apart => {
                    put_one(self.inner, tree, first).await?;
                    records = &records[1..];
                }
            }
        }
        Ok(())
    }

    /// The tree is about to refer to the pages of a large value; whether they are still its own.
    fn take(&self, descriptor: &[u8]) -> Result<bool> {
        let shared = &self.inner.shared;
        let descriptor = Descriptor::decode(descriptor, shared.page_size)?;
        // Else its pages became another value's, which they may only after a later commit replaced this one.
        let extents = self.large.get(descriptor);
        extents.iter().for_each(|extents| shared.link_extents(extents));
        // A value whose list is damaged fails when it is read; if it was replaced, it is gone by then.
        Ok(extents.is_some() || self.large.is_lost(descriptor))
    }

    /// Frees the pages of a large value that the logs put and replaced.
    fn give_up(&self, descriptor: &[u8]) {
        let shared = &self.inner.shared;
        if let Ok(descriptor) = Descriptor::decode(descriptor, shared.page_size)
            && let Some(extents) = self.large.get(descriptor)
        {
            shared.free_extents(extents);
        }
    }

    /// Pages that were allocated and not used are free.
    fn give_pages_back(&mut self) {
        let pages = std::mem::take(&mut self.space.pages);
        if !pages.is_empty() {
            self.inner.shared.space.free(pages.start, pages.end - pages.start);
        }
    }
}

/// Puts a record by itself.
async fn put_one(inner: &StoreInner, tree: Tree, record: &FillRecord<'_>) -> Result<()> {
    let FillRecord { key, value, overflow, timestamp } = *record;
    let change = Change { timestamp, undo: NoUndo };
    loop {
        match run(&inner.shared, Put::new(tree, key, value, overflow, change)).await? {
            PutOutcome::Done { .. } => return Ok(()),
            PutOutcome::Full { needed_bytes } => {
                make_room(&inner.shared, tree, key, needed_bytes, Purpose::New).await?;
            }
        }
    }
}

async fn remove(inner: &StoreInner, tree: Tree, key: &[u8], change: Change<NoUndo>) -> Result<()> {
    let removed = run(&inner.shared, Remove::new(tree, key, change)).await?;
    if removed.sparse.is_some() {
        merge_sparse(&inner.shared, tree, key).await?;
    }
    Ok(())
}
