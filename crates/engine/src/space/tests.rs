//! Tests which pages the allocator hands out and which it keeps.

use qpair_block::RamDevice;
use qpair_format::ErrorKind;

use super::*;

fn space(pages: u64) -> Space {
    space_on(pages, true, 64)
}

fn fixed(pages: u64) -> Space {
    space_on(pages, false, 64)
}

fn space_on(pages: u64, growable: bool, frames: u32) -> Space {
    let device = RamDevice::new(qpair_block::RamOptions {
        size_bytes: pages * 4096,
        growable,
        ..qpair_block::RamOptions::default()
    });
    Space::new(Arc::new(device.unwrap()), 4096, frames)
}

#[test]
fn what_a_checkpoint_has_is_not_handed_out_before_the_next() {
    let space = space(4096);
    let page = space.allocate(1, Purpose::New).unwrap();
    space.begin_image(|| {});
    space.end_image([(100, 1), (0, 0)]);
    space.image_is_durable();
    let place = space.allocate(1, Purpose::Eviction).unwrap();
    space.moved(page, place, || false);
    assert!(!space.is_used(page));
    for _ in 0..3000 {
        let other = space.allocate(1, Purpose::Checkpoint).unwrap();
        assert!(other != page && other != 100);
    }
    space.begin_image(|| {});
    space.image_is_durable();
    let all: Vec<u64> =
        std::iter::from_fn(|| space.allocate(1, Purpose::Checkpoint).ok()).collect();
    assert!(all.contains(&page) && all.contains(&100));
}

fn changed(changed: u64) -> Reservation {
    Reservation { changed, made: 0 }
}

#[test]
fn what_is_reserved_no_other_takes() {
    let space = fixed(1024);
    let enter = || space.barrier().try_enter().unwrap().unwrap();
    let (mut first, mut second) = (enter(), enter());
    assert!(!space.could_reserve(changed(2000), u32::MAX));
    assert_eq!(
        space.reserve_places(&mut first, changed(2000)).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!(space.barrier().reserved(), 0);
    space.reserve_places(&mut first, changed(600)).unwrap();
    assert!(space.could_reserve(changed(600), u32::MAX));
    space.reserve_places(&mut second, changed(600)).unwrap_err();
    space.reserve_places(&mut second, changed(8)).unwrap();
    let left = || space.counts().1;
    while space.allocate(1, Purpose::New).is_ok() {}
    assert!(left() > 600 + 96, "{}", left());
    while space.allocate(1, Purpose::Eviction).is_ok() {}
    assert!(left() > 600 + 96, "{}", left());
    while space.allocate(1, Purpose::Eviction).is_ok() {}
    // One request was refused: the reserved places are for the changes inside, and the checkpoint
    // writer has its own places.
    assert!(left() < 600 && left() >= 64 + 32, "{}", left());
    drop((first, second));
    assert_eq!(space.barrier().reserved(), 0);
}

/// A store that was full when it was closed has the free pages that new pages left, or a little
/// fewer, because checkpoints use what they need.
#[test]
fn a_full_device_has_the_segments_that_logs_never_go_without() {
    let space = fixed(1024);
    while space.allocate(1, Purpose::New).is_ok() {}
    for _ in 0..2 {
        space.allocate(1, Purpose::Checkpoint).unwrap();
        space.allocate_unlinked(8, Purpose::Log).unwrap_err();
        space.allocate_unlinked(8, Purpose::FirstLog).unwrap();
    }
    // The checkpoint writer finds its places beside the reserved ones.
    assert!(space.counts().1 >= 64 + 32);
}

#[test]
fn a_page_whose_place_no_image_has_moves_on_a_full_device() {
    let space = fixed(512);
    let page = space.allocate(1, Purpose::New).unwrap();
    space.begin_image(|| {});
    space.keep_nothing_for_unsaved();
    space.end_image([(500, 1), (0, 0)]);
    space.image_is_durable();
    let place = space.allocate_to_move(page).unwrap();
    space.moved(page, place, || false);
    // Leave one page.
    while space.counts().1 > 1 {
        space.allocate(1, Purpose::Checkpoint).unwrap();
    }
    let next = space.allocate_to_move(place).unwrap();
    space.moved(place, next, || false);
    assert_eq!(space.counts().1, 1);
}

#[test]
fn what_leaves_memory_beside_a_checkpoint_leaves_room_for_the_next() {
    let space = fixed(512);
    let pages: Vec<u64> = (0..300).map(|_| space.allocate(1, Purpose::New).unwrap()).collect();
    let durable = || {
        space.keep_nothing_for_unsaved();
        space.end_image([(500, 1), (0, 0)]);
        space.image_is_durable();
    };
    space.begin_image(|| {});
    durable();
    space.begin_image(|| {});
    space.keep_nothing_for_unsaved();
    let mut moved = 0;
    for page in pages {
        let Ok(place) = space.allocate_to_move(page) else { break };
        space.moved(page, place, || false);
        moved += 1;
    }
    durable();
    // The next image needs a place for each page in memory. The old places of the moved pages are
    // held for this image.
    assert!(space.counts().1 >= 64 + 32 && moved > 50, "{moved} {:?}", space.counts());
}

#[test]
fn nothing_is_kept_to_write_out_what_the_logs_have() {
    let space = space_on(2048, false, 2048);
    let log = space.allocate_unlinked(1024, Purpose::Log).unwrap();
    space.keep_beside_logs().unwrap_err();
    let mut pages = 0;
    while space.allocate(1, Purpose::New).is_ok() {
        pages += 1;
    }
    assert!(pages > 300, "{pages}");
    // Back in the common pool, the pages can hold tree pages, each of which would need another
    // place.
    space.free_log(log, 1024);
    assert!(space.allocate(1, Purpose::New).is_ok());
    assert_eq!(space.inner.lock().log, 0);
}

#[test]
fn unlinked_pages_are_in_no_image() {
    let space = space(1024);
    let run = space.allocate_unlinked(10, Purpose::New).unwrap();
    space.begin_image(|| {});
    assert!(!space.end_image([(1000, 1), (0, 0)]).get(run));
    space.drop_image();
    space.link(run, 10);
    space.begin_image(|| {});
    assert!(space.end_image([(1000, 1), (0, 0)]).get(run + 9));
}

#[test]
fn runs_are_found_across_words_and_round_the_end() {
    let space = space(1024);
    let (first, second) = (
        space.allocate(100, Purpose::Checkpoint).unwrap(),
        space.allocate(800, Purpose::Checkpoint).unwrap(),
    );
    assert_eq!((first, second), (2, 102));
    space.free(first, 100);
    assert_eq!(space.allocate(100, Purpose::Checkpoint).unwrap(), 902);
    assert_eq!(space.allocate(100, Purpose::Checkpoint).unwrap(), 2);
}

#[test]
fn a_run_among_single_pages_does_not_make_the_device_much_larger() {
    let space = space(16384);
    let single = || space.allocate(1, Purpose::Checkpoint).unwrap();
    let pages: Vec<u64> = (0..16000).map(|_| single()).collect();
    pages.iter().step_by(2).for_each(|page| space.free(*page, 1));
    assert!(space.counts().1 >= 8000);
    for _ in 0..3 {
        assert!(space.allocate(256, Purpose::Log).unwrap() >= 16000);
    }
    assert!(space.capacity() <= 16384 + 2 * 256 + 16);
}

/// A request for many pages leaves as many free as single requests would.
#[test]
fn what_is_kept_is_left_by_who_takes_many() {
    let space = fixed(512);
    let mut taken = 0;
    while let Ok(pages) = space.allocate_some(256, Purpose::New) {
        taken += pages.end - pages.start;
    }
    assert!(space.counts().1 >= left_by_new(64 + 32), "{} are free", space.counts().1);
    assert!(taken > 300, "{taken}");
}

/// A place has 40 bits for the page id. Pages with larger ids are not used, because their places
/// would be taken for those of other pages.
#[test]
fn no_page_is_behind_the_last_that_can_be_named() {
    let size_bytes = (PAGES_MAX + 100) * 512;
    let device = qpair_block::NullDevice::new(qpair_block::NullOptions { size_bytes }).unwrap();
    let space = Space::new(Arc::new(device), 512, 64);
    assert_eq!(space.capacity(), PAGES_MAX);
    space.note_capacity();
    assert_eq!(space.capacity(), PAGES_MAX);
}

/// A regression: the device was enlarged by the allocation that found it full, which had the lock,
/// and often a latch.
#[test]
fn a_device_grows_before_it_is_full() {
    let space = space(4096);
    let mut grown = 0;
    for _ in 0..200 {
        // As many pages as all workers together may take in a turn.
        for _ in 0..100 {
            let before = space.capacity();
            space.allocate(1, Purpose::New).unwrap();
            assert_eq!(space.capacity(), before, "grown under the lock");
        }
        let before = space.capacity();
        space.grow_ahead();
        grown += u64::from(space.capacity() > before);
    }
    assert!(grown > 3, "{grown}");
}

#[test]
fn a_device_that_cannot_grow_is_asked_ahead_once() {
    let space = fixed(1024);
    let pages = (0..).map_while(|_| {
        space.allocate(1, Purpose::Checkpoint).ok()?;
        let was_low = space.low.load(Ordering::Relaxed);
        space.grow_ahead();
        Some(was_low)
    });
    assert_eq!(pages.filter(|was_low| *was_low).count(), 1);
}

/// A regression: the image began as a copy of all bitmaps, and all bits were counted when it became
/// durable, with the allocator's lock held.
#[test]
fn an_image_costs_what_changed_since_the_last() {
    const PART_PAGES: u64 = 64 * qpair_format::bitmap::PART_WORDS as u64;
    // The pages are never written, so one byte each is enough.
    let device = RamDevice::new(qpair_block::RamOptions {
        size_bytes: 40 * PART_PAGES,
        ..qpair_block::RamOptions::default()
    });
    let space = Space::new(Arc::new(device.unwrap()), 1, 64);
    // Allocate some pages in each part.
    for part in 0..30 {
        space.inner.lock().take(part * PART_PAGES + 10, 100);
    }
    let checkpoint = || {
        space.begin_image(|| {});
        space.end_image([(1000, 1), (0, 0)]);
        space.image_is_durable();
    };
    checkpoint();
    let check = || {
        let inner = space.inner.lock();
        assert_eq!(inner.taken, (0..40).map(|part| inner.count_part(part)).sum::<u64>());
    };
    check();
    space.begin_image(|| {});
    assert_eq!(space.inner.lock().image.as_ref().unwrap().own_parts(), 0, "copied at the instant");
    space.free(7 * PART_PAGES + 10, 100);
    space.inner.lock().take(20 * PART_PAGES, 5);
    assert_eq!(space.inner.lock().linked.own_parts(), 2);
    space.end_image([(1000, 1), (0, 0)]);
    space.image_is_durable();
    checkpoint();
    let inner = space.inner.lock();
    // All but the part with the description's own page.
    assert_eq!((inner.linked.own_parts(), inner.durable.own_parts()), (1, 1));
    drop(inner);
    check();
    let (hold, _) = space.hold();
    space.free(9 * PART_PAGES + 10, 100);
    checkpoint();
    assert_eq!(space.retained(), 100 + 1);
    space.release(hold);
    assert_eq!(space.retained(), 1);
    check();
    space.begin_image(|| {});
    let place = space.allocate(1, Purpose::Checkpoint).unwrap();
    space.moved(3 * PART_PAGES + 10, place, || true);
    space.free(place, 1);
    space.drop_image();
    check();
}

/// A close waits for the tasks that have reserved pages, and is polled only when the last of them
/// is done.
#[test]
fn who_waits_for_the_last_to_leave_is_woken_by_that_one() {
    let space = fixed(1024);
    space.enter().unwrap();
    space.reserve(1, Purpose::New).unwrap();
    space.begin_closing();
    let (wakes, waker) = crate::sync::Wakes::counted();
    let mut context = std::task::Context::from_waker(&waker);
    let mut waiting = std::pin::pin!(space.wait_until_left());
    for _ in 0..100 {
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    space.leave();
    assert_eq!(wakes.count(), 0);
    space.leave();
    assert_eq!(wakes.count(), 1);
    assert!(waiting.as_mut().poll(&mut context).is_ready());
}

/// Rows of pages on a full device stay whole after any number of single pages have moved.
#[test]
fn pages_that_move_on_a_full_device_leave_rows_alone() {
    let space = fixed(4096);
    let mut pages: Vec<u64> = std::iter::from_fn(|| space.allocate(1, Purpose::New).ok()).collect();
    let row = space.allocate_unlinked(16, Purpose::FirstLog).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut checkpoint = |pages: &mut Vec<u64>, moving: usize| {
        space.begin_image(|| {});
        for _ in 0..moving {
            let page = rng.usize(0..pages.len());
            let place = space.allocate(1, Purpose::Checkpoint).unwrap();
            space.moved(pages[page], place, || false);
            pages[page] = place;
        }
        space.image_is_durable();
    };
    // Allocate scattered pages until no others are left. Then the log's row becomes free.
    (0..200).for_each(|_| checkpoint(&mut pages, 40));
    space.free_log(row, 16);
    (0..200).for_each(|_| checkpoint(&mut pages, 40));
    checkpoint(&mut pages, 0);
    space.allocate_unlinked(16, Purpose::FirstLog).unwrap();
}
