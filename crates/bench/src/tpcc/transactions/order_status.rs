//! Order status (TPC-C 2.6): reads a customer and its newest order.

use std::hint::black_box;
use std::ops::ControlFlow;

use qpair::Result;

use crate::harness::Done;
use crate::kv::{Begin, Direction, KeyRange, KvSession};

use super::terminal::{Terminal, read};
use crate::tpcc::inputs::{OrderStatus, Type};
use crate::tpcc::keys;
use crate::tpcc::rows::{customer, order, order_line};
use crate::tpcc::schema::{CUSTOMER, ORDER_LINE, ORDERS, ORDERS_BY_CUSTOMER};

impl<S: KvSession> Terminal<S> {
    pub(super) async fn order_status(&mut self, input: &OrderStatus) -> Result<Done> {
        let &OrderStatus { w, d, who } = input;
        self.session.begin(Begin::read_only()).await?;
        let c = self.customer(w, d, who).await?;
        let Self { session, row, .. } = self;
        // The newest order is first in the index.
        let (from, to) = (
            keys::order_by_customer(w, d, c, keys::NUMBER_MAX),
            keys::order_by_customer(w, d, c, 0),
        );
        let key = keys::customer(w, d, c);
        let fetches = session.fetches();
        if fetches {
            session.fetch(&[(CUSTOMER, &key), (ORDERS_BY_CUSTOMER, &from)]).await?;
        }
        read(session, CUSTOMER, &key, row, customer::BYTES).await?;
        black_box(customer::BALANCE.get(row));
        black_box((customer::FIRST.get(row), customer::MIDDLE.get(row), customer::LAST.get(row)));

        let mut newest = None;
        let range = KeyRange { from: &from, to: &to };
        session
            .scan(ORDERS_BY_CUSTOMER, range, Direction::Forward, 1, |key, _| {
                newest = keys::order_of(key);
                ControlFlow::Break(())
            })
            .await?;
        // In the standard's scale, each customer has an order from the load on.
        if let Some(o) = newest {
            let (from, to) = (keys::order(w, d, o), keys::order(w, d, o + 1));
            if fetches {
                session.fetch(&[(ORDERS, &from), (ORDER_LINE, &from)]).await?;
            }
            read(session, ORDERS, &from, row, order::BYTES).await?;
            black_box((order::ENTRY_D.get(row), order::CARRIER_ID.get(row)));
            let range = KeyRange { from: &from, to: &to };
            session
                .scan(ORDER_LINE, range, Direction::Forward, usize::MAX, |_, line| {
                    if line.len() == order_line::BYTES {
                        black_box((
                            order_line::I_ID.get(line),
                            order_line::SUPPLY_W_ID.get(line),
                            order_line::QUANTITY.get(line),
                            order_line::AMOUNT.get(line),
                            order_line::DELIVERY_D.get(line),
                        ));
                    }
                    ControlFlow::Continue(())
                })
                .await?;
        }
        session.commit().await?;
        Ok(Done::new(Type::OrderStatus as usize, 1))
    }
}
