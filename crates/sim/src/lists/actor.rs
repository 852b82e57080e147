//! A process: its transactions, one after the other, and a snapshot that it keeps for some time.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use qpair_engine::{Durability, Result, TransactionOptions};
use qpair_isolation::{Isolation, Operation, Outcome, Transaction};

use super::access::{Session, Writes};
use super::kept::{Level, Lists};
use super::layout::Layout;

pub(crate) struct Actor<S: Session> {
    lists: Arc<Lists>,
    session: S,
    process: u32,
    rng: Rng,
    held: Option<Held<S::Snapshot>>,
}

/// A kept snapshot, and the reads from it.
struct Held<S> {
    snapshot: S,
    transaction: Transaction,
    /// The number of transactions until the snapshot is dropped.
    left: u32,
}

impl<S: Session> Actor<S> {
    pub(crate) fn new(lists: Arc<Lists>, session: S, process: u32, rng: Rng) -> Self {
        Self { lists, session, process, rng, held: None }
    }

    /// Runs transactions until all processes together have run `transactions`.
    pub(crate) async fn run(mut self, transactions: usize) {
        while !self.lists.is_over() && self.lists.recorder.len() < transactions {
            match self.rng.u8(0..8) {
                0 => self.read_the_past().await,
                _ => self.transaction().await,
            }
        }
        self.let_go();
    }

    fn record(&self, isolation: Isolation, durable: bool) -> Transaction {
        Transaction {
            process: self.process,
            began: self.lists.recorder.now(),
            ended: 0,
            operations: Vec::new(),
            isolation,
            outcome: Outcome::Unknown,
            durable,
        }
    }

    /// Reads some lists in the kept snapshot, or takes a snapshot.
    async fn read_the_past(&mut self) {
        if self.held.is_none() {
            let mut transaction = self.record(Isolation::Snapshot, false);
            let snapshot = match self.session.snapshot() {
                Ok(snapshot) => snapshot,
                Err(error) => return self.lists.take_error("taking a snapshot", &error),
            };
            transaction.ended = self.lists.recorder.now();
            transaction.outcome = Outcome::Committed;
            let left = self.rng.u32(0..12);
            self.held = Some(Held { snapshot, transaction, left });
        }
        let Some(held) = &mut self.held else { return };
        for _ in 0..self.rng.u8(1..4) {
            let list = self.lists.some_old_list(&mut self.rng);
            let done = &mut held.transaction.operations;
            if let Err(error) = self.lists.read(&mut held.snapshot, list, done, &mut self.rng).await
            {
                self.lists.take_error("reading a snapshot", &error);
                return self.let_go();
            }
        }
        match held.left.checked_sub(1) {
            Some(left) => held.left = left,
            None => self.let_go(),
        }
    }

    fn let_go(&mut self) {
        if let Some(held) = self.held.take() {
            self.lists.recorder.asks(held.transaction);
        }
    }

    async fn transaction(&mut self) {
        let habits = self.lists.habits;
        let rng = &mut self.rng;
        let serializable = match habits.level {
            Level::Snapshot => false,
            Level::Serializable => true,
            Level::Mixed => rng.bool(),
        };
        let durability = habits.durability.unwrap_or_else(|| match rng.u8(0..3) {
            0 => Durability::Async,
            1 => Durability::Group,
            _ => Durability::Sync,
        });
        let options = TransactionOptions {
            isolation: match serializable {
                true => qpair_engine::Isolation::Serializable,
                false => qpair_engine::Isolation::Snapshot,
            },
            durability,
            lock_timeout: (rng.u8(0..16) == 0).then(|| Duration::from_micros(rng.u64(0..3000))),
            ..TransactionOptions::default()
        };
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let durable = habits.is_durable && durability != Durability::Async;
        let (steps, gives_up) = (rng.u8(1..6), rng.u8(0..16) == 0);
        let mut record = self.record(isolation, durable);
        let mut transaction = self.session.begin(&options);
        for _ in 0..steps {
            if let Err(error) = self.step(&mut transaction, &mut record.operations).await {
                self.lists.take_error("in a transaction", &error);
                transaction.give_up();
                record.outcome = Outcome::RolledBack;
                self.lists.recorder.asks(record);
                return;
            }
            if self.rng.u8(0..4) == 0 {
                self.session.pause().await;
            }
        }
        if gives_up {
            transaction.give_up();
            record.outcome = Outcome::RolledBack;
            self.lists.recorder.asks(record);
            return;
        }
        let number = self.lists.recorder.asks(record);
        match transaction.end().await {
            Ok(()) => self.lists.recorder.ends(number, Outcome::Committed),
            Err(error) => {
                if Lists::is_refusal(&error) {
                    self.lists.recorder.ends(number, Outcome::RolledBack);
                }
                self.lists.take_error("a commit", &error);
            }
        }
    }

    async fn step(
        &mut self,
        transaction: &mut S::Transaction,
        done: &mut Vec<Operation>,
    ) -> Result<()> {
        let (lists, rng) = (&self.lists, &mut self.rng);
        match rng.u8(0..10) {
            0..4 => lists.append(transaction, lists.some_list(rng), done, rng).await,
            4..7 => {
                let list = lists.some_old_list(rng);
                lists.read(transaction, list, done, rng).await.map(drop)
            }
            7..9 if lists.habits.layout != Layout::Row => {
                let list = lists.some_old_list(rng);
                lists.shift(transaction, list, done, rng).await
            }
            9 => {
                let (savepoint, to) = (transaction.set_savepoint()?, done.len());
                let list = lists.some_list(rng);
                lists.append(transaction, list, done, rng).await?;
                if rng.bool() {
                    lists.read(transaction, list, done, rng).await?;
                }
                transaction.back_to(&savepoint)?;
                done.push(Operation::RollBack { to });
                if rng.bool() {
                    lists.read(transaction, list, done, rng).await?;
                }
                Ok(())
            }
            _ => lists.append(transaction, lists.some_list(rng), done, rng).await,
        }
    }
}
