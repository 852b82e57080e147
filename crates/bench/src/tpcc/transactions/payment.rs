//! Payment (TPC-C 2.5).

use std::io::Write;

use qpair::Result;

use crate::harness::Done;
use crate::kv::{Begin, KvSession};

use super::terminal::{Terminal, now_us, read_for_update};
use crate::tpcc::inputs::{Payment, Type, Who};
use crate::tpcc::keys;
use crate::tpcc::rows::{customer, district, history, warehouse};
use crate::tpcc::schema::{CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, WAREHOUSE};

impl<S: KvSession> Terminal<S> {
    pub(super) async fn payment(&mut self, input: &Payment) -> Result<Done> {
        let &Payment { w, d, customer_w, customer_d, who, amount } = input;
        let known = match self.session.fetches() {
            true => Some(self.customer_before(customer_w, customer_d, who).await?),
            false => None,
        };
        self.begin().await?;
        if let Some(c) = known {
            let (warehouse, district) = (keys::warehouse(w), keys::district(w, d));
            let customer = keys::customer(customer_w, customer_d, c);
            let reads: [(_, &[u8]); 3] =
                [(WAREHOUSE, &warehouse), (DISTRICT, &district), (CUSTOMER, &customer)];
            self.session.fetch(&reads).await?;
        }

        // The row of the warehouse is the hottest: its lock comes last, and the first read follows.
        let district_key = keys::district(w, d);
        self.session.lock(DISTRICT, &district_key).await?;
        if let Who::Id(c) = who {
            self.session.lock(CUSTOMER, &keys::customer(customer_w, customer_d, c)).await?;
        }
        let key = keys::warehouse(w);
        let Self { session, row, .. } = self;
        read_for_update(session, WAREHOUSE, &key, row, warehouse::BYTES).await?;
        warehouse::YTD.add(row, amount.into());
        let mut names = [b' '; 24];
        names[..10].copy_from_slice(warehouse::NAME.get(row));
        session.put(WAREHOUSE, &key, row).await?;

        read_for_update(session, DISTRICT, &district_key, row, district::BYTES).await?;
        district::YTD.add(row, amount.into());
        names[14..].copy_from_slice(district::NAME.get(row));
        session.put(DISTRICT, &district_key, row).await?;

        let c = self.customer(customer_w, customer_d, who).await?;
        let Self { session, row, .. } = self;
        let key = keys::customer(customer_w, customer_d, c);
        read_for_update(session, CUSTOMER, &key, row, customer::BYTES).await?;
        customer::BALANCE.add(row, -i64::from(amount));
        customer::YTD_PAYMENT.add(row, amount.into());
        customer::PAYMENT_CNT.add(row, 1);
        if customer::CREDIT.get(row) == b"BC" {
            note(customer::DATA.get_mut(row), c, input);
        }
        session.put(CUSTOMER, &key, row).await?;

        let mut entry = [0; history::BYTES];
        history::C_W_ID.set(&mut entry, customer_w);
        history::C_D_ID.set(&mut entry, customer_d);
        history::C_ID.set(&mut entry, c);
        history::W_ID.set(&mut entry, w);
        history::D_ID.set(&mut entry, d);
        history::DATE.set(&mut entry, now_us());
        history::AMOUNT.set(&mut entry, amount);
        history::DATA.set(&mut entry, &names);
        let key = keys::history(self.common.run, self.number, self.histories);
        self.histories += 1;
        session.insert(HISTORY, &key, &entry).await?;
        session.commit().await?;
        Ok(Done::new(Type::Payment as usize, 1))
    }

    /// Looks up the selected customer before the transaction begins.
    async fn customer_before(&mut self, w: u32, d: u8, who: Who) -> Result<u16> {
        let name = match who {
            Who::Id(c) => return Ok(c),
            Who::Name(name) => name,
        };
        let (from, _) = keys::customers_of_name(w, d, &name);
        self.session.fetch(&[(CUSTOMER_BY_NAME, &from)]).await?;
        self.session.begin(Begin::read_only()).await?;
        let c = self.customer(w, d, who).await;
        self.session.rollback().await?;
        c
    }
}

/// Inserts the payment at the front of the notes on a customer with bad credit. Text that no longer
/// fits is cut off at the end.
fn note(data: &mut [u8], c: u16, input: &Payment) {
    let mut text = [0; 64];
    let mut rest = &mut text[..];
    let &Payment { w, d, customer_w, customer_d, amount, .. } = input;
    // The buffer of 64 bytes holds the longest possible numbers.
    let _ = write!(rest, "{c} {customer_d} {customer_w} {d} {w} {amount}|");
    let len = 64 - rest.len();
    let moved = data.len() - len;
    data.copy_within(..moved, len);
    data[..len].copy_from_slice(&text[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_first_and_push_the_oldest_out() {
        let input = Payment {
            w: u32::MAX,
            d: 10,
            customer_w: u32::MAX,
            customer_d: 10,
            who: Who::Id(u16::MAX),
            amount: 500_000,
        };
        let mut data = vec![b'x'; 500];
        note(&mut data, u16::MAX, &input);
        assert!(data.starts_with(b"65535 10 4294967295 10 4294967295 500000|xxx"));
        assert_eq!(data.len(), 500);
    }
}
