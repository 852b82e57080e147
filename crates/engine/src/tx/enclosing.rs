//! Enclosing transactions: a thread that blocks inside their closures and waits for their rows would wait for ever.
//!
//! `Store::transact` notes the transaction for its thread. A blocking call takes the note along to the worker, where a task reads it before
//! it waits for a row.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Tx;
use super::locks::owners;
use super::rows::RowRef;

/// A transaction, and where its store's transactions are.
type Outer = (usize, u64);

thread_local! {
    /// The closures that this thread is in.
    static INSIDE: RefCell<Vec<Outer>> = const { RefCell::new(Vec::new()) };
    /// Those of the thread that waits for what is polled just now.
    static WAITING: RefCell<Vec<Outer>> = const { RefCell::new(Vec::new()) };
}

fn store_of(tx: &Tx) -> usize {
    std::ptr::from_ref(tx) as usize
}

/// The thread is in a transaction's closure as long as this is there.
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

/// What a thread waits for that is in closures of transactions.
pub(crate) struct Awaited<F> {
    inside: Vec<Outer>,
    future: Pin<Box<F>>,
}

impl<F: Future> Awaited<F> {
    /// The closures that this thread is in; none if it is in none.
    pub(crate) fn here() -> Option<impl FnOnce(F) -> Self + Send + use<F>> {
        let inside = INSIDE.with_borrow(Clone::clone);
        (!inside.is_empty()).then_some(move |future| Self { inside, future: Box::pin(future) })
    }
}

impl<F: Future> Future for Awaited<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        /// Undone also if the future panics.
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

/// Whether a row that `waiting_id` is to wait for is had by another transaction in whose closure the thread is that waits for this, or by
/// one that waits for such a one's row. What leads back to itself is a cycle of transactions, and no more than that.
pub(super) fn is_own(tx: &Tx, waiting_id: u64, row: RowRef) -> bool {
    WAITING.with_borrow(|waiting| {
        !waiting.is_empty()
            && owners(tx, waiting_id, row)
                .take_while(|owner| *owner != waiting_id)
                .any(|owner| waiting.contains(&(store_of(tx), owner)))
    })
}
