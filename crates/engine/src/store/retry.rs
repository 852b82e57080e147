//! Running a transaction again when it met a conflict.
//!
//! The rows on which attempts lost are locked first in the next one, before its first read: there it waits for its turn, and
//! cannot lose on them again. They are locked in the order of their keys, so that transactions that run again do not wait for
//! each other in a circle. A transaction that changes the same rows in each attempt so commits after as many attempts as it has
//! rows, and one more, whatever others change.

use qpair_format::{Error, ErrorKind, Result};

use super::Store;
use super::task_transaction::{TaskStore, TaskTransaction};
use super::transaction::Transaction;
use crate::tx::{Contended, Inside, TransactionOptions};

/// Rows that a transaction locks first at most, so that one that changes other rows in each attempt comes to an end.
const ROWS_MAX: usize = 4096;

/// Attempts of a transaction.
struct Attempts {
    /// Those that count: an attempt that lost on a row on which none before it had lost does not.
    made: u32,
    max: u32,
    /// The rows on which attempts lost, in the order of tables and keys.
    lost: Vec<Contended>,
}

impl Attempts {
    fn new(options: &TransactionOptions) -> Self {
        Self { made: 0, max: options.attempts_max.max(1), lost: Vec::new() }
    }

    /// Adds a row on which an attempt lost; whether none before it had.
    fn lose(&mut self, row: Contended) -> bool {
        let place = self.lost.binary_search_by(|(tree, key)| {
            (tree.id, key.as_slice()).cmp(&(row.0.id, row.1.as_slice()))
        });
        match place {
            Err(at) if self.lost.len() < ROWS_MAX => {
                self.lost.insert(at, row);
                true
            }
            _ => false,
        }
    }

    /// Whether to try again after this error, and the row on which the attempt lost; the error to end with otherwise.
    fn again(&mut self, error: Error, row: Option<Contended>) -> Result<()> {
        if error.kind() != ErrorKind::Conflict {
            return Err(error);
        }
        if row.is_some_and(|row| self.lose(row)) && self.max > 1 {
            return Ok(());
        }
        self.made += 1;
        if self.made < self.max {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::Conflict,
            format!(
                "all {} attempts of a transaction met conflicts; the last one: {}",
                self.made,
                error.context()
            ),
            "let fewer transactions change the same rows at once, or raise attempts_max",
        ))
    }
}

impl TaskStore {
    /// Runs a transaction and commits it; runs it again if it met a conflict.
    ///
    /// # Errors
    /// What `run` gives, after a rollback; `Conflict` if all attempts met one; as [`TaskTransaction::commit`].
    pub async fn transact<T>(
        &self,
        run: impl AsyncFnMut(&mut TaskTransaction) -> Result<T>,
    ) -> Result<T> {
        self.transact_with(&TransactionOptions::default(), run).await
    }

    /// [`TaskStore::transact`] with options.
    ///
    /// # Errors
    /// As [`TaskStore::transact`].
    pub async fn transact_with<T>(
        &self,
        options: &TransactionOptions,
        mut run: impl AsyncFnMut(&mut TaskTransaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = Attempts::new(options);
        loop {
            let mut transaction = self.begin_with(options);
            let locked = transaction.core.lock_contended(&attempts.lost).await;
            let outcome = match locked {
                Ok(()) => run(&mut transaction).await,
                Err(error) => Err(error),
            };
            let contended = transaction.core.contended.take();
            let error = match outcome {
                Ok(value) => match transaction.commit().await {
                    Ok(_) => return Ok(value),
                    Err(error) => error,
                },
                Err(error) => {
                    let (waits, seen) = transaction.core.seen();
                    drop(transaction);
                    // It may tell what was read.
                    if error.kind() != ErrorKind::Conflict {
                        self.inner.shared.wait_to_give(waits, seen).await?;
                    }
                    error
                }
            };
            attempts.again(error, contended)?;
        }
    }
}

impl Store {
    /// Runs a transaction and commits it; runs it again if it met a conflict. Within `run` changes are made with the transaction that it is
    /// given: a change by itself, or another transaction's, of a row that this one has changed is refused (`Invalid`).
    ///
    /// # Errors
    /// What `run` gives, after a rollback; `Conflict` if all attempts met one; as [`Transaction::commit`].
    pub fn transact<T>(&self, run: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TransactionOptions::default(), run)
    }

    /// [`Store::transact`] with options.
    ///
    /// # Errors
    /// As [`Store::transact`].
    pub fn transact_with<T>(
        &self,
        options: &TransactionOptions,
        mut run: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = Attempts::new(options);
        loop {
            let mut transaction = self.begin_with(options);
            let locked = match attempts.lost.clone() {
                lost if lost.is_empty() => Ok(()),
                lost => transaction.on_worker(move |mut core| async move {
                    let outcome = core.lock_contended(&lost).await;
                    (core, outcome)
                }),
            };
            let outcome = match locked {
                Ok(()) => {
                    let id = transaction.core()?.id;
                    let _inside = Inside::new(&self.inner.tx, id);
                    run(&mut transaction)
                }
                Err(error) => Err(error),
            };
            let (error, contended) = match outcome {
                Ok(value) => match transaction.finish() {
                    (Ok(_), _) => return Ok(value),
                    (Err(error), row) => (error, row),
                },
                Err(error) => {
                    let core = transaction.core().ok();
                    let (waits, seen) = core.as_ref().map_or((false, 0), |core| core.seen());
                    let contended = core.and_then(|core| core.contended.take());
                    drop(transaction);
                    if error.kind() != ErrorKind::Conflict {
                        self.inner.block_to_give(waits, seen)?;
                    }
                    (error, contended)
                }
            };
            attempts.again(error, contended)?;
        }
    }
}
