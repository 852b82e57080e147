//! The state of a check.

use super::conditions::CheckReport;
use crate::tpcc::scale::{DISTRICTS, Scale};
use crate::tpcc::scan::Scanner;

/// The columns of a district's row that the conditions use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct District {
    pub(super) ytd: i64,
    pub(super) next_o_id: u32,
}

/// Sums of the payments in history, for some warehouses.
pub(super) struct Paid {
    first_warehouse: u32,
    customers: u16,
    /// Sums by warehouse and district.
    pub(super) districts: Vec<i64>,
    /// Sums by warehouse, district and customer.
    pub(super) by_customer: Vec<i64>,
}

pub(super) struct Checker<S> {
    pub(super) scanner: Scanner<S>,
    pub(super) scale: Scale,
    pub(super) report: CheckReport,
}

impl Paid {
    pub(super) fn new(first_warehouse: u32, warehouses: u32, customers: u16) -> Self {
        let districts = warehouses as usize * usize::from(DISTRICTS);
        let by_customer = vec![0; districts * usize::from(customers)];
        Self { first_warehouse, customers, districts: vec![0; districts], by_customer }
    }

    pub(super) fn district_at(&self, w: u32, d: u8) -> Option<usize> {
        let w = w.checked_sub(self.first_warehouse)? as usize;
        let d = usize::from(d.checked_sub(1).filter(|d| *d < DISTRICTS)?);
        Some(w * usize::from(DISTRICTS) + d).filter(|at| *at < self.districts.len())
    }

    pub(super) fn customer_at(&self, w: u32, d: u8, c: u16) -> Option<usize> {
        let c = usize::from(c.checked_sub(1).filter(|c| *c < self.customers)?);
        Some(self.district_at(w, d)? * usize::from(self.customers) + c)
    }
}
