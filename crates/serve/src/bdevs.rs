//! Devices by name, as JSON-RPC makes, layers and deletes them.
//!
//! Invariant: a device that another one is made of, or that is served, is claimed, and is not
//! deleted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{BlockDevice, Error, ErrorKind, FaultControl, LimitDevice, Result};

use crate::disk::Disk;
use crate::rpc::AttachedScsi;

/// Opens files and block devices for a registry: the path, `aio` or `uring`, and whether it is only
/// read.
pub type OpenFile = Box<dyn Fn(&Path, &str, bool) -> Result<Arc<dyn BlockDevice>> + Send + Sync>;

/// Attaches an NVMe controller by its address: its namespaces, by their numbers.
pub type AttachController =
    Box<dyn Fn(&str) -> Result<Vec<(u32, Arc<dyn BlockDevice>)>> + Send + Sync>;

/// Attaches a SCSI host by its address.
pub type AttachScsi = Box<dyn Fn(&str) -> Result<Arc<dyn ScsiHost>> + Send + Sync>;

/// Opens a disk that another process serves by vhost-user-blk, by its socket.
pub type OpenVhostUser = Box<dyn Fn(&str) -> Result<Arc<dyn BlockDevice>> + Send + Sync>;

/// The ways to devices that this process drives itself.
pub struct Attach {
    /// To NVMe controllers.
    pub nvme: AttachController,
    /// To SCSI hosts.
    pub scsi: AttachScsi,
    /// To disks of other vhost-user back ends.
    pub vhost_user: OpenVhostUser,
}

/// The place of a SCSI unit: the host's number of its target, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScsiPlace {
    /// The target.
    pub target: u32,
    /// The unit.
    pub lun: u16,
}

/// What has happened behind a SCSI host since it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScsiNews {
    /// Targets came or went.
    pub is_news: bool,
    /// Targets that went, also if they are back.
    pub gone: Vec<u32>,
}

/// A SCSI host that is attached: its units, which come and go.
pub trait ScsiHost: Send + Sync {
    /// Its driver and model, for people.
    fn about(&self) -> String;

    /// The units that are there now, and why one cannot be used.
    ///
    /// # Errors
    /// What the scan of the host says.
    fn units(&self) -> Result<Vec<(ScsiPlace, Option<String>)>>;

    /// Opens a unit. A unit that is open is the same device.
    ///
    /// # Errors
    /// What the driver says.
    fn open(&self, place: ScsiPlace) -> Result<Arc<dyn BlockDevice>>;

    /// What happened since the last call.
    fn news(&self) -> ScsiNews;
}

/// A controller that is attached, and the devices that are its namespaces.
#[derive(Clone, Debug)]
pub struct AttachedController {
    /// In SPDK's words: `PCIe`, `VFIOUSER`.
    pub trtype: String,
    /// Where it is.
    pub traddr: String,
    /// Its namespaces.
    pub bdevs: Vec<String>,
}

/// A device with a name.
#[derive(Clone, Debug)]
pub struct Bdev {
    /// The device, and what guests do with it.
    pub disk: Arc<Disk>,
    /// The device below the limit, as it was added.
    pub below: Arc<dyn BlockDevice>,
    /// How fast it may be: the topmost layer of the disk's device.
    pub limit: Arc<LimitDevice>,
    /// Has it fail, if it is a device for that.
    pub faults: Option<FaultControl>,
    /// What kind it is, in SPDK's words: `Malloc disk`.
    pub product: &'static str,
    /// Its UUID.
    pub uuid: String,
    /// Devices that it is made of.
    pub bases: Vec<String>,
    /// What claims it.
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
    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Bdev)> {
        self.all.iter()
    }

    /// One of them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get(&self, name: &str) -> Result<&Bdev> {
        self.all
            .get(name)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no device is called {name}")))
    }

    /// One of them that nothing claims.
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

    /// The name under which a device is there already.
    #[must_use]
    pub fn name_of(&self, device: &Arc<dyn BlockDevice>) -> Option<&str> {
        let is_it = |bdev: &Bdev| Arc::as_ptr(&bdev.below).addr() == Arc::as_ptr(device).addr();
        self.all.iter().find(|(_, bdev)| is_it(bdev)).map(|(name, _)| name.as_str())
    }

    /// Whether there is one.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Adds a device made of others, and claims them.
    ///
    /// # Errors
    /// `Exists` for a name that is taken; `NotFound` for a base that is not there.
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

    /// Says what has a device fail.
    pub(crate) fn set_faults(&mut self, name: &str, faults: FaultControl) {
        if let Some(bdev) = self.all.get_mut(name) {
            bdev.faults = Some(faults);
        }
    }

    /// Claims a device, or lets it go.
    pub fn claim(&mut self, name: &str, is_claimed: bool) {
        if let Some(bdev) = self.all.get_mut(name) {
            bdev.claims = if is_claimed { bdev.claims + 1 } else { bdev.claims.saturating_sub(1) };
        }
    }

    /// Deletes a device of one of these kinds.
    ///
    /// # Errors
    /// `NotFound`; `Busy` for one that is claimed.
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

/// A number that is made of a name, always the same; `salt` makes others. FNV-1a: it tells names
/// apart, and keeps no secret.
pub(crate) fn hash(name: &str, salt: u64) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325 ^ salt, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// The same for the same name, in the form of a random one.
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
