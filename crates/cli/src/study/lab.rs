//! The environment of a study: the given devices or a file of its own, and a bar that shows
//! progress.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use qpair::inspect::holds_store;
use qpair_block::DeviceSpec;
use qpair_study::{Device, Effort, Lab, Means, Mix, OwnFile, Watcher, cpus, interfaces};
use qpair_workload::{Live, Observer, prefill};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_size;
use crate::show::bar::{show, styled};

#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// A file, a block device or a device specifier; may be repeated
    #[arg(long = "device", value_name = "DEVICE")]
    pub(crate) devices: Vec<DeviceSpec>,

    /// First fill the unwritten parts of given files, which read as zeros, with random bytes
    #[arg(long, requires = "devices")]
    prefill: bool,

    /// Folder for files of the study's own: a device, if none is given, and file systems
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Size of that file; at most half of the free space is used
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
}

impl DeviceArgs {
    pub(crate) fn folder(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn given(&self, may_write: bool) -> Result<Vec<Device>> {
        let of = |spec: &DeviceSpec| Ok(Device::of(&spec.to_string(), may_write, false)?);
        self.devices.iter().map(of).collect()
    }

    /// Returns the lab. If a file is returned, it must outlive the lab.
    pub(crate) fn lab(
        &self,
        effort: Effort,
        may_write: bool,
        watch: &Watch,
    ) -> Result<(Lab, Option<OwnFile>)> {
        if self.prefill {
            self.devices.iter().try_for_each(|spec| fill_unwritten(spec, watch))?;
        }
        let mut devices = self.given(may_write)?;
        let mut own = None;
        if devices.is_empty() {
            let file = OwnFile::make(&self.dir, self.size, watch)?;
            let spec = DeviceSpec::File(file.path().to_owned());
            devices.push(Device::of(&spec.to_string(), true, true)?);
            own = Some(file);
        }
        let interfaces = interfaces(&devices);
        let means = Means::probe(&devices);
        let (cpus, drivers, mix) = (cpus()?, crate::interrupt::drivers(), Mix::default());
        let folder = self.dir.clone();
        Ok((Lab { cpus, drivers, devices, interfaces, effort, means, folder, mix }, own))
    }
}

/// Fills the unwritten parts of a file. Other devices do not report such parts.
pub(crate) fn fill_unwritten(spec: &DeviceSpec, observer: &dyn Observer) -> Result<()> {
    let DeviceSpec::File(path) = spec else { return Ok(()) };
    if holds_store(path).unwrap_or(false) {
        let what =
            format!("--prefill would write to {}, which holds a qpair store", path.display());
        return Err(Failure::new(Exit::Failed, what).hint("name a file that holds nothing"));
    }
    prefill(path, 1, observer)?;
    Ok(())
}

/// Shows the progress of a study, and forwards requests to stop it.
pub(crate) struct Watch {
    interrupt: Interrupt,
    bar: ProgressBar,
}

impl Watch {
    pub(crate) fn new(interrupt: Interrupt) -> Self {
        // The bar hides itself if standard error is not a terminal.
        let template = "{wide_msg} {bar:20} {percent:>3} %  {elapsed:>4}";
        Self { interrupt, bar: styled(ProgressBar::new(1000), template) }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Watch {
    fn at(&self, done: u64, total: u64, next: &str) {
        show(&self.bar, done, total, next.to_owned());
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("qpair: note: {text}"));
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}

/// Shows progress while the study's own file is created.
impl Observer for Watch {
    fn tick(&self, live: &Live) {
        let done = (live.fraction.unwrap_or(0.0) * 1000.0) as u64;
        show(&self.bar, done, 1000, live.phase.clone());
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}
