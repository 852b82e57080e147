//! Running a transaction again after a conflict.
//!
//! Each attempt first locks the rows on which earlier attempts met conflicts, before its first
//! read. There it waits for its turn, and cannot meet a conflict on these rows again. The rows are
//! locked in the order of their keys, so that transactions that run again do not wait for each
//! other in a cycle. So a transaction that changes the same rows in each attempt commits after at
//! most one attempt more than it has rows, whatever others change.

use qpair_format::{Error, ErrorKind, Result};

use super::Store;
use super::task_transaction::{TaskStore, TaskTransaction};
use super::transaction::Transaction;
use crate::tx::{Contended, Inside, TransactionOptions};

/// Limit on the rows that an attempt locks first, so that a transaction that changes other rows in
/// each attempt comes to an end.
const ROWS_MAX: usize = 4096;

struct Attempts {
    /// The number of attempts that count. An attempt does not count if it met a conflict on a row
    /// on which no earlier attempt had.
    made: u32,
    max: u32,
    /// The rows on which attempts met conflicts, in the order of tables and keys.
    lost: Vec<Contended>,
}

impl Attempts {
    fn new(options: &TransactionOptions) -> Self {
        Self { made: 0, max: options.attempts_max.max(1), lost: Vec::new() }
    }

    /// Adds a row on which an attempt met a conflict; returns whether no earlier attempt had.
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

    /// Returns `Ok` to try again after this error, or the error to end with. `row` is the one on
    /// which the attempt met a conflict.
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
    /// The error of `run`, after a rollback; `Conflict` if all attempts met one; as
    /// [`TaskTransaction::commit`].
    pub async fn transact<T>(
        &self,
        run: impl AsyncFnMut(&mut TaskTransaction) -> Result<T>,
    ) -> Result<T> {
        self.transact_with(&TransactionOptions::default(), run).await
    }

    /// Like [`TaskStore::transact`], with options.
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
                    // The error may contain data that was read.
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
    /// Runs a transaction and commits it; runs it again if it met a conflict. `run` must make its
    /// changes with the transaction that it is given. Changes of a row that this transaction has
    /// changed are refused (`Invalid`) when made directly or by another transaction.
    ///
    /// # Errors
    /// The error of `run`, after a rollback; `Conflict` if all attempts met one; as
    /// [`Transaction::commit`].
    pub fn transact<T>(&self, run: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TransactionOptions::default(), run)
    }

    /// Like [`Store::transact`], with options.
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
