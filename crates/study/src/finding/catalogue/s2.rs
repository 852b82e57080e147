//! Rows of S2.

use super::super::s2;
use super::Need::{FileSystems, HostAdapter, Module, VirtualMachines};
use super::Row::{self, Tested};
use super::untested;

pub(super) const ROWS: &[Row] = &[
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
    Tested(s2::GAP_DEPTH),
    Tested(s2::JOBS_OVER_CORES),
    Tested(s2::COST_SWITCH),
    Tested(s2::COST_STACK),
    untested(
        "s2-cost-fs",
        "S2 Figure 3",
        "A journaling file system adds 40 to 200 % to a durable write, and a copy-on-write one up to five times.",
        &[FileSystems],
    ),
    untested(
        "s2-user-scsi",
        "S2 Figure 9",
        "The SCSI stack in user space has a quarter to a third more IOPS than the kernel's.",
        &[HostAdapter],
    ),
    untested(
        "s2-user-128k",
        "S2 Figure 10",
        "With sequential I/O of 128 KiB both SCSI stacks have the same throughput.",
        &[HostAdapter],
    ),
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
