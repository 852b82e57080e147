//! The conditions of one district: its orders with their lines, and its customers.

use qpair::Result;

use super::checker::{Checker, District, Paid};
use crate::kv::{KeyRange, KvSession};
use crate::tpcc::keys;
use crate::tpcc::rows::{customer, order, order_line};
use crate::tpcc::schema::{CUSTOMER, NEW_ORDER, ORDER_LINE, ORDERS};

/// The number of orders that are checked together.
const ORDERS_AT_ONCE: usize = 4096;

/// An order, with the counts of its lines.
struct Order {
    o: u32,
    c: u16,
    has_carrier: bool,
    line_count: u8,
    is_new: bool,
    lines: u64,
    delivered_lines: u64,
    delivered_sum: i64,
}

/// Sums of a district.
#[derive(Default)]
struct Sums {
    orders: u64,
    last_order: u32,
    new_orders: u64,
    first_new: u32,
    last_new: u32,
    line_counts: u64,
    lines: u64,
    /// The total cost of each customer's delivered lines, indexed by the customer's number.
    delivered: Vec<i64>,
}

/// A position in a list of orders that are looked up by ascending numbers.
struct Pointer(usize);

impl Pointer {
    fn find<'a>(&mut self, orders: &'a mut [Order], o: u32) -> Option<&'a mut Order> {
        while orders.get(self.0).is_some_and(|order| order.o < o) {
            self.0 += 1;
        }
        orders.get_mut(self.0).filter(|order| order.o == o)
    }
}

impl<S: KvSession> Checker<S> {
    pub(super) async fn district(
        &mut self,
        w: u32,
        d: u8,
        district: District,
        paid: &Paid,
    ) -> Result<()> {
        let sums = self.orders(w, d).await?;
        let name = || format!("district {w}/{d}");
        let report = &mut self.report;
        let next = i64::from(district.next_o_id) - 1;
        report.expect_equal(2, next, sums.last_order.into(), || {
            (name(), "D_NEXT_O_ID - 1", "the greatest O_ID")
        });
        if sums.new_orders > 0 {
            report.expect_equal(2, next, sums.last_new.into(), || {
                (name(), "D_NEXT_O_ID - 1", "the greatest NO_O_ID")
            });
            let span = u64::from(sums.last_new - sums.first_new) + 1;
            report.expect_equal(3, span, sums.new_orders, || {
                (name(), "max - min + 1 of NO_O_ID", "the number of new orders")
            });
        }
        report.expect_equal(4, sums.line_counts, sums.lines, || {
            (name(), "the sum of O_OL_CNT", "the number of order lines")
        });
        let deliveries = self.customers(w, d, &sums, paid).await?;
        let delivered = i128::from(sums.orders) - i128::from(sums.new_orders);
        let expected = u64::from(self.scale.delivered_orders()) + deliveries;
        self.report.expect_equal(11, delivered, expected.into(), || {
            (name(), "orders less new orders", "orders delivered at first and by C_DELIVERY_CNT")
        });
        Ok(())
    }

    /// Reads the orders of a district together with their new orders and lines.
    async fn orders(&mut self, w: u32, d: u8) -> Result<Sums> {
        let delivered = vec![0; usize::from(self.scale.customers) + 1];
        let mut sums = Sums { delivered, ..Sums::default() };
        let end = keys::order(w, d + 1, 0);
        let mut from = keys::order(w, d, 0);
        let mut orders: Vec<Order> = Vec::new();
        loop {
            orders.clear();
            let range = KeyRange { from: &from, to: &end };
            self.scanner
                .some_rows(ORDERS, range, Some(order::BYTES), ORDERS_AT_ONCE, |key, row| {
                    if let Some((_, _, o)) = keys::order_id(key) {
                        orders.push(Order::new(o, row));
                    }
                })
                .await?;
            // The lines up to the next order are read; after the last order, those up to the end of
            // the district.
            let to = match orders.last() {
                Some(last) if orders.len() == ORDERS_AT_ONCE && last.o < keys::NUMBER_MAX => {
                    keys::order(w, d, last.o + 1)
                }
                _ => end,
            };
            let beside = KeyRange { from: &from, to: &to };
            self.new_orders(beside, &mut orders, &mut sums).await?;
            self.lines(beside, &mut orders, &mut sums).await?;
            self.of_orders((w, d), &orders, &mut sums);
            if to == end {
                return Ok(sums);
            }
            from = to;
        }
    }

    async fn new_orders(
        &mut self,
        range: KeyRange<'_>,
        orders: &mut [Order],
        sums: &mut Sums,
    ) -> Result<()> {
        let mut pointer = Pointer(0);
        let report = &mut self.report;
        self.scanner
            .rows(NEW_ORDER, range, Some(0), |key, _| {
                let Some((w, d, o)) = keys::order_id(key) else { return };
                if sums.new_orders == 0 {
                    sums.first_new = o;
                }
                sums.last_new = o;
                sums.new_orders += 1;
                match pointer.find(orders, o) {
                    Some(order) => order.is_new = true,
                    None => report.fail(5, || format!("new order {w}/{d}/{o} has no order")),
                }
            })
            .await
    }

    async fn lines(
        &mut self,
        range: KeyRange<'_>,
        orders: &mut [Order],
        sums: &mut Sums,
    ) -> Result<()> {
        let mut pointer = Pointer(0);
        let report = &mut self.report;
        self.scanner
            .rows(ORDER_LINE, range, Some(order_line::BYTES), |key, row| {
                let Some((w, d, o)) = keys::order_id(key) else { return };
                sums.lines += 1;
                let Some(order) = pointer.find(orders, o) else {
                    let number = key.last().copied().unwrap_or(0);
                    report.fail(6, || format!("line {number} of {w}/{d}/{o} has no order"));
                    return;
                };
                order.lines += 1;
                if order_line::DELIVERY_D.get(row) != 0 {
                    order.delivered_lines += 1;
                    order.delivered_sum += i64::from(order_line::AMOUNT.get(row));
                }
            })
            .await
    }

    /// Checks the conditions of each order, after its lines are counted.
    fn of_orders(&mut self, (w, d): (u32, u8), orders: &[Order], sums: &mut Sums) {
        for order in orders {
            let name = || format!("order {w}/{d}/{}", order.o);
            sums.orders += 1;
            sums.last_order = order.o;
            sums.line_counts += u64::from(order.line_count);
            if let Some(sum) = sums.delivered.get_mut(usize::from(order.c)) {
                *sum += order.delivered_sum;
            }
            self.report.expect(5, order.has_carrier != order.is_new, || {
                let carrier = if order.has_carrier { "a carrier" } else { "no carrier" };
                let new = if order.is_new { "is" } else { "is not" };
                format!("{} has {carrier} and {new} a new order", name())
            });
            self.report.expect_equal(6, u64::from(order.line_count), order.lines, || {
                (name(), "O_OL_CNT", "the number of lines")
            });
            let expected = if order.has_carrier { order.lines } else { 0 };
            self.report.expect_equal(7, order.delivered_lines, expected, || {
                (name(), "lines with a delivery date", "lines that should have one")
            });
        }
    }

    /// Checks the conditions of the customers of a district, and returns the sum of their
    /// `C_DELIVERY_CNT`.
    async fn customers(&mut self, w: u32, d: u8, sums: &Sums, paid: &Paid) -> Result<u64> {
        let mut deliveries = 0;
        let (from, to) = (keys::customer(w, d, 0), keys::customer(w, d + 1, 0));
        let range = KeyRange { from: &from, to: &to };
        let report = &mut self.report;
        self.scanner
            .rows(CUSTOMER, range, Some(customer::BYTES), |key, row| {
                let [.., high, low] = key else { return };
                let c = u16::from_be_bytes([*high, *low]);
                deliveries += u64::from(customer::DELIVERY_CNT.get(row));
                let balance = customer::BALANCE.get(row);
                let delivered = sums.delivered.get(usize::from(c)).copied().unwrap_or(0);
                let has_paid = paid.customer_at(w, d, c).map_or(0, |at| paid.by_customer[at]);
                let name = || format!("customer {w}/{d}/{c}");
                report.expect_equal(10, balance, delivered - has_paid, || {
                    (name(), "C_BALANCE", "delivered lines less H_AMOUNT")
                });
                let paid_by_row = customer::YTD_PAYMENT.get(row);
                report.expect_equal(12, balance + paid_by_row, delivered, || {
                    (name(), "C_BALANCE + C_YTD_PAYMENT", "the sum of delivered lines")
                });
            })
            .await?;
        Ok(deliveries)
    }
}

impl Order {
    fn new(o: u32, row: &[u8]) -> Self {
        Self {
            o,
            c: order::C_ID.get(row),
            has_carrier: order::CARRIER_ID.get(row) != 0,
            line_count: order::OL_CNT.get(row),
            is_new: false,
            lines: 0,
            delivered_lines: 0,
            delivered_sum: 0,
        }
    }
}
