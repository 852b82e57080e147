//! Waiting and waking between tasks and threads.

mod async_mutex;
mod waiters;
#[cfg(test)]
mod wakes;
mod worker_handle;

pub(crate) use async_mutex::{AsyncMutex, AsyncMutexGuard};
pub(crate) use waiters::{Ticket, Waiters};
#[cfg(test)]
pub(crate) use wakes::Wakes;
pub(crate) use worker_handle::{LocalFuture, TaskRef, WorkerHandle};
