//! The places of a study's stores: a file in its folder, slices of its devices, or a drive made of
//! software.
//!
//! Invariant: slices of others are never touched. A device that has such slices is refused before
//! the study begins, in [`refuse`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair::inspect::holds_store;
use qpair_block::{
    BlockDevice, CarveSlot, Carving, DeviceSpec, Error, ErrorKind, Result, examine_carving,
};
use qpair_drivers::Drivers;
use qpair_study::{Config, Device, Lab, StoreUse, StoreWork, slice_bytes, slice_name};

/// The beginning of the names of slices that studies make.
const OWN_SLICES: &str = "qpair-study-";

/// The unit of stripes of stores in bytes.
const UNIT_BYTES: u64 = 64 << 10;

/// The size of a drive made of software in bytes. It takes memory for what was written only.
const SOFT_BYTES: u64 = 2 << 30;

/// The time for which a device is retried that a run has just released: the kernel gives its files
/// back in the background.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The place of a store. It is removed when it is dropped.
pub(crate) enum Place {
    File(PathBuf),
    Slices { devices: Vec<DeviceSpec>, name: String, drivers: Drivers },
    Soft { spec: DeviceSpec, _drive: Arc<dyn BlockDevice> },
}

impl Place {
    pub(crate) fn file(folder: &Path, number: usize) -> Self {
        let name = format!("qpair-study-{}-{number}.qpair", std::process::id());
        Self::File(folder.join(name))
    }

    /// Makes a slice on each device of the lab. A slice of that name that an earlier study left is
    /// used again.
    pub(crate) fn slices(lab: &Lab, interface: &str, store: StoreUse) -> Result<Self> {
        let name = slice_name(store);
        let len_bytes = slice_bytes(store.work, lab.effort, lab.devices.len() as u64);
        let specs: Vec<DeviceSpec> =
            lab.devices.iter().map(|it| it.spec_under(interface)).collect::<Result<_>>()?;
        for spec in &specs {
            let device = open(spec, &lab.drivers)?;
            let mut carving = Carving::open_or_begin(&device, true)?;
            if let Some(left) = carving.map().find(&name) {
                if left.size_bytes == len_bytes {
                    continue;
                }
                carving.delete(&name)?;
            }
            let slice = carving.plan(&name, None, len_bytes)?;
            carving.add(slice)?;
        }
        // At the end of the study the drives are with the drivers that they came from.
        let devices = lab.devices.iter().map(Device::spec).collect::<Result<_>>()?;
        Ok(Self::Slices { devices, name, drivers: lab.drivers.clone() })
    }

    /// Makes a drive of software for a series such as `softnvme:profile=tlc`.
    pub(crate) fn soft(drivers: &Drivers, series: &str, store: StoreUse) -> Result<Self> {
        let (driver, options) = series.split_once(':').unwrap_or((series, ""));
        let work = match store.work {
            StoreWork::Lookup => "lookup",
            StoreWork::Tpcc => "tpcc",
        };
        let serial = format!("{work}-{}", store.page_bytes);
        let name = format!("size={SOFT_BYTES},{options},serial={serial}");
        let spec = DeviceSpec::parse(&format!("{driver}:{name}"))?;
        let DeviceSpec::Driven { driver, name } = &spec else {
            return Err(Error::new(ErrorKind::Invalid, format!("{series} names no driver")));
        };
        let drive = drivers.nvme_device(driver, name)?;
        drivers.lend_soft(name, &drive);
        Ok(Self::Soft { spec, _drive: drive })
    }

    /// Returns the device by which a point reaches the store.
    pub(crate) fn spec(&self, lab: &Lab, config: &Config) -> Result<DeviceSpec> {
        match self {
            Self::File(path) => Ok(config.channels.over(DeviceSpec::File(path.clone()))),
            Self::Soft { spec, .. } => Ok(config.channels.over(spec.clone())),
            Self::Slices { name, .. } => {
                // A drive that changed hands may have another name than before.
                let member = |device: &Device| {
                    let inner = Box::new(device.spec_under(&config.interface)?);
                    Ok(config.channels.over(DeviceSpec::Carved { name: name.clone(), inner }))
                };
                let mut members =
                    lab.devices.iter().map(member).collect::<Result<Vec<DeviceSpec>>>()?;
                Ok(match members.len() {
                    1 => members.remove(0),
                    _ => DeviceSpec::Stripe { unit_bytes: UNIT_BYTES, members },
                })
            }
        }
    }

    /// Whether a store must be formatted there before it is opened.
    pub(crate) fn must_be_formatted(&self) -> bool {
        !matches!(self, Self::File(_))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self {
            // The error is ignored: the file's name says which process made it.
            Self::File(path) => drop(std::fs::remove_file(path)),
            // Errors are ignored: the next study uses what is left.
            Self::Slices { devices, name, drivers } => {
                for spec in devices {
                    let device = open(spec, drivers);
                    let carving = device.and_then(|device| Carving::open(&device));
                    if let Ok(Some(mut carving)) = carving {
                        let _ = carving.delete(name);
                    }
                }
            }
            Self::Soft { .. } => {}
        }
    }
}

/// Opens a device for writing, also if a run has released it just now. A device that is mounted or
/// otherwise in use is `Busy`.
fn open(spec: &DeviceSpec, drivers: &Drivers) -> Result<Arc<dyn BlockDevice>> {
    let file = |path: &Path| {
        let options = qpair_kernel::FileOptions::new(path);
        let device = qpair_kernel::open(&options, qpair_kernel::Interface::Auto)?;
        Ok(Arc::new(device) as Arc<dyn BlockDevice>)
    };
    let begun = Instant::now();
    loop {
        match spec.open(&drivers.opening(file)) {
            Err(error) if error.kind() == ErrorKind::Busy && begun.elapsed() < RELEASE_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

/// Refuses devices that are in use, or hold a store or slices that no study has made.
///
/// # Errors
/// `Exists`, with the content; `Busy`; the errors of reading a device.
pub(crate) fn refuse(devices: &[Device], drivers: &Drivers) -> Result<()> {
    for device in devices {
        let spec = device.spec()?;
        if spec.paths().into_iter().any(|path| holds_store(path).unwrap_or(false)) {
            let what = format!("the study would write to {spec}, which holds a qpair store");
            return Err(Error::new(ErrorKind::Exists, what)
                .hint("remove the store, or clear the device with wipefs or blkdiscard"));
        }
        let slots = examine_carving(open(&spec, drivers)?.as_ref())?;
        let maps = slots.iter().filter_map(|slot| match slot {
            CarveSlot::Whole(map) => Some(map),
            _ => None,
        });
        let Some(newest) = maps.max_by_key(|map| map.generation) else { continue };
        let others = newest.slices.iter().filter(|slice| !slice.name.starts_with(OWN_SLICES));
        let names: Vec<&str> = others.map(|slice| slice.name.as_str()).collect();
        if !names.is_empty() {
            let what = format!(
                "the study would write to {spec}, which has the slices {}",
                names.join(", ")
            );
            return Err(Error::new(ErrorKind::Exists, what)
                .hint("delete them with qpair carve delete if they may be lost"));
        }
    }
    Ok(())
}
