//! Rows of S1.

use super::super::s1;
use super::Need::{Cores, Counters, Drives, PollQueues, SameDrive};
use super::Row::{self, Tested};
use super::untested;

pub(super) const ROWS: &[Row] = &[
    untested(
        "s1-only-spdk-saturates",
        "S1 section 3.1",
        "Only SPDK takes one drive to its limit with one core; with every other interface the core is the limit.",
        &[SameDrive],
    ),
    Tested(s1::USER_SPACE_FIRST),
    Tested(s1::KERNEL_THREAD_COLLAPSES),
    Tested(s1::K_LATENCY_FLAT),
    Tested(s1::K_CPU_SHARE),
    Tested(s1::KERNEL_THREAD_TWO_CORES),
    Tested(s1::K_TWICE_CPU),
    untested(
        "s1-k-latency-two",
        "S1 Figure 2d",
        "On two cores and up to 200 KIOPS the median latency of iou+k is within 10 % of SPDK's.",
        &[SameDrive],
    ),
    Tested(s1::SECOND_CORE),
    untested(
        "s1-three-cores",
        "S1 section 3.1",
        "A third core for one drive changes nothing.",
        &[Cores],
    ),
    untested(
        "s1-p-equals-spdk",
        "S1 Figure 2",
        "iou+p is as good as SPDK up to about 150 KIOPS; beyond, its system calls bind it.",
        &[SameDrive, PollQueues],
    ),
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
    untested(
        "s1-u-worst",
        "S1 lesson 2",
        "Given the cores, plain io_uring is never better than its polled modes.",
        &[PollQueues],
    ),
    Tested(s1::CHOICE),
];
