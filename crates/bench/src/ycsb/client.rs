//! The options of a run, and a client: operations of a workload, each a transaction.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use qpair::Result;

use crate::harness::{Client, Done};
use crate::kv::{Begin, Direction, Durability, KeyRange, KvSession};

use super::keys::{USERS, key, mixed, noise};
use super::mix::{Kind, YcsbWorkload};
use super::zipfian::{Scrambled, Zipfian};

/// The maximum number of records of a scan.
const SCAN_MAX: usize = 100;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct YcsbOptions {
    pub workload: YcsbWorkload,
    /// The number of records to load.
    pub records: u64,
    /// The number of fields of a record.
    pub fields: usize,
    /// The size of a field in bytes.
    pub field_bytes: usize,
    pub clients: usize,
    /// The number of workers among which the clients are distributed, if the warm-up chooses how
    /// many of them run; `None`: all run.
    pub choose_for: Option<usize>,
    /// Seconds to measure; 0: load only.
    pub seconds: f64,
    /// The number of operations of all clients together, which replaces the time limit.
    pub operations: Option<u64>,
    /// Seconds to run before the measurement; ignored if the number of operations is given.
    pub warm_up_seconds: f64,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// The seed of the inputs.
    pub seed: u64,
}

impl Default for YcsbOptions {
    fn default() -> Self {
        Self {
            workload: YcsbWorkload::A,
            records: 1_000_000,
            fields: 10,
            field_bytes: 100,
            clients: 64,
            choose_for: None,
            seconds: 10.0,
            operations: None,
            warm_up_seconds: 2.0,
            durability: Durability::Group,
            seed: 1,
        }
    }
}

/// The state that the clients of a run share.
pub(crate) struct Common {
    pub(crate) options: YcsbOptions,
    /// The number of operations of each client; `None`: unlimited.
    pub(crate) operations: Option<u64>,
    /// The number of the next record that is inserted.
    pub(crate) next: AtomicU64,
    /// Reads of records that did not exist.
    pub(crate) missed: AtomicU64,
}

pub(crate) struct YcsbClient<S> {
    session: S,
    common: Arc<Common>,
    random: Rng,
    scrambled: Scrambled,
    /// The distribution of workload D.
    latest: Option<Zipfian>,
    left: Option<u64>,
    value: Vec<u8>,
}

impl<S: KvSession> YcsbClient<S> {
    /// Creates a client. `latest`: the distribution over all records, for the workload that reads
    /// the newest records.
    pub(crate) fn new(
        session: S,
        number: usize,
        common: Arc<Common>,
        latest: Option<Zipfian>,
    ) -> Self {
        let random = Rng::with_seed(mixed(common.options.seed ^ (number as u64) << 32));
        let (scrambled, left) = (Scrambled::new(), common.operations);
        let value = Vec::with_capacity(2 * common.options.fields * common.options.field_bytes);
        Self { session, common, random, scrambled, latest, left, value }
    }

    /// Draws a record that has most likely been inserted. Other clients may still be inserting the
    /// last ones.
    fn record(&mut self) -> u64 {
        let inserted = self.common.next.load(Ordering::Relaxed);
        match &mut self.latest {
            None => self.scrambled.draw(&mut self.random, inserted),
            Some(latest) => {
                let sure = inserted.saturating_sub(self.common.options.clients as u64).max(1);
                latest.grow(sure);
                sure - 1 - latest.draw(&mut self.random).min(sure - 1)
            }
        }
    }

    fn new_value(&mut self) {
        self.value.resize(self.common.options.fields * self.common.options.field_bytes, 0);
        noise(&mut self.random, &mut self.value);
    }
}

pub(crate) struct Operation {
    kind: Kind,
    record: u64,
    /// The number of records to scan.
    len: usize,
}

impl<S: KvSession> Client for YcsbClient<S> {
    type Request = Operation;

    fn draw(&mut self) -> Option<Operation> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let kind = self.common.options.workload.draw(&mut self.random);
        let record = match kind {
            Kind::Insert => self.common.next.fetch_add(1, Ordering::Relaxed),
            _ => self.record(),
        };
        let len = if kind == Kind::Scan { self.random.usize(1..=SCAN_MAX) } else { 0 };
        if matches!(kind, Kind::Update | Kind::Insert) {
            self.new_value();
        }
        Some(Operation { kind, record, len })
    }

    async fn attempt(&mut self, operation: &Operation) -> Result<Done> {
        let &Operation { kind, record, len } = operation;
        let key = key(record);
        let writing = Begin::read_write(self.common.options.durability);
        match kind {
            Kind::Read => {
                self.session.begin(Begin::read_only()).await?;
                if !self.session.get_into(USERS, &key, &mut self.value).await? {
                    self.common.missed.fetch_add(1, Ordering::Relaxed);
                }
            }
            Kind::Scan => {
                self.session.begin(Begin::read_only()).await?;
                let range = KeyRange { from: &key, to: &[] };
                let value = &mut self.value;
                self.session
                    .scan(USERS, range, Direction::Forward, len, |_, record| {
                        value.clear();
                        value.extend_from_slice(record);
                        ControlFlow::Continue(())
                    })
                    .await?;
            }
            Kind::Update | Kind::Insert => {
                self.session.begin(writing).await?;
                self.session.put(USERS, &key, &self.value).await?;
            }
            Kind::ReadModifyWrite => {
                self.session.begin(writing).await?;
                if self.session.get_for_update(USERS, &key, &mut self.value).await? {
                    let bytes = self.common.options.field_bytes;
                    let at = self.random.usize(0..self.common.options.fields) * bytes;
                    if let Some(field) = self.value.get_mut(at..at + bytes) {
                        noise(&mut self.random, field);
                    }
                    self.session.put(USERS, &key, &self.value).await?;
                } else {
                    self.common.missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.session.commit().await?;
        Ok(Done::new(kind as usize, 1))
    }

    async fn rollback(&mut self) -> Result<()> {
        self.session.rollback().await
    }
}
