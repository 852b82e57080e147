//! The function that the drivers of this process ask whether to go on waiting for a silent device.

use std::sync::{Mutex, PoisonError};

use qpair_pci::Patience;

static PATIENCE: Mutex<Option<Patience>> = Mutex::new(None);

/// Lets devices that are opened from now on ask `patience`. A program says so once, before it opens any.
pub fn set_patience(patience: Patience) {
    *PATIENCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(patience);
}

pub(crate) fn patience() -> Patience {
    PATIENCE.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}
