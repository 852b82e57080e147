//! S3 section 2: synchronous I/O, the page cache, and load generators.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-cache",
    figure: "S3 section 2.5, S1 section 2",
    shows: "random reads around the page cache and through it, the cache empty at first",
    found: "Peak throughput needs the page cache out of the way (S3); libaio blocks where it is not (S1).",
    needs: "libaio or io_uring",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::SubmitShare, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Log, &shown);
    let Some(name) = ["io_uring", "libaio"].into_iter().find(|name| lab.has(name)) else {
        return plan.skip("neither libaio nor io_uring can be used");
    };
    let mut names = vec![name, "libaio"];
    names.dedup();
    names.retain(|name| lab.has(name));
    let of = |name: &str, depth| Config::new(name, lab.cores().min(2)).depth(depth);
    let mut all = Vec::new();
    for name in names {
        all.push(series(&format!("{name}, direct"), [1, 16], |depth| Some(of(name, depth))));
        let cached = |depth| Some(of(name, depth).cached());
        all.push(series(&format!("{name}, page cache"), [1, 16], cached));
    }
    plan.group("", all)
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s3-sync",
        source: "S3 section 2.3",
        experiment: "s1-fig2",
        claim: "One synchronous request at a time takes about 100 us, so a thread gets 10 KIOPS, a fraction of the drive's.",
        test: "one core: one read at a time at most 0.2 times the most IOPS of one asynchronous thread",
        judge: |view| {
            let all = all_configs(view, "s1-fig2");
            let asynchronous = all
                .iter()
                .copied()
                .filter(|config| config.cores == 1 && config.interface != "posix");
            let most = view.fastest(asynchronous).ok_or_else(|| view.skipped("s1-fig2"))?;
            let what = format!("IOPS, pread over {} at depth {}", most.interface, most.depth);
            Ok(vec![view.chosen_ratio(
                what,
                IosPerS,
                &Config::new("posix", 1),
                most,
                AtMost(0.2),
            )?])
        },
    }),
    untested("s3-fio", "S3 section 2.5", "fio reaches less than a leaner load generator.", &[Fio]),
    Tested(Finding {
        name: "s3-oversubscribed",
        source: "S3 section 2.6",
        experiment: "s1-fig2",
        claim: "With hundreds of blocking threads the cores are full, mostly with the kernel's work.",
        test: "128 threads that block: the kernel's share of the processor time at least 0.5",
        judge: |view| {
            let config = Config::new("posix", view.report.cores.min(2)).depth(128);
            Ok(vec![view.value("the kernel's share", KernelShare, &config, AtLeast(0.5))?])
        },
    }),
    Tested(Finding {
        name: "s3-bare",
        source: "S3 section 2.5",
        experiment: "s3-cache",
        claim: "For peak throughput, file system, RAID and page cache must be out of the way.",
        test: "queue depth 16: through the page cache at most 0.9 times the IOPS around it",
        judge: |view| {
            let all = all_configs(view, "s3-cache");
            let cached = all.iter().find(|config| config.cached && config.depth == 16);
            let cached = cached.ok_or_else(|| view.skipped("s3-cache"))?;
            let direct = Config { cached: false, ..(*cached).clone() };
            let what = format!("IOPS of {}, page cache over direct", cached.interface);
            Ok(vec![view.ratio(what, IosPerS, cached, &direct, AtMost(0.9))?])
        },
    }),
];
