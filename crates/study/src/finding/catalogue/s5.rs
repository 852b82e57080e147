//! Rows of S5.

use super::super::s5;
use super::Need::{Drives, Experiment};
use super::Row::{self, Tested};
use super::untested;

pub(super) const ROWS: &[Row] = &[
    Tested(s5::USER_SPACE_CORE),
    untested(
        "s5-scale-up",
        "S5 Figure 3",
        "One core's IOPS through SPDK grow with every drive until the core is full, and then stay.",
        &[Experiment],
    ),
    Tested(s5::USER_SPACE_LATENCY),
    untested(
        "s5-four-jobs",
        "S5, in the text",
        "Four jobs with libaio and queue depth 64 take one drive to its limit.",
        &[Drives],
    ),
    untested(
        "s5-layer",
        "S5, in the text",
        "What the block layer costs over the driver alone is left to be measured.",
        &[Experiment],
    ),
];
