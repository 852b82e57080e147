//! Delivery (TPC-C 2.7): the oldest new order of each of ten districts, in one transaction.

use std::ops::ControlFlow;

use qpair::Result;

use crate::harness::Done;
use crate::kv::{Direction, KeyRange, KvSession};

use super::terminal::{Terminal, missing, now_us, read, read_for_update};
use crate::tpcc::inputs::{Delivery, Type};
use crate::tpcc::keys;
use crate::tpcc::rows::{customer, order, order_line};
use crate::tpcc::scale::DISTRICTS;
use crate::tpcc::schema::{CUSTOMER, NEW_ORDER, ORDER_LINE, ORDERS};

impl<S: KvSession> Terminal<S> {
    pub(super) async fn delivery(&mut self, input: &Delivery) -> Result<Done> {
        let &Delivery { w, carrier } = input;
        self.begin().await?;
        // Two deliveries of a warehouse want the same orders. There is no district 0, so its key
        // stands for the warehouse, and only deliveries wait for its lock. Orders that were fetched
        // before the lock may have been delivered by the transaction that held it.
        self.session.lock(NEW_ORDER, &keys::order(w, 0, 0)).await?;
        let orders = self.oldest_orders(w).await?;
        if self.session.fetches() {
            self.fetch_orders(w, &orders).await?;
        }
        let now = now_us();
        for (d, o) in orders {
            self.deliver(w, d, o, carrier, now).await?;
        }
        self.session.commit().await?;
        Ok(Done::new(Type::Delivery as usize, 1))
    }

    /// Returns the oldest undelivered order of each district. A district without new orders is
    /// skipped (TPC-C 2.7.4.2).
    async fn oldest_orders(&mut self, w: u32) -> Result<Vec<(u8, u32)>> {
        let session = &mut self.session;
        if session.fetches() {
            let first: Vec<_> = (1..=DISTRICTS).map(|d| keys::order(w, d, 0)).collect();
            let reads: Vec<_> = first.iter().map(|key| (NEW_ORDER, key.as_slice())).collect();
            session.fetch(&reads).await?;
        }
        let mut orders = Vec::with_capacity(usize::from(DISTRICTS));
        for d in 1..=DISTRICTS {
            let (from, to) = (keys::order(w, d, 0), keys::order(w, d + 1, 0));
            let range = KeyRange { from: &from, to: &to };
            session
                .scan(NEW_ORDER, range, Direction::Forward, 1, |key, _| {
                    orders.extend(keys::order_id(key).map(|(_, _, o)| (d, o)));
                    ControlFlow::Break(())
                })
                .await?;
        }
        Ok(orders)
    }

    /// Brings the rows of these orders into memory.
    async fn fetch_orders(&mut self, w: u32, orders: &[(u8, u32)]) -> Result<()> {
        let Self { session, row, .. } = self;
        let keys: Vec<_> = orders.iter().map(|(d, o)| keys::order(w, *d, *o)).collect();
        // The lines of an order may continue in the next leaf.
        let ends: Vec<_> = orders.iter().map(|(d, o)| keys::order(w, *d, o + 1)).collect();
        let lines = keys.iter().zip(&ends).flat_map(|(from, to)| [from, to]);
        let mut reads: Vec<_> = keys.iter().map(|key| (ORDERS, key.as_slice())).collect();
        reads.extend(lines.map(|key| (ORDER_LINE, key.as_slice())));
        session.fetch(&reads).await?;
        let mut customers = Vec::with_capacity(orders.len());
        for ((d, _), key) in orders.iter().zip(&keys) {
            read(session, ORDERS, key, row, order::BYTES).await?;
            customers.push(keys::customer(w, *d, order::C_ID.get(row)));
        }
        let reads: Vec<_> = customers.iter().map(|key| (CUSTOMER, key.as_slice())).collect();
        session.fetch(&reads).await
    }

    async fn deliver(&mut self, w: u32, d: u8, o: u32, carrier: u8, now: u64) -> Result<()> {
        let Self { session, row, lines, ids, .. } = self;
        let key = keys::order(w, d, o);
        session.delete(NEW_ORDER, &key).await?;

        read_for_update(session, ORDERS, &key, row, order::BYTES).await?;
        let c = order::C_ID.get(row);
        order::CARRIER_ID.set(row, carrier);
        session.put(ORDERS, &key, row).await?;

        lines.clear();
        ids.clear();
        let next = keys::order(w, d, o + 1);
        let mut sum = 0;
        session
            .scan(
                ORDER_LINE,
                KeyRange { from: &key, to: &next },
                Direction::Forward,
                usize::MAX,
                |key, line| {
                    if line.len() != order_line::BYTES || key.len() != 7 {
                        return ControlFlow::Break(());
                    }
                    sum += i64::from(order_line::AMOUNT.get(line));
                    ids.push(key[6].into());
                    lines.extend_from_slice(line);
                    ControlFlow::Continue(())
                },
            )
            .await?;
        for (line, number) in lines.chunks_exact_mut(order_line::BYTES).zip(ids.iter()) {
            order_line::DELIVERY_D.set(line, now);
            session.put(ORDER_LINE, &keys::order_line(w, d, o, *number as u8), line).await?;
        }
        if ids.len() != usize::from(order::OL_CNT.get(row)) {
            return Err(missing(ORDER_LINE, &key));
        }

        let key = keys::customer(w, d, c);
        read_for_update(session, CUSTOMER, &key, row, customer::BYTES).await?;
        customer::BALANCE.add(row, sum);
        customer::DELIVERY_CNT.add(row, 1);
        session.put(CUSTOMER, &key, row).await
    }
}
