//! Shows jobs without running them.

use qpair_block::format_bytes;
use qpair_workload::options::Plan;
use qpair_workload::{
    BlockSizes, Direction, Distribution, Extent, Form, Job, Order, RateProcess, Stride, Verbs,
};

use crate::failure::{Exit, Result};
use crate::show::output::Output;

pub(super) fn show(plan: &Plan) -> Result<Exit> {
    let mut out = Output::new();
    for job in &plan.jobs {
        out.line(format!(
            "[{}] clone {}, stage {}, group {}",
            job.name, job.clone, job.stage, job.group
        ))?;
        for (name, value) in lines(job) {
            out.line(format!("  {name:<11} {value}"))?;
        }
    }
    for note in &plan.notes {
        out.line(format!("note: {note}"))?;
    }
    out.finish()?;
    Ok(Exit::Done)
}

fn lines(job: &Job) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for target in &job.targets {
        let made = target
            .create_bytes
            .map(|bytes| format!(", made of {} if it is not there", format_bytes(bytes)));
        lines.push(("device", format!("{}{}", target.spec, made.unwrap_or_default())));
    }
    let is_kernels = job.targets.iter().any(|target| !target.spec.paths().is_empty());
    let cache = match (is_kernels, job.direct) {
        (false, _) => "",
        (true, true) => ", direct",
        (true, false) => ", buffered",
    };
    lines.push(("interface", format!("{} ({}){cache}", job.mode, job.engine)));
    lines.push(("pattern", pattern(job)));
    if let Some(replay) = &job.replay {
        let text = format!("{} requests of {}", replay.entries.len(), replay.log.display());
        lines.push(("replay", text));
    }
    lines.push(("block sizes", sizes(job)));
    lines.push(("region", region(job)));
    lines.push(("depth", depth(job)));
    if let Some(rate) = rate(job) {
        lines.push(("rate", rate));
    }
    if !job.think_time.is_zero() {
        lines.push((
            "pause",
            format!("{:?} after {} requests", job.think_time, job.think_time_blocks),
        ));
    }
    lines.push(("time", time(job)));
    if let Some(verify) = &job.verify {
        let when = match (verify.only, verify.after) {
            (true, _) => "instead of writing",
            (false, true) => "after writing",
            (false, false) if job.verbs == Verbs::Read => "of what is read",
            (false, false) => "not in this run",
        };
        lines.push(("verify", format!("{:?}, {when}", verify.method).to_lowercase()));
    }
    if !job.cpus.is_empty() {
        let cpus: Vec<String> = job.cpus.iter().map(usize::to_string).collect();
        lines.push(("processors", cpus.join(",")));
    }
    lines.push(("seed", format!("{:#018x}", job.seed)));
    lines
}

fn pattern(job: &Job) -> String {
    let verbs = match job.verbs {
        Verbs::Read => "reads".to_owned(),
        Verbs::Write => "writes".to_owned(),
        Verbs::Trim => "trims".to_owned(),
        Verbs::TrimWrite => "trims, each followed by a write".to_owned(),
        Verbs::Mixed { read_percent } => {
            format!("{read_percent} % reads, {} % writes", 100 - read_percent)
        }
    };
    let order = match (job.order, &job.distribution) {
        (Order::Sequential, _) => "sequential".to_owned(),
        (Order::Random, Distribution::Uniform) if job.random_map => {
            "random, each block once".to_owned()
        }
        (Order::Random, Distribution::Uniform) => "random".to_owned(),
        (Order::Random, Distribution::Zoned(zones)) => format!("random, in {} zones", zones.len()),
        (Order::Random, Distribution::Zipf { theta }) => format!("random, zipf {theta}"),
        (Order::Random, Distribution::Pareto { h }) => format!("random, pareto {h}"),
        (Order::Random, Distribution::Normal { deviation_percent }) => {
            format!("random, normal with a deviation of {deviation_percent} %")
        }
    };
    let mut parts = vec![verbs, order];
    if job.align_bytes > 0 {
        parts.push(format!("at multiples of {}", format_bytes(job.align_bytes.into())));
    }
    if job.steps.random_every > 1 {
        parts.push(format!("{} for each random place", job.steps.random_every));
    }
    match job.steps.skip_bytes {
        0 => {}
        skip @ 1.. => parts.push(format!("passing over {}", format_bytes(skip as u64))),
        back => parts.push(format!("backwards by {}", format_bytes(back.unsigned_abs()))),
    }
    if let Some(Stride { move_bytes, part_bytes, skip_bytes }) = job.stride {
        parts.push(format!(
            "{} in each part of {}, {} between parts",
            format_bytes(move_bytes),
            format_bytes(part_bytes),
            format_bytes(skip_bytes)
        ));
    }
    parts.join(", ")
}

fn sizes(job: &Job) -> String {
    let words = |sizes: &BlockSizes| match sizes {
        BlockSizes::Fixed(bytes) => format_bytes((*bytes).into()),
        BlockSizes::Range(low, high) => {
            format!("{} to {}", format_bytes((*low).into()), format_bytes((*high).into()))
        }
        BlockSizes::Split(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|(bytes, share)| format!("{share} % {}", format_bytes((*bytes).into())))
                .collect();
            parts.join(", ")
        }
    };
    let used: &[Direction] = match job.verbs {
        Verbs::Read => &[Direction::Read],
        Verbs::Write => &[Direction::Write],
        Verbs::Trim | Verbs::TrimWrite => &[Direction::Trim],
        Verbs::Mixed { .. } => &[Direction::Read, Direction::Write],
    };
    let mut out: Vec<String> =
        used.iter().map(|direction| words(&job.block_sizes[*direction as usize])).collect();
    out.dedup();
    let vector = match job.vector_len {
        0 => String::new(),
        blocks => format!(", {blocks} to a request"),
    };
    format!("{}{vector}", out.join(" (reads), "))
}

fn region(job: &Job) -> String {
    let extent = |extent: Extent| match extent {
        Extent::Bytes(bytes) => format_bytes(bytes),
        Extent::Percent(percent) => format!("{percent} %"),
    };
    let size = job.size.map_or("all".to_owned(), extent);
    let ios = job.number_ios.map_or(String::new(), |count| format!(", {count} requests in all"));
    let io = job.io_size.map(|bytes| format!(", {} moved in all", format_bytes(bytes)));
    let loops = if job.loops > 1 { format!(", {} times", job.loops) } else { String::new() };
    format!("{size} from {}{}{ios}{loops}", extent(job.offset), io.unwrap_or_default())
}

fn depth(job: &Job) -> String {
    let form = match job.form {
        Form::Full => String::new(),
        Form::Barrier => ", all submitted and all waited for".to_owned(),
        Form::Stress => ", all submitted and all waited for, by the second".to_owned(),
        Form::Messages { interval, producers: 1 } => format!(", handed over every {interval:?}"),
        Form::Messages { interval, producers } => {
            format!(", handed over by each of {producers} every {interval:?}")
        }
    };
    let max = match job.batch_complete_max {
        0 => "all".to_owned(),
        max => max.to_string(),
    };
    format!(
        "{}, {} submitted, {} to {max} completed at once{form}",
        job.depth, job.batch_submit, job.batch_complete_min
    )
}

fn rate(job: &Job) -> Option<String> {
    let mut parts = Vec::new();
    for direction in Direction::ALL {
        let rate = job.rate[direction as usize];
        if rate.ios_per_s > 0 {
            parts.push(format!("{} {}s/s", rate.ios_per_s, direction.name()));
        }
        if rate.bytes_per_s > 0 {
            parts.push(format!("{}/s {}", format_bytes(rate.bytes_per_s), direction.name()));
        }
    }
    let process = if job.rate_process == RateProcess::Poisson { " (Poisson)" } else { "" };
    if let Some(flow) = job.flow {
        parts.push(format!("weight {} of flow {}", flow.weight, flow.flow));
    }
    (!parts.is_empty()).then(|| format!("{}{process}", parts.join(", ")))
}

fn time(job: &Job) -> String {
    let mut parts = Vec::new();
    if let Some(name) = &job.wait_for {
        parts.push(format!("begins after {name}"));
    }
    if !job.start_delay.is_zero() {
        parts.push(format!("begins after {:?}", job.start_delay));
    }
    if !job.ramp.is_zero() {
        parts.push(format!("{:?} before anything counts", job.ramp));
    }
    parts.push(match (job.runtime, job.time_based) {
        (Some(time), true) => format!("for {time:?}"),
        (Some(time), false) => format!("until it is done, {time:?} at most"),
        (None, _) => "until it is done".to_owned(),
    });
    parts.join(", ")
}
