//! Waiting for a row's lock, and finding wait-for cycles.
//!
//! Invariant: a transaction publishes which row it waits for before it looks at the waits of
//! others. So of the transactions that close a cycle at the same time, at least one sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use qpair_format::{Error, ErrorKind, Result};

use super::enclosing;
use super::registry::Info;
use crate::task::{Deadline, Worker, current};
use crate::tx::Tx;
use crate::tx::versions::{FREE, Locking, Place, RowRef};

/// Limit on the transactions in a cycle; waiting does not lead to longer ones.
const CIRCLE_MAX: usize = 1000;

/// Takes a row's lock, and waits up to `timeout` if another transaction has it. Returns the row,
/// and the newest commit known to have changed it, or 0.
pub(crate) async fn lock(
    tx: &Tx,
    info: &Info,
    tree: u32,
    key: &[u8],
    owner: u64,
    timeout: Option<Duration>,
) -> Result<(RowRef, u64)> {
    match tx.rows.lock(tree, key, owner) {
        Locking::Taken(row, newest) => Ok((row, newest)),
        Locking::Had(row) => Ok((row, 0)),
        Locking::Busy(row) => {
            let (place, looked, done) = (None, false, false);
            let deadline = timeout
                .and_then(|timeout| Some((timeout, current(|worker| worker.deadline(timeout))?)));
            let wait = Wait { tx, info, tree, key, owner, row, place, looked, done, deadline };
            let _waits = current(Worker::wait_for_others);
            let row = wait.await?;
            Ok((row, tx.rows.newest(row)))
        }
    }
}

struct Wait<'a> {
    tx: &'a Tx,
    info: &'a Info,
    tree: u32,
    key: &'a [u8],
    owner: u64,
    row: RowRef,
    place: Place,
    looked: bool,
    done: bool,
    /// The time-out, and its deadline.
    deadline: Option<(Duration, Deadline)>,
}

impl Future for Wait<'_> {
    type Output = Result<RowRef>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.tx.shared.oracle.is_closed() {
            return Poll::Ready(Err(Error::closed()));
        }
        let Self { tx, tree, key, owner, .. } = *self;
        if let Some(row) = tx.rows.enqueue(tree, key, owner, &mut self.place, context.waker()) {
            self.done = true;
            return Poll::Ready(Ok(row));
        }
        if !self.looked {
            self.looked = true;
            // The row stays where it is while this transaction is in its queue.
            self.row = self.tx.rows.find(self.tree, self.key).unwrap_or(self.row);
            if enclosing::is_own(self.tx, self.owner, self.row) {
                return Poll::Ready(Err(Error::with_hint(
                    ErrorKind::Invalid,
                    format!(
                        "the enclosing transaction of this thread holds the lock of {}: the thread would wait for itself",
                        self.tx.names.place(self.tree, self.key)
                    ),
                    "use the transaction that the closure receives",
                )));
            }
            // SeqCst, as the loads in `is_wait_cycle`: of two transactions that wait for each
            // other, at least one sees the other's wait.
            self.info.waits.store(self.row.encode() + 1, Ordering::SeqCst);
            if is_wait_cycle(self.tx, self.owner, self.row)
                && is_wait_cycle(self.tx, self.owner, self.row)
            {
                return Poll::Ready(Err(Error::with_hint(
                    ErrorKind::Conflict,
                    format!(
                        "deadlock between transactions: this one waits for {}",
                        self.tx.names.place(self.tree, self.key)
                    ),
                    "roll back and try again, as Store::transact does; to avoid this, lock rows in the same order everywhere",
                )));
            }
        }
        match &self.deadline {
            Some((timeout, deadline)) if deadline.poll(context.waker()) => {
                Poll::Ready(Err(self.timed_out(*timeout)))
            }
            _ => Poll::Pending,
        }
    }
}

impl Wait<'_> {
    #[cold]
    fn timed_out(&self, timeout: Duration) -> Error {
        let place = self.tx.names.place(self.tree, self.key);
        let context = match self.tx.rows.owner(self.row) {
            FREE => format!("{place} was locked for {timeout:?}"),
            owner => {
                format!("{place} was locked for {timeout:?}, now by {}", self.tx.describe(owner))
            }
        };
        Error::with_hint(
            ErrorKind::TimedOut,
            context,
            "try again later, let transactions end sooner, or raise lock_timeout; Store::transactions lists those that are open",
        )
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.info.waits.store(0, Ordering::SeqCst);
        if !self.done
            && let Some(row) = self.tx.rows.dequeue(self.tree, self.key, self.owner, self.place)
        {
            // The lock passed meanwhile to this waiter, which no longer wants it.
            self.tx.rows.unlock(row, self.owner);
        }
    }
}

/// Whether the chain from a row to its owner, to the row that this owner waits for, and so on,
/// leads back to `to`, which waits for the row.
fn is_wait_cycle(tx: &Tx, to: u64, row: RowRef) -> bool {
    owners(tx, to, row).any(|owner| owner == to)
}

/// Returns the owner of the row that `waiting` waits for, then the owner of the row that this owner
/// waits for, and so on.
pub(super) fn owners(tx: &Tx, waiting: u64, row: RowRef) -> impl Iterator<Item = u64> {
    let mut at = Some((row, waiting));
    (0..CIRCLE_MAX).map_while(move |_| {
        let (row, waiting) = at?;
        let owner = tx.rows.owner(row);
        // The transaction at this point just got its row, so the chain ends.
        if owner == FREE || owner == waiting {
            return None;
        }
        at = tx.waits_of(owner).map(|waits| (waits, owner));
        Some(owner)
    })
}
