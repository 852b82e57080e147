//! Describes a job's work in words.

use super::words;
use crate::run::offsets::used_directions;
use crate::{
    BlockSizes, Direction, Distribution, Extent, Form, Job, JobReport, Order, RateProcess, Verbs,
};

/// Describes a job's work: "random reads of 4 KiB, 32 in flight".
pub(super) fn work(job: &Job) -> String {
    let mut parts = vec![verbs(job)];
    if job.order == Order::Random {
        match &job.distribution {
            Distribution::Uniform => {}
            Distribution::Zoned(zones) => {
                parts.push(format!("in {}", words::counted(zones.len() as u64, "zone")));
            }
            Distribution::Zipf { theta } => parts.push(format!("zipf {theta}")),
            Distribution::Pareto { h } => parts.push(format!("pareto {h}")),
            Distribution::Normal { deviation_percent } => {
                parts.push(format!("normal {deviation_percent} %"));
            }
        }
    }
    if job.align_bytes > 0 {
        parts.push(format!("at multiples of {}", words::size(job.align_bytes.into())));
    }
    if job.steps.random_every > 1 {
        parts.push(format!("{} for each random place", job.steps.random_every));
    }
    match job.steps.skip_bytes {
        0 => {}
        1.. => parts.push(format!("passing over {}", words::size(job.steps.skip_bytes as u64))),
        back => parts.push(format!("backwards by {}", words::size(back.unsigned_abs()))),
    }
    if let Some(stride) = job.stride {
        let (part, skip) = (words::size(stride.part_bytes), words::size(stride.skip_bytes));
        parts.push(format!("in parts of {part} with {skip} between them"));
    }
    if job.vector_len > 0 {
        parts.push(format!("vectors of {}", job.vector_len));
    }
    parts.push(match job.form {
        Form::Full if job.depth == 1 => "one at a time".to_owned(),
        Form::Full => format!("{} in flight", job.depth),
        Form::Barrier | Form::Stress => format!("{} at once, all awaited", job.depth),
        Form::Messages { interval, producers } => {
            let by = if producers > 1 { format!(" by each of {producers}") } else { String::new() };
            format!("handed over{by} at least {} apart", words::duration(interval))
        }
    });
    if job.batch_submit > 1 {
        parts.push(format!("submitted by {}", job.batch_submit));
    }
    parts.extend(rates(job));
    if !job.think_time.is_zero() {
        let pause = words::duration(job.think_time);
        parts.push(format!("pause of {pause} every {}", job.think_time_blocks));
    }
    if job.flush_blocks > 0 {
        parts.push(format!("flush every {} writes", words::count(job.flush_blocks.into())));
    }
    if job.force_unit_access {
        parts.push("writes durable (FUA)".to_owned());
    }
    if job.atomic {
        parts.push("writes atomic".to_owned());
    }
    if let Some(flow) = job.flow {
        parts.push(format!("weight {} of flow {}", flow.weight, flow.flow));
    }
    // Memory, and devices that bypass the kernel, have no page cache.
    if job.targets.iter().any(|target| !target.spec.paths().is_empty()) {
        parts.push(if job.direct { "direct" } else { "buffered" }.to_owned());
    }
    parts.join(", ")
}

fn verbs(job: &Job) -> String {
    let order = match job.order {
        Order::Sequential => "sequential",
        Order::Random => "random",
    };
    let sizes = |direction: Direction| block_sizes(&job.block_sizes[direction as usize]);
    let of = |verb: &str, direction| format!("{order} {verb} of {}", sizes(direction));
    if job.verify.as_ref().is_some_and(|verify| verify.only) {
        return of("verifying reads", Direction::Write);
    }
    if let Some(replay) = &job.replay {
        let requests = words::counted(replay.entries.len() as u64, "request");
        let when = if replay.is_paced { "at its times" } else { "without its pauses" };
        return format!("{requests} of {}, {when}", replay.log.display());
    }
    match job.verbs {
        Verbs::Read => of("reads", Direction::Read),
        Verbs::Write => of("writes", Direction::Write),
        Verbs::Trim => of("trims", Direction::Trim),
        Verbs::TrimWrite => of("trims and writes", Direction::Trim),
        Verbs::Mixed { read_percent } => {
            let (read, write) = (sizes(Direction::Read), sizes(Direction::Write));
            let write_percent = 100 - read_percent.min(100);
            if read == write {
                return format!(
                    "{order} reads ({read_percent} %) and writes ({write_percent} %) of {read}"
                );
            }
            format!(
                "{order} reads ({read_percent} %) of {read} and writes ({write_percent} %) of {write}"
            )
        }
    }
}

fn block_sizes(sizes: &BlockSizes) -> String {
    match sizes {
        BlockSizes::Fixed(bytes) => words::size((*bytes).into()),
        BlockSizes::Range(from, to) => {
            format!("{} to {}", words::size((*from).into()), words::size((*to).into()))
        }
        BlockSizes::Split(parts) => parts
            .iter()
            .map(|(bytes, percent)| format!("{} ({percent} %)", words::size((*bytes).into())))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

fn rates(job: &Job) -> Option<String> {
    let mut limits: Vec<(Direction, String)> = Vec::new();
    for direction in used_directions(job) {
        let rate = job.rate[direction as usize];
        if rate.ios_per_s > 0 {
            limits.push((direction, format!("{}/s", words::count(rate.ios_per_s))));
        }
        if rate.bytes_per_s > 0 {
            limits.push((direction, words::bandwidth(rate.bytes_per_s as f64)));
        }
    }
    if limits.is_empty() {
        return None;
    }
    let mixed = matches!(job.verbs, Verbs::Mixed { .. } | Verbs::TrimWrite);
    let limits: Vec<String> = limits
        .into_iter()
        .map(
            |(direction, limit)| {
                if mixed { format!("{limit} {}s", direction.name()) } else { limit }
            },
        )
        .collect();
    let process = match job.rate_process {
        RateProcess::Linear => "evenly",
        RateProcess::Poisson => "Poisson arrivals",
    };
    Some(format!("at {} ({process})", limits.join(" and ")))
}

/// Whether requests have planned start times.
pub(super) fn is_open_loop(job: &Job) -> bool {
    job.rate.iter().any(|rate| rate.ios_per_s > 0 || rate.bytes_per_s > 0)
}

/// Describes the interface and mode that were really used, and the devices.
pub(super) fn interfaces(report: &JobReport) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for device in &report.devices {
        let way = if device.mode.is_empty() {
            device.interface.clone()
        } else {
            format!("{} ({})", device.interface, device.mode)
        };
        match found.iter_mut().find(|(known, _)| *known == way) {
            Some((_, names)) => names.push(device.name.clone()),
            None => found.push((way, vec![device.name.clone()])),
        }
    }
    found
}

/// Describes the part of each device that is used, if it is not the whole device.
pub(super) fn region(job: &Job) -> Option<String> {
    let extent = |extent: Extent| match extent {
        Extent::Bytes(bytes) => words::size(bytes),
        Extent::Percent(percent) => format!("{percent} %"),
    };
    let whole = matches!(job.offset, Extent::Bytes(0) | Extent::Percent(0));
    match (job.size, whole) {
        (None, true) => None,
        (None, false) => Some(format!("from {} on", extent(job.offset))),
        (Some(size), true) => Some(format!("the first {}", extent(size))),
        (Some(size), false) => Some(format!("{} from {} on", extent(size), extent(job.offset))),
    }
}

/// Returns fio's word for the work: `randrw`.
pub(super) fn fio_word(job: &Job) -> &'static str {
    match (job.order, job.verbs) {
        (Order::Sequential, Verbs::Read) => "read",
        (Order::Sequential, Verbs::Write) => "write",
        (Order::Sequential, Verbs::Trim) => "trim",
        (Order::Sequential, Verbs::TrimWrite) => "trimwrite",
        (Order::Sequential, Verbs::Mixed { .. }) => "rw",
        (Order::Random, Verbs::Read) => "randread",
        (Order::Random, Verbs::Write) => "randwrite",
        (Order::Random, Verbs::Trim) => "randtrim",
        (Order::Random, Verbs::TrimWrite) => "randtrimwrite",
        (Order::Random, Verbs::Mixed { .. }) => "randrw",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use qpair_kernel::Mode;

    use super::*;
    use crate::Rate;

    #[test]
    fn work_is_one_line() {
        let mut job = Job::new("a", "ram:size=1MiB".parse().unwrap(), Mode::default());
        assert_eq!(work(&job), "random reads of 4 KiB, one at a time");
        job.targets[0].spec = "file:data.bin".parse().unwrap();
        assert_eq!(work(&job), "random reads of 4 KiB, one at a time, direct");
        job.depth = 32;
        job.verbs = Verbs::Mixed { read_percent: 70 };
        job.distribution = Distribution::Zipf { theta: 1.2 };
        job.rate = [Rate { ios_per_s: 1000, bytes_per_s: 0 }; 3];
        job.rate[2] = Rate::default();
        job.rate_process = RateProcess::Poisson;
        job.direct = false;
        assert_eq!(
            work(&job),
            "random reads (70 %) and writes (30 %) of 4 KiB, zipf 1.2, 32 in flight, \
             at 1,000/s reads and 1,000/s writes (Poisson arrivals), buffered"
        );
        job.verbs = Verbs::Write;
        job.order = Order::Sequential;
        job.block_sizes[1] = BlockSizes::Split(vec![(4096, 60), (65_536, 40)]);
        job.rate = [Rate::default(); 3];
        job.form = Form::Messages { interval: Duration::from_micros(100), producers: 1 };
        job.flush_blocks = 16;
        assert_eq!(
            work(&job),
            "sequential writes of 4 KiB (60 %) or 64 KiB (40 %), handed over at least 100 us apart, \
             flush every 16 writes, buffered"
        );
        job.size = Some(Extent::Percent(50));
        assert_eq!(region(&job).unwrap(), "the first 50 %");
    }
}
