//! Rows of S1.

use super::super::s1;
use super::Need::{Cores, Counters, Drives, PollQueues, SameDrive};
use super::Row::{self, Tested};
use super::untested;

pub(super) const ROWS: &[Row] = &[
    Tested(s1::ONLY_SPDK_SATURATES),
    Tested(s1::USER_SPACE_FIRST),
    Tested(s1::KERNEL_THREAD_COLLAPSES),
    Tested(s1::K_LATENCY_FLAT),
    Tested(s1::K_CPU_SHARE),
    Tested(s1::KERNEL_THREAD_TWO_CORES),
    Tested(s1::K_TWICE_CPU),
    Tested(s1::K_LATENCY_TWO),
    Tested(s1::SECOND_CORE),
    Tested(s1::THREE_CORES),
    Tested(s1::P_EQUALS_SPDK),
    Tested(s1::POLLING_LATENCY),
    Tested(s1::SHALLOW_ALIKE),
    Tested(s1::IO_URING_OVER_LIBAIO),
    Tested(s1::HOOK),
    untested(
        "s1-cache-misses",
        "S1 section 3.1",
        "At the same IOPS iou+p misses the processor's caches more often than SPDK, 5 against 0.6 %.",
        &[SameDrive, PollQueues, Counters],
    ),
    Tested(s1::LIBAIO_CALLS_TWO),
    Tested(s1::POLLING_CALLS),
    Tested(s1::IO_URING_CALLS),
    Tested(s1::KERNEL_THREAD_CALLS),
    Tested(s1::LIBAIO_BUFFERED),
    Tested(s1::MORE_CORES),
    untested(
        "s1-grid-2j",
        "S1 Figure 4",
        "With two cores for each drive iou+k is 15 % under SPDK, 45 % over io_uring and 80 % over libaio.",
        &[SameDrive, Drives, Cores],
    ),
    untested(
        "s1-grid-j2",
        "S1 Figure 4",
        "With five drives and seven cores iou+k is 20 % under libaio.",
        &[Drives, Cores],
    ),
    untested(
        "s1-grid-j",
        "S1 Figure 4",
        "With one core for each of five drives iou+k has less than half of libaio's IOPS.",
        &[Drives, Cores],
    ),
    untested(
        "s1-linear",
        "S1 Figure 5",
        "With two cores for each drive iou+k grows with the drives up to ten, 9 to 16 % under SPDK and 27 to 45 % over io_uring.",
        &[SameDrive, Drives, Cores],
    ),
    Tested(s1::TOO_FEW_CORES),
    untested(
        "s1-steady",
        "S1 Figure 5",
        "io_uring and iou+p are alike and grow steadily with the drives, a third under SPDK; libaio is 10 % under them.",
        &[SameDrive, PollQueues, Drives, Cores],
    ),
    Tested(s1::U_WORST),
    Tested(s1::CHOICE),
];
