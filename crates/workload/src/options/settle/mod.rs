//! Converts sections to jobs: defaults, clones, stages, groups, and contradictions.

mod cache;
mod data;
mod ending;
mod interface;
mod measure;
mod pace;
mod pattern;
mod reader;
mod replay;
mod steady;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result, format_bytes};
use qpair_kernel::{Interface, Polling};

use super::section::{Given, Place, Refused, Section};
use crate::job::{BlockSizes, Direction, Extent, Form, Job, Verbs};
use reader::Reader;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Whether jobs that write are rejected.
    pub read_only: bool,
    /// Whether devices that hold a file system or are in use may be written.
    pub force: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The jobs, with clones one after the other.
    pub jobs: Vec<Job>,
    /// Notes that people should read before the jobs run.
    pub notes: Vec<String>,
    /// Files that the run creates, to be removed after it.
    pub unlink: Vec<PathBuf>,
}

/// The maximum number of jobs of a run, including clones.
const JOBS_MAX: u32 = 4096;

/// Settles sections, in order.
///
/// # Errors
/// `Invalid` if a value is wrong or options contradict each other, with file and line or the job's
/// name.
pub fn settle(sections: &[Section], limits: Limits) -> Result<Plan> {
    let mut plan = Plan::default();
    let (mut stage, mut group) = (0, 0);
    let mut refused = Refused::default();
    for section in sections {
        let reader = Reader::new(section)?;
        let is_first = plan.jobs.is_empty();
        let wall = reader.is_set("stonewall")? || section.wall;
        let new_group = reader.is_set("new_group")?;
        if !is_first && wall {
            stage += 1;
        }
        if !is_first && (wall || new_group) {
            group += 1;
        }
        let clones = reader.number("numjobs", 1, JOBS_MAX)?.unwrap_or(1);
        let mut reader = Some(reader);
        for clone in 0..clones {
            let number = plan.jobs.len() as u32;
            if number >= JOBS_MAX {
                let what = format!("{}there are more than {JOBS_MAX} jobs", section.place);
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            let reader = match reader.take() {
                Some(first) => first,
                None => Reader::new(section)?,
            };
            reader.allow(&["stonewall", "new_group", "numjobs"]);
            // Jobs are always threads.
            reader.flag("thread")?;
            let Some(mut settled) = refused.take(job(&reader, limits, clone, number)) else {
                break;
            };
            (settled.stage, settled.group) = (stage, group);
            if reader.is_set("unlink")? {
                plan.unlink.extend(made(&settled));
            }
            for note in refused.take(reader.finish()).unwrap_or_default() {
                if !plan.notes.contains(&note) {
                    plan.notes.push(note);
                }
            }
            plan.jobs.push(settled);
        }
    }
    refused.take(ending::check_waits(sections));
    refused.check()?;
    share_files(&mut plan.jobs);
    plan.unlink.sort();
    plan.unlink.dedup();
    Ok(plan)
}

fn job(reader: &Reader<'_>, limits: Limits, clone: u32, number: u32) -> Result<Job> {
    let section = reader.section;
    let name = reader.own("name").and_then(|given| given.value.as_deref()).unwrap_or(&section.name);
    reader.allow(&["name"]);
    let mut way = interface::way(reader)?;
    let replayed = replay::read(reader, clone)?;
    let mut pattern = pattern::pattern(reader)?;
    if let Some(replayed) = &replayed {
        replayed.shape(&mut pattern);
        if replayed.has_trims() && pattern.verbs != Verbs::Trim {
            way.check_trims(reader)?;
        }
    }
    match pattern.verbs {
        Verbs::Trim => way.trims_by_calls(reader),
        Verbs::TrimWrite => way.check_trims(reader)?,
        _ => {}
    }
    let place = match &replayed {
        Some(replayed) => replayed.place(reader, &way, !limits.read_only)?,
        None => targets::place(reader, &way, clone, !limits.read_only)?,
    };
    let seed = pattern::seed(reader, number)?;
    let one_by_one = way.is_synchronous && place.has_files();
    let depth = pace::depth(reader, one_by_one, &way.name)?;
    let verify = data::verify(reader, &pattern)?;
    let durability = data::durability(reader, pattern.verbs)?;
    let direct = cache::direct(reader, &way, &place, durability.atomic)?;
    let (rate, rate_process) = pace::rate(reader)?;
    let (rate_min, rate_cycle) = pace::rate_min(reader)?;
    let (think_time, think_time_blocks, think_time_spin) = pace::think(reader)?;
    let times = pace::times(reader, seed)?;
    let (cpus, cpu_policy) = measure::cpus(reader)?;
    let Some(first) = place.targets.first() else {
        return Err(reader.contradiction("filename", "no file is given"));
    };
    let mut job = Job::new(name, first.spec.clone(), way.mode);
    job.description = reader.text("description").map(str::to_owned);
    // As in fio, a section's name in a job file is not an option.
    let of_line = section.place == Place::COMMAND_LINE;
    job.options = options(&section.own, of_line.then_some(name));
    job.options_of_all = options(&section.global, None);
    job.group_reporting = reader.is_set("group_reporting")?;
    job.clone = clone;
    job.target_order = place.order;
    job.engine = way.name;
    job.direct = direct;
    job.read_only = limits.read_only;
    job.force = reader.is_set("allow_mounted_write")? || limits.force;
    job.invalidate = reader.flag("invalidate")?.unwrap_or(true);
    job.verbs = pattern.verbs;
    job.order = pattern.order;
    job.vector_len = way.blocks;
    job.distribution = pattern.distribution;
    job.random_map = pattern.random_map;
    job.align_bytes = pattern.align_bytes;
    job.steps = pattern.steps;
    job.stride = pattern.stride;
    job.seed = seed;
    job.offset = place.offset;
    job.size = place.size;
    job.io_size = place.io_size;
    job.number_ios = reader.bytes("number_ios")?.filter(|count| *count > 0);
    job.until_full = reader.is_set("fill_device")?;
    job.loops = reader.number("loops", 1, u32::MAX)?.unwrap_or(1);
    job.runtime = times.runtime;
    job.time_based = times.time_based;
    job.ramp = times.ramp;
    job.start_delay = times.start_delay;
    job.wait_for = reader.text("wait_for").map(str::to_owned);
    job.ends = ending::ends(reader)?;
    job.error_ends_all = reader.is_set("exitall_on_error")?;
    job.tolerance = ending::tolerance(reader)?;
    job.rate = rate;
    job.rate_process = rate_process;
    (job.rate_min, job.rate_cycle) = (rate_min, rate_cycle);
    job.flow = pace::flow(reader)?;
    job.think_time = think_time;
    job.think_time_blocks = think_time_blocks;
    job.think_time_spin = think_time_spin;
    job.depth = depth.depth;
    job.batch_submit = depth.submit;
    job.batch_complete_min = depth.complete_min;
    job.batch_complete_max = depth.complete_max;
    job.huge_pages = measure::memory(reader)?;
    job.form = pace::form(reader)?;
    job.latency_target = pace::latency_target(reader)?;
    job.steady = steady::goal(reader)?;
    job.replay = replayed.map(replay::Replayed::into_replay);
    job.write_iolog = replay::written(reader, &place.targets)?;
    job.flush_blocks = durability.flush_blocks;
    job.flush_at_end = durability.flush_at_end;
    job.force_unit_access = durability.force_unit_access;
    job.atomic = durability.atomic;
    job.content = data::content(reader, verify.is_some())?;
    job.verify = verify;
    job.cpus = cpus;
    job.cpu_policy = cpu_policy;
    job.measured = measure::measured(reader)?;
    job.percentiles = measure::percentiles(reader)?;
    job.sample = measure::sample(reader)?;
    job.logs = measure::logs(reader, name)?;
    job.histogram_log = measure::histogram_log(reader, name, job.measured)?;
    job.log_offset = !job.logs.is_empty() && reader.is_set("log_offset")?;
    job.block_sizes = pattern.block_sizes;
    job.targets = place.targets;
    check(reader, &job)?;
    Ok(job)
}

/// Rejects options that contradict each other, and notes those without an effect.
fn check(reader: &Reader<'_>, job: &Job) -> Result<()> {
    let has_files = job.targets.iter().any(|target| !target.spec.paths().is_empty());
    if !has_files {
        note_ways(reader, job);
    }
    let polls = job.mode.polling != Polling::Interrupt;
    if polls && has_files && !job.direct && job.mode.interface != Interface::Passthrough {
        let name = reader.last(&["hipri", "interface"]).map_or("direct", |given| given.option.name);
        let what = format!(
            "{name} polls the drive (IOPOLL), but with direct=0 there is only the page cache to poll"
        );
        return Err(reader.contradiction(name, what).hint("give direct=1"));
    }
    if job.read_only && job.writes() {
        let what = "the job writes, but only reading is allowed";
        return Err(reader
            .contradiction("rw", what)
            .hint("leave --readonly out, or choose rw=read or rw=randread"));
    }
    let blocks = u64::from(job.vector_len.max(1));
    let verbs = if job.writes() { job.verbs } else { Verbs::Read };
    for direction in data::used(verbs) {
        let sizes = &job.block_sizes[*direction as usize];
        for bytes in data::all(sizes) {
            if job.direct && has_files && bytes % 512 != 0 {
                let what = format!(
                    "blocks of {bytes} bytes are not multiples of 512, which direct=1 needs"
                );
                return Err(reader
                    .contradiction("bs", what)
                    .hint("choose a multiple of 512, better of 4k, or direct=0"));
            }
        }
        let largest = u64::from(sizes.max()) * blocks;
        if largest > 1 << 30 {
            let what = format!("requests of {} are over 1 GiB", format_bytes(largest));
            return Err(reader.contradiction("vsize", what));
        }
        if let Some(Extent::Bytes(size)) = job.size
            && size < largest
        {
            let what = format!(
                "requests of {} do not fit into the {} of {} that are used",
                format_bytes(largest),
                format_bytes(size),
                match job.targets.len() {
                    1 => "the file".to_owned(),
                    files => format!("each of the {files} files"),
                }
            );
            return Err(reader.contradiction("size", what).hint("make size larger, or bs smaller"));
        }
    }
    if let (true, true, Extent::Bytes(offset)) = (job.direct, has_files, job.offset)
        && !offset.is_multiple_of(512)
    {
        let what = format!("offset {offset} is not a multiple of 512, which direct=1 needs");
        return Err(reader.contradiction("offset", what));
    }
    if job.verbs == Verbs::Trim && job.verify.is_some() {
        return Err(reader.contradiction("verify", "trimmed blocks hold nothing to verify"));
    }
    if job.direct && has_files && job.steps.skip_bytes % 512 != 0 {
        let what = "the step of rw is not a multiple of 512, which direct=1 needs";
        return Err(reader.contradiction("rw", what));
    }
    let has_backlog = job.verify.as_ref().is_some_and(|verify| verify.backlog > 0);
    if let Form::Messages { .. } = job.form
        && (has_backlog || job.flow.is_some() || job.latency_target.is_some())
    {
        let what = "verify_backlog, flow and latency_target exclude mode=msg";
        return Err(reader.contradiction("mode", what));
    }
    if job.number_ios.is_some() && job.time_based {
        reader.note("number_ios has no effect beside time_based");
    }
    if let Some(stride) = job.stride {
        for direction in data::used(verbs) {
            let sizes = &job.block_sizes[*direction as usize];
            let (least, most) = (u64::from(sizes.min()) * blocks, u64::from(sizes.max()) * blocks);
            if stride.part_bytes < most
                || [stride.part_bytes, stride.skip_bytes].iter().any(|bytes| bytes % least != 0)
            {
                let what = format!(
                    "zones of {} with {} between them are not whole requests of {}",
                    format_bytes(stride.part_bytes),
                    format_bytes(stride.skip_bytes),
                    format_bytes(most)
                );
                return Err(reader.contradiction("zonesize", what).hint("choose multiples of bs"));
            }
        }
    }
    if job.atomic {
        check_atomic(reader, job)?;
    }
    let limit = |direction: Direction| job.rate[direction as usize].bytes_per_s;
    for direction in data::used(verbs) {
        let smallest = u64::from(job.block_sizes[*direction as usize].min()) * blocks;
        if (1..smallest).contains(&limit(*direction)) {
            reader.note(format!("rate={}: less than one request a second", limit(*direction)));
        }
    }
    if let Form::Messages { .. } = job.form
        && job.runtime.is_none()
    {
        return Err(reader
            .contradiction("mode", "mode=msg needs a runtime")
            .hint("give runtime=10, for example"));
    }
    Ok(())
}

/// Checks that the writes of an atomic job have a form that devices accept: their length is one
/// power of two, they begin at multiples of it, and they are not split.
fn check_atomic(reader: &Reader<'_>, job: &Job) -> Result<()> {
    if job.vector_len > 0 || job.mode.segments > 0 {
        let what = "an atomic write is in one piece, but the job submits vectors";
        return Err(reader.contradiction("atomic", what).hint("leave the vectors out"));
    }
    if job.replay.is_some() {
        // The log determines the lengths.
        return Ok(());
    }
    let BlockSizes::Fixed(bytes) = job.block_sizes[Direction::Write as usize] else {
        let what = "atomic writes have one length, but the job's writes have several";
        return Err(reader.contradiction("atomic", what).hint("give one bs for writes"));
    };
    if !bytes.is_power_of_two() {
        let what = format!("the length of an atomic write is a power of two, but bs is {bytes}");
        return Err(reader.contradiction("atomic", what).hint("choose bs=4k, for example"));
    }
    let used = data::used(job.verbs).iter().map(|at| job.block_sizes[*at as usize].min());
    let grid = match job.align_bytes {
        0 => used.min().unwrap_or(bytes),
        align => align,
    };
    let offset = if let Extent::Bytes(offset) = job.offset { offset } else { 0 };
    let places = [
        ("bs of reads or trims, or blockalign", u64::from(grid)),
        ("offset", offset),
        ("the step of rw", job.steps.skip_bytes.unsigned_abs()),
        ("zonesize or zonerange", job.stride.map_or(0, |stride| stride.part_bytes)),
        ("zoneskip", job.stride.map_or(0, |stride| stride.skip_bytes)),
    ];
    match places.iter().find(|(_, place)| place % u64::from(bytes) != 0) {
        None => Ok(()),
        Some((name, place)) => {
            let what = format!(
                "an atomic write of {} begins at a multiple of its length, but {name} is {place}",
                format_bytes(bytes.into())
            );
            Err(reader.contradiction("atomic", what).hint("choose a multiple"))
        }
    }
}

/// Notes options that select a kernel interface but have no effect on this device, because it
/// bypasses the kernel.
fn note_ways(reader: &Reader<'_>, job: &Job) {
    const WAYS: [&str; 7] = [
        "ioengine",
        "interface",
        "hipri",
        "sqthread_poll",
        "sqthread_poll_cpu",
        "fixedbufs",
        "registerfiles",
    ];
    let is_null = reader.text("ioengine") == Some("null");
    let given: Vec<&str> = WAYS
        .into_iter()
        .filter(|name| !(is_null && *name == "ioengine"))
        .filter(|name| {
            reader.last(&[name]).is_some_and(|given| given.value.as_deref() != Some("0"))
        })
        .collect();
    if let (false, Some(target)) = (given.is_empty(), job.targets.first()) {
        let (verb, names) = (if given.len() == 1 { "has" } else { "have" }, given.join(", "));
        reader.note(format!(
            "{names} {verb} no effect: {} is not reached through the kernel",
            target.spec
        ));
    }
}

/// Returns the given options: the last one of each name, `name` first.
fn options(given: &[Given], name: Option<&str>) -> Vec<(String, String)> {
    let mut options: Vec<_> =
        name.map(|name| ("name".to_owned(), name.to_owned())).into_iter().collect();
    let is_named = name.is_some();
    for given in given {
        if is_named && given.option.name == "name" {
            continue;
        }
        options.retain(|(other, _)| other != given.option.name);
        let value = given.value.clone().unwrap_or_else(|| "1".to_owned());
        options.push((given.option.name.to_owned(), value));
    }
    options
}

fn made(job: &Job) -> impl Iterator<Item = PathBuf> {
    job.targets.iter().filter(|target| target.create_bytes.is_some()).filter_map(|target| {
        match &target.spec {
            DeviceSpec::File(path) if matches!(path.try_exists(), Ok(false)) => Some(path.clone()),
            _ => None,
        }
    })
}

/// Makes a file that several jobs share as large as the job that uses most of it needs.
fn share_files(jobs: &mut [Job]) {
    let mut largest: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for target in jobs.iter().flat_map(|job| &job.targets) {
        if let (DeviceSpec::File(path), Some(bytes)) = (&target.spec, target.create_bytes) {
            let most = largest.entry(path.clone()).or_default();
            *most = (*most).max(bytes);
        }
    }
    for target in jobs.iter_mut().flat_map(|job| &mut job.targets) {
        if let (DeviceSpec::File(path), Some(bytes)) = (&target.spec, &mut target.create_bytes) {
            *bytes = largest.get(path).copied().unwrap_or(*bytes);
        }
    }
}
