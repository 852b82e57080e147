//! Rows of S5.

use super::super::s5;
use super::Need::Experiment;
use super::Row::{self, Tested};
use super::untested;

pub(super) const ROWS: &[Row] = &[
    Tested(s5::USER_SPACE_CORE),
    Tested(s5::SCALE_UP),
    Tested(s5::USER_SPACE_LATENCY),
    Tested(s5::FOUR_JOBS),
    untested(
        "s5-layer",
        "S5, in the text",
        "What the block layer costs over the driver alone is left to be measured.",
        &[Experiment],
    ),
];
