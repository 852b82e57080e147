//! The consistency conditions and their violations.

use serde::Serialize;

/// The maximum number of rows that are named for a violated condition.
const EXAMPLES_MAX: usize = 5;

/// The statements of the conditions, in the order of their numbers.
const CONDITIONS: [&str; 12] = [
    "W_YTD is the sum of D_YTD of the warehouse's districts",
    "D_NEXT_O_ID - 1 is the greatest O_ID, and the greatest NO_O_ID, of the district",
    "the new orders of a district have no gaps: max - min + 1 is their number",
    "the sum of O_OL_CNT is the number of order lines of the district",
    "an order has no carrier exactly if it is a new order",
    "O_OL_CNT is the number of the order's lines",
    "a line has no delivery date exactly if its order has no carrier",
    "W_YTD is the sum of H_AMOUNT paid to the warehouse",
    "D_YTD is the sum of H_AMOUNT paid to the district",
    "C_BALANCE is the sum of the customer's delivered lines less what the customer paid",
    "orders less new orders are those delivered: at first, and by C_DELIVERY_CNT",
    "C_BALANCE + C_YTD_PAYMENT is the sum of the customer's delivered lines",
];

/// The result of one condition.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// The number of the condition in TPC-C 3.3.2.
    pub number: usize,
    /// The statement of the condition.
    pub says: &'static str,
    /// The number of rows, or groups of rows, that were checked.
    pub looked_at: u64,
    /// The number of rows, or groups of rows, that violate the condition.
    pub broken: u64,
    /// The first violations.
    pub examples: Vec<String>,
}

/// The results of a check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// All twelve conditions.
    pub conditions: Vec<Condition>,
}

impl CheckReport {
    pub(super) fn new() -> Self {
        let condition = |(index, &says): (usize, &&'static str)| Condition {
            number: index + 1,
            says,
            looked_at: 0,
            broken: 0,
            examples: Vec::new(),
        };
        Self { conditions: CONDITIONS.iter().enumerate().map(condition).collect() }
    }

    /// Whether all conditions hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.conditions.iter().all(|condition| condition.broken == 0)
    }

    /// Returns the numbers of the violated conditions.
    #[must_use]
    pub fn broken(&self) -> Vec<usize> {
        let broken = self.conditions.iter().filter(|condition| condition.broken > 0);
        broken.map(|condition| condition.number).collect()
    }

    /// Records one check of a condition, and whether it holds.
    pub(super) fn expect(&mut self, number: usize, holds: bool, example: impl FnOnce() -> String) {
        self.conditions[number - 1].looked_at += 1;
        if !holds {
            self.fail(number, example);
        }
    }

    /// As [`Self::expect`], for the equality of two numbers. `names` says what the numbers belong
    /// to, and what each of them is.
    pub(super) fn expect_equal<T: PartialEq + std::fmt::Display>(
        &mut self,
        number: usize,
        left: T,
        right: T,
        names: impl FnOnce() -> (String, &'static str, &'static str),
    ) {
        self.expect(number, left == right, || {
            let (whose, left_name, right_name) = names();
            format!("{whose}: {left_name} is {left}, {right_name} is {right}")
        });
    }

    pub(super) fn fail(&mut self, number: usize, example: impl FnOnce() -> String) {
        let condition = &mut self.conditions[number - 1];
        condition.broken += 1;
        if condition.examples.len() < EXAMPLES_MAX {
            condition.examples.push(example());
        }
    }
}
