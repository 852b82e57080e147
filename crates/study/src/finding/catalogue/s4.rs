//! Rows of S4.

use super::super::s4;
use super::Need::Outcome;
use super::Row::{self, Tested};
use super::untested;

pub(super) const ROWS: &[Row] = &[
    Tested(s4::ASYNC),
    Tested(s4::PLATEAU),
    Tested(s4::SWITCHES),
    Tested(s4::INSTRUCTIONS),
    Tested(s4::REGISTERING_SAVES),
    Tested(s4::INTERVAL_COSTS),
    Tested(s4::INTERVAL_LEVELS),
    Tested(s4::COST_FALLS),
    Tested(s4::CLIFF),
    untested(
        "s4-variants",
        "S4 sections 3 and 4",
        "Sequential, vectored and buffered I/O and writes were varied; the text gives no result.",
        &[Outcome],
    ),
    Tested(s4::SPARE),
];
