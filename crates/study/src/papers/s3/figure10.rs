//! S3 Figure 10 and section 3.4: one thread or one lock for all I/O.

use super::DEPTH;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig10",
    figure: "S3 Figure 10, section 3.4",
    shows: "random reads by threads with channels of their own, by threads that hand all to one, and by threads under one lock",
    found: "One thread for all I/O stopped at 630 thousand of 12.5 million reads a second.",
    needs: "more than one core",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("threads", Scale::Linear, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    if lab.cores() < 2 {
        plan = plan.skip("more than one thread: one core only may be used");
    }
    let drives = lab.devices.len() as u32;
    let xs = counts(lab.cores());
    let of = |label: &str, channels| {
        series(label, xs.iter().copied(), |threads| {
            Some(
                Config::new(name, lab.cores())
                    .threads(threads)
                    .depth(DEPTH)
                    .drives(drives, Assignment::All)
                    // The thread for all submits at once whatever was handed to it. So do threads
                    // with channels of their own, so that batches do not differ by design.
                    .batch(DEPTH)
                    .channels(channels),
            )
        })
    };
    plan.group(
        name,
        vec![
            of("each thread its own channels", Channels::Own),
            of("one thread for all", Channels::OneThread),
            of("one lock for all", Channels::OneLock),
        ],
    )
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s3-one-io-thread",
    source: "S3 section 3.4, Figure 10",
    experiment: "s3-fig10",
    needs: &[Cores(2)],
    claim: "A single thread for all I/O gets 630 thousand reads a second, 820 thousand with iou+p: far under the array's.",
    test: "as many threads as cores that hand all requests to one: at most 0.9 times the I/Os for a second of processor time of threads with \
               channels of their own; both submit all that is ready at once",
    judge: |view| {
        let name = view.main_interface("s3-fig10")?;
        let all = all_configs(view, "s3-fig10");
        let of = |channels| {
            all.iter()
                .copied()
                .find(|config| config.threads == view.report.cores && config.channels == channels)
                .ok_or_else(|| view.skipped("s3-fig10"))
        };
        let (one, own) = (of(Channels::OneThread)?, of(Channels::Own)?);
        let what =
            format!("I/Os for a second of processor time, {name}, one thread over each its own");
        Ok(vec![
            view.ratio(what, IosPerCpuS, one, own, AtMost(0.9))?,
            view.told("IOPS by one thread", IosPerS, one)?,
            view.ratio_told("system calls per I/O, the same", SystemCallsPerIo, one, own)?,
        ])
    },
}];
