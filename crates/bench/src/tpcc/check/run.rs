//! Checks all tables.

use std::collections::HashMap;

use qpair::{Error, ErrorKind, Result};

use super::checker::{Checker, District, Paid};
use super::conditions::CheckReport;
use crate::harness::run_job;
use crate::kv::{KeyRange, Kv, KvSession};
use crate::progress::Progress;
use crate::tpcc::keys;
use crate::tpcc::load::{loaded, records};
use crate::tpcc::rows::{district as district_row, history, warehouse};
use crate::tpcc::scale::DISTRICTS;
use crate::tpcc::scan::Scanner;
use crate::tpcc::schema::{DISTRICT, HISTORY, WAREHOUSE};

/// The number of warehouses whose customers' sums are in memory: 256 of them take 61 MB.
const WAREHOUSES_AT_ONCE: u32 = 256;

/// Checks the twelve conditions.
///
/// # Errors
/// `NotFound` if the store has no TPC-C data; errors of the store; `Closed` if the check was
/// interrupted. A violated condition is not an error; it is in the report.
pub fn check<K: Kv>(kv: &K, progress: &dyn Progress) -> Result<CheckReport> {
    let loaded = loaded(kv)?.ok_or_else(|| {
        Error::with_hint(
            ErrorKind::NotFound,
            "the store has no TPC-C data",
            "load some: qpair bench tpcc --load-only",
        )
    })?;
    let phase = ("checking the twelve conditions", records(&loaded.scale));
    let reports = run_job(kv, 1, phase, progress, move |session, job| async move {
        let scanner = Scanner::begin(session, job).await?;
        let mut checker = Checker { scanner, scale: loaded.scale, report: CheckReport::new() };
        checker.run().await?;
        checker.scanner.finish().await?;
        Ok(checker.report)
    })?;
    reports.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Closed, "nothing was checked"))
}

impl<S: KvSession> Checker<S> {
    async fn run(&mut self) -> Result<()> {
        let warehouses = self.warehouses().await?;
        let districts = self.districts().await?;
        // Condition 1: the year-to-date amount of a warehouse is the sum of its districts' amounts.
        for (&w, &ytd) in &warehouses {
            let of_districts: i64 =
                (1..=DISTRICTS).filter_map(|d| districts.get(&(w, d))).map(|d| d.ytd).sum();
            self.report.expect_equal(1, ytd, of_districts, || {
                (format!("warehouse {w}"), "W_YTD", "the sum of D_YTD")
            });
        }
        for w in 1..=self.scale.warehouses {
            if !warehouses.contains_key(&w) {
                self.report.fail(1, || format!("warehouse {w} is missing"));
            }
        }
        let mut first = 1;
        while first <= self.scale.warehouses {
            let last = self.scale.warehouses.min(first + WAREHOUSES_AT_ONCE - 1);
            let paid = self.paid(first, last).await?;
            for w in first..=last {
                let at = |d| paid.district_at(w, d).map_or(0, |at| paid.districts[at]);
                // Conditions 8 and 9: these amounts are the sums of the payments.
                if let Some(&ytd) = warehouses.get(&w) {
                    let sum = (1..=DISTRICTS).map(at).sum();
                    self.report.expect_equal(8, ytd, sum, || {
                        (format!("warehouse {w}"), "W_YTD", "the sum of H_AMOUNT")
                    });
                }
                for d in 1..=DISTRICTS {
                    let Some(district) = districts.get(&(w, d)).copied() else {
                        self.report.fail(2, || format!("district {w}/{d} is missing"));
                        continue;
                    };
                    self.report.expect_equal(9, district.ytd, at(d), || {
                        (format!("district {w}/{d}"), "D_YTD", "the sum of H_AMOUNT")
                    });
                    self.district(w, d, district, &paid).await?;
                }
            }
            first = last + 1;
        }
        Ok(())
    }

    /// Returns `W_YTD` by warehouse.
    async fn warehouses(&mut self) -> Result<HashMap<u32, i64>> {
        let mut warehouses = HashMap::new();
        self.scanner
            .rows(WAREHOUSE, KeyRange::ALL, Some(warehouse::BYTES), |key, row| {
                if let Some(w) = keys::warehouse_id(key) {
                    warehouses.insert(w, warehouse::YTD.get(row));
                }
            })
            .await?;
        Ok(warehouses)
    }

    async fn districts(&mut self) -> Result<HashMap<(u32, u8), District>> {
        let mut districts = HashMap::new();
        self.scanner
            .rows(DISTRICT, KeyRange::ALL, Some(district_row::BYTES), |key, row| {
                if let Some((w, d)) = keys::district_id(key) {
                    let (ytd, next_o_id) =
                        (district_row::YTD.get(row), district_row::NEXT_O_ID.get(row));
                    districts.insert((w, d), District { ytd, next_o_id });
                }
            })
            .await?;
        Ok(districts)
    }

    /// Returns the payments in history to these warehouses and by their customers.
    async fn paid(&mut self, first: u32, last: u32) -> Result<Paid> {
        let mut paid = Paid::new(first, last - first + 1, self.scale.customers);
        self.scanner
            .rows(HISTORY, KeyRange::ALL, Some(history::BYTES), |_, row| {
                let amount = i64::from(history::AMOUNT.get(row));
                if let Some(at) = paid.district_at(history::W_ID.get(row), history::D_ID.get(row)) {
                    paid.districts[at] += amount;
                }
                let (w, d, c) =
                    (history::C_W_ID.get(row), history::C_D_ID.get(row), history::C_ID.get(row));
                if let Some(at) = paid.customer_at(w, d, c) {
                    paid.by_customer[at] += amount;
                }
            })
            .await?;
        Ok(paid)
    }
}
