//! A client that runs small transactions one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use qpair::Result;

use super::options::CommitWork;
use crate::harness::{Client, Done};
use crate::kv::{Begin, Durability, KvSession};
use crate::records::{self, RECORDS, Shuffle, VALUE_BYTES};

/// The state that the clients of a run share.
pub(crate) struct Common {
    pub(crate) work: CommitWork,
    pub(crate) durability: Durability,
    pub(crate) records: u64,
    pub(crate) rows: u32,
    pub(crate) seed: u64,
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
        let seed = (common.seed ^ (number as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let records = Vec::with_capacity(common.rows as usize);
        Self { session, common, random: Rng::with_seed(seed), records }
    }

    fn choose(&mut self) {
        let common = &self.common;
        self.records.clear();
        match common.work {
            CommitWork::Update => {
                let random = &mut self.random;
                self.records.extend((0..common.rows).map(|_| random.u64(0..common.records)));
                // All clients take locks in one order, so that none waits in a circle.
                self.records.sort_unstable();
            }
            CommitWork::Insert => {
                let from = common.next.fetch_add(common.rows.into(), Ordering::Relaxed);
                let to = common.records.min(from.saturating_add(common.rows.into()));
                self.records.extend((from..to).map(|index| common.shuffle.at(index)));
            }
        }
    }
}

impl<S: KvSession> Client for CommitClient<S> {
    /// The round of the values; the records are the client's.
    type Request = u64;

    fn draw(&mut self) -> Option<u64> {
        self.choose();
        (!self.records.is_empty()).then(|| self.random.u64(..))
    }

    async fn attempt(&mut self, &round: &u64) -> Result<Done> {
        let mut value = [0; VALUE_BYTES];
        self.session.begin(Begin::read_write(self.common.durability)).await?;
        for &record in &self.records {
            records::value(record, round, &mut value);
            let key = records::key(record);
            match self.common.work {
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
