//! The options of a run, and a client that runs small transactions one after the other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use qpair::Result;

use crate::harness::{Client, Done};
use crate::kv::{Begin, Durability, KvSession};
use crate::records::{self, RECORDS, Shuffle, VALUE_BYTES};

/// The kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitWork {
    /// Transactions replace uniformly random rows of a table that is filled first.
    Update,
    /// Transactions insert all rows in random order into an empty table.
    Insert,
}

impl fmt::Display for CommitWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Update => "update",
            Self::Insert => "insert",
        })
    }
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct CommitOptions {
    /// The kind of transactions.
    pub work: CommitWork,
    /// The number of records: those of the table, or those to insert.
    pub records: u64,
    /// The number of rows of a transaction.
    pub rows_per_tx: u32,
    pub clients: usize,
    /// Seconds to measure. Inserts run until all records are inserted.
    pub seconds: f64,
    /// Seconds to run before the measurement. Inserts have no warm-up.
    pub warm_up_seconds: f64,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// The seed of the inputs.
    pub seed: u64,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            work: CommitWork::Update,
            records: 100_000,
            rows_per_tx: 1,
            clients: 1,
            seconds: 10.0,
            warm_up_seconds: 1.0,
            durability: Durability::Sync,
            seed: 1,
        }
    }
}

/// The state that the clients of a run share.
pub(crate) struct Common {
    pub(crate) options: CommitOptions,
    pub(crate) shuffle: Shuffle,
    /// The number of records inserted, or about to be inserted.
    pub(crate) next: AtomicU64,
}

pub(crate) struct CommitClient<S> {
    session: S,
    common: Arc<Common>,
    random: Rng,
    /// The records of the transaction.
    records: Vec<u64>,
}

impl<S: KvSession> CommitClient<S> {
    pub(crate) fn new(session: S, number: usize, common: Arc<Common>) -> Self {
        let seed =
            (common.options.seed ^ (number as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let records = Vec::with_capacity(common.options.rows_per_tx as usize);
        Self { session, common, random: Rng::with_seed(seed), records }
    }

    fn choose(&mut self) {
        let Common { options, shuffle, next } = &*self.common;
        self.records.clear();
        match options.work {
            CommitWork::Update => {
                let random = &mut self.random;
                self.records
                    .extend((0..options.rows_per_tx).map(|_| random.u64(0..options.records)));
                // All clients take locks in one order, so that no clients wait for each other in a
                // cycle.
                self.records.sort_unstable();
            }
            CommitWork::Insert => {
                let from = next.fetch_add(options.rows_per_tx.into(), Ordering::Relaxed);
                let to = options.records.min(from.saturating_add(options.rows_per_tx.into()));
                self.records.extend((from..to).map(|index| shuffle.at(index)));
            }
        }
    }
}

impl<S: KvSession> Client for CommitClient<S> {
    /// The round of the values. The client keeps the records.
    type Request = u64;

    fn draw(&mut self) -> Option<u64> {
        self.choose();
        (!self.records.is_empty()).then(|| self.random.u64(..))
    }

    async fn attempt(&mut self, &round: &u64) -> Result<Done> {
        let mut value = [0; VALUE_BYTES];
        self.session.begin(Begin::read_write(self.common.options.durability)).await?;
        for &record in &self.records {
            records::value(record, round, &mut value);
            let key = records::key(record);
            match self.common.options.work {
                CommitWork::Update => self.session.put(RECORDS, &key, &value).await?,
                CommitWork::Insert => self.session.insert(RECORDS, &key, &value).await?,
            }
        }
        self.session.commit().await?;
        Ok(Done::new(0, self.records.len() as u32))
    }

    async fn rollback(&mut self) -> Result<()> {
        self.session.rollback().await
    }
}
