//! Locks of a model: what is behind one is whole whenever it is free, whichever thread panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after another thread has panicked.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
