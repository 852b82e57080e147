//! Reading a store into memory before a run.

use std::ops::ControlFlow;

use qpair::{Result, Store};
use serde::Serialize;

use crate::progress::Progress;

/// What reading a store into memory came to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Warmed {
    /// Pages that were read.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pages that could not be read.
    pub unread: u64,
    /// Whether memory was full before all were there.
    pub full: bool,
    /// The time it took.
    pub seconds: f64,
}

/// Reads a store into memory, as much of it as there is room for: [`Store::warm`].
///
/// # Errors
/// As that; `Interrupted` if it is to stop.
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
