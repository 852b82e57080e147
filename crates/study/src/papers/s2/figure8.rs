//! S2 Figure 8: the floor of a drive, and the cost of the software above.

use crate::papers::prelude::*;

pub(crate) const ROWS: &[Row] = &[
    untested(
        "s2-floor-write",
        "S2 section 4, Figure 8",
        "Of a 4 KiB random write's 18.7 us under fio, the software stack takes 5 us.",
        &[Module],
    ),
    untested(
        "s2-floor-read",
        "S2 Figure 8",
        "Of a 4 KiB random read's 49.3 us under fio, the software stack takes 11.8 us.",
        &[Module],
    ),
    untested(
        "s2-floor-iops",
        "S2 Figure 8",
        "With prebuilt commands one job has 32 % more random reads and 43 % more writes a second than with fio.",
        &[Module],
    ),
    untested(
        "s2-floor-128k",
        "S2 Figure 8",
        "With sequential I/O of 128 KiB the software stack costs no throughput.",
        &[Module],
    ),
];
