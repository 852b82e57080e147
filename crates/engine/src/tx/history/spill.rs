//! Moving the oldest before-images from the row table to the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::{Error, ErrorKind, Result};

use super::Entered;
use super::before_image::BeforeImageRef;
use super::collect::Old;
use super::need::Needs;
use super::run::SortedRun;
use super::writer::RunWriter;
use crate::task::yield_now;
use crate::tx::Tx;
use crate::tx::versions::{BeforeImage, RowRef};

/// The number of rows that are looked at before other tasks may run.
const ROWS_AT_ONCE: usize = 256;

/// Before-images in the order of a run.
type Sorted = BTreeMap<(u32, Box<[u8]>, u64), BeforeImage>;

/// Writes the oldest images of a slot's commits to the device, run by run, as long as older values
/// take too much memory.
pub(super) async fn spill(tx: &Arc<Tx>, slot: usize) {
    let shared = &tx.shared;
    // A close waits until this has ended; if a close has begun, all images are dropped anyway.
    let Some(_entered) = Entered::new(shared) else { return };
    let is_open = || shared.lifecycle.failure().is_none() && !shared.oracle.is_closed();
    while is_open() && tx.wants_spill(slot) {
        if let Err(error) = spill_once(tx, slot).await {
            if error.kind() == ErrorKind::Io {
                shared.fail(error);
            }
            // The images stay where they were, so the oldest snapshot will have to be given up.
            let oldest = tx.oldest.load(Ordering::Relaxed);
            tx.history.refused_at.store(oldest, Ordering::Relaxed);
        }
    }
}

async fn spill_once(tx: &Arc<Tx>, slot: usize) -> Result<()> {
    let olds = tx.take_oldest(slot);
    let bound = olds.iter().map(|old| old.timestamp).max().unwrap_or(0);
    let sorted = sort(tx, &olds, bound).await;
    let run = match write(tx, sorted, bound).await {
        Ok(run) => run.map(Arc::new),
        Err(error) => {
            tx.put_oldest_back(slot, olds);
            return Err(error);
        }
    };
    // Images that snapshots need must be in the list of runs before they leave the row table.
    if let Some(run) = &run {
        tx.history.publish(run.clone());
    }
    let mut large = Vec::new();
    for (looked, row) in olds.iter().flat_map(|old| &old.rows).enumerate() {
        tx.rows.collect(*row, bound, &mut large);
        if (looked + 1) % ROWS_AT_ONCE == 0 {
            yield_now().await;
        }
    }
    match &run {
        Some(run) => tx.give_large_back(run.settle(large)),
        None => tx.give_large_back(large),
    }
    tx.forget_oldest(slot, olds);
    tx.history.begin_merge(tx);
    Ok(())
}

/// The before-images of a commit that is being applied, after they were moved to the device.
pub(in crate::tx) struct SpilledImages {
    /// To be [settled](SortedRun::settle) when the commit is applied.
    pub(in crate::tx) run: Option<Arc<SortedRun>>,
    /// The rows whose images left memory, and those whose images stay.
    pub(in crate::tx) moved: Vec<RowRef>,
    pub(in crate::tx) kept: Vec<RowRef>,
}

/// Moves the before-images of a commit that is being applied to the device: those of these rows.
///
/// No image is left out, since a snapshot below the commit may be taken as long as it is not
/// applied. Rows with large values stay: their pages may be freed only once the commit is durable.
///
/// # Errors
/// `NoSpace`, `Closed`, and errors of the device. All images stay in memory then.
pub(in crate::tx) async fn spill_images(
    tx: &Arc<Tx>,
    rows: &[RowRef],
    timestamp: u64,
) -> Result<SpilledImages> {
    let _entered = Entered::new(&tx.shared).ok_or_else(Error::closed)?;
    let mut sorted = Sorted::new();
    let (mut moved, mut kept) = (Vec::new(), Vec::new());
    for row in rows.iter().copied() {
        let mut images = Vec::new();
        tx.rows.visit_older(row, timestamp, |tree, key, version| {
            images.push(((tree, Box::from(key), version.timestamp), version.image.clone()));
        });
        if images.iter().any(|(_, image)| matches!(image, BeforeImage::Large(_))) {
            kept.push(row);
        } else {
            sorted.extend(images);
            moved.push(row);
        }
    }
    let bytes = size_bytes(&sorted);
    if !tx.has_room_for_run(bytes) {
        return Err(no_room());
    }
    let mut writer = RunWriter::new(tx, timestamp, bytes);
    let mut outcome = Ok(());
    for ((tree, key, timestamp), image) in &sorted {
        outcome = writer.push(&BeforeImageRef::new(*tree, key, *timestamp, image)).await;
        if outcome.is_err() {
            break;
        }
    }
    let run = writer.finish(outcome).await?.map(Arc::new);
    // The images must be in the list of runs before they leave the row table.
    if let Some(run) = &run {
        tx.history.publish(run.clone());
    }
    let mut large = Vec::new();
    moved.iter().for_each(|row| tx.rows.collect(*row, timestamp, &mut large));
    debug_assert!(large.is_empty(), "rows with large values are kept");
    Ok(SpilledImages { run, moved, kept })
}

/// Returns the images of these commits, and other images of their rows up to `bound`, with their
/// size in bytes.
async fn sort(tx: &Arc<Tx>, olds: &[Old], bound: u64) -> (Sorted, u64) {
    let mut sorted = Sorted::new();
    for (looked, row) in olds.iter().flat_map(|old| &old.rows).enumerate() {
        tx.rows.visit_older(*row, bound, |tree, key, version| {
            sorted.insert((tree, key.into(), version.timestamp), version.image.clone());
        });
        if (looked + 1) % ROWS_AT_ONCE == 0 {
            yield_now().await;
        }
    }
    let bytes = size_bytes(&sorted);
    (sorted, bytes)
}

/// Returns the size of these images in a run, in bytes.
fn size_bytes(sorted: &Sorted) -> u64 {
    let image = |((tree, key, timestamp), image): (&(u32, Box<[u8]>, u64), &BeforeImage)| {
        BeforeImageRef::new(*tree, key, *timestamp, image).size_bytes() as u64
    };
    sorted.iter().map(image).sum()
}

fn no_room() -> Error {
    Error::new(ErrorKind::NoSpace, "undo versions have reached their limit on the device")
}

/// Writes images to a run, except those that no snapshot in use needs.
async fn write(
    tx: &Arc<Tx>,
    (sorted, bytes): (Sorted, u64),
    bound: u64,
) -> Result<Option<SortedRun>> {
    if !tx.has_room_for_run(bytes) {
        return Err(no_room());
    }
    // All of these commits are applied: a snapshot taken from here on needs none of the images.
    let mut needs = Needs::new(tx.snapshots_in_use());
    let mut writer = RunWriter::new(tx, bound, bytes);
    let mut outcome = Ok(());
    for ((tree, key, timestamp), image) in &sorted {
        if needs.has(*tree, key, *timestamp) {
            outcome = writer.push(&BeforeImageRef::new(*tree, key, *timestamp, image)).await;
        }
        if outcome.is_err() {
            break;
        }
    }
    writer.finish(outcome).await
}
