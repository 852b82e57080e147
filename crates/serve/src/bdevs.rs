//! The registry of devices by name. JSON-RPC calls make, layer and delete them.
//!
//! Invariant: a device that another device is made of, or that is served, is claimed. A claimed
//! device cannot be deleted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{BlockDevice, Error, ErrorKind, FaultControl, LimitDevice, Result};

use crate::disk::Disk;
use crate::rpc::AttachedScsi;

/// Opens a file or a block device for a registry. The parameters are the path, the interface (`aio`
/// or `uring`), and whether the device is opened read-only.
pub type OpenFile = Box<dyn Fn(&Path, &str, bool) -> Result<Arc<dyn BlockDevice>> + Send + Sync>;

/// Attaches the NVMe controller at an address, and returns its namespaces with their numbers.
pub type AttachController =
    Box<dyn Fn(&str) -> Result<Vec<(u32, Arc<dyn BlockDevice>)>> + Send + Sync>;

/// Attaches the SCSI host at an address.
pub type AttachScsi = Box<dyn Fn(&str) -> Result<Arc<dyn ScsiHost>> + Send + Sync>;

/// Opens a disk that another process serves by vhost-user-blk at a socket.
pub type OpenVhostUser = Box<dyn Fn(&str) -> Result<Arc<dyn BlockDevice>> + Send + Sync>;

/// The functions that attach devices which this process drives itself.
pub struct Attach {
    /// Attaches NVMe controllers.
    pub nvme: AttachController,
    /// Attaches SCSI hosts.
    pub scsi: AttachScsi,
    /// Opens disks of other vhost-user back ends.
    pub vhost_user: OpenVhostUser,
}

/// The address of a SCSI unit at its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScsiPlace {
    /// The number of the target.
    pub target: u32,
    /// The number of the unit in its target.
    pub lun: u16,
}

/// The changes behind a SCSI host since the last call of [`ScsiHost::news`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScsiNews {
    /// Whether targets came or went.
    pub is_news: bool,
    /// Targets that went, including those that have come back.
    pub gone: Vec<u32>,
}

/// An attached SCSI host. Its units may come and go.
pub trait ScsiHost: Send + Sync {
    /// Returns the driver and the model of the host, for people.
    fn about(&self) -> String;

    /// Returns the units that are there now. A unit that cannot be used comes with the reason.
    ///
    /// # Errors
    /// The error of the scan of the host.
    fn units(&self) -> Result<Vec<(ScsiPlace, Option<String>)>>;

    /// Opens a unit. For a unit that is open already, returns the same device.
    ///
    /// # Errors
    /// The driver's error.
    fn open(&self, place: ScsiPlace) -> Result<Arc<dyn BlockDevice>>;

    /// Returns the changes since the last call.
    fn news(&self) -> ScsiNews;
}

/// An attached controller, and the devices that are its namespaces.
#[derive(Clone, Debug)]
pub struct AttachedController {
    /// The transport type in SPDK's words: `PCIe`, `VFIOUSER`.
    pub trtype: String,
    /// The transport address.
    pub traddr: String,
    /// The names of the devices that are the controller's namespaces.
    pub bdevs: Vec<String>,
}

/// A device with a name.
#[derive(Clone, Debug)]
pub struct Bdev {
    /// The device, with the limit on top, and the counters of its requests.
    pub disk: Arc<Disk>,
    /// The device below the limit, as it was added.
    pub below: Arc<dyn BlockDevice>,
    /// The rate limit: the topmost layer of the disk's device.
    pub limit: Arc<LimitDevice>,
    /// The control of injected errors, if the device injects any.
    pub faults: Option<FaultControl>,
    /// The kind of device in SPDK's words: `Malloc disk`.
    pub product: &'static str,
    /// The UUID of the device.
    pub uuid: String,
    /// The names of the devices that this device is made of.
    pub bases: Vec<String>,
    /// The number of devices and exports that claim this device.
    pub claims: u32,
}

/// Devices by name.
#[derive(Debug, Default)]
pub struct Bdevs {
    all: BTreeMap<String, Bdev>,
    /// NVMe controllers by name.
    pub(crate) controllers: BTreeMap<String, AttachedController>,
    /// SCSI hosts by name.
    pub(crate) scsi: BTreeMap<String, AttachedScsi>,
}

impl Bdevs {
    /// Returns all devices, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Bdev)> {
        self.all.iter()
    }

    /// Returns the device of this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get(&self, name: &str) -> Result<&Bdev> {
        self.all
            .get(name)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no device {name}")))
    }

    /// Returns the device of this name if nothing claims it.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub fn unclaimed(&self, name: &str) -> Result<&Bdev> {
        let bdev = self.get(name)?;
        if bdev.claims > 0 {
            return Err(Error::new(ErrorKind::Busy, format!("the device {name} is in use")));
        }
        Ok(bdev)
    }

    /// Returns the name under which a device was added, if it was.
    #[must_use]
    pub fn name_of(&self, device: &Arc<dyn BlockDevice>) -> Option<&str> {
        let is_it = |bdev: &Bdev| Arc::as_ptr(&bdev.below).addr() == Arc::as_ptr(device).addr();
        self.all.iter().find(|(_, bdev)| is_it(bdev)).map(|(name, _)| name.as_str())
    }

    /// Whether there is a device of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Adds a device that is made of `bases`, and claims these.
    ///
    /// # Errors
    /// `Exists` for a name that is taken; `NotFound` for a base that does not exist.
    pub fn add(
        &mut self,
        name: &str,
        device: Arc<dyn BlockDevice>,
        product: &'static str,
        uuid: Option<String>,
        bases: &[String],
    ) -> Result<()> {
        if self.has(name) {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("a device is called {name} already"),
            ));
        }
        for base in bases {
            self.get(base)?;
        }
        for base in bases {
            self.claim(base, true);
        }
        let limit = Arc::new(LimitDevice::new(device.clone()));
        let disk = Disk::new(name, limit.clone());
        let uuid = uuid.unwrap_or_else(|| uuid_of(name));
        let bases = bases.to_vec();
        let bdev =
            Bdev { disk, below: device, limit, faults: None, product, uuid, bases, claims: 0 };
        self.all.insert(name.to_owned(), bdev);
        Ok(())
    }

    /// Sets the control of a device's injected errors.
    pub(crate) fn set_faults(&mut self, name: &str, faults: FaultControl) {
        if let Some(bdev) = self.all.get_mut(name) {
            bdev.faults = Some(faults);
        }
    }

    /// Adds a claim to a device, or removes one.
    pub fn claim(&mut self, name: &str, is_claimed: bool) {
        if let Some(bdev) = self.all.get_mut(name) {
            bdev.claims = if is_claimed { bdev.claims + 1 } else { bdev.claims.saturating_sub(1) };
        }
    }

    /// Deletes a device whose kind is one of `products`, and removes its claims on its bases.
    ///
    /// # Errors
    /// `NotFound` for a device that does not exist or is of another kind; `Busy` for one that is
    /// claimed.
    pub fn delete(&mut self, name: &str, products: &[&str]) -> Result<()> {
        let bdev = self.get(name)?;
        if !products.contains(&bdev.product) {
            let context = format!("{name} is not such a device but a {}", bdev.product);
            return Err(Error::new(ErrorKind::NotFound, context));
        }
        self.unclaimed(name)?;
        if let Some(bdev) = self.all.remove(name) {
            for base in &bdev.bases {
                self.claim(base, false);
            }
        }
        Ok(())
    }
}

/// Returns a hash (FNV-1a) of a name. Another `salt` gives another hash. The hash tells names
/// apart, and keeps no secret.
pub(crate) fn hash(name: &str, salt: u64) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325 ^ salt, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Returns a UUID that depends on the name alone, in the form of a random UUID (version 4).
pub(crate) fn uuid_of(name: &str) -> String {
    let (high, low) = (hash(name, 0), hash(name, 0x55C5_E55D_FB68_5F30));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        0x8000 | (low >> 48) & 0x3FFF,
        low & 0xFFFF_FFFF_FFFF
    )
}
