//! Whom the drivers of this process ask whether to go on waiting for a silent device, and whom they tell what makes one slow.

use std::sync::{Mutex, PoisonError};

use qpair_pci::Patience;

static PATIENCE: Mutex<Option<Patience>> = Mutex::new(None);
static NOTICES: Mutex<Option<fn(&str)>> = Mutex::new(None);

/// Lets devices that are opened from now on ask `patience`. A program says so once, before it opens any.
pub fn set_patience(patience: Patience) {
    *PATIENCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(patience);
}

/// Lets `tell` hear of devices, opened from now on, that work and are slower than they need be.
pub fn set_notices(tell: fn(&str)) {
    *NOTICES.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
}

pub(crate) fn notice(text: &str) {
    let tell = *NOTICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tell) = tell {
        tell(text);
    }
}

pub(crate) fn patience() -> Patience {
    PATIENCE.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}
