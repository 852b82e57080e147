//! The workload over a store in memory: the load is complete, the transactions keep the twelve
//! conditions, and each condition detects a database that violates it.

use qpair::{ErrorKind, Table};

use super::inputs::Type;
use super::rows::{customer, district, history, order, order_line, warehouse};
use super::scale::Loaded;
use super::schema::*;
use super::transactions::{Common, Terminal};
use super::*;
use crate::harness::{complete, once};
use crate::kv::{Durability, TableId};
use crate::progress::Silent;
use crate::store_kv::StoreKv;
use crate::tests::store;

const SMALL: Scale = Scale { warehouses: 2, items: 300, customers: 40 };

fn options() -> TpccOptions {
    TpccOptions { scale: SMALL, seconds: 0.0, warm_up_seconds: 0.0, ..TpccOptions::default() }
}

fn loaded_store() -> StoreKv {
    let kv = store(&TPCC_TABLES, 16 << 20);
    run_tpcc(&kv, &options(), &Silent).unwrap();
    kv
}

/// Runs transactions of these types in turn on one terminal; returns the number of those that were
/// rolled back.
fn run(kv: &StoreKv, number: usize, kinds: Vec<Type>) -> usize {
    let common = Common { scale: SMALL, durability: Durability::Async, run: 1, seed: 9 };
    let work = move |session| {
        let (mut terminal, kinds) = (Terminal::new(session, number, common), kinds.clone());
        async move {
            let mut rolled_back = 0;
            for kind in kinds {
                let inputs = terminal.inputs(kind);
                rolled_back += usize::from(complete(&mut terminal, &inputs).await?.0.rolled_back);
            }
            Ok(rolled_back)
        }
    };
    once(kv, work).unwrap()
}

fn table(kv: &StoreKv, table: TableId) -> Table {
    kv.store().table(TPCC_TABLES[table.index()]).unwrap()
}

/// Changes one row in its bytes.
fn change_row(kv: &StoreKv, of: TableId, key: &[u8], with: impl FnOnce(&mut [u8])) {
    let table = table(kv, of);
    let mut row = table.get(key).unwrap().unwrap();
    with(&mut row);
    table.put(key, &row).unwrap();
}

fn broken(kv: &StoreKv) -> Vec<usize> {
    check(kv, &Silent).unwrap().broken()
}

fn count(kv: &StoreKv, of: TableId) -> usize {
    table(kv, of).range(..).unwrap().map(Result::unwrap).count()
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
    let content = |kv: &StoreKv| {
        let tables = (0..TPCC_TABLES.len()).map(|number| table(kv, TableId(number as u8)));
        let rows = tables.flat_map(|table| table.range(..).unwrap().map(Result::unwrap));
        rows.collect::<Vec<_>>()
    };
    assert!(content(&loaded_store()) == content(&loaded_store()));
}

#[test]
fn thousands_of_transactions_keep_all_conditions() {
    let kv = loaded_store();
    let rolled_back: usize = std::thread::scope(|scope| {
        let terminals = [0, 1, 2, 3].map(|number| {
            let mut random = fastrand::Rng::with_seed(number as u64);
            let kinds = (0..1000).map(|_| Type::random(&mut random)).collect();
            let kv = &kv;
            scope.spawn(move || run(kv, number, kinds))
        });
        terminals.into_iter().map(|terminal| terminal.join().unwrap()).sum()
    });
    assert!(rolled_back > 0);
    let report = check(&kv, &Silent).unwrap();
    assert!(report.holds(), "{report:#?}");
    assert!(count(&kv, ORDERS) > 20 * 40 && count(&kv, HISTORY) > 20 * 40);
    assert_eq!(count(&kv, ORDERS_BY_CUSTOMER), count(&kv, ORDERS));
}

#[test]
fn every_type_does_what_it_is_for() {
    let kv = loaded_store();
    run(&kv, 0, [Type::Delivery].repeat(12));
    assert!(count(&kv, NEW_ORDER) <= 20 * 12 - 12 * 10);
    let before = (count(&kv, ORDERS), count(&kv, HISTORY));
    let others = [Type::NewOrder, Type::Payment, Type::OrderStatus, Type::StockLevel];
    let rolled_back = run(&kv, 1, others.repeat(200));
    assert_eq!(count(&kv, ORDERS), before.0 + 200 - rolled_back);
    assert_eq!(count(&kv, HISTORY), before.1 + 200);
    // When all orders are delivered, a delivery has nothing to do, and is not an error.
    run(&kv, 2, [Type::Delivery].repeat(200));
    assert_eq!(count(&kv, NEW_ORDER), 0);
    assert!(broken(&kv).is_empty());
}

#[test]
fn each_condition_sees_what_breaks_it() {
    let customer = keys::customer(2, 2, 2);
    type InRow<'a> = (TableId, &'a [u8], fn(&mut [u8]), &'a [usize]);
    type OfRows<'a> = (fn(&StoreKv), &'a [usize]);
    let in_row: [InRow<'_>; 10] = [
        (WAREHOUSE, &keys::warehouse(1), |row| warehouse::YTD.add(row, 1), &[1, 8]),
        (DISTRICT, &keys::district(2, 10), |row| district::YTD.add(row, 1), &[1, 9]),
        (DISTRICT, &keys::district(1, 1), |row| district::NEXT_O_ID.add(row, 1), &[2]),
        (ORDERS, &keys::order(1, 1, 7), |row| order::OL_CNT.add(row, 1), &[4, 6]),
        (ORDERS, &keys::order(1, 1, 7), |row| order::CARRIER_ID.set(row, 0), &[5, 7]),
        // The delivered lines of the load cost nothing, so no sum changes.
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
    let of_rows: [OfRows<'_>; 3] = [
        (|kv| assert!(table(kv, NEW_ORDER).delete(&keys::order(1, 3, 35)).unwrap()), &[3, 5, 11]),
        (|kv| assert!(table(kv, HISTORY).delete(&keys::history(0, 1, 0)).unwrap()), &[8, 9, 10]),
        // The line has no order.
        (
            |kv| {
                let key = keys::order_line(1, 1, 99, 1);
                table(kv, ORDER_LINE).put(&key, &[0; order_line::BYTES]).unwrap();
            },
            &[4, 6],
        ),
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
    // A row of another width is not a row of this table.
    table(&kv, ORDERS).put(&keys::order(1, 1, 1), b"x").unwrap();
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
    // Each run has its own rows of history.
    run_tpcc(&kv, &run, &Silent).unwrap();
}

#[test]
fn arrivals_set_the_pace_and_late_ones_count_from_when_they_were_due() {
    let kv = loaded_store();
    let at = |rate| TpccOptions { seconds: 0.5, terminals: 3, rate_per_s: Some(rate), ..options() };
    let counted = |report: &TpccReport| report.types.values().map(|kind| kind.count).sum::<u64>();
    // About 100 transactions arrive, so no more can end; terminals at their own pace do thousands.
    let slow = run_tpcc(&kv, &at(200.0), &Silent).unwrap();
    assert!((1..200).contains(&counted(&slow)), "{slow:#?}");
    // All transactions are due at the beginning: the first to be done has waited least, and the
    // others wait for the rest of the run.
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
    let kv = store(&TPCC_TABLES, 16 << 20);
    table(&kv, STOCK).put(&keys::stock(1, 1), b"").unwrap();
    let error = run_tpcc(&kv, &options(), &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let empty = store(&TPCC_TABLES, 16 << 20);
    assert_eq!(check(&empty, &Silent).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_small_piece_of_the_standards_scale_is_as_wide_as_the_standard_has_it() {
    // The approximate size of a row with its key, in bytes (TPC-C 1.2.1).
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
