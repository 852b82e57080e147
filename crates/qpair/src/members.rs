//! The members of a store by name, and which of their files exist.

use std::path::{Path, PathBuf};

use qpair_block::DeviceSpec;
use qpair_engine::{Error, ErrorKind, Result};
use qpair_kernel::Interface;

use crate::driven::{Drivers, check_is_built, is_volatile};
use crate::options::{LogSpec, Options};

/// The size of a new file in bytes, with room for superblocks and the first pages.
const NEW_FILE_BYTES: u64 = 2 << 20;

/// The members of a store. A stripe over the whole store is split into its members.
pub(crate) struct Members {
    pub(crate) specs: Vec<DeviceSpec>,
    /// The unit of the stripe that was split, in bytes.
    pub(crate) unit_bytes: Option<u64>,
    pub(crate) log: LogPlaceSpec,
    /// For each drive that the kernel has lent: why this program's driver has it.
    pub(crate) lent: Vec<String>,
}

/// The place of the log; `Unsaid` if the caller did not choose one.
pub(crate) enum LogPlaceSpec {
    Unsaid,
    Store,
    Device(DeviceSpec),
}

impl Members {
    pub(crate) fn of(options: &Options) -> Result<Self> {
        let mut lent = Vec::new();
        let mut find_lent = |spec: DeviceSpec| match options.io.interface {
            Interface::Auto => {
                let found = options.drivers.find_lent(&spec);
                let (spec, reasons) =
                    found.map_err(|error| Error::block(error, "opening the store"))?;
                lent.extend(reasons);
                Ok(spec)
            }
            _ => Ok(spec),
        };
        let specs = options.members.iter().cloned().map(|spec| find_lent(spec?));
        let mut specs = specs.collect::<Result<Vec<_>>>()?;
        let mut unit = None;
        if let [DeviceSpec::Stripe { unit_bytes, members }] = &specs[..] {
            unit = Some(*unit_bytes);
            specs = members.clone();
        }
        let log = match options.log.clone() {
            LogSpec::Unsaid => LogPlaceSpec::Unsaid,
            LogSpec::Store => LogPlaceSpec::Store,
            LogSpec::Device(spec) => LogPlaceSpec::Device(find_lent(spec?)?),
        };
        let members = Self { specs, unit_bytes: unit, log, lent };
        members.check_drivers()?;
        members.check_distinct()?;
        Ok(members)
    }

    /// Returns the reason why this program's driver has drives that were named as the kernel's.
    pub(crate) fn why_lent(&self) -> Option<String> {
        (!self.lent.is_empty()).then(|| self.lent.join("; "))
    }

    pub(crate) fn paths(&self) -> Vec<&Path> {
        self.specs.iter().flat_map(DeviceSpec::paths).collect()
    }

    pub(crate) fn log_paths(&self) -> Vec<&Path> {
        match &self.log {
            LogPlaceSpec::Device(spec) => spec.paths(),
            _ => Vec::new(),
        }
    }

    /// Returns the files of members that do not exist.
    pub(crate) fn missing(&self) -> Vec<PathBuf> {
        let is_missing = |path: &&Path| matches!(path.try_exists(), Ok(false));
        self.paths().into_iter().filter(is_missing).map(Path::to_owned).collect()
    }

    /// Returns the file of a log device, if it does not exist.
    pub(crate) fn missing_log(&self) -> Option<PathBuf> {
        let is_missing = |path: &&Path| matches!(path.try_exists(), Ok(false));
        self.log_paths().into_iter().find(is_missing).map(Path::to_owned)
    }

    /// Whether no part of the store exists yet, given the `missing` files. Then creating the store
    /// cannot destroy anything.
    pub(crate) fn is_new(&self, missing: &[PathBuf], drivers: &Drivers) -> bool {
        let is_kept = |spec: &DeviceSpec| has_kept_drive(spec, drivers);
        missing.len() == self.paths().len() && !self.specs.iter().any(is_kept)
    }

    fn check_drivers(&self) -> Result<()> {
        let log = match &self.log {
            LogPlaceSpec::Device(spec) => Some(spec),
            _ => None,
        };
        self.specs.iter().chain(log).try_for_each(check_is_built)
    }

    /// Refuses the same file twice, which would fail on its own lock with an unclear error.
    fn check_distinct(&self) -> Result<()> {
        let mut paths = self.paths();
        paths.sort_unstable();
        if let Some(log) = self.log_paths().into_iter().find(|path| paths.contains(path)) {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                format!(
                    "{} is named as a member of the store and as its log device",
                    log.display()
                ),
                "the log device is one of its own",
            ));
        }
        match paths.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(Error::with_hint(
                ErrorKind::Invalid,
                format!("{} is named twice among the store's members", pair[0].display()),
                "name each member once",
            )),
        }
    }

    /// Returns the size of a new file. Each member of an inner stripe must hold at least one unit.
    pub(crate) fn new_file_bytes(&self, stripe_unit_bytes: u64) -> u64 {
        let units = self.specs.iter().map(unit_bytes_max).max().unwrap_or(0);
        units.max(stripe_unit_bytes).saturating_add(NEW_FILE_BYTES)
    }
}

/// Whether the specifier has a drive, not a file, that may have data: it survives this process, or
/// this process keeps it.
fn has_kept_drive(spec: &DeviceSpec, drivers: &Drivers) -> bool {
    spec.lowest().into_iter().any(|device| match device {
        DeviceSpec::Driven { driver, name } => {
            !is_volatile(driver, name) || drivers.is_lent(driver, name)
        }
        _ => false,
    })
}

fn unit_bytes_max(spec: &DeviceSpec) -> u64 {
    match spec {
        DeviceSpec::Stripe { unit_bytes, members } => {
            members.iter().map(unit_bytes_max).max().unwrap_or(0).max(*unit_bytes)
        }
        DeviceSpec::Delay { inner, .. }
        | DeviceSpec::Fault { inner, .. }
        | DeviceSpec::Carved { inner, .. }
        | DeviceSpec::Shared { inner, .. } => unit_bytes_max(inner),
        _ => 0,
    }
}

/// The files created for a store. They are removed again unless the store is complete.
#[derive(Default)]
pub(crate) struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    pub(crate) fn add(&mut self, path: &Path) {
        self.0.push(path.to_owned());
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.iter().any(|known| known == path)
    }

    pub(crate) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // Ignore an error: the earlier error is the one to report.
            let _ = std::fs::remove_file(path);
        }
    }
}
