//! The environment of a study: the given devices or a file of its own, and a bar that shows
//! progress.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use qpair::inspect::holds_store;
use qpair_block::DeviceSpec;
use qpair_study::{Device, Effort, Lab, Mix, OwnFile, Watcher, cpus, interfaces};
use qpair_workload::{Live, Observer, prefill};

use crate::command::parse_spec;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::store_args::parse_size;

/// The devices of a study.
#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// A file, a block device or a device specifier; may be repeated
    #[arg(long = "device", value_name = "DEVICE", value_parser = parse_spec)]
    pub(crate) devices: Vec<DeviceSpec>,

    /// First fill the unwritten parts of given files, which read as zeros, with random bytes
    #[arg(long, requires = "devices")]
    prefill: bool,

    /// Folder for a file of the study's own, if no device is given
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Size of that file; at most half of the free space is used
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
}

impl DeviceArgs {
    /// Returns the folder for files of the study's own.
    pub(crate) fn folder(&self) -> &Path {
        &self.dir
    }

    /// Returns the given devices.
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
        let stores = own.is_some();
        let (cpus, drivers, mix) = (cpus()?, crate::interrupt::drivers(), Mix::default());
        Ok((Lab { cpus, drivers, devices, interfaces, effort, stores, mix }, own))
    }
}

/// Fills the unwritten parts of a file. Other devices do not report such parts.
pub(crate) fn fill_unwritten(spec: &DeviceSpec, observer: &dyn Observer) -> Result<()> {
    let DeviceSpec::File(path) = spec else { return Ok(()) };
    if holds_store(path).unwrap_or(false) {
        let what = format!("--prefill would write to {}: a qpair store is there", path.display());
        return Err(Failure::new(Exit::Failed, what).hint("name a file that holds nothing"));
    }
    prefill(path, 1, observer)?;
    Ok(())
}

/// Shows the progress of a study, and forwards requests to stop it.
pub(crate) struct Watch {
    interrupt: Interrupt,
    bar: Mutex<ProgressBar>,
}

impl Watch {
    pub(crate) fn new(interrupt: Interrupt) -> Self {
        // The bar hides itself if standard error is not a terminal.
        let bar = ProgressBar::new(1000);
        if let Ok(style) =
            ProgressStyle::with_template("{wide_msg} {bar:20} {percent:>3} %  {elapsed:>4}")
        {
            bar.set_style(style);
        }
        Self { interrupt, bar: Mutex::new(bar) }
    }

    fn show(&self, done: u64, total: u64, what: &str) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.set_length(total);
        bar.set_position(done);
        bar.set_message(what.to_owned());
    }

    pub(crate) fn end(&self) {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).finish_and_clear();
    }
}

impl Watcher for Watch {
    fn at(&self, done: u64, total: u64, next: &str) {
        self.show(done, total, next);
    }

    fn note(&self, text: &str) {
        self.bar
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .suspend(|| eprintln!("qpair: note: {text}"));
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}

/// Shows progress while the study's own file is created.
impl Observer for Watch {
    fn tick(&self, live: &Live) {
        self.show((live.fraction.unwrap_or(0.0) * 1000.0) as u64, 1000, &live.phase);
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}
