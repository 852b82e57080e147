//! A terminal: its session and buffers, and the reading of rows.

use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use qpair::{Error, ErrorKind, Result};

use crate::kv::{Begin, Direction, Durability, KeyRange, KvSession, TableId};
use crate::tpcc::inputs::Who;
use crate::tpcc::keys;
use crate::tpcc::random;
use crate::tpcc::scale::Scale;
use crate::tpcc::schema::{CUSTOMER_BY_NAME, TPCC_TABLES};

/// The state that all terminals of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub(crate) scale: Scale,
    pub(crate) durability: Durability,
    /// The number of the run in this store, which is part of the keys of history.
    pub(crate) run: u32,
    pub(crate) seed: u64,
}

pub(crate) struct Terminal<S> {
    pub(super) session: S,
    pub(super) random: Rng,
    pub(super) common: Common,
    pub(super) number: u32,
    /// The number of rows of history written, or tried to be written.
    pub(super) histories: u32,
    pub(super) row: Vec<u8>,
    pub(super) other: Vec<u8>,
    pub(super) lines: Vec<u8>,
    pub(super) ids: Vec<u32>,
}

impl<S: KvSession> Terminal<S> {
    pub(crate) fn new(session: S, number: usize, common: Common) -> Self {
        let number = number as u32;
        let seed = common.seed ^ u64::from(common.run) << 32 ^ u64::from(number);
        Self {
            session,
            random: random::row(seed, u64::from(number), common.run.into(), 0),
            common,
            number,
            histories: 0,
            row: Vec::with_capacity(1024),
            other: Vec::with_capacity(1024),
            lines: Vec::with_capacity(1024),
            ids: Vec::with_capacity(512),
        }
    }

    pub(super) async fn begin(&mut self) -> Result<()> {
        self.session.begin(Begin::read_write(self.common.durability)).await
    }

    /// Returns the selected customer.
    pub(super) async fn customer(&mut self, w: u32, d: u8, who: Who) -> Result<u16> {
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
        // The standard selects the customer in the middle, rounded up, counted from 1.
        match ids.get(ids.len().div_ceil(2).wrapping_sub(1)) {
            Some(&id) => Ok(id as u16),
            None => Err(missing(CUSTOMER_BY_NAME, &from)),
        }
    }
}

/// Reads a row that must exist.
#[inline]
pub(super) async fn read<S: KvSession>(
    session: &mut S,
    table: TableId,
    key: &[u8],
    row: &mut Vec<u8>,
    bytes: usize,
) -> Result<()> {
    if session.get_into(table, key, row).await? && row.len() == bytes {
        return Ok(());
    }
    Err(missing(table, key))
}

/// Reads a row that must exist and will be written.
#[inline]
pub(super) async fn read_for_update<S: KvSession>(
    session: &mut S,
    table: TableId,
    key: &[u8],
    row: &mut Vec<u8>,
    bytes: usize,
) -> Result<()> {
    if session.get_for_update(table, key, row).await? && row.len() == bytes {
        return Ok(());
    }
    Err(missing(table, key))
}

#[cold]
pub(super) fn missing(table: TableId, key: &[u8]) -> Error {
    let name = TPCC_TABLES[table.index()];
    Error::new(
        ErrorKind::Invalid,
        format!("TPC-C: {name} has no row of key {key:02x?}, or one of another width"),
    )
}

pub(super) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}
