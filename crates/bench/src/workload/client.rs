//! A client whose requests are single operations outside transactions.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair::task::TaskTable;
use qpair::{Error, ErrorKind, Result};

use super::kind::Workload;
use crate::harness::{Client, Done};

use crate::records::{self, RECORDS, Shuffle, VALUE_BYTES};
use crate::store_kv::StoreSession;

const SCAN_RECORDS: u64 = 100;

/// The state that the clients of a run share.
pub(super) struct Common {
    pub(super) workload: Workload,
    pub(super) records: u64,
    pub(super) shuffle: Shuffle,
    /// The number of records inserted, or about to be inserted.
    pub(super) next: AtomicU64,
}

pub(super) struct Task {
    table: TaskTable,
    common: Arc<Common>,
    random: fastrand::Rng,
    value: Vec<u8>,
}

#[cold]
fn wrong(record: u64) -> Error {
    Error::new(ErrorKind::Corrupt, format!("record {record} is not what was written"))
}

impl Task {
    pub(super) fn new(session: &StoreSession, common: Arc<Common>, seed: u64) -> Self {
        let value = Vec::with_capacity(2 * VALUE_BYTES);
        let (table, random) = (session.table(RECORDS), fastrand::Rng::with_seed(seed));
        Self { table, common, random, value }
    }

    async fn put(&mut self, record: u64, round: u64) -> Result<()> {
        let mut value = [0; VALUE_BYTES];
        records::value(record, round, &mut value);
        self.table.put(&records::key(record), &value).await?;
        Ok(())
    }

    /// Reads the records from `first`, and returns their number.
    async fn scan(&self, first: u64) -> Result<u32> {
        let from = records::key(first);
        let mut range = self.table.range((Bound::Included(&from[..]), Bound::Unbounded))?;
        let mut expected = first;
        while expected < first + SCAN_RECORDS {
            let Some((key, value)) = range.next().await? else { break };
            if key != records::key(expected) || !records::is_value_of(expected, &value) {
                return Err(wrong(expected));
            }
            expected += 1;
        }
        Ok((expected - first) as u32)
    }
}

impl Client for Task {
    /// The first record of the operation.
    type Request = u64;

    #[inline]
    fn draw(&mut self) -> Option<u64> {
        let common = &self.common;
        match common.workload {
            Workload::Insert => {
                let index = common.next.fetch_add(1, Ordering::Relaxed);
                (index < common.records).then(|| common.shuffle.at(index))
            }
            _ => Some(self.random.u64(0..common.records)),
        }
    }

    #[inline]
    async fn attempt(&mut self, &record: &u64) -> Result<Done> {
        match self.common.workload {
            Workload::Lookup => {
                self.value.clear();
                if !self.table.get_into(&records::key(record), &mut self.value).await?
                    || !records::is_value_of(record, &self.value)
                {
                    return Err(wrong(record));
                }
            }
            Workload::Update => {
                let round = self.random.u64(..);
                self.put(record, round).await?;
            }
            Workload::Insert => self.put(record, 0).await?,
            Workload::Scan => return Ok(Done::new(0, self.scan(record).await?)),
        }
        Ok(Done::new(0, 1))
    }
}
