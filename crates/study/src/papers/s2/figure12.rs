//! S2 Figure 12: guests.

use crate::papers::prelude::*;

pub(crate) const ROWS: &[Row] = &[
    untested(
        "s2-guest-reads",
        "S2 Figure 12",
        "A guest on the user-space stack reads whole files about 3 % faster than one on the kernel's.",
        &[VirtualMachines, HostAdapter],
    ),
    untested(
        "s2-guest-writes",
        "S2 Figure 12",
        "For a guest that writes, both stacks are equal.",
        &[VirtualMachines, HostAdapter],
    ),
];
