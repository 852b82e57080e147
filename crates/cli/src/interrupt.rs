//! Ctrl-C and its kin: a flag that long commands look at.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Exit, Failure, Result};

/// Whether the command was asked to stop. A second request ends it at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn install() -> Result<Self> {
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
        [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .try_for_each(register)
            .map_err(|error| Failure::io(&error, "taking over signals"))?;
        Ok(Self(requested))
    }

    /// What whoever tells of progress is answered.
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
