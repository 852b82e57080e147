//! Making a checkpoint, from the closing of the barrier to the record that makes it count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use qpair_format::image::{Image, Record, image_bytes_per_page};
use qpair_format::place::page_of;
use qpair_format::{ErrorKind, Result};
use qpair_memory::FrameIndex;

use super::fit::count_frames;
use super::record::{write_image, write_record};
use super::stage::{Looked, Stage};
use crate::canary::Canary;
use crate::pool::Epoch;
use crate::shared::Shared;
use crate::space::Purpose;
use crate::sync::{AsyncMutexGuard, LocalFuture};
use crate::task::{
    Worker, current, flush, guarded_here, oneshot, run_at_once, spawn_here, yield_now,
};
use crate::tree::Arrival;

/// The number of frames to look at before other tasks get the worker.
const FRAMES_PER_TURN: u32 = 512;

/// Makes a checkpoint. After this returns, a crash goes back to this checkpoint or to a later one.
/// `last` is set when the store is being closed: the barrier then stays closed, and there is no log
/// behind the checkpoint.
///
/// # Errors
/// Returns the device's error. The store is then read-only, and the previous checkpoint counts.
pub(crate) async fn checkpoint(shared: &Arc<Shared>, last: bool) -> Result<()> {
    let alone = shared.checkpointing.alone.enter().await;
    checkpoint_alone(shared, last, alone).await
}

async fn checkpoint_alone(shared: &Arc<Shared>, last: bool, _alone: AsyncMutexGuard) -> Result<()> {
    if !last && shared.lifecycle.is_closing() {
        // The last checkpoint of the close comes instead.
        return Ok(());
    }
    if let Some(failure) = shared.lifecycle.failure() {
        return Err(failure.clone());
    }
    let log_bytes = shared.wal.bytes.load(Ordering::Relaxed);
    let made = make(shared, last).await;
    match &made {
        // The device was full. The previous checkpoint still counts, the log has all later commits,
        // and pages in memory do not depend on the pages written for this checkpoint.
        Err(error)
            if error.kind() == ErrorKind::NoSpace && shared.lifecycle.failure().is_none() =>
        {
            give_up(shared).await?;
            // The log before this checkpoint is still needed.
            shared.wal.bytes.fetch_add(log_bytes, Ordering::Relaxed);
            shared.checkpointing.epochs.refused.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            shared.fail(error.clone());
            // The checkpoint's record may be on the device, so the image's pages must not be given
            // away any more.
            shared.space.keep_nothing_for_unsaved();
            shared.checkpointing.epochs.end();
            shared.checkpointing.barrier.open();
        }
        Ok(()) => {}
    }
    made
}

/// Makes a [`checkpoint`] for a change that needs one. The checkpoint continues if the waiting task
/// is dropped, because half a checkpoint would leave the barrier closed.
///
/// # Errors
/// As [`checkpoint`].
pub(crate) async fn checkpoint_to_its_end(shared: &Arc<Shared>) -> Result<()> {
    let own = shared.clone();
    spawn_here(shared, move || async move { checkpoint(&own, false).await }).await?
}

/// Makes a checkpoint as [`checkpoint_to_its_end`] does, unless one was completed since `completed`
/// of them were. So changes that find no space at the same time share a checkpoint.
///
/// # Errors
/// As [`checkpoint`].
pub(crate) async fn checkpoint_since(shared: &Arc<Shared>, completed: u64) -> Result<()> {
    let own = shared.clone();
    let share = move || async move {
        let alone = own.checkpointing.alone.enter().await;
        if own.checkpointing.epochs.completed.load(Ordering::Relaxed) != completed {
            return Ok(());
        }
        checkpoint_alone(&own, false, alone).await
    };
    spawn_here(shared, share).await?
}

/// Gives up an incomplete image: the places chosen for pages that are not saved yet become free.
async fn give_up(shared: &Arc<Shared>) -> Result<()> {
    let epoch = shared.checkpointing.epochs.epoch();
    shared.checkpointing.epochs.end();
    // Wait until all tasks have saved the pages that they were saving for the image.
    quiesce(shared).await?;
    for frame in (0..shared.pool.frames.len()).map(FrameIndex) {
        if let Some(place) = shared.pool.unused_place(frame, epoch) {
            shared.space.free(page_of(place), 1);
        }
    }
    shared.space.drop_image();
    shared.checkpointing.barrier.open();
    Ok(())
}

async fn make(shared: &Arc<Shared>, last: bool) -> Result<()> {
    let begun = Instant::now();
    shared.close_barrier().await?;
    shared.planted.strike(Canary::PanicInCheckpoint);
    // No task changes the trees; this is the instant.
    count_frames(shared);
    shared.space.begin_image(|| shared.checkpointing.epochs.begin());
    let before = shared.checkpointing.record().sequence;
    if shared.kept_images.may_keep(before) {
        shared.space.count_no_gain();
    }
    shared.wal.bytes.store(0, Ordering::Relaxed);
    let timestamp = shared.last_timestamp();
    let large_held = shared.large.count_held();
    let phase = shared.checkpointing.epochs.flip();
    let roots = shared.begin_image_of_roots();
    let mut logs = shared.wal.old_logs.places();
    // Every worker has ended the step that it was in, and uses the new epoch from here on.
    if !last && logs.is_empty() {
        logs = mark_logs(shared).await?;
    } else {
        on_every_worker(shared, || Box::pin(async {})).await?;
    }
    shared.wal.room.wake_all();
    if !last {
        shared.checkpointing.barrier.open();
        shared.counters.stalls.record(begun.elapsed());
    }
    drain(shared, phase).await?;
    write_unsaved(shared).await?;
    quiesce(shared).await?;
    if let Some(failure) = shared.lifecycle.failure() {
        return Err(failure.clone());
    }
    let roots = shared.places_of_roots(roots);
    shared.checkpointing.epochs.end();
    if shared.planted.is(Canary::ReuseBeforeRecord) {
        shared.space.image_is_durable();
    }
    if shared.planted.is(Canary::ReuseLogBeforeRecord) {
        truncate_logs(shared).await?;
    }
    let record = write_out(shared, timestamp, roots, logs, last).await?;
    match shared.planted.is(Canary::ForgottenReaders) {
        true => shared.kept_images.grant(record.sequence),
        false => shared.kept_images.follow(&shared.space, before, record.sequence),
    }
    shared.space.image_is_durable();
    shared.checkpointing.replace_record(record);
    shared.kept_images.fit(&shared.space);
    shared.free_large_held(large_held);
    truncate_logs(shared).await?;
    shared.give_back_old_logs();
    // The freed pages are available now: tasks that wait for free pages look at this counter.
    shared.checkpointing.epochs.completed.fetch_add(1, Ordering::Relaxed);
    shared.counters.checkpoints.record(begun.elapsed());
    Ok(())
}

/// Makes the record of the previous checkpoint name these logs, followed by the workers' logs,
/// which have just begun. Its image is unchanged. After this returns, a crash goes back to that
/// image with all of the logs.
///
/// # Errors
/// `NoSpace`, or the device's error. The store is then read-only.
pub(crate) async fn name_logs(
    shared: &Arc<Shared>,
    roots: BTreeMap<u32, u64>,
    mut logs: Vec<Vec<u8>>,
) -> Result<()> {
    let _alone = shared.checkpointing.alone.enter().await;
    logs.extend(mark_logs(shared).await?);
    let before = shared.checkpointing.record();
    shared.space.begin_same_image(before.runs());
    let record = write_out(shared, before.timestamp, roots, logs, false)
        .await
        .inspect_err(|_| shared.space.drop_image())?;
    shared.kept_images.follow(&shared.space, before.sequence, record.sequence);
    shared.space.image_is_durable();
    shared.checkpointing.replace_record(record);
    Ok(())
}

/// A task's future that is made on the worker that runs it.
pub(crate) type WorkerFuture<T> = std::pin::Pin<Box<dyn Future<Output = T>>>;

/// Runs a task on every worker, waits for all tasks, and returns their results.
pub(crate) async fn on_every_worker<T: Send + 'static>(
    shared: &Arc<Shared>,
    make: impl Fn() -> WorkerFuture<T> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let mut running = Vec::with_capacity(shared.worker_handles.len());
    for worker in &shared.worker_handles {
        let (sender, handle) = oneshot();
        let make = make.clone();
        let task = Box::new(move || -> LocalFuture {
            Box::pin(async move { sender.fill(Ok(guarded_here(make).await)) })
        });
        // A worker that has ended has nothing under way.
        if worker.spawn(task).is_ok() {
            running.push(handle);
        }
    }
    let mut outcomes = Vec::with_capacity(running.len());
    for handle in running {
        outcomes.push(handle.await?);
    }
    Ok(outcomes)
}

/// Lets every worker end the step it is in, and waits until the page transfers that began before
/// have ended.
async fn quiesce(shared: &Arc<Shared>) -> Result<()> {
    let phase = shared.checkpointing.epochs.flip();
    drain(shared, phase).await
}

/// Waits until the page transfers that were counted in a phase have ended.
async fn drain(shared: &Arc<Shared>, phase: u64) -> Result<()> {
    on_every_worker(shared, move || Box::pin(Worker::wait_transfers(phase))).await?;
    Ok(())
}

async fn truncate_logs(shared: &Arc<Shared>) -> Result<()> {
    on_every_worker(shared, || Box::pin(async { current(|worker| worker.truncate_log()) })).await?;
    Ok(())
}

/// Returns the position at which a reader of each log must begin, once each worker has ended the
/// step it is in. The barrier must be closed.
async fn mark_logs(shared: &Arc<Shared>) -> Result<Vec<Vec<u8>>> {
    let marks = on_every_worker(shared, || {
        Box::pin(async { current(|worker| worker.mark_log()).flatten() })
    });
    Ok(marks.await?.into_iter().flatten().collect())
}

async fn write_unsaved(shared: &Arc<Shared>) -> Result<()> {
    let epoch = shared.checkpointing.epochs.epoch();
    let next = Arc::new(AtomicU64::new(0));
    let shared_by_all = shared.clone();
    let written = on_every_worker(shared, move || {
        let (shared, next) = (shared_by_all.clone(), next.clone());
        Box::pin(async move { write_share(&shared, &next, epoch).await })
    });
    let written = written.await?.into_iter().collect();
    shared.space.keep_nothing_for_unsaved();
    written
}

/// Looks at frames, some at a time from `next` on, until none is left.
async fn write_share(shared: &Shared, next: &AtomicU64, epoch: Epoch) -> Result<()> {
    let mut stage = Stage::new(shared, epoch)?;
    let written = write_staged(shared, &mut stage, next).await;
    // Writes that were begun end before the image is used or given up.
    written.and(stage.finish().await)
}

async fn write_staged(shared: &Shared, stage: &mut Stage<'_>, next: &AtomicU64) -> Result<()> {
    let frames = shared.pool.frames.len();
    let mut again: Vec<FrameIndex> = Vec::new();
    loop {
        let first = next.fetch_add(u64::from(FRAMES_PER_TURN), Ordering::Relaxed);
        let Some(first) = u32::try_from(first).ok().filter(|first| *first < frames) else { break };
        let some = (first..frames.min(first + FRAMES_PER_TURN)).map(FrameIndex);
        save_some(shared, stage, some, &mut again).await?;
        yield_now().await;
    }
    while !again.is_empty() {
        for frame in &again {
            run_at_once(shared, Arrival::new(*frame)).await?;
        }
        // The other pages are latched only for a moment.
        yield_now().await;
        let some = std::mem::take(&mut again);
        save_some(shared, stage, some.into_iter(), &mut again).await?;
    }
    Ok(())
}

/// Saves the pages in some frames if the image needs them, leaves in the order of their places.
/// Returns the frames that must be tried again.
async fn save_some(
    shared: &Shared,
    stage: &mut Stage<'_>,
    some: impl Iterator<Item = FrameIndex>,
    again: &mut Vec<FrameIndex>,
) -> Result<()> {
    if shared.lifecycle.failure().is_some() {
        return Ok(());
    }
    let mut leaves: Vec<(u64, FrameIndex)> = Vec::new();
    let mut others: Vec<FrameIndex> = Vec::new();
    let mut done = 0;
    for frame in some {
        match stage.look(frame)? {
            Looked::Saved => done += 1,
            Looked::Busy => again.push(frame),
            Looked::Other => others.push(frame),
            Looked::Leaf(place) => leaves.push((place, frame)),
        }
    }
    leaves.sort_unstable();
    // All of these pages have their places now.
    shared.space.saved(done + leaves.len() as u64);
    for (place, frame) in leaves {
        if stage.add(frame, place).await? {
            again.push(frame);
        }
    }
    for frame in others {
        match stage.save(frame).await? {
            true => shared.space.saved(1),
            false => again.push(frame),
        }
    }
    Ok(())
}

/// Returns pages in a row for an image's description: those of the image before the last, or others
/// if the device has grown too large for them. Two runs are used alternately, because a full device
/// has no free run.
fn find_run(shared: &Shared, before: &Record, image: &Image) -> Result<(u64, u64)> {
    let per_page = image_bytes_per_page(shared.page_bytes) as u64;
    let fixed_bytes = image.encode().len() as u64;
    loop {
        // The run is part of the image, so a longer run may need a longer image.
        let words = shared.space.capacity().div_ceil(64) + 1;
        let pages = |words: u64| (fixed_bytes + words * 8).div_ceil(per_page);
        let is_before_front = shared.space.is_before_front(before.spare_page, before.spare_pages);
        if before.spare_pages >= pages(words) && is_before_front {
            return Ok((before.spare_page, before.spare_pages));
        }
        // Twice as long, so that it lasts until the device is twice as large.
        let (count, first) =
            match shared.space.allocate_unlinked(pages(2 * words), Purpose::Checkpoint) {
                Ok(first) => (pages(2 * words), first),
                Err(_) => {
                    let count = pages(words);
                    let found = shared.space.allocate_unlinked(count, Purpose::Checkpoint);
                    // A run is searched for again when the store has more pages.
                    (count, found.inspect_err(|_| shared.space.set_described(words * 64))?)
                }
            };
        if first + count <= words * 64 {
            // Free the old run only now. If no new run was found, the record continues to name the
            // old one, although it is too short.
            if before.spare_pages > 0 {
                shared.space.free(before.spare_page, before.spare_pages);
            }
            return Ok((first, count));
        }
        // The device grew for the run: measure again.
        shared.space.free(first, count);
    }
}

/// Notes up to which size of the store the spare run of the last checkpoint's record is large
/// enough for the next description.
pub(crate) fn note_described(shared: &Shared, record: &Record, image: &Image) {
    // Roots and logs, which the description has beside the bitmap.
    let fixed_bytes = record.image_bytes.saturating_sub(8 * image.pages.words_len() as u64);
    let bytes = record.spare_pages * image_bytes_per_page(shared.page_bytes) as u64;
    let words = (bytes.saturating_sub(fixed_bytes) / 8).saturating_sub(1);
    shared.space.set_described(words * 64);
}

/// Returns how many sequences the first record of an incarnation leaves out. A device may have lost
/// the last record of the incarnation before, which a reader in another process has seen: no other
/// record may get its sequence. The number is even, because the sequence says which of the two
/// places is written first.
fn skipped(before: &Record, generation: u64) -> u64 {
    match before.generation == generation {
        true => 0,
        false => 2 * (1 + generation % 64),
    }
}

/// Writes the image's description and the record, durably.
async fn write_out(
    shared: &Arc<Shared>,
    timestamp: u64,
    roots: BTreeMap<u32, u64>,
    logs: Vec<Vec<u8>>,
    last: bool,
) -> Result<Record> {
    let mut image = Image { roots, logs, ..Image::default() };
    let before = shared.checkpointing.record();
    let (image_page, image_pages) = find_run(shared, &before, &image)?;
    image.pages = shared
        .space
        .end_image([(image_page, image_pages), (before.image_page, before.image_pages)]);
    let bytes = image.encode();
    write_image(shared, image_page, &bytes).await?;
    // Flush all pages of the image and its description before the record that makes them count.
    if !(last && shared.planted.is(Canary::CloseBeforeFlush)) {
        flush(shared).await?;
    }
    let generation = shared.lifecycle.generation.load(Ordering::Acquire);
    let record = Record {
        store_id: shared.lifecycle.store_id,
        sequence: before.sequence + 1 + skipped(&before, generation),
        timestamp,
        image_page,
        image_pages,
        image_bytes: bytes.len() as u64,
        image_checksum: crc_fast::crc32_iscsi(&bytes),
        closed: last,
        generation,
        spare_page: before.image_page,
        spare_pages: before.image_pages,
    };
    write_record(shared, &record).await?;
    note_described(shared, &record, &image);
    Ok(record)
}
