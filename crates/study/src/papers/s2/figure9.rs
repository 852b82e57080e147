//! S2 Figures 9 and 10: the SCSI stack in user space, and the kernel's.

use crate::papers::prelude::*;

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s2-gap-depth",
        source: "S2 Figure 9",
        experiment: "s1-fig2",
        claim: "The user-space driver's lead over the kernel shrinks to nothing from queue depth 1 to 64.",
        test: "one core: at depth 1 at least 1.1 times the IOPS of libaio, at 64 at most 1.05 times",
        judge: |view| {
            view.need(USER_SPACE)?;
            let part = |depth, wanted| {
                let of = |name: &str| Config::new(name, 1).depth(depth);
                let what = format!("IOPS at depth {depth}, user space over libaio");
                view.ratio(what, IosPerS, &of(USER_SPACE), &of("libaio"), wanted)
            };
            Ok(vec![part(1, AtLeast(1.1))?, part(64, AtMost(1.05))?])
        },
    }),
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
];
