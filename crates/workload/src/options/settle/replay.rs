//! `read_iolog` and the options that change what is replayed; `write_iolog`.

use std::path::{Path, PathBuf};

use qpair_block::{DeviceSpec, Error, ErrorKind, NullOptions, Result};

use super::interface::Way;
use super::pattern::Pattern;
use super::reader::Reader;
use super::targets::{Place, device, parts};
use crate::iolog::{self, Action, Iolog};
use crate::job::{
    BlockSizes, Distribution, Extent, Order, Replay, Steps, Target, TargetOrder, Verbs,
};
use crate::options::value::Read;

pub(super) struct Replayed {
    path: PathBuf,
    log: Iolog,
    is_paced: bool,
}

/// Reads the log of a clone. Clones take several logs in turn.
pub(super) fn read(reader: &Reader<'_>, clone: u32) -> Result<Option<Replayed>> {
    let paths = reader.text("read_iolog").map(parts).unwrap_or_default();
    if paths.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(&paths[clone as usize % paths.len()]);
    let mut log = iolog::read(&path)?;
    skip(reader, &mut log)?;
    if log.entries.is_empty() {
        let what = format!("read_iolog={}: the log has no request", path.display());
        return Err(reader.contradiction("read_iolog", what));
    }
    if let Some(name) = reader.text("replay_redirect") {
        log.files = vec![name.to_owned()];
        log.entries.iter_mut().for_each(|entry| entry.file = 0);
    } else if log.is_trace {
        for name in &mut log.files {
            *name = device_of(name).map_err(|error| {
                let (error, _) = error.take_way_out();
                reader
                    .contradiction("read_iolog", error)
                    .hint("replay_redirect=/dev/sdx names the device to replay on")
            })?;
        }
    }
    let scale = reader.number("replay_scale", 1, u32::MAX)?.unwrap_or(1);
    let align = reader.number("replay_align", 0, 1 << 30)?.unwrap_or(0).max(1);
    let percent = reader.number("replay_time_scale", 1, 1_000_000)?.unwrap_or(100);
    let is_paced = !reader.is_set("replay_no_stall")?;
    for entry in &mut log.entries {
        entry.offset_bytes =
            entry.offset_bytes / u64::from(scale) / u64::from(align) * u64::from(align);
        entry.len_bytes = entry.len_bytes.next_multiple_of(align);
        entry.at = entry.at.mul_f64(100.0 / f64::from(percent));
    }
    for (name, what) in
        [("verify", "checks blocks that the job itself lays out"), ("vsize", "sets sizes")]
    {
        if reader.last(&[name]).is_some_and(|given| given.value.as_deref() != Some("0")) {
            let what = format!("{name} {what}; it excludes read_iolog");
            return Err(reader.contradiction(name, what));
        }
    }
    if reader.word("mode")? == Some("msg") {
        return Err(reader.contradiction("mode", "mode=msg excludes read_iolog"));
    }
    Ok(Some(Replayed { path, log, is_paced }))
}

/// Applies `replay_skip`.
fn skip(reader: &Reader<'_>, log: &mut Iolog) -> Result<()> {
    let skipped = reader.with("replay_skip", |text| {
        text.split(',')
            .map(|word| match word.trim() {
                "read" => Ok(Action::Read),
                "write" => Ok(Action::Write),
                "trim" => Ok(Action::Trim),
                "sync" | "flush" => Ok(Action::Flush),
                other => {
                    Err(format!("has \"{other}\", which is not one of read, write, trim and sync"))
                }
            })
            .collect::<Read<Vec<_>>>()
    })?;
    let skipped = skipped.unwrap_or_default();
    log.entries.retain(|entry| !skipped.contains(&entry.action));
    Ok(())
}

/// Returns the path of this machine's device with a number such as `8:16`.
fn device_of(number: &str) -> Result<String> {
    let link = std::fs::read_link(Path::new("/sys/dev/block").join(number)).map_err(|cause| {
        Error::os(
            cause,
            format!("the trace is of device {number}, which this machine does not have"),
        )
    })?;
    let name = link.file_name().map(|name| format!("/dev/{}", name.to_string_lossy()));
    name.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("device {number} has no name")))
}

impl Replayed {
    pub(super) fn shape(&self, pattern: &mut Pattern) {
        let has = |action: Action| self.log.entries.iter().any(|entry| entry.action == action);
        pattern.verbs = match (has(Action::Read), has(Action::Write), has(Action::Trim)) {
            (_, false, false) => Verbs::Read,
            (false, true, false) => Verbs::Write,
            (false, false, true) => Verbs::Trim,
            _ => Verbs::Mixed { read_percent: self.read_percent() },
        };
        let mut unit = 0;
        let mut largest = 0;
        for entry in self.log.entries.iter().filter(|entry| entry.len_bytes > 0) {
            unit = common(common(unit, entry.len_bytes.into()), entry.offset_bytes);
            largest = largest.max(entry.len_bytes);
        }
        let unit = u32::try_from(unit).unwrap_or(largest).clamp(1, largest.max(1));
        let sizes = match largest.max(1) {
            largest if largest == unit => BlockSizes::Fixed(unit),
            largest => BlockSizes::Range(unit, largest),
        };
        pattern.block_sizes = [const { BlockSizes::Fixed(1) }; 3].map(|_| sizes.clone());
        (pattern.order, pattern.random_map, pattern.align_bytes) = (Order::Sequential, false, 0);
        (pattern.steps, pattern.stride) = (Steps::default(), None);
        pattern.distribution = Distribution::Uniform;
    }

    fn read_percent(&self) -> u8 {
        let reads = self.log.entries.iter().filter(|entry| entry.action == Action::Read).count();
        (reads * 100 / self.log.entries.len().max(1)) as u8
    }

    pub(super) fn has_trims(&self) -> bool {
        self.log.entries.iter().any(|entry| entry.action == Action::Trim)
    }

    /// Returns the files of the log. A file that does not exist is created as long as the log needs
    /// it.
    pub(super) fn place(&self, reader: &Reader<'_>, way: &Way, may_make: bool) -> Result<Place> {
        let may_make = may_make && reader.flag("allow_file_create")? != Some(false);
        let mut ends = vec![0; self.log.files.len()];
        for entry in &self.log.entries {
            let end: &mut u64 = &mut ends[entry.file as usize];
            *end = (*end).max(entry.offset_bytes.saturating_add(entry.len_bytes.into()));
        }
        let mut targets = Vec::new();
        for (name, end) in self.log.files.iter().zip(ends) {
            let spec = match device(name) {
                _ if way.is_null => DeviceSpec::Null(NullOptions { size_bytes: end.max(1) }),
                Ok(Some(spec)) => spec,
                Ok(None) => DeviceSpec::File(PathBuf::from(name)),
                Err(why) => return Err(reader.contradiction("read_iolog", why)),
            };
            let is_plain = matches!(&spec, DeviceSpec::File(path) if !path.starts_with("/dev"));
            let create_bytes = (may_make && is_plain && end > 0).then_some(end);
            targets.push(Target { spec, create_bytes, sparse: false });
        }
        Ok(Place {
            targets,
            order: TargetOrder::RoundRobin,
            offset: Extent::Bytes(0),
            size: None,
            io_size: None,
        })
    }

    pub(super) fn into_replay(self) -> Replay {
        Replay { log: self.path, entries: self.log.entries.into(), is_paced: self.is_paced }
    }
}

/// Returns the greatest common divisor.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}

/// Settles `write_iolog`: each job has its own log, which must not overwrite a measured file.
pub(super) fn written(reader: &Reader<'_>, targets: &[Target]) -> Result<Option<PathBuf>> {
    let Some(path) = reader.text("write_iolog").filter(|path| !path.is_empty()).map(PathBuf::from)
    else {
        return Ok(None);
    };
    if reader.text("read_iolog").is_some() {
        reader.note("write_iolog beside read_iolog: the replayed requests are written anew");
    }
    if reader.number("numjobs", 1, u32::MAX)?.unwrap_or(1) > 1 {
        let what = "write_iolog needs numjobs=1: the clones would write to one log";
        return Err(reader.contradiction("write_iolog", what).hint("write a section for each job"));
    }
    if targets.iter().any(|target| target.spec.paths().contains(&path.as_path())) {
        let what = format!("write_iolog={} would overwrite what is measured", path.display());
        return Err(reader.contradiction("write_iolog", what));
    }
    Ok(Some(path))
}
