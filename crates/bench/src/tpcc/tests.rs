//! The workload over the in-memory store: the load is complete, the transactions keep the twelve
//! conditions, and each condition detects a database that violates it.

use std::ops::ControlFlow;

use qpair::ErrorKind;

use super::inputs::Type;
use super::rows::{customer, district, history, order, order_line, warehouse};
use super::scale::Loaded;
use super::schema::*;
use super::transactions::{Common, Terminal};
use super::*;
use crate::harness::{Done, complete};
use crate::kv::{
    Begin, Direction, Durability, KeyRange, KvSession, MemoryKv, MemorySession, System, TableId,
    block_on,
};
use crate::progress::Silent;

const SMALL: Scale = Scale { warehouses: 2, items: 300, customers: 40 };

fn options() -> TpccOptions {
    TpccOptions { scale: SMALL, seconds: 0.0, warm_up_seconds: 0.0, ..TpccOptions::default() }
}

fn loaded_store() -> MemoryKv {
    let kv = MemoryKv::new(TPCC_TABLES.len());
    run_tpcc(&kv, &options(), &Silent).unwrap();
    kv
}

/// Runs one transaction, and returns also its attempts that ended with a conflict.
async fn run(terminal: &mut Terminal<MemorySession>, kind: Type) -> (Done, u32) {
    let inputs = terminal.inputs(kind);
    complete(terminal, &inputs).await.unwrap()
}

/// Runs some hundred transactions of random types on each of four terminals.
fn run_some(kv: &MemoryKv, transactions: usize) -> Vec<[u64; 3]> {
    let common = Common { scale: SMALL, durability: Durability::Async, run: 1, seed: 9 };
    kv.start(4, move |number, session| async move {
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut terminal = Terminal::new(session, number, common);
        let mut sums = [0; 3];
        for _ in 0..transactions / 4 {
            let (done, conflicts) = run(&mut terminal, Type::random(&mut random)).await;
            sums[0] += 1;
            sums[1] += u64::from(done.rolled_back);
            sums[2] += u64::from(conflicts);
        }
        Ok(sums)
    })
    .unwrap()
    .join()
    .unwrap()
}

/// Changes a store by hand.
fn change<T>(kv: &MemoryKv, change: impl AsyncFnOnce(&mut MemorySession) -> T) -> T {
    let mut session = kv.session();
    block_on(async {
        session.begin(Begin::default()).await.unwrap();
        let value = change(&mut session).await;
        session.commit().await.unwrap();
        value
    })
}

/// Changes one row in its bytes.
fn change_row(kv: &MemoryKv, table: TableId, key: &[u8], with: impl FnOnce(&mut [u8])) {
    change(kv, async |session| {
        let mut row = Vec::new();
        assert!(session.get_into(table, key, &mut row).await.unwrap());
        with(&mut row);
        session.put(table, key, &row).await.unwrap();
    });
}

fn broken(kv: &MemoryKv) -> Vec<usize> {
    check(kv, &Silent).unwrap().broken()
}

fn count(kv: &MemoryKv, table: TableId) -> usize {
    change(kv, async |session| {
        let mut count = 0;
        let scan = session.scan(table, KeyRange::ALL, Direction::Forward, usize::MAX, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        scan.await.unwrap();
        count
    })
}

#[test]
fn a_load_has_the_cardinalities_of_its_scale() {
    let kv = loaded_store();
    let districts = 20;
    assert_eq!(count(&kv, WAREHOUSE), 2);
    assert_eq!(count(&kv, DISTRICT), districts);
    for table in [CUSTOMER, HISTORY, ORDERS, CUSTOMER_BY_NAME, ORDERS_BY_CUSTOMER] {
        assert_eq!(count(&kv, table), districts * 40, "table {}", TPCC_TABLES[table.index()]);
    }
    assert_eq!(count(&kv, NEW_ORDER), districts * 12);
    assert_eq!(count(&kv, ITEM), 300);
    assert_eq!(count(&kv, STOCK), 600);
    let lines = count(&kv, ORDER_LINE);
    assert!((districts * 40 * 9..districts * 40 * 11).contains(&lines), "{lines}");
    let report = check(&kv, &Silent).unwrap();
    assert!(report.holds(), "{report:#?}");
    assert!(report.conditions.iter().all(|condition| condition.looked_at > 0));
}

#[test]
fn the_same_seed_loads_the_same_bytes() {
    let content = |kv: &MemoryKv| {
        change(kv, async |session| {
            let mut bytes = Vec::new();
            for table in 0..TPCC_TABLES.len() {
                let each = |key: &[u8], row: &[u8]| {
                    bytes.extend_from_slice(key);
                    bytes.extend_from_slice(row);
                    ControlFlow::Continue(())
                };
                let table = TableId(table as u8);
                let scan = session.scan(table, KeyRange::ALL, Direction::Forward, usize::MAX, each);
                scan.await.unwrap();
            }
            bytes
        })
    };
    assert!(content(&loaded_store()) == content(&loaded_store()));
}

#[test]
fn thousands_of_transactions_keep_all_conditions() {
    let kv = loaded_store();
    kv.conflict_every(17);
    let sums = run_some(&kv, 4000);
    kv.conflict_every(0);
    let sum = |at: usize| sums.iter().map(|sums| sums[at]).sum::<u64>();
    assert_eq!(sum(0), 4000);
    assert!(sum(1) > 0 && sum(2) > 0, "rolled back {}, conflicts {}", sum(1), sum(2));
    let report = check(&kv, &Silent).unwrap();
    assert!(report.holds(), "{report:#?}");
    assert!(count(&kv, ORDERS) > 20 * 40 && count(&kv, HISTORY) > 20 * 40);
    assert_eq!(count(&kv, ORDERS_BY_CUSTOMER), count(&kv, ORDERS));
}

#[test]
fn every_type_does_what_it_is_for() {
    let kv = loaded_store();
    let common = Common { scale: SMALL, durability: Durability::Async, run: 1, seed: 1 };
    // Runs transactions of these types in turn, and returns the number of those rolled back.
    let run_all = |number, times, kinds: &[Type]| {
        let mut terminal = Terminal::new(kv.session(), number, common);
        block_on(async {
            let mut rolled_back = 0;
            for kind in kinds.repeat(times) {
                rolled_back += usize::from(run(&mut terminal, kind).await.0.rolled_back);
            }
            rolled_back
        })
    };
    run_all(0, 12, &[Type::Delivery]);
    assert!(count(&kv, NEW_ORDER) <= 20 * 12 - 12 * 10);
    let before = (count(&kv, ORDERS), count(&kv, HISTORY));
    let others = [Type::NewOrder, Type::Payment, Type::OrderStatus, Type::StockLevel];
    let rolled_back = run_all(1, 200, &others);
    assert_eq!(count(&kv, ORDERS), before.0 + 200 - rolled_back);
    assert_eq!(count(&kv, HISTORY), before.1 + 200);
    // When all is delivered there is nothing to deliver, which is no error.
    run_all(2, 200, &[Type::Delivery]);
    assert_eq!(count(&kv, NEW_ORDER), 0);
    assert!(broken(&kv).is_empty());
}

#[test]
fn each_condition_sees_what_breaks_it() {
    type Break = fn(&MemoryKv);
    let customer = keys::customer(2, 2, 2);
    let in_row: [(TableId, &[u8], fn(&mut [u8]), &[usize]); 10] = [
        (WAREHOUSE, &keys::warehouse(1), |row| warehouse::YTD.add(row, 1), &[1, 8]),
        (DISTRICT, &keys::district(2, 10), |row| district::YTD.add(row, 1), &[1, 9]),
        (DISTRICT, &keys::district(1, 1), |row| district::NEXT_O_ID.add(row, 1), &[2]),
        (ORDERS, &keys::order(1, 1, 7), |row| order::OL_CNT.add(row, 1), &[4, 6]),
        (ORDERS, &keys::order(1, 1, 7), |row| order::CARRIER_ID.set(row, 0), &[5, 7]),
        // Lines of the load that are delivered cost nothing, so that no sum changes.
        (ORDER_LINE, &keys::order_line(1, 1, 7, 2), |row| order_line::DELIVERY_D.set(row, 0), &[7]),
        (HISTORY, &keys::history(0, 1, 0), |row| history::C_ID.set(row, 2), &[10]),
        (CUSTOMER, &customer, |row| customer::BALANCE.add(row, 1), &[10, 12]),
        (CUSTOMER, &customer, |row| customer::DELIVERY_CNT.add(row, 1), &[11]),
        (CUSTOMER, &customer, |row| customer::YTD_PAYMENT.add(row, 1), &[12]),
    ];
    for (table, key, with, expected) in in_row {
        let kv = loaded_store();
        change_row(&kv, table, key, with);
        assert_eq!(broken(&kv), expected, "{}", TPCC_TABLES[table.index()]);
    }
    let new_order_is_lost: Break = |kv| {
        change(kv, async |session| {
            assert!(session.delete(NEW_ORDER, &keys::order(1, 3, 35)).await.unwrap());
        });
    };
    let payment_is_lost: Break = |kv| {
        change(kv, async |session| {
            assert!(session.delete(HISTORY, &keys::history(0, 1, 0)).await.unwrap());
        });
    };
    let line_is_an_orphan: Break = |kv| {
        change(kv, async |session| {
            let row = [0; order_line::BYTES];
            session.put(ORDER_LINE, &keys::order_line(1, 1, 99, 1), &row).await.unwrap();
        });
    };
    let of_rows: [(Break, &[usize]); 3] = [
        (new_order_is_lost, &[3, 5, 11]),
        (payment_is_lost, &[8, 9, 10]),
        (line_is_an_orphan, &[4, 6]),
    ];
    for (break_it, expected) in of_rows {
        let kv = loaded_store();
        break_it(&kv);
        assert_eq!(broken(&kv), expected);
    }
}

#[test]
fn what_is_broken_is_named() {
    let kv = loaded_store();
    change_row(&kv, CUSTOMER, &keys::customer(2, 2, 2), |row| customer::YTD_PAYMENT.add(row, 5));
    let report = check(&kv, &Silent).unwrap();
    assert_eq!(
        report.conditions[11].examples,
        ["customer 2/2/2: C_BALANCE + C_YTD_PAYMENT is 5, the sum of delivered lines is 0"]
    );
    // A row of another width is no row of this table.
    change(&kv, async |session| session.put(ORDERS, &keys::order(1, 1, 1), b"x").await.unwrap());
    let error = check(&kv, &Silent).unwrap_err();
    assert!(error.to_string().contains("orders"), "{error}");
}

#[test]
fn a_run_counts_what_it_did() {
    let kv = loaded_store();
    let run = TpccOptions { seconds: 0.3, terminals: 3, check: true, ..options() };
    let report = run_tpcc(&kv, &run, &Silent).unwrap();
    assert!(report.check.as_ref().is_some_and(CheckReport::holds), "{report:#?}");
    assert!(report.load_seconds.is_none() && report.tx_per_s > 0.0 && report.tpmc > 0.0);
    let sum: u64 = report.types.values().map(|kind| kind.count).sum();
    assert_eq!(sum, report.tx_by_second.iter().sum::<u64>());
    assert_eq!(report.types.len(), 5);
    // Each run has rows of history of its own.
    run_tpcc(&kv, &run, &Silent).unwrap();
}

#[test]
fn arrivals_set_the_pace_and_late_ones_count_from_when_they_were_due() {
    let kv = loaded_store();
    let at = |rate| TpccOptions { seconds: 0.5, terminals: 3, rate_per_s: Some(rate), ..options() };
    let counted = |report: &TpccReport| report.types.values().map(|kind| kind.count).sum::<u64>();
    // About 100 arrive, so no more can be done; terminals at their own pace do thousands.
    let slow = run_tpcc(&kv, &at(200.0), &Silent).unwrap();
    assert!((1..200).contains(&counted(&slow)), "{slow:#?}");
    // All are due at the beginning: the operation that is done first has waited least, and the
    // others the rest of the run.
    let over = run_tpcc(&kv, &at(1e9), &Silent).unwrap();
    assert!(over.latency_us["new_order"].p50 > 1e6 * 0.5 / 20.0, "{over:#?}");
    assert!(run_tpcc(&kv, &at(-1.0), &Silent).is_err());
}

#[test]
fn a_store_of_another_size_is_refused() {
    let kv = loaded_store();
    let scale = Scale { warehouses: 3, ..SMALL };
    let error = run_tpcc(&kv, &TpccOptions { scale, ..options() }, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("2 warehouses; 3 were asked for"), "{error}");
}

#[test]
fn a_load_that_did_not_end_is_refused() {
    let kv = MemoryKv::new(TPCC_TABLES.len());
    change(&kv, async |session| {
        session.put(STOCK, &keys::stock(1, 1), b"").await.unwrap();
    });
    let error = run_tpcc(&kv, &options(), &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let empty = MemoryKv::new(TPCC_TABLES.len());
    assert_eq!(check(&empty, &Silent).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_small_piece_of_the_standards_scale_is_as_wide_as_the_standard_has_it() {
    // TPC-C 1.2.1: bytes of a row with its key, about.
    let widths = [
        (warehouse::BYTES + 2, 89),
        (district::BYTES + 3, 95),
        (customer::BYTES + 5, 655),
        (history::BYTES, 46),
        (order::BYTES + 6, 24),
        (order_line::BYTES + 7, 54),
        (rows::item::BYTES + 3, 82),
        (rows::stock::BYTES + 5, 306),
    ];
    for (here, standard) in widths {
        assert!(
            here.abs_diff(standard) * 10 <= standard,
            "{here} bytes, {standard} in the standard"
        );
    }
    let loaded = Loaded { scale: Scale::standard(1), seed: 0, runs: 0 };
    assert_eq!(loaded.scale.delivered_orders(), 2100);
}
