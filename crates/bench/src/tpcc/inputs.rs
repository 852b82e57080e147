//! The inputs of each transaction, as terminals enter them (TPC-C 2.4.1 to 2.8.1).

use fastrand::Rng;

use super::random;
use super::scale::{DISTRICTS, Scale};

/// The maximum number of lines of an order.
pub(crate) const LINES_MAX: usize = 15;

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Type {
    pub(crate) const ALL: [Self; 5] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
        }
    }

    /// Draws a type from the mix: 45 of 100 are new orders, 43 are payments, and 4 are of each
    /// of the other types.
    pub(crate) fn random(random: &mut Rng) -> Self {
        match random.u8(0..100) {
            0..45 => Self::NewOrder,
            45..88 => Self::Payment,
            88..92 => Self::OrderStatus,
            92..96 => Self::Delivery,
            _ => Self::StockLevel,
        }
    }
}

/// The selection of a customer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Id(u16),
    /// The middle customer of those with this last name.
    Name([u8; 16]),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) supply_w: u32,
    pub(crate) item: u32,
    pub(crate) quantity: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewOrder {
    pub(crate) w: u32,
    pub(crate) d: u8,
    pub(crate) c: u16,
    pub(crate) line_count: u8,
    pub(crate) lines: [Line; LINES_MAX],
    /// Whether the last item is one that does not exist, so that the transaction is rolled back.
    pub(crate) rolled_back: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Payment {
    pub(crate) w: u32,
    pub(crate) d: u8,
    pub(crate) customer_w: u32,
    pub(crate) customer_d: u8,
    pub(crate) who: Who,
    /// The amount in cents.
    pub(crate) amount: i32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderStatus {
    pub(crate) w: u32,
    pub(crate) d: u8,
    pub(crate) who: Who,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) w: u32,
    pub(crate) carrier: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StockLevel {
    pub(crate) w: u32,
    pub(crate) d: u8,
    pub(crate) threshold: i32,
}

fn warehouse(random: &mut Rng, scale: &Scale) -> u32 {
    random.u32(1..=scale.warehouses)
}

fn district(random: &mut Rng) -> u8 {
    random.u8(1..=DISTRICTS)
}

/// Returns another warehouse, if there is one.
fn other_warehouse(random: &mut Rng, scale: &Scale, w: u32) -> u32 {
    if scale.warehouses == 1 {
        return w;
    }
    let other = random.u32(1..scale.warehouses);
    if other >= w { other + 1 } else { other }
}

/// Selects a customer; 60 of 100 are selected by last name.
fn who(random: &mut Rng, scale: &Scale) -> Who {
    if random.u8(0..100) < 60 {
        let mut name = [0; 16];
        random::last_name(random::last_name_number(random, scale.last_names()), &mut name);
        Who::Name(name)
    } else {
        Who::Id(random::customer_id(random, scale.customers))
    }
}

impl NewOrder {
    pub(crate) fn random(random: &mut Rng, scale: &Scale) -> Self {
        let w = warehouse(random, scale);
        let line_count = random.u8(5..=15);
        let mut lines = [Line::default(); LINES_MAX];
        for line in &mut lines[..line_count.into()] {
            let remote = random.u8(0..100) == 0;
            *line = Line {
                supply_w: if remote { other_warehouse(random, scale, w) } else { w },
                item: random::item_id(random, scale.items),
                quantity: random.u8(1..=10),
            };
        }
        // All transactions take the locks of stock in one order, so that no transactions wait for
        // each other in a cycle.
        lines[..line_count.into()].sort_unstable_by_key(|line| (line.supply_w, line.item));
        let rolled_back = random.u8(0..100) == 0;
        if rolled_back {
            lines[usize::from(line_count) - 1].item = scale.items + 1;
        }
        Self {
            w,
            d: district(random),
            c: random::customer_id(random, scale.customers),
            line_count,
            lines,
            rolled_back,
        }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines[..self.line_count.into()]
    }
}

impl Payment {
    pub(crate) fn random(random: &mut Rng, scale: &Scale) -> Self {
        let (w, d) = (warehouse(random, scale), district(random));
        let (customer_w, customer_d) = match random.u8(0..100) < 85 {
            true => (w, d),
            false => (other_warehouse(random, scale, w), district(random)),
        };
        let (who, amount) = (who(random, scale), random.i32(100..=500_000));
        Self { w, d, customer_w, customer_d, who, amount }
    }
}

impl OrderStatus {
    pub(crate) fn random(random: &mut Rng, scale: &Scale) -> Self {
        Self { w: warehouse(random, scale), d: district(random), who: who(random, scale) }
    }
}

impl Delivery {
    pub(crate) fn random(random: &mut Rng, scale: &Scale) -> Self {
        Self { w: warehouse(random, scale), carrier: random.u8(1..=10) }
    }
}

impl StockLevel {
    pub(crate) fn random(random: &mut Rng, scale: &Scale) -> Self {
        let (w, d) = (warehouse(random, scale), district(random));
        Self { w, d, threshold: random.i32(10..=20) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_as_the_standard_has_them() {
        const RUNS: usize = 100_000;
        let scale = Scale::standard(4);
        let mut random = Rng::with_seed(3);
        let (mut lines, mut remote, mut rolled_back) = (0, 0, 0);
        for _ in 0..RUNS {
            let order = NewOrder::random(&mut random, &scale);
            assert!((5..=15).contains(&order.line_count) && (1..=10).contains(&order.d));
            assert!((1..=4).contains(&order.w) && (1..=3000).contains(&order.c));
            for line in order.lines() {
                assert!((1..=4).contains(&line.supply_w) && (1..=10).contains(&line.quantity));
                lines += 1;
                remote += usize::from(line.supply_w != order.w);
            }
            rolled_back += usize::from(order.rolled_back);
            assert_eq!(order.lines().iter().any(|line| line.item > 100_000), order.rolled_back);
        }
        assert!((95..105).contains(&(lines * 10 / RUNS)), "{lines}");
        assert!((800..1200).contains(&(remote * 100_000 / lines)), "{remote} of {lines}");
        assert!((800..1200).contains(&rolled_back), "{rolled_back}");
        let (mut away, mut named) = (0, 0);
        for _ in 0..RUNS {
            let payment = Payment::random(&mut random, &scale);
            away += usize::from(payment.customer_w != payment.w);
            named += usize::from(matches!(payment.who, Who::Name(_)));
            assert!((100..=500_000).contains(&payment.amount));
        }
        assert!((14_000..16_000).contains(&away), "{away}");
        assert!((59_000..61_000).contains(&named), "{named}");
        let mut mix = [0; 5];
        for _ in 0..RUNS {
            mix[Type::random(&mut random) as usize] += 1;
        }
        for (count, percent) in mix.into_iter().zip([45, 43, 4, 4, 4]) {
            let expected = RUNS * percent / 100;
            assert!((expected * 9 / 10..expected * 11 / 10).contains(&count), "{mix:?}");
        }
    }

    #[test]
    fn with_one_warehouse_nothing_is_remote() {
        let scale = Scale::standard(1);
        let mut random = Rng::with_seed(4);
        for _ in 0..1000 {
            assert_eq!(Payment::random(&mut random, &scale).customer_w, 1);
        }
    }
}
