//! Custom disks: named slices of any device, described by a map on that device. These calls are
//! ours, in SPDK's style.

use std::sync::Arc;

use qpair_block::{BlockDevice, Carving};
use serde_json::{Value, json};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};
use crate::bdevs::Bdevs;

const CARVED: &str = "Carved Disk";
/// The number of bytes of a GB in `size_gb`. As with SPDK's MB, units are powers of two.
const GB_BYTES: u64 = 1 << 30;

/// Returns a device if only its slices and its default socket claim it. The default socket is
/// closed when the device is carved.
fn carvable(manager: &Manager, bdevs: &Bdevs, name: &str) -> Result<Arc<dyn BlockDevice>> {
    let slices =
        bdevs.iter().filter(|(_, bdev)| bdev.product == CARVED && bdev.bases == [name]).count();
    let bdev = bdevs.get(name)?;
    if bdev.claims as usize != slices + usize::from(manager.is_at_default(name)) {
        return Err(Failure::new(-16, format!("the device {name} is in use")));
    }
    if bdev.product == CARVED {
        return Err(Failure::new(-22, format!("{name} is a slice itself")));
    }
    Ok(bdev.disk.device.clone())
}

pub(super) fn bdev_scsi_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, base) = (params.name("name")?, params.name("device")?);
    let (size_gb, blocks) = (params.number("size_gb")?, params.number("blocks")?);
    let (offset, force) = (params.number("offset")?, params.flag("force")?);
    params.finish()?;
    let mut bdevs = manager.bdevs();
    if bdevs.has(&name) {
        return Err(Failure::new(-17, format!("a device is called {name} already")));
    }
    let device = carvable(manager, &bdevs, &base)?;
    let block = u64::from(device.info().logical_block_bytes);
    let bytes = |count: u64, unit: u64| {
        let bytes = count.checked_mul(unit);
        bytes.ok_or_else(|| Failure::new(-22, format!("{count} times {unit} bytes is too large")))
    };
    let size_bytes = match (size_gb, blocks) {
        (Some(_), Some(_)) => return Err(Failure::params("size_gb and blocks exclude each other")),
        (Some(size_gb), None) => Some(bytes(size_gb, GB_BYTES)?),
        (None, blocks) => blocks.map(|blocks| bytes(blocks, block)).transpose()?,
    };
    let start_bytes = offset.map(|offset| bytes(offset, block)).transpose()?;
    let known = Carving::open(&device)?.and_then(|carving| carving.map().find(&name).cloned());
    let (carving, slice) = match known {
        // The slice is on the device already. A caller that asks for exactly this slice gets it.
        Some(slice) => {
            if size_bytes.is_some_and(|asked| asked != slice.size_bytes)
                || start_bytes.is_some_and(|asked| asked != slice.start_bytes)
            {
                let (blocks, offset) = (slice.size_bytes / block, slice.start_bytes / block);
                let message = format!("{name} is on {base}, with {blocks} blocks from {offset} on");
                return Err(Failure::new(-17, message));
            }
            (Carving::open_or_begin(&device, false)?, slice)
        }
        None => {
            let size_bytes = size_bytes.ok_or_else(|| {
                Failure::params(format!("{name} is not on {base}: give size_gb or blocks"))
            })?;
            let mut carving = Carving::open_or_begin(&device, force)?;
            let slice = carving.plan(&name, start_bytes, size_bytes)?;
            carving.add(slice.clone())?;
            (carving, slice)
        }
    };
    let device = Arc::new(carving.open_slice(&slice)?);
    bdevs.add(&name, device, CARVED, Some(slice.uuid()), std::slice::from_ref(&base))?;
    let params = kept(&[
        ("name", json!(name)),
        ("device", json!(base)),
        ("blocks", json!(slice.size_bytes / block)),
        ("offset", json!(slice.start_bytes / block)),
    ]);
    manager.made("bdev", &name, "bdev_scsi_create", params);
    Ok(json!(name))
}

pub(super) fn bdev_scsi_delete(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, keep) = (params.name("name")?, params.flag("keep")?);
    params.finish()?;
    let mut bdevs = manager.bdevs();
    let bdev = bdevs.get(&name)?;
    let base = bdev.bases.first().filter(|_| bdev.product == CARVED).cloned().ok_or_else(|| {
        Failure::new(-19, format!("{name} is not a slice but a {}", bdev.product))
    })?;
    bdevs.unclaimed(&name)?;
    let device = bdevs.get(&base)?.disk.device.clone();
    if !keep && let Some(mut carving) = Carving::open(&device)? {
        carving.delete(&name)?;
    }
    bdevs.delete(&name, &[CARVED])?;
    manager.unmade("bdev", &name);
    Ok(json!(true))
}

pub(super) fn bdev_scsi_get_devices(manager: &Manager, mut params: Params) -> Result<Value> {
    let asked = params.text("name")?;
    params.finish()?;
    let bdevs = manager.bdevs();
    if let Some(name) = &asked {
        bdevs.get(name)?;
    }
    let mut devices = Vec::new();
    for (name, _) in bdevs.iter().filter(|(name, _)| asked.as_ref().is_none_or(|it| it == *name)) {
        // Devices claimed by others are not carved.
        let Ok(device) = carvable(manager, &bdevs, name) else { continue };
        let block = u64::from(device.info().logical_block_bytes);
        let carving = Carving::open(&device)?;
        let map = carving.as_ref().map(Carving::map);
        let slices = map.map_or(&[][..], |map| &map.slices);
        let disks: Vec<Value> = slices
            .iter()
            .map(|slice| {
                json!({
                    "name": slice.name,
                    "uuid": slice.uuid(),
                    "offset": slice.start_bytes / block,
                    "num_blocks": slice.size_bytes / block,
                    "is_open": bdevs.get(&slice.name).is_ok_and(|bdev| bdev.bases == [name.as_str()]),
                })
            })
            .collect();
        let free: Vec<Value> = map
            .map_or_else(Vec::new, |map| map.free(device.size_bytes()))
            .iter()
            .map(|gap| json!({"offset": gap.start / block, "num_blocks": (gap.end - gap.start) / block}))
            .collect();
        devices.push(json!({
            "name": name,
            "block_size": block,
            "num_blocks": device.size_bytes() / block,
            "is_carved": map.is_some(),
            "disks": disks,
            "free": free,
        }));
    }
    Ok(Value::Array(devices))
}
