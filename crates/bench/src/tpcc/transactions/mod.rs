//! The five transactions, as one terminal runs them.
//!
//! Always holds:
//! - Inputs are drawn once. An attempt that ends with a conflict is rolled back and tried again
//!   with the same inputs.
//! - Rows are read into buffers of the terminal and changed there; keys are made on the stack.
//! - A transaction locks hot rows before its first read. Its snapshot is then as new as the locks,
//!   and only rarely shared rows can conflict.
//! - If the store can fetch, rows that may have to be read from the device are fetched together,
//!   before a hot row is locked. So no transaction waits for a lock whose holder waits for the
//!   device.

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;

use crate::harness::{Done, Operate};
use crate::kv::{Begin, Direction, Durability, KeyRange, KvError, KvResult, KvSession, TableId};

use super::inputs::{Delivery, NewOrder, OrderStatus, Payment, StockLevel, Type, Who};
use super::scale::Scale;
use super::{CUSTOMER_BY_NAME, TPCC_TABLES, keys};

/// The number of attempts after which a transaction fails, since the store's conflicts must then be
/// wrong.
const ATTEMPTS_MAX: u32 = 10_000;

/// The state that all terminals of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub(crate) scale: Scale,
    pub(crate) durability: Durability,
    /// The number of the run in this store, which is part of the keys of history.
    pub(crate) run: u32,
    pub(crate) seed: u64,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    /// The transaction rolled back as intended.
    RolledBack,
}

/// A terminal.
pub(crate) struct Terminal<S> {
    session: S,
    random: Rng,
    common: Common,
    number: u32,
    /// The number of rows of history written, or tried to be written.
    histories: u32,
    row: Vec<u8>,
    other: Vec<u8>,
    lines: Vec<u8>,
    ids: Vec<u32>,
}

/// A transaction and its inputs.
#[derive(Clone, Copy, Debug)]
enum Inputs {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl<S: KvSession> Terminal<S> {
    pub(crate) fn new(session: S, number: usize, common: Common) -> Self {
        let number = number as u32;
        let seed = common.seed ^ u64::from(common.run) << 32 ^ u64::from(number);
        Self {
            session,
            random: super::random::row(seed, u64::from(number), common.run.into(), 0),
            common,
            number,
            histories: 0,
            row: Vec::with_capacity(1024),
            other: Vec::with_capacity(1024),
            lines: Vec::with_capacity(1024),
            ids: Vec::with_capacity(512),
        }
    }

    fn inputs(&mut self, kind: Type) -> Inputs {
        let (random, scale) = (&mut self.random, &self.common.scale);
        match kind {
            Type::NewOrder => Inputs::NewOrder(NewOrder::random(random, scale)),
            Type::Payment => Inputs::Payment(Payment::random(random, scale)),
            Type::OrderStatus => Inputs::OrderStatus(OrderStatus::random(random, scale)),
            Type::Delivery => Inputs::Delivery(Delivery::random(random, scale)),
            Type::StockLevel => Inputs::StockLevel(StockLevel::random(random, scale)),
        }
    }

    async fn attempt(&mut self, inputs: &Inputs) -> KvResult<Outcome> {
        match inputs {
            Inputs::NewOrder(inputs) => self.new_order(inputs).await,
            Inputs::Payment(inputs) => self.payment(inputs).await,
            Inputs::OrderStatus(inputs) => self.order_status(inputs).await,
            Inputs::Delivery(inputs) => self.delivery(inputs).await,
            Inputs::StockLevel(inputs) => self.stock_level(inputs).await,
        }
    }

    /// Runs one transaction to its end.
    pub(crate) async fn run(&mut self, kind: Type) -> KvResult<Done> {
        let inputs = self.inputs(kind);
        let mut conflicts = 0;
        loop {
            match self.attempt(&inputs).await {
                Ok(outcome) => {
                    let rolled_back = outcome == Outcome::RolledBack;
                    return Ok(Done { kind: kind as usize, weight: 1, conflicts, rolled_back });
                }
                Err(KvError::Conflict) if conflicts < ATTEMPTS_MAX => {
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

    async fn begin(&mut self) -> KvResult<()> {
        self.session.begin(Begin::read_write(self.common.durability)).await
    }

    /// Returns the selected customer.
    async fn customer(&mut self, w: u32, d: u8, who: Who) -> KvResult<u16> {
        let name = match who {
            Who::Id(id) => return Ok(id),
            Who::Name(name) => name,
        };
        let (from, to) = keys::customers_of_name(w, d, &name);
        let ids = &mut self.ids;
        ids.clear();
        let range = KeyRange { from: &from, to: &to };
        self.session
            .scan(CUSTOMER_BY_NAME, range, Direction::Forward, usize::MAX, |key, _| {
                ids.extend(keys::customer_of_name(key).map(u32::from));
                std::ops::ControlFlow::Continue(())
            })
            .await?;
        // The one in the middle, rounded up, counted from 1.
        match ids.get(ids.len().div_ceil(2).wrapping_sub(1)) {
            Some(&id) => Ok(id as u16),
            None => Err(missing(CUSTOMER_BY_NAME, &from)),
        }
    }
}

impl<S: KvSession> Operate for Terminal<S> {
    async fn operate(&mut self) -> KvResult<Option<Done>> {
        let kind = Type::random(&mut self.random);
        self.run(kind).await.map(Some)
    }
}

/// Reads a row that must exist.
#[inline]
async fn read<S: KvSession>(
    session: &mut S,
    table: TableId,
    key: &[u8],
    row: &mut Vec<u8>,
    bytes: usize,
) -> KvResult<()> {
    if session.get_into(table, key, row).await? && row.len() == bytes {
        return Ok(());
    }
    Err(missing(table, key))
}

/// Reads a row that must exist and will be written.
#[inline]
async fn read_for_update<S: KvSession>(
    session: &mut S,
    table: TableId,
    key: &[u8],
    row: &mut Vec<u8>,
    bytes: usize,
) -> KvResult<()> {
    if session.get_for_update(table, key, row).await? && row.len() == bytes {
        return Ok(());
    }
    Err(missing(table, key))
}

#[cold]
fn missing(table: TableId, key: &[u8]) -> KvError {
    let name = TPCC_TABLES[table.index()];
    KvError::Other(format!("TPC-C: {name} has no row of key {key:02x?}, or one of another width"))
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}
