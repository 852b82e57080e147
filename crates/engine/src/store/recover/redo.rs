//! Replaying the logs, on all workers at once.
//!
//! Invariants: changes are made one gathering after the other, in the order of the commits. Within
//! a gathering, one task makes all changes of a key. A change says what the key has afterwards, so
//! of several changes only the last need be made, and making a change again does no harm.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Poll, Waker};

use qpair_format::Result;
use qpair_format::large::Descriptor;
use qpair_format::log::{Operation, Record};
use qpair_memory::locks::Mutex;
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

/// The number of tasks for each worker, so that some make changes while others wait for pages.
const TASKS_PER_WORKER: usize = 16;
/// The number of parts of a gathering for each task, so that all tasks end at about the same time.
const PARTS_PER_TASK: usize = 4;
/// The size of a gathering of changes, at least and at most, in bytes. One is gathered while
/// another is made.
const GATHERED_BYTES: RangeInclusive<usize> = (4 << 10)..=(1 << 30);
/// The divisor for the share of the memory that the first pass may keep, in addition to the pages.
const KEPT_MEMORY_PART: usize = 4;
/// The divisor for the share of the memory that a later gathering may take, in addition to the
/// pages.
const MEMORY_PART: usize = 8;
/// The number of records that are put at once.
const RECORDS: usize = 512;
/// The number of pages that a task allocates at once.
const PAGES: u64 = 64;

/// Returns the memory for changes, in bytes: the store's memory divided by `part`, within limits.
fn part_of_memory(shared: &Shared, part: usize) -> usize {
    let memory_bytes = shared.pool.frames.len() as usize * shared.page_size;
    (memory_bytes / part).clamp(*GATHERED_BYTES.start(), *GATHERED_BYTES.end())
}

/// Returns the limit on the changes that the first pass over the logs may keep, in bytes.
pub(super) fn kept_bytes_max(shared: &Shared) -> usize {
    part_of_memory(shared, KEPT_MEMORY_PART)
}

struct Part {
    changes: Vec<Redo>,
    bytes: Arc<Vec<u8>>,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Part>,
    busy: usize,
    closed: bool,
    failed: bool,
    idle: Vec<Waker>,
    /// The waker of the task that waits until all parts are done.
    drained: Option<Waker>,
}

#[derive(Default)]
struct Work(Mutex<State>);

impl Work {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        let woken = std::mem::take(&mut state.idle);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits for the next part; `None` once no more will come.
    async fn next(&self) -> Option<Part> {
        poll_fn(|context| {
            let mut state = self.0.lock();
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

    fn done(&self, failed: bool) {
        let mut state = self.0.lock();
        state.busy -= 1;
        state.failed |= failed;
        let over = state.failed || (state.busy == 0 && state.parts.is_empty());
        let woken = if over { state.drained.take() } else { None };
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until all parts are made, or one has failed.
    async fn drain(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.failed || (state.busy == 0 && state.parts.is_empty()) {
                return Poll::Ready(());
            }
            state.drained = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The tasks of a recovery, and the changes that were gathered for them.
pub(super) struct Lanes {
    inner: Arc<StoreInner>,
    work: Arc<Work>,
    gathered: Gathered,
    gathered_bytes_max: usize,
    making: Arc<Vec<u8>>,
    running: Vec<JoinHandle<Result<()>>>,
    room: Room,
}

impl Lanes {
    /// Starts the tasks. `large` has the large values that the logs put and whose pages were not
    /// reused.
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

    /// Takes the changes of a commit. A change of a whole table waits until all changes before it
    /// are made.
    pub(super) async fn take(&mut self, record: &Record<'_>) -> Result<()> {
        for operation in record.operations() {
            match operation {
                Operation::CreateTable { tree, name } => self.create(tree, name).await?,
                Operation::DropTable { tree } => self.drop(tree).await?,
                Operation::RenameTable { tree, name } => self.rename(tree, name).await?,
                change => self.gathered.take(record.timestamp, change),
            }
        }
        self.gathered.set_cut(record.continues);
        if self.gathered.size_bytes() >= self.gathered_bytes_max {
            self.send().await?;
        }
        Ok(())
    }

    /// Takes a step that the first pass kept. Must be called before [`Lanes::take`].
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

    /// Hands out the gathered changes, once all before them are made.
    async fn send(&mut self) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.gathered = Gathered::reusing(self.hand_out(gathered).await?);
        Ok(())
    }

    /// Hands out these changes, once all before them are made. Returns the memory of the previous
    /// ones, which no task uses any more.
    async fn hand_out(&mut self, gathered: Gathered) -> Result<Vec<u8>> {
        if self.room == Room::Little {
            self.work.drain().await;
            if !gathered.is_empty() && !self.work.0.lock().failed {
                self.make_in_stages(gathered).await?;
            }
            return Ok(Vec::new());
        }
        // The changes are cut while the previous ones are still being made.
        let (parts, bytes) = gathered.cut(self.running.len() * PARTS_PER_TASK);
        self.work.drain().await;
        let before = std::mem::replace(&mut self.making, Arc::new(bytes));
        if !self.work.0.lock().failed {
            let parts = parts.into_iter().filter(|changes| !changes.is_empty());
            let part = |changes| Part { changes, bytes: self.making.clone() };
            self.work.change(|state| state.parts.extend(parts.map(part)));
        }
        Ok(Arc::try_unwrap(before).unwrap_or_default())
    }

    /// Makes the changes in stages, with checkpoints between commits where the device has little
    /// room left.
    async fn make_in_stages(&mut self, gathered: Gathered) -> Result<()> {
        let (stages, bytes) = gathered.into_stages(stages::changes_max(&self.inner));
        let bytes = Arc::new(bytes);
        for (timestamp, changes) in stages {
            // A single task, since each task allocates some pages more than it needs.
            let part = Part { changes, bytes: bytes.clone() };
            self.work.change(|state| state.parts.push_back(part));
            self.work.drain().await;
            if self.work.0.lock().failed {
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

    pub(super) async fn finish(mut self) -> Result<()> {
        let drained = self.drain().await;
        self.work.change(|state| {
            state.closed = true;
            // Parts are left only if an earlier one failed.
            state.parts.clear();
        });
        let mut outcome = drained;
        for task in self.running {
            outcome = outcome.and(task.await.and_then(|done| done));
        }
        outcome
    }
}

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
                // Lets the task that reads the logs run while it still has reads under way.
                yield_now().await;
            }
            if other {
                tree = Some((redo.tree, self.inner.tree_for_redo(redo.tree).await?));
            }
            // A table that a later commit drops may already be missing from the image.
            let Some((_, Some(tree))) = tree else { continue };
            let (key, value) = (redo.key(&bytes), redo.value(&bytes));
            let overflow = redo.after == After::Large;
            if redo.after == After::Nothing {
                remove(self.inner, tree, key, Change { timestamp: redo.timestamp, undo: NoUndo })
                    .await?;
            } else if !overflow || self.take(value)? {
                // The bytes lie in the order of the commits, so each record would be a cache miss.
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

    /// Puts records, which are in the order of their keys.
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

    /// Links the pages of a large value before the tree refers to them; returns whether the value
    /// still has its pages.
    fn take(&self, descriptor: &[u8]) -> Result<bool> {
        let shared = &self.inner.shared;
        let descriptor = Descriptor::decode(descriptor, shared.page_bytes)?;
        // Otherwise the pages belong to another value, which is possible only if a later commit
        // replaced this one.
        let extents = self.large.get(descriptor);
        extents.iter().for_each(|extents| shared.link_extents(extents));
        // A value whose list is damaged fails when it is read. If it was replaced, a later change
        // removes it.
        Ok(extents.is_some() || self.large.is_lost(descriptor))
    }

    /// Frees the pages of a large value that the logs put and replaced.
    fn give_up(&self, descriptor: &[u8]) {
        let shared = &self.inner.shared;
        if let Ok(descriptor) = Descriptor::decode(descriptor, shared.page_bytes)
            && let Some(extents) = self.large.get(descriptor)
        {
            shared.free_extents(extents);
        }
    }

    /// Frees the pages that were allocated and not used.
    fn give_pages_back(&mut self) {
        let pages = std::mem::take(&mut self.space.pages);
        if !pages.is_empty() {
            self.inner.shared.space.free(pages.start, pages.end - pages.start);
        }
    }
}

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
