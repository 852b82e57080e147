//! The rows of each table (TPC-C 4.3.3.1), by ascending keys.

use fastrand::Rng;

use crate::kv::{KvLoader, KvResult};

use crate::harness::filler::Sink;
use crate::tpcc::scale::{DISTRICTS, Scale};
use crate::tpcc::{keys, random, rows};

/// The time of the load in all rows, in microseconds since 1970. It is a constant, so that the same
/// seed gives the same bytes.
const LOADED_AT_US: u64 = 1_700_000_000_000_000;
/// The amount that each customer has paid and each district has received per customer, in cents.
const PAID: i64 = 1000;

/// The kind of rows that a generator is for.
#[derive(Clone, Copy)]
enum Rows {
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
fn generator(seed: u64, rows: Rows, w: u32, d: u8, row: u32) -> Rng {
    random::row(seed, rows as u64, u64::from(w) << 8 | u64::from(d), u64::from(row))
}

pub(super) async fn warehouses<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::warehouse as column;
    let mut row = [0; column::BYTES];
    for w in 1..=scale.warehouses {
        let mut random = generator(seed, Rows::Warehouse, w, 0, 0);
        random::text(&mut random, 6, column::NAME.get_mut(&mut row));
        random::address(&mut random, column::ADDRESS.get_mut(&mut row));
        column::TAX.set(&mut row, random.i32(0..=2000));
        column::YTD.set(&mut row, i64::from(DISTRICTS) * i64::from(scale.customers) * PAID);
        sink.push(&keys::warehouse(w), &row).await?;
    }
    Ok(())
}

pub(super) async fn districts<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::district as column;
    let mut row = [0; column::BYTES];
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            let mut random = generator(seed, Rows::District, w, d, 0);
            random::text(&mut random, 6, column::NAME.get_mut(&mut row));
            random::address(&mut random, column::ADDRESS.get_mut(&mut row));
            column::TAX.set(&mut row, random.i32(0..=2000));
            column::YTD.set(&mut row, i64::from(scale.customers) * PAID);
            column::NEXT_O_ID.set(&mut row, u32::from(scale.customers) + 1);
            sink.push(&keys::district(w, d), &row).await?;
        }
    }
    Ok(())
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

pub(super) async fn customers<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::customer as column;
    let mut row = vec![0; column::BYTES];
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            for c in 1..=scale.customers {
                let mut random = generator(seed, Rows::Customer, w, d, c.into());
                let (last, first) = names(&mut random, c, scale);
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
                sink.push(&keys::customer(w, d, c), &row).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn customers_by_name<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    let mut district = Vec::with_capacity(scale.customers.into());
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            district.clear();
            district.extend((1..=scale.customers).map(|c| {
                let mut random = generator(seed, Rows::Customer, w, d, c.into());
                let (last, first) = names(&mut random, c, scale);
                keys::customer_by_name(w, d, &last, &first, c)
            }));
            district.sort_unstable();
            for key in &district {
                sink.push(key, &[]).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn history<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::history as column;
    let mut row = [0; column::BYTES];
    for w in 1..=scale.warehouses {
        let mut number = 0;
        for d in 1..=DISTRICTS {
            for c in 1..=scale.customers {
                let mut random = generator(seed, Rows::History, w, d, c.into());
                column::C_W_ID.set(&mut row, w);
                column::C_D_ID.set(&mut row, d);
                column::C_ID.set(&mut row, c);
                column::W_ID.set(&mut row, w);
                column::D_ID.set(&mut row, d);
                column::DATE.set(&mut row, LOADED_AT_US);
                column::AMOUNT.set(&mut row, PAID as i32);
                random::text(&mut random, 12, column::DATA.get_mut(&mut row));
                // Run 0 is the load; runs count from 1.
                sink.push(&keys::history(0, w, number), &row).await?;
                number += 1;
            }
        }
    }
    Ok(())
}

/// Assigns the orders of a district to customers: a permutation of its customers.
fn order_customers(seed: u64, w: u32, d: u8, scale: &Scale, target: &mut Vec<u16>) {
    target.clear();
    target.extend(1..=scale.customers);
    generator(seed, Rows::OrderCustomers, w, d, 0).shuffle(target);
}

/// Returns the number of lines of an order. It is the first value drawn from the order's generator.
fn line_count(random: &mut Rng) -> u8 {
    random.u8(5..=15)
}

pub(super) async fn orders<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::order as column;
    let mut row = [0; column::BYTES];
    let mut customers = Vec::new();
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            order_customers(seed, w, d, scale, &mut customers);
            for (o, c) in (1..).zip(&customers) {
                let mut random = generator(seed, Rows::Order, w, d, o);
                column::OL_CNT.set(&mut row, line_count(&mut random));
                column::C_ID.set(&mut row, *c);
                column::ENTRY_D.set(&mut row, LOADED_AT_US);
                let delivered = o <= scale.delivered_orders();
                column::CARRIER_ID.set(&mut row, if delivered { random.u8(1..=10) } else { 0 });
                column::ALL_LOCAL.set(&mut row, 1);
                sink.push(&keys::order(w, d, o), &row).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn orders_by_customer<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    let mut customers = Vec::new();
    let mut district = Vec::with_capacity(scale.customers.into());
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            order_customers(seed, w, d, scale, &mut customers);
            district.clear();
            let keys = (1..).zip(&customers);
            district.extend(keys.map(|(o, c)| keys::order_by_customer(w, d, *c, o)));
            district.sort_unstable();
            for key in &district {
                sink.push(key, &[]).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn new_orders<L: KvLoader>(sink: &mut Sink<L>, scale: &Scale) -> KvResult<()> {
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            for o in scale.delivered_orders() + 1..=u32::from(scale.customers) {
                sink.push(&keys::order(w, d, o), &[]).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn order_lines<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::order_line as column;
    let mut row = [0; column::BYTES];
    for w in 1..=scale.warehouses {
        for d in 1..=DISTRICTS {
            for o in 1..=u32::from(scale.customers) {
                let lines = line_count(&mut generator(seed, Rows::Order, w, d, o));
                let mut random = generator(seed, Rows::OrderLine, w, d, o);
                let delivered = o <= scale.delivered_orders();
                for number in 1..=lines {
                    column::I_ID.set(&mut row, random.u32(1..=scale.items));
                    column::SUPPLY_W_ID.set(&mut row, w);
                    column::DELIVERY_D.set(&mut row, if delivered { LOADED_AT_US } else { 0 });
                    column::QUANTITY.set(&mut row, 5);
                    let amount = if delivered { 0 } else { random.i32(1..=999_999) };
                    column::AMOUNT.set(&mut row, amount);
                    random::text(&mut random, 24, column::DIST_INFO.get_mut(&mut row));
                    sink.push(&keys::order_line(w, d, o, number), &row).await?;
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn items<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::item as column;
    let mut row = [0; column::BYTES];
    for i in 1..=scale.items {
        let mut random = generator(seed, Rows::Item, 0, 0, i);
        column::IM_ID.set(&mut row, random.u32(1..=10_000));
        random::text(&mut random, 14, column::NAME.get_mut(&mut row));
        column::PRICE.set(&mut row, random.i32(100..=10_000));
        random::data(&mut random, column::DATA.get_mut(&mut row));
        sink.push(&keys::item(i), &row).await?;
    }
    Ok(())
}

pub(super) async fn stock<L: KvLoader>(
    sink: &mut Sink<L>,
    scale: &Scale,
    seed: u64,
) -> KvResult<()> {
    use rows::stock as column;
    let mut row = [0; column::BYTES];
    for w in 1..=scale.warehouses {
        for i in 1..=scale.items {
            let mut random = generator(seed, Rows::Stock, w, 0, i);
            column::QUANTITY.set(&mut row, random.i32(10..=100));
            column::YTD.set(&mut row, 0);
            column::ORDER_CNT.set(&mut row, 0);
            column::REMOTE_CNT.set(&mut row, 0);
            random::data(&mut random, column::DATA.get_mut(&mut row));
            for d in 1..=DISTRICTS {
                random::text(&mut random, 24, column::dist(d).get_mut(&mut row));
            }
            sink.push(&keys::stock(w, i), &row).await?;
        }
    }
    Ok(())
}
