//! Reading a store into memory before a run.

use std::ops::ControlFlow;

use qpair::{Result, Store};
use serde::Serialize;

use crate::progress::Progress;

/// The result of reading a store into memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Warmed {
    /// The number of pages that were read.
    pub pages: u64,
    /// The size of these pages in bytes.
    pub bytes: u64,
    /// The number of pages that could not be read.
    pub unread: u64,
    /// Whether memory was full before all pages were read.
    pub full: bool,
    /// The duration in seconds.
    pub seconds: f64,
}

/// Reads as much of a store into memory as there is room for: [`Store::warm`].
///
/// # Errors
/// As [`Store::warm`]; `Interrupted` if `progress` asked to stop.
pub fn warm(store: &Store, progress: &dyn Progress) -> Result<Warmed> {
    let pages = store.report();
    let used = pages.pages - pages.free_pages;
    progress.begin("reading into memory", used.min(pages.memory_bytes / pages.page_size as u64));
    let warmed = store.warm(&|done, _| {
        progress.at(done);
        if progress.stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.end();
    let warmed = warmed?;
    Ok(Warmed {
        pages: warmed.pages,
        bytes: warmed.bytes,
        unread: warmed.unread,
        full: warmed.full,
        seconds: warmed.elapsed.as_secs_f64(),
    })
}
