//! Enclosing transactions: a thread that blocks inside their closures and waits for their rows
//! would wait for ever.
//!
//! `Store::transact` notes the transaction for its thread. A blocking call passes the note to the
//! worker, where a task reads it before it waits for a row.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::locks::owners;
use crate::tx::Tx;
use crate::tx::versions::RowRef;

/// The store and the id of a transaction.
type Outer = (usize, u64);

thread_local! {
    /// The transactions whose closures this thread is in.
    static INSIDE: RefCell<Vec<Outer>> = const { RefCell::new(Vec::new()) };
    /// The transactions whose closures the thread is in that waits for the future being polled.
    static WAITING: RefCell<Vec<Outer>> = const { RefCell::new(Vec::new()) };
}

fn store_of(tx: &Tx) -> usize {
    std::ptr::from_ref(tx) as usize
}

/// A guard that exists while the thread is in a transaction's closure.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn new(tx: &Tx, id: u64) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push((store_of(tx), id)));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(Vec::pop);
    }
}

/// A future that a thread waits for while it is in closures of transactions.
pub(crate) struct Awaited<F> {
    inside: Vec<Outer>,
    future: Pin<Box<F>>,
}

impl<F: Future> Awaited<F> {
    /// Returns a constructor with the closures that this thread is in; `None` if it is in none.
    pub(crate) fn here() -> Option<impl FnOnce(F) -> Self + Send + use<F>> {
        let inside = INSIDE.with_borrow(Clone::clone);
        (!inside.is_empty()).then_some(move |future| Self { inside, future: Box::pin(future) })
    }
}

impl<F: Future> Future for Awaited<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        /// A guard that clears the list even if the future panics.
        struct Polled;
        impl Drop for Polled {
            fn drop(&mut self) {
                WAITING.with_borrow_mut(Vec::clear);
            }
        }
        WAITING.with_borrow_mut(|waiting| waiting.clone_from(&self.inside));
        let _polled = Polled;
        self.future.as_mut().poll(context)
    }
}

/// Whether waiting for this row would block for ever: whether the row is locked by a transaction in
/// whose closure the waiting thread is, or by one that waits, directly or not, for a row of such a
/// transaction. A chain that leads back to `waiting_id` is an ordinary wait-for cycle and does not
/// count.
pub(super) fn is_own(tx: &Tx, waiting_id: u64, row: RowRef) -> bool {
    WAITING.with_borrow(|waiting| {
        !waiting.is_empty()
            && owners(tx, waiting_id, row)
                .take_while(|owner| *owner != waiting_id)
                .any(|owner| waiting.contains(&(store_of(tx), owner)))
    })
}
