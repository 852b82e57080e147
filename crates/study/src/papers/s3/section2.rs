//! S3 section 2: synchronous I/O, the page cache, and load generators.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s3-fio",
        figure: "S3 section 2.5",
        shows: "random reads by fio and by this program, over the same interfaces, one request a call",
        found: "fio reached less than the authors' own tool.",
        needs: "fio",
        plan: load_generators,
    },
    Experiment {
        name: "s3-cache",
        figure: "S3 section 2.5, S1 section 2",
        shows: "random reads around the page cache and through it, the cache empty at first",
        found: "Peak throughput needs the page cache out of the way (S3); libaio blocks where it is not (S1).",
        needs: "libaio or io_uring",
        plan,
    },
];

/// Returns fio's name for an interface.
fn fio_of(interface: &str) -> String {
    format!("{FIO}{interface}")
}

fn load_generators(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Log, &shown);
    if let Some(why) = Fio.lacking(&lab.here()) {
        return plan.skip(why);
    }
    let of = |name: String| {
        let label = name.replace(FIO, "fio, ");
        series(&label, [128], |depth| Some(Config::new(&*name, lab.cores().min(2)).depth(depth)))
    };
    let names = ["libaio", "io_uring"].into_iter().filter(|name| lab.has(name));
    plan.group("", names.flat_map(|name| [of(name.to_owned()), of(fio_of(name))]).collect())
}

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

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-sync",
        source: "S3 section 2.3",
        experiment: "s1-fig2",
        needs: &[Interface("posix")],
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
    },
    Finding {
        name: "s3-fio",
        source: "S3 section 2.5",
        experiment: "s3-fio",
        needs: &[Fio],
        claim: "fio reaches less than a leaner load generator.",
        test: "queue depth 128, one request a call, libaio and io_uring: fio at most 0.95 times the IOPS of this program; I/Os for a second of processor \
               time where the device bounds both",
        judge: |view| {
            let own = all_configs(view, "s3-fio");
            let own = own.into_iter().filter(|one| !one.interface.starts_with(FIO));
            let part = |own: &Config| {
                let fio = Config { interface: fio_of(&own.interface), ..own.clone() };
                view.speed(
                    &format!("fio over this program, {}", own.interface),
                    &fio,
                    own,
                    AtMost(0.95),
                )
            };
            let evidence = own.map(part).collect::<Result<Vec<_>, _>>()?;
            if evidence.is_empty() { Err(view.skipped("s3-fio")) } else { Ok(evidence) }
        },
    },
    Finding {
        name: "s3-oversubscribed",
        source: "S3 section 2.6",
        experiment: "s1-fig2",
        needs: &[Interface("posix")],
        claim: "With hundreds of blocking threads the cores are full, mostly with the kernel's work.",
        test: "128 threads that block: the kernel's share of the processor time at least 0.5",
        judge: |view| {
            let config = Config::new("posix", view.report.cores.min(2)).depth(128);
            Ok(vec![view.value("the kernel's share", KernelShare, &config, AtLeast(0.5))?])
        },
    },
    Finding {
        name: "s3-bare",
        source: "S3 section 2.5",
        experiment: "s3-cache",
        needs: &[],
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
    },
];
