//! Running a transaction again when it met a conflict.
//!
//! The row on which an attempt lost is locked first in the next one, before its first read: there it waits for its turn,
//! and cannot lose again.

use qpair_format::{Error, ErrorKind, Result};

use super::Store;
use super::task_transaction::{TaskStore, TaskTransaction};
use super::transaction::Transaction;
use crate::tx::{Contended, Inside, TransactionOptions};

/// Attempts of a transaction.
struct Attempts {
    made: u32,
    max: u32,
}

impl Attempts {
    fn new(options: &TransactionOptions) -> Self {
        Self { made: 0, max: options.attempts_max.max(1) }
    }

    /// Whether to try again after this error; the error to end with otherwise.
    fn again(&mut self, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Conflict {
            return Err(error);
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
        let mut contended: Option<Contended> = None;
        loop {
            let mut transaction = self.begin_with(options);
            let locked = match contended.take() {
                Some(row) => transaction.core.lock_contended(&row).await,
                None => Ok(()),
            };
            let outcome = match locked {
                Ok(()) => run(&mut transaction).await,
                Err(error) => Err(error),
            };
            contended = transaction.core.contended.take();
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
            attempts.again(error)?;
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
        let mut contended: Option<Contended> = None;
        loop {
            let mut transaction = self.begin_with(options);
            let locked = match contended.take() {
                Some(row) => transaction.on_worker(move |mut core| async move {
                    let outcome = core.lock_contended(&row).await;
                    (core, outcome)
                }),
                None => Ok(()),
            };
            let outcome = match locked {
                Ok(()) => {
                    let id = transaction.core()?.id;
                    let _inside = Inside::new(&self.inner.tx, id);
                    run(&mut transaction)
                }
                Err(error) => Err(error),
            };
            let error = match outcome {
                Ok(value) => match transaction.finish() {
                    (Ok(_), _) => return Ok(value),
                    (Err(error), row) => {
                        contended = row;
                        error
                    }
                },
                Err(error) => {
                    let core = transaction.core().ok();
                    let (waits, seen) = core.as_ref().map_or((false, 0), |core| core.seen());
                    contended = core.and_then(|core| core.contended.take());
                    drop(transaction);
                    if error.kind() != ErrorKind::Conflict {
                        self.inner.block_to_give(waits, seen)?;
                    }
                    error
                }
            };
            attempts.again(error)?;
        }
    }
}
