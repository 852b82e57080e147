//! How tasks and threads wait for one another, and wake one another.

mod async_mutex;
mod remote;
mod waiters;
#[cfg(test)]
mod wakes;

pub(crate) use async_mutex::{AsyncMutex, AsyncMutexGuard};
pub(crate) use remote::{LocalFuture, Remote, TaskRef};
pub(crate) use waiters::{Ticket, Waiters};
#[cfg(test)]
pub(crate) use wakes::Wakes;
