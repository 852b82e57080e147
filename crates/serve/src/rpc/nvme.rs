//! NVMe controllers that this process drives itself.

use serde_json::{Value, json};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};
use super::scsi::not_attached;
use crate::bdevs::AttachedController;

const NVME: &str = "NVMe disk";

/// Translates SPDK's transport type and address of a controller into an address of our drivers.
fn address(trtype: &str, traddr: &str) -> Result<String> {
    match trtype.to_ascii_lowercase().as_str() {
        "pcie" => Ok(traddr.to_owned()),
        // SPDK names the folder that contains the socket.
        "vfiouser" if std::path::Path::new(traddr).is_dir() => {
            Ok(format!("vfio-user:{}/cntrl", traddr.trim_end_matches('/')))
        }
        "vfiouser" => Ok(format!("vfio-user:{traddr}")),
        _ => Err(Failure::new(
            -95,
            format!("trtype {trtype} is not supported: give PCIe or VFIOUSER"),
        )),
    }
}

pub(super) fn bdev_nvme_attach_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    let (trtype, traddr) = (params.name("trtype")?, params.name("traddr")?);
    params.finish()?;
    let mut bdevs = manager.bdevs();
    not_attached(&bdevs, &name)?;
    let address = address(&trtype, &traddr)?;
    let attach = manager.attach.get();
    let attach = attach.ok_or_else(|| Failure::new(-95, "this program has no drivers"))?;
    let namespaces = (attach.nvme)(&address)?;
    let names: Vec<String> = namespaces.iter().map(|(nsid, _)| format!("{name}n{nsid}")).collect();
    if let Some(taken) = names.iter().find(|name| bdevs.has(name)) {
        return Err(Failure::new(-17, format!("a device is called {taken} already")));
    }
    for ((_, device), name) in namespaces.into_iter().zip(&names) {
        bdevs.add(name, device, NVME, None, &[])?;
    }
    let controller =
        AttachedController { trtype: trtype.clone(), traddr: traddr.clone(), bdevs: names.clone() };
    bdevs.controllers.insert(name.clone(), controller);
    let params =
        kept(&[("name", json!(name)), ("trtype", json!(trtype)), ("traddr", json!(traddr))]);
    manager.made("bdev", &format!("controller {name}"), "bdev_nvme_attach_controller", params);
    Ok(json!(names))
}

pub(super) fn bdev_nvme_detach_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    for path in ["trtype", "traddr", "adrfam", "trsvcid", "subnqn"] {
        // Each controller has one path here.
        params.text(path)?;
    }
    params.finish()?;
    let mut bdevs = manager.bdevs();
    let controller = bdevs.controllers.get(&name).cloned();
    let controller =
        controller.ok_or_else(|| Failure::new(-19, format!("there is no controller {name}")))?;
    for bdev in &controller.bdevs {
        bdevs.unclaimed(bdev)?;
    }
    for bdev in &controller.bdevs {
        bdevs.delete(bdev, &[NVME])?;
        manager.unmade("bdev", bdev);
    }
    bdevs.controllers.remove(&name);
    manager.unmade("bdev", &format!("controller {name}"));
    Ok(json!(true))
}

pub(super) fn bdev_nvme_get_controllers(manager: &Manager, mut params: Params) -> Result<Value> {
    let asked = params.text("name")?;
    params.finish()?;
    let bdevs = manager.bdevs();
    let shown =
        bdevs.controllers.iter().filter(|(name, _)| asked.as_ref().is_none_or(|it| it == *name));
    let shown: Vec<Value> = shown
        .map(|(name, AttachedController { trtype, traddr, .. })| {
            let trid = json!({"trtype": trtype, "traddr": traddr});
            json!({"name": name, "ctrlrs": [{"state": "enabled", "trid": trid}]})
        })
        .collect();
    match asked {
        Some(name) if shown.is_empty() => {
            Err(Failure::new(-22, format!("there is no controller {name}")))
        }
        _ => Ok(Value::Array(shown)),
    }
}
