//! S3 Figure 3 and question 3: the size of pages.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig3",
    figure: "S3 Figure 3",
    shows: "random reads by page size: IOPS, bandwidth, latency",
    found: "4 KiB is the best trade-off: smaller pages bring no more I/Os, larger ones fewer.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [
        (Metric::IosPerS, Scale::Linear),
        (Metric::BytesPerS, Scale::Linear),
        (Metric::P50Us, Scale::Log),
    ];
    let mut plan = Plan::new("page size, bytes", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let block = lab.devices.first().map_or(512, |device| device.logical_block_bytes);
    if block > 512 {
        plan = plan.skip(format!("pages under {block} bytes: the device has no smaller blocks"));
    }
    let sizes = (9..=16).map(|power| 1 << power).filter(|bytes| *bytes >= block);
    let cores = lab.cores().min(2);
    let series =
        series(name, sizes, |bytes| Some(Config::new(name, cores).depth(64).block_bytes(bytes)));
    plan.group("", vec![series])
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s3-four-kib",
    source: "S3 Figure 3, question 3",
    experiment: "s3-fig3",
    needs: &[],
    claim: "4 KiB pages are the best trade-off: nearly all of the bandwidth, the least latency, and smaller ones have fewer I/Os.",
    test: "4 KiB at least 0.85 times the bandwidth of the largest size; larger ones at least its median latency; 512 bytes at most 0.9 times \
               its IOPS",
    judge: |view| {
        let name = view.main_interface("s3-fig3")?;
        let configs = configs(view, "s3-fig3", name);
        let of = |bytes: u32| configs.iter().copied().find(|config| config.block_bytes == bytes);
        let page = of(4096).ok_or_else(|| view.skipped("s3-fig3"))?;
        let largest = configs.iter().copied().max_by_key(|config| config.block_bytes);
        let largest = largest.ok_or_else(|| view.skipped("s3-fig3"))?;
        let mut evidence = vec![
            view.ratio(
                "bandwidth, 4 KiB over the largest",
                BytesPerS,
                page,
                largest,
                AtLeast(0.85),
            )?,
            view.ratio(
                "median latency, the largest over 4 KiB",
                P50Us,
                largest,
                page,
                AtLeast(1.0),
            )?,
        ];
        if let Some(small) = of(512) {
            let what = "IOPS, 512 B over 4 KiB";
            evidence.push(view.ratio(what, IosPerS, small, page, AtMost(0.9))?);
        }
        Ok(evidence)
    },
}];
