//! Progress bars on standard error: shown on a terminal, hidden elsewhere.

use qpair_block::locks::Mutex;
use std::borrow::Cow;

use indicatif::{ProgressBar, ProgressStyle};
use qpair_bench::Progress;
use qpair_workload::{Live, Observer};

use crate::interrupt::Interrupt;

/// The template of a bar with a known end.
pub(crate) const TEMPLATE: &str = "{bar:24} {percent:>3} %  {msg}, {eta} left";

/// Makes the progress bar of a command that reads a whole store; hidden if `quiet`.
pub(crate) fn progress_bar(quiet: bool) -> ProgressBar {
    styled(if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) }, TEMPLATE)
}

pub(crate) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub(crate) fn show(
    bar: &ProgressBar,
    done: u64,
    total: u64,
    message: impl Into<Cow<'static, str>>,
) {
    bar.set_length(total);
    bar.set_position(done);
    bar.set_message(message);
}

/// Shows nothing, and passes on the wish to stop.
impl Progress for Interrupt {
    fn begin(&self, _: &str, _: u64) {}

    fn at(&self, _: u64) {}

    fn end(&self) {}

    fn stop(&self) -> bool {
        self.is_requested()
    }
}

/// Shows nothing, and passes on the wish to stop.
impl Observer for Interrupt {
    fn tick(&self, _: &Live) {}

    fn stop(&self) -> bool {
        self.is_requested()
    }
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
}

impl Progress for Bar {
    fn begin(&self, phase: &str, total: u64) {
        // The bar hides itself if standard error is not a terminal.
        let template = "{msg:34} {wide_bar} {percent:>3} %  {elapsed:>4}";
        *self.bar.lock() = styled(ProgressBar::new(total), template).with_message(phase.to_owned());
    }

    fn at(&self, done: u64) {
        self.bar.lock().set_position(done);
    }

    fn note(&self, note: &str) {
        self.bar.lock().set_message(note.to_owned());
    }

    fn end(&self) {
        self.bar.lock().finish_and_clear();
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}

/// Shows a run in percent.
impl Observer for Bar {
    fn tick(&self, live: &Live) {
        self.at((live.fraction.unwrap_or(0.0) * 100.0) as u64);
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}
