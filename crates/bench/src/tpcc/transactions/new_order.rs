//! New order (TPC-C 2.4).

use std::hint::black_box;

use qpair::{Error, ErrorKind, Result};

use crate::harness::Done;
use crate::kv::KvSession;

use super::terminal::{Terminal, missing, now_us, read, read_for_update};
use crate::tpcc::inputs::{LINES_MAX, NewOrder, Type};
use crate::tpcc::keys;
use crate::tpcc::rows::{customer, dist, district, item, order, order_line, stock, warehouse};
use crate::tpcc::schema::{
    CUSTOMER, DISTRICT, ITEM, NEW_ORDER, ORDER_LINE, ORDERS, ORDERS_BY_CUSTOMER, STOCK, WAREHOUSE,
};

/// Whether data marks a product as an original. If both item and stock do so, the line's brand is
/// "B", otherwise "G".
fn is_original(data: &[u8]) -> bool {
    data.windows(8).any(|window| window == b"ORIGINAL")
}

impl<S: KvSession> Terminal<S> {
    /// Announces the keys that the transaction will read.
    async fn announce(&mut self, input: &NewOrder) -> Result<()> {
        let &NewOrder { w, d, c, .. } = input;
        let customer = keys::customer(w, d, c);
        let by_customer = keys::order_by_customer(w, d, c, keys::NUMBER_MAX);
        let mut lines = [([0; 3], [0; 5]); LINES_MAX];
        for (keys, line) in lines.iter_mut().zip(input.lines()) {
            *keys = (keys::item(line.item), keys::stock(line.supply_w, line.item));
        }
        let mut reads = [(CUSTOMER, &customer[..]); 2 + 2 * LINES_MAX];
        for (pair, (item, stock)) in reads[1..].chunks_exact_mut(2).zip(&lines) {
            pair.copy_from_slice(&[(ITEM, item), (STOCK, stock)]);
        }
        let count = 1 + 2 * input.lines().len();
        // The index entry of the order goes next to the customer's other entries.
        reads[count] = (ORDERS_BY_CUSTOMER, &by_customer);
        self.session.fetch(&reads[..=count]).await
    }

    pub(super) async fn new_order(&mut self, input: &NewOrder) -> Result<Done> {
        let &NewOrder { w, d, c, .. } = input;
        self.begin().await?;
        self.announce(input).await?;
        let Self { session, row, other, .. } = self;

        // All new orders of a district want its row, so that lock comes before the snapshot.
        let key = keys::district(w, d);
        read_for_update(session, DISTRICT, &key, row, district::BYTES).await?;
        let o = district::NEXT_O_ID.get(row);
        if o > keys::NUMBER_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("TPC-C: district {w}/{d} has no number left"),
            ));
        }
        district::NEXT_O_ID.set(row, o + 1);
        let district_tax = district::TAX.get(row);
        session.put(DISTRICT, &key, row).await?;

        read(session, WAREHOUSE, &keys::warehouse(w), row, warehouse::BYTES).await?;
        let warehouse_tax = warehouse::TAX.get(row);
        read(session, CUSTOMER, &keys::customer(w, d, c), row, customer::BYTES).await?;
        let discount = customer::DISCOUNT.get(row);

        let mut header = [0; order::BYTES];
        order::C_ID.set(&mut header, c);
        order::ENTRY_D.set(&mut header, now_us());
        order::OL_CNT.set(&mut header, input.line_count);
        let all_local = input.lines().iter().all(|line| line.supply_w == w);
        order::ALL_LOCAL.set(&mut header, all_local.into());
        let key = keys::order(w, d, o);
        session.insert(ORDERS, &key, &header).await?;
        session.insert(NEW_ORDER, &key, &[]).await?;
        session.insert(ORDERS_BY_CUSTOMER, &keys::order_by_customer(w, d, c, o), &[]).await?;

        let mut total = 0;
        let mut new_line = [0; order_line::BYTES];
        for (number, line) in (1..).zip(input.lines()) {
            let key = keys::item(line.item);
            if !session.get_into(ITEM, &key, other).await? && input.rolled_back {
                session.rollback().await?;
                let done = Done::new(Type::NewOrder as usize, 1);
                return Ok(Done { rolled_back: true, ..done });
            }
            if other.len() != item::BYTES {
                return Err(missing(ITEM, &key));
            }
            let key = keys::stock(line.supply_w, line.item);
            read_for_update(session, STOCK, &key, row, stock::BYTES).await?;
            let wanted = i32::from(line.quantity);
            let there = stock::QUANTITY.get(row);
            let left = if there >= wanted + 10 { there - wanted } else { there - wanted + 91 };
            stock::QUANTITY.set(row, left);
            stock::YTD.add(row, line.quantity.into());
            stock::ORDER_CNT.add(row, 1);
            if line.supply_w != w {
                stock::REMOTE_CNT.add(row, 1);
            }
            session.put(STOCK, &key, row).await?;

            let amount = wanted * item::PRICE.get(other);
            total += i64::from(amount);
            black_box(is_original(item::DATA.get(other)) && is_original(stock::DATA.get(row)));
            order_line::I_ID.set(&mut new_line, line.item);
            order_line::SUPPLY_W_ID.set(&mut new_line, line.supply_w);
            order_line::QUANTITY.set(&mut new_line, line.quantity);
            order_line::AMOUNT.set(&mut new_line, amount);
            order_line::DIST_INFO.set(&mut new_line, dist(d).get(row));
            session.insert(ORDER_LINE, &keys::order_line(w, d, o, number), &new_line).await?;
        }
        // A terminal would show this amount.
        let taxed = 10_000 + i64::from(warehouse_tax) + i64::from(district_tax);
        black_box(total * (10_000 - i64::from(discount)) / 10_000 * taxed / 10_000);
        session.commit().await?;
        Ok(Done::new(Type::NewOrder as usize, 1))
    }
}
