//! A client that runs small transactions one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use crate::harness::{Done, Operate};
use crate::kv::{Begin, Durability, KvError, KvResult, KvSession};
use crate::records::dataset::{self, Shuffle, VALUE_BYTES};

use super::{CommitWork, ROWS};

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

pub(crate) struct Client<S> {
    session: S,
    common: Arc<Common>,
    random: Rng,
    /// The records of the transaction.
    records: Vec<u64>,
}

impl<S: KvSession> Client<S> {
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

    async fn attempt(&mut self, round: u64) -> KvResult<()> {
        let mut value = [0; VALUE_BYTES];
        self.session.begin(Begin::read_write(self.common.durability)).await?;
        for &record in &self.records {
            dataset::value(record, round, &mut value);
            let key = dataset::key(record);
            match self.common.work {
                CommitWork::Update => self.session.put(ROWS, &key, &value).await?,
                CommitWork::Insert => self.session.insert(ROWS, &key, &value).await?,
            }
        }
        self.session.commit().await
    }
}

impl<S: KvSession> Operate for Client<S> {
    async fn operate(&mut self) -> KvResult<Option<Done>> {
        self.choose();
        if self.records.is_empty() {
            return Ok(None);
        }
        let round = self.random.u64(..);
        let mut conflicts = 0;
        loop {
            match self.attempt(round).await {
                Ok(()) => {
                    let (weight, rolled_back) = (self.records.len() as u32, false);
                    return Ok(Some(Done { kind: 0, weight, conflicts, rolled_back }));
                }
                Err(KvError::Conflict) if conflicts < 10_000 => {
                    self.session.rollback().await?;
                    conflicts += 1;
                    qpair::task::yield_now().await;
                }
                Err(error) => {
                    // The first error is the one to tell.
                    let _ = self.session.rollback().await;
                    return Err(error);
                }
            }
        }
    }
}
