//! Fits the pool to the device: if the device has no room for the reserve for dirty pages, fewer
//! frames are used, and the reserve becomes smaller.
//!
//! - Frames become idle at any time. The allocator adjusts its count only at a checkpoint's
//!   instant, or before the first change. No change is inside the barrier then, so the reservation
//!   of a change is measured by the same number of frames from its beginning to its end.
//! - Idle frames are used again at a checkpoint's instant, once the reserve of twice as many frames
//!   would leave half of the free pages.

use std::sync::Arc;

use qpair_format::Result;

use super::writer::WorkerFuture;
use super::{checkpoint_to_its_end, on_every_worker};
use crate::shared::Shared;
use crate::task::{current, yield_now};

/// The maximum number of rounds of eviction, with a checkpoint after each, that one change waits
/// for.
const ROUNDS_MAX: u32 = 4;

/// Makes frames idle if the device has no room for the reserve of all frames. Returns whether the
/// reserve is now smaller by an eighth or more. Must not be called inside the barrier.
///
/// # Errors
/// As [`checkpoint_to_its_end`].
pub(super) async fn use_fewer_frames(shared: &Arc<Shared>) -> Result<bool> {
    let before = shared.space.frames();
    let Some(target) = target(shared) else { return Ok(false) };
    for _ in 0..ROUNDS_MAX {
        evict_down_to(shared, target).await?;
        // Dirty pages can leave memory once they were written for an image. The checkpoint's
        // instant counts the frames.
        checkpoint_to_its_end(shared).await?;
        if u64::from(shared.pool.active()) <= target || shared.lifecycle.is_closing() {
            break;
        }
    }
    Ok(shared.space.frames() <= before - before / 8)
}

/// Calls [`use_fewer_frames`] before the first change, when no change is inside the barrier.
/// Returns whether there are fewer frames now. Pages that recovery made dirty stay where they are.
///
/// # Errors
/// `Closed`.
pub(crate) async fn fit_before_changes(shared: &Arc<Shared>) -> Result<bool> {
    let before = shared.space.frames();
    let Some(target) = target(shared) else { return Ok(false) };
    evict_down_to(shared, target).await?;
    shared.space.set_frames(shared.pool.active());
    Ok(shared.space.frames() < before)
}

/// Uses idle frames again if there is room for their reserve, and makes the allocator count the
/// frames that may have pages. Call it at a checkpoint's instant.
pub(super) fn count_frames(shared: &Shared) {
    let (active, all) = (u64::from(shared.pool.active()), u64::from(shared.pool.frames.len()));
    if active < all {
        let wanted = (2 * active).min(all);
        if shared.space.frames_that_fit() >= wanted {
            shared.pool.wake_idle((wanted - active) as usize);
        }
    }
    shared.space.set_frames(shared.pool.active());
}

/// Returns the number of frames to use from now on, or `None` if that is hardly fewer than now.
fn target(shared: &Shared) -> Option<u64> {
    let fewest = u64::from(shared.pool.fewest()) + 2 * shared.forest.count_open() as u64;
    let target = shared.space.frames_that_fit().max(fewest);
    (target <= shared.space.frames() - shared.space.frames() / 8).then_some(target)
}

async fn evict_down_to(shared: &Arc<Shared>, target: u64) -> Result<()> {
    // A worker that has nothing to do keeps its frames at hand.
    let give = || -> WorkerFuture<Option<()>> {
        Box::pin(async { current(|worker| worker.give_frames_back()) })
    };
    on_every_worker(shared, give).await?;
    // Both hands pass every frame twice.
    let mut passes_left = 4 * shared.pool.frames.len() as usize;
    while passes_left > 0 {
        let surplus = u64::from(shared.pool.active()).saturating_sub(target) as usize;
        let passed = current(|worker| worker.make_frames_idle(surplus)).unwrap_or(0);
        if passed == 0 {
            // Enough frames are idle, or the hands meet only dirty pages.
            break;
        }
        passes_left = passes_left.saturating_sub(passed);
        yield_now().await;
    }
    Ok(())
}
