//! Ctrl-C and similar signals: a flag that long commands check.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use qpair_drivers::{Drivers, TimeoutPolicy};

use crate::failure::{Exit, Failure, Result};

/// The interrupt of this command.
static FIRST: OnceLock<Interrupt> = OnceLock::new();
/// The number of seconds between two messages about a wait for a silent device.
const TOLD_EVERY_S: u64 = 5;

/// Whether the command was asked to stop. A second request ends it at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn install() -> Result<Self> {
        Self::of(&[SIGINT, SIGTERM, SIGHUP])
    }

    pub(crate) fn of(signals: &[i32]) -> Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        let register = |signal| -> io::Result<()> {
            flag::register_conditional_shutdown(
                signal,
                Exit::Interrupted as i32,
                requested.clone(),
            )?;
            flag::register(signal, requested.clone())?;
            Ok(())
        };
        signals
            .iter()
            .copied()
            .try_for_each(register)
            .map_err(|error| Failure::io(&error, "installing handlers for signals"))?;
        let interrupt = Self(requested);
        let _ = FIRST.set(interrupt.clone());
        Ok(interrupt)
    }

    /// Whether this command handles interrupts and received one: a later error is most likely a
    /// consequence of stopping.
    pub(crate) fn was_requested() -> bool {
        FIRST.get().is_some_and(Self::is_requested)
    }

    /// Returns the answer to a progress callback.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        match self.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The end of a command that was asked to stop.
pub(crate) fn interrupted(what: impl std::fmt::Display) -> Result<Exit> {
    eprintln!("qpair: interrupted; {what}");
    Ok(Exit::Interrupted)
}

/// Creates the drivers of a command. While they wait for a silent device, a message is printed, and
/// an interrupt ends the wait. Without [`Interrupt::install`], Ctrl-C ends the command at once.
pub(crate) fn drivers() -> Drivers {
    let (start, told_at_s) = (Instant::now(), AtomicU64::new(0));
    Drivers::with_timeout_policy(TimeoutPolicy::new(move |waiting| {
        let (now_s, told_s) = (start.elapsed().as_secs(), told_at_s.load(Ordering::Relaxed));
        let is_due = waiting.waited.as_secs() >= TOLD_EVERY_S && now_s >= told_s + TOLD_EVERY_S;
        // Only one of several waiting threads prints the message.
        if is_due
            && told_at_s
                .compare_exchange(told_s, now_s, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            eprintln!(
                "qpair: waiting for {} {}: {} s of at most {:.0} s; Ctrl-C ends the wait",
                waiting.name,
                waiting.to,
                waiting.waited.as_secs(),
                waiting.at_most.as_secs_f64()
            );
        }
        FIRST.get().map_or(ControlFlow::Continue(()), Interrupt::flow)
    }))
}
