//! Stock level (TPC-C 2.8): the number of items of a district's last 20 orders that are low on
//! stock.

use std::hint::black_box;
use std::ops::ControlFlow;

use qpair::Result;

use crate::harness::Done;
use crate::kv::{Begin, Direction, KeyRange, KvSession};

use super::terminal::{Terminal, read};
use crate::tpcc::inputs::{StockLevel, Type};
use crate::tpcc::keys;
use crate::tpcc::rows::{district, order_line, stock};
use crate::tpcc::schema::{DISTRICT, ORDER_LINE, STOCK};

/// The number of stock rows that are announced together.
const AT_ONCE: usize = 16;
/// The number of orders that are examined.
const ORDERS: u32 = 20;

impl<S: KvSession> Terminal<S> {
    pub(super) async fn stock_level(&mut self, input: &StockLevel) -> Result<Done> {
        let &StockLevel { w, d, threshold } = input;
        self.session.begin(Begin::read_only()).await?;
        let Self { session, row, ids, .. } = self;
        read(session, DISTRICT, &keys::district(w, d), row, district::BYTES).await?;
        let next = district::NEXT_O_ID.get(row);
        ids.clear();
        let (from, to) = (keys::order(w, d, next.saturating_sub(ORDERS)), keys::order(w, d, next));
        session
            .scan(
                ORDER_LINE,
                KeyRange { from: &from, to: &to },
                Direction::Forward,
                usize::MAX,
                |_, line| {
                    if line.len() == order_line::BYTES {
                        ids.push(order_line::I_ID.get(line));
                    }
                    ControlFlow::Continue(())
                },
            )
            .await?;
        ids.sort_unstable();
        ids.dedup();
        let stocks: Vec<_> = ids.iter().map(|item| keys::stock(w, *item)).collect();
        let reads: Vec<_> = stocks.iter().map(|key| (STOCK, key.as_slice())).collect();
        let fetches = session.fetches();
        if fetches {
            session.fetch(&reads).await?;
        }
        let mut short = 0;
        for some in reads.chunks(AT_ONCE) {
            if !fetches {
                session.expect(some)?;
            }
            for (_, key) in some {
                read(session, STOCK, key, row, stock::BYTES).await?;
                short += u32::from(stock::QUANTITY.get(row) < threshold);
            }
        }
        black_box(short);
        session.commit().await?;
        Ok(Done::new(Type::StockLevel as usize, 1))
    }
}
