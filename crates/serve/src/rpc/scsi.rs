//! SCSI hosts that this process drives itself, and disks of other vhost-user back ends.
//!
//! Invariant: a unit that is gone remains a device only while something claims it. Its requests
//! fail until the claim ends or the unit comes back.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tracing::{info, warn};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};
use crate::bdevs::{Attach, Bdevs, ScsiHost, ScsiPlace};

const SCSI: &str = "SCSI disk";
const VIRTIO_SCSI: &str = "Virtio SCSI Disk";
const VIRTIO_BLK: &str = "VirtioBlk Disk";
/// The log event of a unit that was added, was removed or cannot be used.
const EVENT: &str = "scsi_unit";

/// A unit that is a device.
#[derive(Debug)]
struct Unit {
    bdev: String,
    /// Whether the unit has gone while something claims its device.
    is_gone: bool,
}

/// An attached SCSI host, and the devices that are its units.
pub(crate) struct AttachedScsi {
    traddr: String,
    product: &'static str,
    host: Arc<dyn ScsiHost>,
    units: BTreeMap<ScsiPlace, Unit>,
    /// The reasons why units could not become devices.
    refused: BTreeMap<ScsiPlace, String>,
}

impl fmt::Debug for AttachedScsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SCSI host {} with {} units", self.traddr, self.units.len())
    }
}

/// Returns the name of a unit's device: `S0t3`, or `S0t3l1` for a unit that is not the target's
/// first.
fn unit_name(controller: &str, place: ScsiPlace) -> String {
    match place {
        ScsiPlace { target, lun: 0 } => format!("{controller}t{target}"),
        ScsiPlace { target, lun } => format!("{controller}t{target}l{lun}"),
    }
}

impl AttachedScsi {
    fn new(traddr: &str, product: &'static str, host: Arc<dyn ScsiHost>) -> Self {
        let (units, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { traddr: traddr.to_owned(), product, host, units, refused }
    }

    /// Makes devices of new units, and marks the units that have gone.
    fn scan(&mut self, name: &str, bdevs: &mut Bdevs) -> qpair_block::Result<()> {
        let found = self.host.units()?;
        self.refused.clear();
        for (place, why) in &found {
            if let Some(unit) = self.units.get_mut(place) {
                unit.is_gone = false;
                continue;
            }
            let bdev = unit_name(name, *place);
            let opened = match why {
                Some(why) => Err(why.clone()),
                None => self.add(&bdev, *place, bdevs).map_err(|error| error.to_string()),
            };
            match opened {
                Ok(()) => info!(name: EVENT, device = bdev, "a unit has come"),
                Err(why) => {
                    warn!(name: EVENT, device = bdev, error = why, "a unit cannot be used");
                    self.refused.insert(*place, why);
                }
            }
        }
        for (place, unit) in &mut self.units {
            unit.is_gone |= !found.iter().any(|(other, _)| other == place);
        }
        Ok(())
    }

    fn add(&mut self, name: &str, place: ScsiPlace, bdevs: &mut Bdevs) -> qpair_block::Result<()> {
        let device = self.host.open(place)?;
        if let Some(other) = bdevs.name_of(&device) {
            let context = format!("it is the device {other} already");
            return Err(qpair_block::Error::new(qpair_block::ErrorKind::Busy, context));
        }
        bdevs.add(name, device, self.product, None, &[])?;
        self.units.insert(place, Unit { bdev: name.to_owned(), is_gone: false });
        Ok(())
    }

    /// Deletes the devices of units that have gone, except those that something claims.
    fn drop_gone(&mut self, bdevs: &mut Bdevs, manager: &Manager) {
        let product = self.product;
        self.units.retain(|_, unit| {
            if !unit.is_gone || bdevs.delete(&unit.bdev, &[product]).is_err() {
                return true;
            }
            manager.unmade("bdev", &unit.bdev);
            info!(name: EVENT, device = unit.bdev, "a unit has gone");
            false
        });
    }

    fn names(&self) -> Vec<&str> {
        self.units.values().map(|unit| unit.bdev.as_str()).collect()
    }
}

impl Manager {
    /// Looks for changes behind SCSI hosts: makes devices of units that have come, and deletes
    /// those of units that have gone. To be called at intervals.
    pub fn look_after(&self) {
        // A call is under way: the next look has the same news.
        let Some(_alone) = self.try_alone() else { return };
        let mut bdevs = self.bdevs();
        let mut hosts = std::mem::take(&mut bdevs.scsi);
        for (name, scsi) in &mut hosts {
            let news = scsi.host.news();
            for (place, unit) in &mut scsi.units {
                unit.is_gone |= news.gone.contains(&place.target);
            }
            // Another unit may have its place by now, so a device that nothing claims is reopened.
            scsi.drop_gone(&mut bdevs, self);
            if news.is_news
                && let Err(error) = scsi.scan(name, &mut bdevs)
            {
                warn!(name: EVENT, device = name, %error, "a SCSI host cannot be scanned");
            }
            scsi.drop_gone(&mut bdevs, self);
        }
        bdevs.scsi = hosts;
    }

    fn ways(&self) -> Result<&Attach> {
        self.attach.get().ok_or_else(|| Failure::new(-95, "this program has no drivers"))
    }

    /// Attaches a host, and returns the names of its devices.
    fn attach_scsi(
        &self,
        name: &str,
        traddr: &str,
        address: &str,
        product: &'static str,
    ) -> Result<Vec<String>> {
        let mut bdevs = self.bdevs();
        not_attached(&bdevs, name)?;
        if let Some((other, _)) = bdevs.scsi.iter().find(|(_, scsi)| scsi.traddr == traddr) {
            let message = format!("the SCSI host at {traddr} is attached as {other} already");
            return Err(Failure::new(-17, message));
        }
        let mut scsi = AttachedScsi::new(traddr, product, (self.ways()?.scsi)(address)?);
        // The scan includes earlier changes.
        scsi.host.news();
        if let Err(error) = scsi.scan(name, &mut bdevs) {
            detach(&mut bdevs, &scsi, self);
            return Err(error.into());
        }
        let names = scsi.names().iter().map(|name| (*name).to_owned()).collect();
        bdevs.scsi.insert(name.to_owned(), scsi);
        Ok(names)
    }

    fn detach_scsi(&self, name: &str, is_of: impl Fn(&str) -> bool) -> Result<()> {
        let mut bdevs = self.bdevs();
        let scsi = bdevs.scsi.get(name).filter(|scsi| is_of(scsi.product));
        let scsi =
            scsi.ok_or_else(|| Failure::new(-19, format!("there is no SCSI host {name}")))?;
        for bdev in scsi.names() {
            bdevs.unclaimed(bdev)?;
        }
        if let Some(scsi) = bdevs.scsi.remove(name) {
            detach(&mut bdevs, &scsi, self);
        }
        self.unmade("bdev", &format!("controller {name}"));
        Ok(())
    }
}

/// Deletes all devices of a host. None of them may be claimed.
fn detach(bdevs: &mut Bdevs, scsi: &AttachedScsi, manager: &Manager) {
    for bdev in scsi.names() {
        // The callers know that the device exists and that nothing claims it.
        let _ = bdevs.delete(bdev, &[scsi.product]);
        manager.unmade("bdev", bdev);
    }
}

/// Fails if a controller of any kind has this name.
pub(super) fn not_attached(bdevs: &Bdevs, name: &str) -> Result<()> {
    if bdevs.controllers.contains_key(name) || bdevs.scsi.contains_key(name) {
        return Err(Failure::new(-114, format!("a controller named {name} already exists")));
    }
    Ok(())
}

pub(super) fn bdev_scsi_attach_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, traddr) = (params.name("name")?, params.name("traddr")?);
    params.finish()?;
    // The address has the form of a disk's name, without the unit.
    let address = traddr.strip_prefix("scsi:").unwrap_or(&traddr);
    let names = manager.attach_scsi(&name, address, address, SCSI)?;
    let params = kept(&[("name", json!(name)), ("traddr", json!(traddr))]);
    manager.made("bdev", &format!("controller {name}"), "bdev_scsi_attach_controller", params);
    Ok(json!(names))
}

pub(super) fn bdev_scsi_detach_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    params.finish()?;
    manager.detach_scsi(&name, |product| product == SCSI)?;
    Ok(json!(true))
}

pub(super) fn bdev_scsi_get_controllers(manager: &Manager, mut params: Params) -> Result<Value> {
    let asked = params.text("name")?;
    params.finish()?;
    let bdevs = manager.bdevs();
    let shown = bdevs.scsi.iter().filter(|(name, _)| asked.as_ref().is_none_or(|it| it == *name));
    let shown: Vec<Value> = shown
        .map(|(name, scsi)| {
            let units = scsi.units.iter().map(|(place, unit)| {
                json!({"target": place.target, "lun": place.lun, "bdev_name": unit.bdev, "is_gone": unit.is_gone})
            });
            let refused = scsi.refused.iter().map(|(place, why)| {
                json!({"target": place.target, "lun": place.lun, "error": why})
            });
            json!({
                "name": name, "traddr": scsi.traddr, "about": scsi.host.about(),
                "units": units.collect::<Vec<_>>(), "refused": refused.collect::<Vec<_>>(),
            })
        })
        .collect();
    match asked {
        Some(name) if shown.is_empty() => {
            Err(Failure::new(-19, format!("there is no SCSI host {name}")))
        }
        _ => Ok(Value::Array(shown)),
    }
}

/// Returns the path of a socket. A folder stands for the socket in it, as with NVMe.
fn socket_of(traddr: &str) -> String {
    match Path::new(traddr).is_dir() {
        true => format!("{}/cntrl", traddr.trim_end_matches('/')),
        false => traddr.to_owned(),
    }
}

pub(super) fn bdev_virtio_attach_controller(
    manager: &Manager,
    mut params: Params,
) -> Result<Value> {
    let (name, traddr) = (params.name("name")?, params.name("traddr")?);
    let (trtype, dev_type) = (params.name("trtype")?, params.name("dev_type")?);
    for ignored in ["vq_count", "vq_size"] {
        params.number(ignored)?;
    }
    params.finish()?;
    let scsi = |address: &str| manager.attach_scsi(&name, &traddr, address, VIRTIO_SCSI);
    let names = match (trtype.as_str(), dev_type.as_str()) {
        ("user", "blk") => {
            let mut bdevs = manager.bdevs();
            not_attached(&bdevs, &name)?;
            if bdevs.has(&name) {
                return Err(Failure::new(-17, format!("a device is called {name} already")));
            }
            let device = (manager.ways()?.vhost_user)(&traddr)?;
            bdevs.add(&name, device, VIRTIO_BLK, None, &[])?;
            vec![name.clone()]
        }
        ("pci", "scsi") => scsi(&traddr)?,
        ("vfio-user", "scsi") => scsi(&format!("vfio-user:{}", socket_of(&traddr)))?,
        ("user", "scsi") | ("pci" | "vfio-user", "blk") => {
            let message = format!(
                "trtype {trtype} with dev_type {dev_type} is not supported: use user with blk, or pci or vfio-user with scsi"
            );
            return Err(Failure::new(-95, message));
        }
        _ => {
            let message =
                format!("trtype {trtype} with dev_type {dev_type} does not lead to a device");
            return Err(Failure::new(-22, message));
        }
    };
    let params = kept(&[
        ("name", json!(name)),
        ("trtype", json!(trtype)),
        ("traddr", json!(traddr)),
        ("dev_type", json!(dev_type)),
    ]);
    manager.made("bdev", &format!("controller {name}"), "bdev_virtio_attach_controller", params);
    Ok(json!(names))
}

pub(super) fn bdev_virtio_detach_controller(
    manager: &Manager,
    mut params: Params,
) -> Result<Value> {
    let name = params.name("name")?;
    params.finish()?;
    let mut bdevs = manager.bdevs();
    if bdevs.get(&name).is_ok_and(|bdev| bdev.product == VIRTIO_BLK) {
        bdevs.delete(&name, &[VIRTIO_BLK])?;
        drop(bdevs);
        manager.unmade("bdev", &name);
        manager.unmade("bdev", &format!("controller {name}"));
        return Ok(json!(true));
    }
    drop(bdevs);
    manager.detach_scsi(&name, |product| product == VIRTIO_SCSI)?;
    Ok(json!(true))
}
