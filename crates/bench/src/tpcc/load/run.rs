//! Fills all tables of an empty store.

use std::time::Instant;

use qpair::{Error, ErrorKind, Result};

use super::tables::Rows;
use crate::harness::{Filler, once, run_job};
use crate::kv::{Begin, Direction, KeyRange, Kv, KvSession, TableId};
use crate::progress::Progress;
use crate::tpcc::scale::{DISTRICTS, Loaded, Scale};
use crate::tpcc::schema::{
    CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDER_LINE, ORDERS,
    ORDERS_BY_CUSTOMER, STOCK, TPCC_TABLES, WAREHOUSE,
};

/// The maximum number of tables that are filled at the same time.
const AT_ONCE: usize = 4;

/// The tables to fill, the longest first.
const JOBS: [TableId; 11] = [
    ORDER_LINE,
    STOCK,
    CUSTOMER,
    HISTORY,
    ORDERS,
    CUSTOMER_BY_NAME,
    ORDERS_BY_CUSTOMER,
    NEW_ORDER,
    ITEM,
    DISTRICT,
    WAREHOUSE,
];

/// The figures of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadFigures {
    pub(crate) records: u64,
    pub(crate) seconds: f64,
}

/// Returns the approximate number of records of a load.
pub(crate) fn records(scale: &Scale) -> u64 {
    let customers = u64::from(scale.customers);
    // Each customer has a name, a payment, and an order with its entry in an index; an order has 10
    // lines.
    let district = customers * 15 + customers * 3 / 10 + 1;
    let warehouse = district * u64::from(DISTRICTS) + u64::from(scale.items) + 1;
    warehouse * u64::from(scale.warehouses) + u64::from(scale.items)
}

/// Returns the store's description of its load; `None` if the store is empty.
pub(crate) fn loaded<K: Kv>(kv: &K) -> Result<Option<Loaded>> {
    once(kv, |mut session| async move {
        let loaded = Loaded::read(&mut session).await?;
        if loaded.is_none() {
            refuse_leftovers(&mut session).await?;
        }
        Ok(loaded)
    })
}

/// Returns an error if the store has data of an incomplete load.
async fn refuse_leftovers<S: KvSession>(session: &mut S) -> Result<()> {
    session.begin(Begin::read_only()).await?;
    let mut left = None;
    for (index, name) in TPCC_TABLES.iter().enumerate() {
        session
            .scan(TableId(index as u8), KeyRange::ALL, Direction::Forward, 1, |_, _| {
                left = Some(*name);
                std::ops::ControlFlow::Break(())
            })
            .await?;
    }
    session.commit().await?;
    match left {
        None => Ok(()),
        Some(name) => Err(Error::with_hint(
            ErrorKind::Exists,
            format!(
                "the store has a table \"{name}\" of a TPC-C load that did not come to its end"
            ),
            "remove the store, or name another",
        )),
    }
}

/// Fills an empty store.
pub(crate) fn load<K: Kv>(kv: &K, loaded: Loaded, progress: &dyn Progress) -> Result<LoadFigures> {
    let began = Instant::now();
    let phase = ("loading (sorted load)", records(&loaded.scale));
    let counts = run_job(kv, AT_ONCE, phase, progress, move |mut session, job| async move {
        let mut records = 0;
        while let Some(&table) = JOBS.get(job.take()) {
            let mut filler = Filler::begin(&mut session, table, &job).await?;
            let outcome = Rows::new(&mut filler, &loaded).fill(table).await;
            records += filler.end(outcome).await?;
        }
        Ok(records)
    })?;
    once(kv, move |mut session| async move { loaded.write(&mut session).await })?;
    Ok(LoadFigures { records: counts.into_iter().sum(), seconds: began.elapsed().as_secs_f64() })
}
