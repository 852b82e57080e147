//! Handles of the engine, which the store takes back when it is closed.
//!
//! The engine releases its devices when the last handle of a store is dropped. Python drops handles
//! when it pleases: a variable that still has a table must not keep a closed store's file locked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};

use pyo3::prelude::*;
use qpair::{Error, ErrorKind, Result};

use crate::process::{Process, wait};

/// A handle that threads share: a table or a snapshot.
pub(crate) struct Shared<T> {
    process: Process,
    handle: RwLock<Option<T>>,
}

/// A handle that one thread uses at a time: a transaction, a range or a batch.
pub(crate) struct Exclusive<T> {
    process: Process,
    handle: Mutex<Option<T>>,
}

trait Revoke: Send + Sync {
    /// Drops the handle. Returns `false` if `now` is set and a thread is using the handle.
    fn revoke(&self, now: bool) -> bool;
}

impl<T: Clone> Shared<T> {
    pub(crate) fn new(handle: T) -> Self {
        Self { process: Process::here(), handle: RwLock::new(Some(handle)) }
    }

    /// Calls `read`, which must not wait, with the handle.
    #[inline]
    pub(crate) fn with<R>(&self, read: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        self.process.check()?;
        match &*self.handle.read().unwrap_or_else(PoisonError::into_inner) {
            Some(handle) => read(handle),
            None => Err(closed()),
        }
    }

    /// Returns a handle to wait with. It keeps the store's devices until it is dropped.
    pub(crate) fn get(&self) -> Result<T> {
        self.with(|handle| Ok(handle.clone()))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.with(|_| Ok(())).is_ok()
    }

    pub(crate) fn take(&self) -> Option<T> {
        match self.process.is_here() {
            true => self.handle.write().unwrap_or_else(PoisonError::into_inner).take(),
            false => None,
        }
    }
}

impl<T> Exclusive<T> {
    fn lock(&self) -> Result<MutexGuard<'_, Option<T>>> {
        self.process.check()?;
        match self.handle.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::with_hint(
                ErrorKind::Invalid,
                "another thread is using this transaction, batch or iterator",
                "give each thread its own, or guard it by a lock",
            )),
        }
    }

    /// Calls `run`, which may wait if the thread is detached from the interpreter.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        match &mut *self.lock()? {
            Some(handle) => run(handle),
            None => Err(closed()),
        }
    }

    pub(crate) fn take(&self) -> Result<Option<T>> {
        Ok(self.lock()?.take())
    }

    /// Drops the handle, after a call by it. The thread is detached from the interpreter.
    pub(crate) fn end(&self) {
        if !self.process.is_here() {
            return;
        }
        let taken = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store, transaction or snapshot is closed")
}

impl<T: Clone + Send + Sync> Revoke for Shared<T> {
    fn revoke(&self, _now: bool) -> bool {
        drop(self.take());
        true
    }
}

impl<T: Send> Revoke for Exclusive<T> {
    fn revoke(&self, now: bool) -> bool {
        let taken = match self.handle.try_lock() {
            Ok(mut guard) => guard.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) if now => return false,
            Err(TryLockError::WouldBlock) => {
                self.end();
                None
            }
        };
        drop(taken);
        true
    }
}

/// In a fork nothing of the engine is dropped.
macro_rules! forget_in_a_fork {
    ($($handle:ident),*) => {$(
        impl<T> Drop for $handle<T> {
            fn drop(&mut self) {
                if !self.process.is_here() {
                    let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
                    std::mem::forget(handle.take());
                }
            }
        }
    )*};
}
forget_in_a_fork!(Shared, Exclusive);

/// The stores of this process, for the end of the interpreter.
static STORES: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

/// Closes all stores. Registered with `atexit`: nothing is dropped in order once the interpreter
/// ends.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    let stores = std::mem::take(&mut *STORES.lock().unwrap_or_else(PoisonError::into_inner));
    let stores: Vec<_> = stores.iter().filter_map(Weak::upgrade).collect();
    // Nobody takes the errors: a store that was not closed is recovered when it is opened again.
    wait(py, || stores.iter().for_each(|store| drop(store.close())));
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.is_open() {
            return;
        }
        // Without an interpreter there is no thread to detach.
        if Python::try_attach(|py| wait(py, || drop(self.close()))).is_none() {
            drop(self.close());
        }
    }
}

/// An open store, and the handles that were made of it.
pub(crate) struct Open {
    store: Shared<qpair::Store>,
    handles: Mutex<Handles>,
    /// Taken by the one caller that closes the store; others wait for it.
    closing: Mutex<()>,
}

#[derive(Default)]
struct Handles {
    all: Vec<Weak<dyn Revoke>>,
    /// The length at which handles that are gone are removed.
    prune_at: usize,
}

impl Open {
    pub(crate) fn new(store: qpair::Store) -> Arc<Self> {
        let (store, handles) = (Shared::new(store), Mutex::default());
        let open = Arc::new(Self { store, handles, closing: Mutex::default() });
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(&open));
        open
    }

    pub(crate) fn store(&self) -> Result<qpair::Store> {
        self.store.get()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.store.is_open()
    }

    pub(crate) fn is_here(&self) -> bool {
        self.store.process.is_here()
    }

    pub(crate) fn share<T: Clone + Send + Sync + 'static>(
        &self,
        handle: T,
    ) -> Result<Arc<Shared<T>>> {
        let handle = Arc::new(Shared::new(handle));
        self.note(Arc::downgrade(&handle) as Weak<dyn Revoke>)?;
        Ok(handle)
    }

    pub(crate) fn exclusive<T: Send + 'static>(&self, handle: T) -> Result<Arc<Exclusive<T>>> {
        let handle =
            Arc::new(Exclusive { process: Process::here(), handle: Mutex::new(Some(handle)) });
        self.note(Arc::downgrade(&handle) as Weak<dyn Revoke>)?;
        Ok(handle)
    }

    fn note(&self, handle: Weak<dyn Revoke>) -> Result<()> {
        self.store.process.check()?;
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        // A close takes the store before the handles.
        if !self.store.is_open() {
            return Err(closed());
        }
        if handles.all.len() >= handles.prune_at {
            handles.all.retain(|handle| handle.strong_count() > 0);
            handles.prune_at = 2 * handles.all.len() + 64;
        }
        handles.all.push(handle);
        Ok(())
    }

    /// Closes the store and takes back its handles. The thread is detached from the interpreter. In
    /// a fork it does nothing: the store is its parent's.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.is_here() {
            return Ok(());
        }
        let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = self.store.take() else { return Ok(()) };
        let handles =
            std::mem::take(&mut self.handles.lock().unwrap_or_else(PoisonError::into_inner).all);
        let handles: Vec<_> = handles.iter().filter_map(Weak::upgrade).collect();
        // First the idle ones: a transaction that nobody uses releases rows that others wait for.
        let busy: Vec<_> = handles.into_iter().filter(|handle| !handle.revoke(true)).collect();
        let outcome = store.close();
        for handle in busy {
            handle.revoke(false);
        }
        outcome
    }
}
