//! S1, lessons: which interface is best, and where.

use super::{at, each, kernel};
use crate::papers::prelude::*;

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s1-u-worst",
        source: "S1 lesson 2",
        experiment: "s1-fig2",
        needs: &[Cores(2), Interface("io_uring")],
        claim: "Given the cores, plain io_uring is never better than its polled modes.",
        test: "two cores, queue depth 128: at most the IOPS of iou+p, and of iou+k",
        judge: |view| {
            let cores = view.two_cores()?;
            each(view, &["io_uring+p", "io_uring+k"], |name| {
                let what = format!("io_uring over {name}");
                view.speed(&what, &at("io_uring", cores), &at(name, cores), AtMost(1.0))
            })
        },
    },
    Finding {
        name: "s1-choice",
        source: "S1, lessons",
        experiment: "s1-fig2",
        needs: &[Cores(2)],
        claim: "Which interface of the kernel is best depends on the cores there are for each drive.",
        test: "queue depth 128, chosen and judged in different rounds: on two cores, another interface of the kernel than the fastest of one \
               core has at least 1.05 times its IOPS",
        judge: |view| {
            let cores = view.two_cores()?;
            let on_one = kernel(view, 1);
            let first = view.fastest(&on_one).ok_or_else(|| view.skipped("s1-fig2"))?;
            let mut on_two = kernel(view, cores);
            on_two.retain(|config| config.interface != first.interface);
            let other =
                view.fastest(&on_two).ok_or("one interface of the kernel only was measured")?;
            let same = at(&first.interface, cores);
            let words = format!("{} over {}, the fastest on one", other.interface, first.interface);
            let what = format!("IOPS on two cores, {words}");
            Ok(vec![view.chosen_ratio(what, IosPerS, other, &same, AtLeast(1.05))?])
        },
    },
];
