//! The loops of the tasks of a workload.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use qpair::task::TaskTable;
use qpair::{Error, ErrorKind, Result};

use crate::measure::{Tally, Window};
use crate::records::dataset::{self, Shuffle, VALUE_BYTES};
use crate::workload::kind::SCAN_RECORDS;

fn wrong(record: u64) -> Error {
    Error::new(ErrorKind::Corrupt, format!("record {record} is not what was written"))
}

pub(crate) async fn lookups(
    table: &TaskTable,
    window: &Window,
    records: u64,
    seed: u64,
    tally: &RefCell<Tally>,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = Vec::with_capacity(2 * VALUE_BYTES);
    let mut began = window.span.now_ns();
    while window.span.begin(&mut began).await {
        let record = random.u64(0..records);
        value.clear();
        if !table.get_into(&dataset::key(record), &mut value).await?
            || !dataset::is_value_of(record, &value)
        {
            return Err(wrong(record));
        }
        if !window.count(tally, &mut began, 1) {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn updates(
    table: &TaskTable,
    window: &Window,
    records: u64,
    seed: u64,
    tally: &RefCell<Tally>,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = [0; VALUE_BYTES];
    let mut began = window.span.now_ns();
    while window.span.begin(&mut began).await {
        let record = random.u64(0..records);
        dataset::value(record, random.u64(..), &mut value);
        table.put(&dataset::key(record), &value).await?;
        if !window.count(tally, &mut began, 1) {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn scans(
    table: &TaskTable,
    window: &Window,
    records: u64,
    seed: u64,
    tally: &RefCell<Tally>,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut began = window.span.now_ns();
    loop {
        let first = random.u64(0..records);
        let mut range =
            table.range((Bound::Included(&dataset::key(first)[..]), Bound::Unbounded))?;
        let mut expected = first;
        while expected < first + SCAN_RECORDS {
            let Some((key, value)) = range.next().await? else { break };
            if key != dataset::key(expected) || !dataset::is_value_of(expected, &value) {
                return Err(wrong(expected));
            }
            expected += 1;
        }
        if !window.count(tally, &mut began, expected - first) {
            return Ok(());
        }
    }
}

pub(crate) async fn inserts(
    table: &TaskTable,
    window: &Window,
    records: u64,
    tally: &RefCell<Tally>,
) -> Result<()> {
    let shuffle = Shuffle::new(records);
    let mut value = [0; VALUE_BYTES];
    let mut began = window.span.now_ns();
    loop {
        let index = window.next.fetch_add(1, Ordering::Relaxed);
        if index >= records {
            return Ok(());
        }
        let record = shuffle.at(index);
        dataset::value(record, 0, &mut value);
        table.put(&dataset::key(record), &value).await?;
        if !window.count(tally, &mut began, 1) {
            return Ok(());
        }
    }
}
