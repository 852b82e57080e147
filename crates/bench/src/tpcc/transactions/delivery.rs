//! Delivery (TPC-C 2.7): the oldest new order of each of ten districts, in one transaction.

use std::ops::ControlFlow;

use crate::kv::{Begin, Direction, KeyRange, KvResult, KvSession};

use super::{Outcome, Terminal, missing, now_us, read, read_for_update};
use crate::tpcc::inputs::Delivery;
use crate::tpcc::rows::{customer, order, order_line};
use crate::tpcc::scale::DISTRICTS;
use crate::tpcc::{CUSTOMER, NEW_ORDER, ORDER_LINE, ORDERS, keys};

impl<S: KvSession> Terminal<S> {
    pub(super) async fn delivery(&mut self, input: &Delivery) -> KvResult<Outcome> {
        let &Delivery { w, carrier } = input;
        if self.session.fetches() {
            self.fetch_orders(w).await?;
        }
        self.begin().await?;
        // Two deliveries of a warehouse want the same orders. There is no district 0: its key stands for the warehouse.
        self.session.lock(NEW_ORDER, &keys::order(w, 0, 0)).await?;
        let now = now_us();
        for d in 1..=DISTRICTS {
            self.deliver(w, d, carrier, now).await?;
        }
        self.session.commit().await?;
        Ok(Outcome::Committed)
    }

    /// Brings into memory what will be delivered, as it looks now.
    async fn fetch_orders(&mut self, w: u32) -> KvResult<()> {
        let Self { session, row, .. } = self;
        session.begin(Begin::read_only()).await?;
        let first: Vec<_> = (1..=DISTRICTS).map(|d| keys::order(w, d, 0)).collect();
        let reads: Vec<_> = first.iter().map(|key| (NEW_ORDER, key.as_slice())).collect();
        session.fetch(&reads).await?;
        let mut orders = Vec::with_capacity(usize::from(DISTRICTS));
        for d in 1..=DISTRICTS {
            if let Some(o) = oldest_of(session, w, d).await? {
                orders.push((d, keys::order(w, d, o)));
            }
        }
        let reads: Vec<_> = orders
            .iter()
            .flat_map(|(_, key)| [(ORDERS, key.as_slice()), (ORDER_LINE, key.as_slice())])
            .collect();
        session.fetch(&reads).await?;
        let mut customers = Vec::with_capacity(orders.len());
        for (d, key) in &orders {
            read(session, ORDERS, key, row, order::BYTES).await?;
            customers.push(keys::customer(w, *d, order::C_ID.get(row)));
        }
        let reads: Vec<_> = customers.iter().map(|key| (CUSTOMER, key.as_slice())).collect();
        session.fetch(&reads).await?;
        session.rollback().await
    }

    async fn deliver(&mut self, w: u32, d: u8, carrier: u8, now: u64) -> KvResult<()> {
        let Self { session, row, lines, ids, .. } = self;
        // A district without new orders is skipped (TPC-C 2.7.4.2).
        let Some(o) = oldest_of(session, w, d).await? else { return Ok(()) };
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

/// The oldest order of a district that was not delivered.
async fn oldest_of<S: KvSession>(session: &mut S, w: u32, d: u8) -> KvResult<Option<u32>> {
    let (from, to) = (keys::order(w, d, 0), keys::order(w, d + 1, 0));
    let mut oldest = None;
    session
        .scan(NEW_ORDER, KeyRange { from: &from, to: &to }, Direction::Forward, 1, |key, _| {
            oldest = keys::order_id(key).map(|(_, _, o)| o);
            ControlFlow::Break(())
        })
        .await?;
    Ok(oldest)
}
