//! S4 sections 3 and 4: parameters that were varied without a stated result.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s4-variants",
        figure: "S4 sections 3 and 4",
        shows: "sequential, vectored, buffered reads, several producers, and writes, beside random reads",
        found: "They were varied; the text gives no result.",
        needs: "a device that may be written, for the writes",
        plan: variants,
    },
    Experiment {
        name: "s4-spare",
        figure: "S4 section 4, on soft drives",
        shows: "random writes to drives that are full, by their spare flash",
        found: "Over-provisioning and garbage collection were varied; the text gives no result.",
        needs: "nothing",
        plan: spare,
    },
];

/// Returns a full soft drive with this percentage of spare flash. The drive is small, so that a
/// short run triggers garbage collection. Its dies are small too, so that each has several blocks
/// to choose from.
fn full_drive(spare_percent: u32) -> Config {
    let name = format!(
        "softnvme:size=32MiB,profile=tlc,channels=2,dies=2,pages_per_block=32,dram_cache=256KiB,filled=1,over_provisioning=0.{spare_percent:02}"
    );
    Config::new(name, 1).depth(32).read_percent(0)
}

fn variants(lab: &Lab) -> Plan {
    let shown = [(Metric::BytesPerS, Scale::Log), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("block size, bytes", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let base = |bytes| Config::new(name, lab.cores().min(2)).depth(32).block_bytes(bytes);
    let sizes = [16 << 10, 64 << 10];
    let reads = vec![
        series("random", sizes, |bytes| Some(base(bytes))),
        series("sequential", sizes, |bytes| Some(base(bytes).sequential())),
        series("in vectors of 4", sizes, |bytes| Some(base(bytes).pieces(4))),
        series("page cache, sequential", sizes, |bytes| Some(base(bytes).sequential().cached())),
        series("two producers, every 50 us", sizes, |bytes| {
            Some(base(bytes).producers(2).pace(Pace::Interval { us: 50 }))
        }),
    ];
    plan = plan.group(&format!("{name}, reads"), reads);
    if lab.devices.first().is_none_or(|device| !device.may_write) {
        return plan.skip("writes: the device may not be written");
    }
    let writes = vec![
        series("random", sizes, |bytes| Some(base(bytes).read_percent(0))),
        series("sequential", sizes, |bytes| Some(base(bytes).read_percent(0).sequential())),
    ];
    plan.group(&format!("{name}, writes"), writes)
}

fn spare(_: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("spare flash, percent", Scale::Linear, &shown);
    let all = series("soft flash drive, full", [7, 15, 28], |percent| Some(full_drive(percent)));
    plan.group("random writes of 4 KiB", vec![all]).remark(
        "A drive made of software, with the times and the garbage collection of flash: its form, not its speed, is that of real ones.",
    )
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s4-variants",
        source: "S4 sections 3 and 4",
        experiment: "s4-variants",
        needs: &[],
        claim: "Sequential, vectored and buffered I/O and writes were varied; the text gives no result.",
        test: "none; bytes a second of each, over those of random reads of 16 KiB",
        judge: |view| {
            let ran = view.report.experiment("s4-variants");
            let all = ran
                .iter()
                .flat_map(|ran| &ran.plan.groups)
                .flat_map(|group| group.series.iter().map(move |series| (&group.title, series)));
            let small = all.filter_map(|(title, series)| {
                Some((title, &series.label, &series.points.first()?.1))
            });
            let small: Vec<(&String, &String, &Config)> = small.collect();
            let Some((_, _, base)) = small.first() else { return Err(view.skipped("s4-variants")) };
            small[1..]
                .iter()
                .map(|(title, label, config)| {
                    view.ratio_told(format!("{title}: {label}"), BytesPerS, config, base)
                })
                .collect()
        },
    },
    Finding {
        name: "s4-spare",
        source: "S4 section 4",
        experiment: "s4-spare",
        needs: &[SoftDrive],
        claim: "Over-provisioning and garbage collection were varied; the text gives no result.",
        test: "soft flash drives that are full, random writes: with 28 % of spare flash at least 1.1 times the IOPS of 7 %",
        judge: |view| {
            let (much, little) = (full_drive(28), full_drive(7));
            let what = "IOPS, 28 over 7 % of spare flash";
            Ok(vec![view.ratio(what, IosPerS, &much, &little, AtLeast(1.1))?])
        },
    },
];
