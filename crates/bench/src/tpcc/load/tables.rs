//! The rows of each table (TPC-C 4.3.3.1), by ascending keys.

use fastrand::Rng;
use qpair::Result;

use crate::harness::Filler;
use crate::kv::{KvLoader, TableId};
use crate::tpcc::scale::{DISTRICTS, Loaded, Scale};
use crate::tpcc::schema::{
    CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDER_LINE, ORDERS,
    ORDERS_BY_CUSTOMER, STOCK,
};
use crate::tpcc::{keys, random, rows};

/// The time of the load in all rows, in microseconds since 1970. It is a constant, so that the same
/// seed gives the same bytes.
const LOADED_AT_US: u64 = 1_700_000_000_000_000;
/// The amount that each customer has paid and each district has received per customer, in cents.
const PAID: i64 = 1000;

/// The kind of rows that a generator is for.
#[derive(Clone, Copy)]
enum Kind {
    Warehouse,
    District,
    Customer,
    History,
    Order,
    OrderCustomers,
    OrderLine,
    Item,
    Stock,
}

/// Returns the generator of a row of a district, or of all rows of a district if `row` is 0.
fn generator(seed: u64, kind: Kind, w: u32, d: u8, row: u32) -> Rng {
    random::row(seed, kind as u64, u64::from(w) << 8 | u64::from(d), u64::from(row))
}

/// Returns the last and first name of a customer. They are the first values drawn from the
/// customer's generator.
fn names(random: &mut Rng, c: u16, scale: &Scale) -> ([u8; 16], [u8; 16]) {
    let (mut last, mut first) = ([0; 16], [0; 16]);
    let number = match c <= scale.last_names() {
        true => c - 1,
        false => random::loaded_name_number(random, scale.last_names()),
    };
    random::last_name(number, &mut last);
    random::text(random, 8, &mut first);
    (last, first)
}

/// Assigns the orders of a district to customers: a permutation of its customers.
fn order_customers(seed: u64, w: u32, d: u8, scale: &Scale, target: &mut Vec<u16>) {
    target.clear();
    target.extend(1..=scale.customers);
    generator(seed, Kind::OrderCustomers, w, d, 0).shuffle(target);
}

/// Returns the number of lines of an order. It is the first value drawn from the order's generator.
fn line_count(random: &mut Rng) -> u8 {
    random.u8(5..=15)
}

/// The rows of a load, and where they go.
pub(super) struct Rows<'a, L> {
    filler: &'a mut Filler<L>,
    scale: Scale,
    seed: u64,
}

impl<'a, L: KvLoader> Rows<'a, L> {
    pub(super) fn new(filler: &'a mut Filler<L>, loaded: &Loaded) -> Self {
        Self { filler, scale: loaded.scale, seed: loaded.seed }
    }

    /// Creates the rows of a table.
    pub(super) async fn fill(&mut self, table: TableId) -> Result<()> {
        match table {
            ORDER_LINE => self.order_lines().await,
            STOCK => self.stock().await,
            CUSTOMER => self.customers().await,
            HISTORY => self.history().await,
            ORDERS => self.orders().await,
            CUSTOMER_BY_NAME => self.customers_by_name().await,
            ORDERS_BY_CUSTOMER => self.orders_by_customer().await,
            NEW_ORDER => self.new_orders().await,
            ITEM => self.items().await,
            DISTRICT => self.districts().await,
            _ => self.warehouses().await,
        }
    }

    async fn warehouses(&mut self) -> Result<()> {
        use rows::warehouse as column;
        let mut row = [0; column::BYTES];
        for w in 1..=self.scale.warehouses {
            let mut random = generator(self.seed, Kind::Warehouse, w, 0, 0);
            random::text(&mut random, 6, column::NAME.get_mut(&mut row));
            random::address(&mut random, column::ADDRESS.get_mut(&mut row));
            column::TAX.set(&mut row, random.i32(0..=2000));
            column::YTD
                .set(&mut row, i64::from(DISTRICTS) * i64::from(self.scale.customers) * PAID);
            self.filler.push(&keys::warehouse(w), &row).await?;
        }
        Ok(())
    }

    async fn districts(&mut self) -> Result<()> {
        use rows::district as column;
        let mut row = [0; column::BYTES];
        for (w, d) in self.scale.districts() {
            let mut random = generator(self.seed, Kind::District, w, d, 0);
            random::text(&mut random, 6, column::NAME.get_mut(&mut row));
            random::address(&mut random, column::ADDRESS.get_mut(&mut row));
            column::TAX.set(&mut row, random.i32(0..=2000));
            column::YTD.set(&mut row, i64::from(self.scale.customers) * PAID);
            column::NEXT_O_ID.set(&mut row, u32::from(self.scale.customers) + 1);
            self.filler.push(&keys::district(w, d), &row).await?;
        }
        Ok(())
    }

    async fn customers(&mut self) -> Result<()> {
        use rows::customer as column;
        let mut row = vec![0; column::BYTES];
        for (w, d) in self.scale.districts() {
            for c in 1..=self.scale.customers {
                let mut random = generator(self.seed, Kind::Customer, w, d, c.into());
                let (last, first) = names(&mut random, c, &self.scale);
                column::LAST.set(&mut row, &last);
                column::FIRST.set(&mut row, &first);
                column::MIDDLE.set(&mut row, b"OE");
                random::address(&mut random, column::ADDRESS.get_mut(&mut row));
                random::digits(&mut random, column::PHONE.get_mut(&mut row));
                column::SINCE.set(&mut row, LOADED_AT_US);
                let bad = random.u8(0..10) == 0;
                column::CREDIT.set(&mut row, if bad { b"BC" } else { b"GC" });
                column::CREDIT_LIM.set(&mut row, 5_000_000);
                column::DISCOUNT.set(&mut row, random.i32(0..=5000));
                column::BALANCE.set(&mut row, -PAID);
                column::YTD_PAYMENT.set(&mut row, PAID);
                column::PAYMENT_CNT.set(&mut row, 1);
                column::DELIVERY_CNT.set(&mut row, 0);
                random::text(&mut random, 300, column::DATA.get_mut(&mut row));
                self.filler.push(&keys::customer(w, d, c), &row).await?;
            }
        }
        Ok(())
    }

    async fn customers_by_name(&mut self) -> Result<()> {
        let mut district = Vec::with_capacity(self.scale.customers.into());
        for (w, d) in self.scale.districts() {
            district.clear();
            district.extend((1..=self.scale.customers).map(|c| {
                let mut random = generator(self.seed, Kind::Customer, w, d, c.into());
                let (last, first) = names(&mut random, c, &self.scale);
                keys::customer_by_name(w, d, &last, &first, c)
            }));
            district.sort_unstable();
            for key in &district {
                self.filler.push(key, &[]).await?;
            }
        }
        Ok(())
    }

    async fn history(&mut self) -> Result<()> {
        use rows::history as column;
        let mut row = [0; column::BYTES];
        for (w, d) in self.scale.districts() {
            for c in 1..=self.scale.customers {
                let mut random = generator(self.seed, Kind::History, w, d, c.into());
                column::C_W_ID.set(&mut row, w);
                column::C_D_ID.set(&mut row, d);
                column::C_ID.set(&mut row, c);
                column::W_ID.set(&mut row, w);
                column::D_ID.set(&mut row, d);
                column::DATE.set(&mut row, LOADED_AT_US);
                column::AMOUNT.set(&mut row, PAID as i32);
                random::text(&mut random, 12, column::DATA.get_mut(&mut row));
                // Run 0 is the load; runs count from 1.
                let number = u32::from(d - 1) * u32::from(self.scale.customers) + u32::from(c - 1);
                self.filler.push(&keys::history(0, w, number), &row).await?;
            }
        }
        Ok(())
    }

    async fn orders(&mut self) -> Result<()> {
        use rows::order as column;
        let mut row = [0; column::BYTES];
        let mut customers = Vec::new();
        for (w, d) in self.scale.districts() {
            order_customers(self.seed, w, d, &self.scale, &mut customers);
            for (o, c) in (1..).zip(&customers) {
                let mut random = generator(self.seed, Kind::Order, w, d, o);
                column::OL_CNT.set(&mut row, line_count(&mut random));
                column::C_ID.set(&mut row, *c);
                column::ENTRY_D.set(&mut row, LOADED_AT_US);
                let delivered = o <= self.scale.delivered_orders();
                column::CARRIER_ID.set(&mut row, if delivered { random.u8(1..=10) } else { 0 });
                column::ALL_LOCAL.set(&mut row, 1);
                self.filler.push(&keys::order(w, d, o), &row).await?;
            }
        }
        Ok(())
    }

    async fn orders_by_customer(&mut self) -> Result<()> {
        let mut customers = Vec::new();
        let mut district = Vec::with_capacity(self.scale.customers.into());
        for (w, d) in self.scale.districts() {
            order_customers(self.seed, w, d, &self.scale, &mut customers);
            district.clear();
            let keys = (1..).zip(&customers);
            district.extend(keys.map(|(o, c)| keys::order_by_customer(w, d, *c, o)));
            district.sort_unstable();
            for key in &district {
                self.filler.push(key, &[]).await?;
            }
        }
        Ok(())
    }

    async fn new_orders(&mut self) -> Result<()> {
        for (w, d) in self.scale.districts() {
            for o in self.scale.delivered_orders() + 1..=u32::from(self.scale.customers) {
                self.filler.push(&keys::order(w, d, o), &[]).await?;
            }
        }
        Ok(())
    }

    async fn order_lines(&mut self) -> Result<()> {
        use rows::order_line as column;
        let mut row = [0; column::BYTES];
        for (w, d) in self.scale.districts() {
            for o in 1..=u32::from(self.scale.customers) {
                let lines = line_count(&mut generator(self.seed, Kind::Order, w, d, o));
                let mut random = generator(self.seed, Kind::OrderLine, w, d, o);
                let delivered = o <= self.scale.delivered_orders();
                for number in 1..=lines {
                    column::I_ID.set(&mut row, random.u32(1..=self.scale.items));
                    column::SUPPLY_W_ID.set(&mut row, w);
                    column::DELIVERY_D.set(&mut row, if delivered { LOADED_AT_US } else { 0 });
                    column::QUANTITY.set(&mut row, 5);
                    let amount = if delivered { 0 } else { random.i32(1..=999_999) };
                    column::AMOUNT.set(&mut row, amount);
                    random::text(&mut random, 24, column::DIST_INFO.get_mut(&mut row));
                    self.filler.push(&keys::order_line(w, d, o, number), &row).await?;
                }
            }
        }
        Ok(())
    }

    async fn items(&mut self) -> Result<()> {
        use rows::item as column;
        let mut row = [0; column::BYTES];
        for i in 1..=self.scale.items {
            let mut random = generator(self.seed, Kind::Item, 0, 0, i);
            column::IM_ID.set(&mut row, random.u32(1..=10_000));
            random::text(&mut random, 14, column::NAME.get_mut(&mut row));
            column::PRICE.set(&mut row, random.i32(100..=10_000));
            random::data(&mut random, column::DATA.get_mut(&mut row));
            self.filler.push(&keys::item(i), &row).await?;
        }
        Ok(())
    }

    async fn stock(&mut self) -> Result<()> {
        use rows::stock as column;
        let mut row = [0; column::BYTES];
        for w in 1..=self.scale.warehouses {
            for i in 1..=self.scale.items {
                let mut random = generator(self.seed, Kind::Stock, w, 0, i);
                column::QUANTITY.set(&mut row, random.i32(10..=100));
                column::YTD.set(&mut row, 0);
                column::ORDER_CNT.set(&mut row, 0);
                column::REMOTE_CNT.set(&mut row, 0);
                random::data(&mut random, column::DATA.get_mut(&mut row));
                for d in 1..=DISTRICTS {
                    random::text(&mut random, 24, rows::dist(d).get_mut(&mut row));
                }
                self.filler.push(&keys::stock(w, i), &row).await?;
            }
        }
        Ok(())
    }
}
