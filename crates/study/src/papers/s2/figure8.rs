//! S2 Figure 8: the floor of a drive, and the cost of the software above.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s2-floor",
    figure: "S2 section 4, Figure 8",
    shows: "prebuilt commands by the user-space driver, against fio over the kernel's: 4 KiB at random, and 128 KiB sequential",
    found: "The software takes 5 us of a write's 18.7, and 11.8 of a read's 49.3; with 128 KiB it takes nothing.",
    needs: "a drive under both drivers (--rebind), and fio",
    plan,
}];

/// The paths of the figure, with their labels.
const PATHS: [(&str, &str); 2] = [("the floor", FLOOR), ("fio, libaio", FIO_LIBAIO)];

/// fio with libaio, as the paper runs it.
const FIO_LIBAIO: &str = "fio:libaio";

/// The number of jobs of 128 KiB.
const JOBS: u32 = 16;

fn plan(lab: &Lab) -> Plan {
    let shown = [
        (Metric::P50Us, Scale::Linear),
        (Metric::IosPerS, Scale::Linear),
        (Metric::BytesPerS, Scale::Linear),
    ];
    let mut plan = Plan::new("jobs", Scale::Log, &shown);
    for need in [Interface(USER_SPACE), Interface("libaio"), Fio] {
        if let Some(why) = need.lacking(&lab.here()) {
            return plan.skip(why);
        }
    }
    let may_write = lab.devices.iter().all(|device| device.may_write);
    if !may_write {
        plan = plan.skip("writes: the devices may not be written");
    }
    for (title, reads) in [("reads", 100), ("writes", 0)] {
        if reads == 0 && !may_write {
            continue;
        }
        let small = PATHS.map(|(label, name)| {
            series(&format!("{label}, 4 KiB"), [1], |_| Some(small(lab.cores(), name, reads)))
        });
        let large = PATHS.map(|(label, name)| {
            series(&format!("{label}, 128 KiB"), [JOBS], |_| Some(large(lab.cores(), name, reads)))
        });
        plan = plan.group(title, small.into_iter().chain(large).collect());
    }
    plan
}

fn small(cores: u32, interface: &str, reads: u8) -> Config {
    Config::new(interface, cores).read_percent(reads)
}

fn large(cores: u32, interface: &str, reads: u8) -> Config {
    small(cores, interface, reads).threads(JOBS).block_bytes(128 << 10).sequential()
}

const NEEDS: &[Need] = &[Interface(USER_SPACE), Interface("libaio"), Fio];
const NEEDS_WRITES: &[Need] = &[Interface(USER_SPACE), Interface("libaio"), Fio, Writes];

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s2-floor-write",
        source: "S2 section 4, Figure 8",
        experiment: "s2-floor",
        needs: NEEDS_WRITES,
        claim: "Of a 4 KiB random write's 18.7 us under fio, the software stack takes 5 us.",
        test: "the floor at most 0.85 times the median latency of fio",
        judge: |view| latency(view, 0),
    },
    Finding {
        name: "s2-floor-read",
        source: "S2 Figure 8",
        experiment: "s2-floor",
        needs: NEEDS,
        claim: "Of a 4 KiB random read's 49.3 us under fio, the software stack takes 11.8 us.",
        test: "the floor at most 0.85 times the median latency of fio",
        judge: |view| latency(view, 100),
    },
    Finding {
        name: "s2-floor-iops",
        source: "S2 Figure 8",
        experiment: "s2-floor",
        needs: NEEDS,
        claim: "With prebuilt commands one job has 32 % more random reads and 43 % more writes a second than with fio.",
        test: "the floor at least 1.15 times the IOPS of fio, reads and writes",
        judge: |view| {
            both(view, |reads, words| {
                let of = |name| small(view.report.cores, name, reads);
                let what = format!("{words} a second, the floor over fio");
                view.ratio(what, IosPerS, &of(FLOOR), &of(FIO_LIBAIO), AtLeast(1.15))
            })
        },
    },
    Finding {
        name: "s2-floor-128k",
        source: "S2 Figure 8",
        experiment: "s2-floor",
        needs: NEEDS,
        claim: "With sequential I/O of 128 KiB the software stack costs no throughput.",
        test: "16 jobs: the floor 0.95 to 1.05 times the bytes a second of fio, reads and writes",
        judge: |view| {
            both(view, |reads, words| {
                let of = |name| large(view.report.cores, name, reads);
                let what = format!("bytes a second, {words}, the floor over fio");
                view.ratio(what, BytesPerS, &of(FLOOR), &of(FIO_LIBAIO), Between(0.95, 1.05))
            })
        },
    },
];

fn latency(view: &View<'_>, reads: u8) -> Judged {
    let of = |name| small(view.report.cores, name, reads);
    let what = "median latency, the floor over fio";
    Ok(vec![view.ratio(what, P50Us, &of(FLOOR), &of(FIO_LIBAIO), AtMost(0.85))?])
}

/// Collects evidence for reads and, where they are allowed, writes.
fn both(view: &View<'_>, part: impl Fn(u8, &str) -> Result<Evidence, String>) -> Judged {
    let writes = view.where_met(Writes, "writes", || part(0, "writes"))?;
    Ok(vec![part(100, "reads")?, writes])
}
