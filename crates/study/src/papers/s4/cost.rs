//! S4 sections 5.3 and 5.5: the cost of a byte, and context switches.

use super::io_uring_or;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s4-cost",
    figure: "S4, cost of a byte and context switches by block size",
    shows: "processor time, instructions and context switches by block size",
    found: "Instructions per byte fall until blocks of 64 KiB; context switches favour io_uring with registered buffers and a \
            kernel thread.",
    needs: "hardware counters for instructions",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [
        (Metric::CpuNsPerByte, Scale::Log),
        (Metric::InstructionsPerByte, Scale::Log),
        (Metric::SwitchesPerIo, Scale::Linear),
    ];
    let plan = Plan::new("block size, bytes", Scale::Log, &shown);
    let sizes: &[u32] = match lab.effort {
        Effort::Full => {
            &[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10]
        }
        _ => &[4 << 10, 16 << 10, 64 << 10, 256 << 10],
    };
    let cores = lab.cores().min(2);
    let of = |label: &str, name: &str| {
        series(label, sizes.iter().copied(), |bytes| {
            Some(Config::new(name, cores).depth(128).block_bytes(bytes))
        })
    };
    let mut all: Vec<_> = lab.usable().map(|name| of(name, name)).collect();
    if lab.has("io_uring") {
        all.push(of("io_uring, nothing registered", UNREGISTERED));
    }
    if lab.has("libaio") {
        all.push(of("libaio, io_getevents", LIBAIO_CALLS));
    }
    plan.group(&cores_words(cores), all)
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s4-switches",
        source: "S4 section 5.3",
        experiment: "s4-cost",
        needs: &[Interface("io_uring"), Interface("libaio")],
        claim: "io_uring, with fixed buffers, has fewer context switches than libaio.",
        test: "4 KiB, queue depth 128: at most 0.95 times the switches per I/O of libaio, which asks for completions by a call, as the paper's does",
        judge: |view| {
            let (uring, aio) = (cost(view, "io_uring", 4096), cost(view, LIBAIO_CALLS, 4096));
            let mapped = cost(view, "libaio", 4096);
            let what = "switches per I/O, io_uring over libaio with io_getevents";
            let mapped_what = "the same, over libaio that reads the mapped ring";
            Ok(vec![
                view.ratio(what, SwitchesPerIo, &uring, &aio, AtMost(0.95))?,
                view.told("switches per I/O of libaio with io_getevents", SwitchesPerIo, &aio)?,
                view.ratio_told(mapped_what, SwitchesPerIo, &uring, &mapped)?,
            ])
        },
    },
    Finding {
        name: "s4-instructions",
        source: "S4 section 5.3",
        experiment: "s4-cost",
        needs: &[Interface("io_uring"), Interface("libaio")],
        claim: "io_uring takes fewer instructions for a byte than libaio.",
        test: "4 KiB, queue depth 128: at most 0.95 times those of libaio; processor time where the machine counts no instructions",
        judge: |view| {
            let (uring, aio) = (cost(view, "io_uring", 4096), cost(view, "libaio", 4096));
            let (metric, word) = per_byte(view, &uring);
            let what = format!("{word} per byte, io_uring over libaio");
            Ok(vec![view.ratio(what, metric, &uring, &aio, AtMost(0.95))?])
        },
    },
    Finding {
        name: "s4-registering-saves",
        source: "S4 considers it, without a result",
        experiment: "s4-cost",
        needs: &[Interface("io_uring")],
        claim: "Registered (fixed) buffers and files make io_uring cheaper.",
        test: "4 KiB: at most 0.95 times the processor time per I/O of io_uring with nothing registered",
        judge: |view| {
            let (fixed, plain) = (cost(view, "io_uring", 4096), cost(view, UNREGISTERED, 4096));
            let what = "CPU per I/O, registered over not";
            Ok(vec![view.ratio(what, CpuUsPerIo, &fixed, &plain, AtMost(0.95))?])
        },
    },
    Finding {
        name: "s4-cost-falls",
        source: "S4 section 5.5",
        experiment: "s4-cost",
        needs: &[],
        claim: "Instructions per byte fall until blocks of 64 KiB, and then stay.",
        test: "io_uring, queue depth 128: 4 KiB at least 4 times the cost of a byte at 64 KiB, and 64 KiB at most 1.25 times that at 256 KiB; \
               instructions where the machine counts them, else processor time",
        judge: |view| {
            let name = io_uring_or(view, "s4-cost")?;
            let of = |kib: u32| cost(view, name, kib << 10);
            let (metric, word) = per_byte(view, &of(4));
            let part = |above, below, wanted| {
                let what = format!("{word} per byte, {above} KiB over {below} KiB");
                view.ratio(what, metric, &of(above), &of(below), wanted)
            };
            Ok(vec![part(4, 64, AtLeast(4.0))?, part(64, 256, AtMost(1.25))?])
        },
    },
];

/// Returns a point of the experiment on costs.
fn cost(view: &View<'_>, interface: &str, block_bytes: u32) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(128).block_bytes(block_bytes)
}

/// Returns the unit in which the cost of a byte is compared, with its name in the evidence:
/// instructions if they were counted, else processor time.
fn per_byte(view: &View<'_>, config: &Config) -> (Metric, &'static str) {
    let point = view.report.point(config);
    match point.is_some_and(|point| !point.values(InstructionsPerByte).is_empty()) {
        true => (InstructionsPerByte, "instructions"),
        false => (CpuNsPerByte, "processor time"),
    }
}
