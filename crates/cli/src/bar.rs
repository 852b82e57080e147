//! Progress bars on standard error: shown on a terminal, hidden elsewhere.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use qpair_bench::Progress;

use crate::interrupt::Interrupt;

/// The template of a bar with a known end.
pub(crate) const TEMPLATE: &str = "{bar:24} {percent:>3} %  {msg}, {eta} left";

/// Makes the progress bar of a command that reads a whole store; hidden if `quiet`.
pub(crate) fn progress_bar(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

/// Shows the phases of a run on standard error, and forwards requests to stop.
pub(crate) struct Bar {
    interrupt: Interrupt,
    bar: Mutex<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, bar: Mutex::new(ProgressBar::hidden()) }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bar {
    fn begin(&self, phase: &str, total: u64) {
        // The bar hides itself if standard error is not a terminal.
        let bar = ProgressBar::new(total);
        let template = "{msg:34} {wide_bar} {percent:>3} %  {elapsed:>4}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(phase.to_owned());
        *self.bar() = bar;
    }

    fn at(&self, done: u64) {
        self.bar().set_position(done);
    }

    fn note(&self, note: &str) {
        self.bar().set_message(note.to_owned());
    }

    fn end(&self) {
        self.bar().finish_and_clear();
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}
