//! The methods that serve disks and SCSI hosts to guests by vhost-user.

use serde_json::{Value, json};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};
use crate::target::{Backend, BlkOptions, ExportInfo};

const BLK: &str = "vhost_blk";
const SCSI: &str = "vhost_scsi";

/// Makes SPDK's answer of an error in a vhost method: all errors are wrong parameters.
fn as_params(error: qpair_block::Error) -> Failure {
    Failure { code: Failure::PARAMS, ..Failure::from(error) }
}

/// Returns the name of a SCSI target in the list of calls.
fn target_name(controller: &str, number: u8) -> String {
    format!("{controller}, target {number}")
}

fn check_socket_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Failure::params(format!("{name} is not a valid name of a socket")));
    }
    Ok(())
}

pub(super) fn vhost_create_blk_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, bdev_name) = (params.name("ctrlr")?, params.name("dev_name")?);
    let read_only = params.flag("readonly")?;
    params.finish()?;
    check_socket_name(&name)?;
    let mut bdevs = manager.bdevs();
    bdevs.get(&bdev_name)?;
    let bdev = bdevs.unclaimed(&bdev_name).map_err(as_params)?;
    let options = BlkOptions { read_only, ..BlkOptions::default() };
    let path = manager.folder.join(&name);
    let disk = bdev.disk.clone();
    manager.target.serve_blk(&name, &disk, &path, options).map_err(as_params)?;
    bdevs.claim(&bdev_name, true);
    let params = kept(&[
        ("ctrlr", json!(name)),
        ("dev_name", json!(bdev_name)),
        ("readonly", if read_only { json!(true) } else { Value::Null }),
    ]);
    manager.made(BLK, &name, "vhost_create_blk_controller", params);
    Ok(json!(true))
}

pub(super) fn vhost_create_scsi_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("ctrlr")?;
    params.finish()?;
    check_socket_name(&name)?;
    let path = manager.folder.join(&name);
    let queues = BlkOptions::default().queues;
    manager.target.serve_scsi(&name, &path, queues).map_err(as_params)?;
    let params = kept(&[("ctrlr", json!(name))]);
    manager.made(SCSI, &name, "vhost_create_scsi_controller", params);
    Ok(json!(true))
}

pub(super) fn vhost_scsi_controller_add_target(
    manager: &Manager,
    mut params: Params,
) -> Result<Value> {
    let (name, bdev_name) = (params.name("ctrlr")?, params.name("bdev_name")?);
    let number = params.integer("scsi_target_num")?;
    let number = Params::needed("scsi_target_num", number)?;
    params.finish()?;
    let number = match number {
        -1 => None,
        number => Some(u8::try_from(number).map_err(|_| no_target(number))?),
    };
    let mut bdevs = manager.bdevs();
    bdevs.get(&bdev_name)?;
    let disk = bdevs.unclaimed(&bdev_name).map_err(as_params)?.disk.clone();
    let number = manager.target.add_scsi_target(&name, number, &disk).map_err(as_params)?;
    bdevs.claim(&bdev_name, true);
    let params = kept(&[
        ("ctrlr", json!(name)),
        ("scsi_target_num", json!(number)),
        ("bdev_name", json!(bdev_name)),
    ]);
    let what = target_name(&name, number);
    manager.made(SCSI, &what, "vhost_scsi_controller_add_target", params);
    Ok(json!(number))
}

fn no_target(number: impl std::fmt::Display) -> Failure {
    Failure::params(format!("no target has the number {number}"))
}

pub(super) fn vhost_scsi_controller_remove_target(
    manager: &Manager,
    mut params: Params,
) -> Result<Value> {
    let name = params.name("ctrlr")?;
    let number = params.amount("scsi_target_num")?;
    params.finish()?;
    let number = u8::try_from(number).map_err(|_| no_target(number))?;
    let disk = manager.target.remove_scsi_target(&name, number).map_err(as_params)?;
    manager.bdevs().claim(&disk.name, false);
    manager.unmade(SCSI, &target_name(&name, number));
    Ok(json!(true))
}

pub(super) fn vhost_delete_controller(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("ctrlr")?;
    // This parameter is ours: SPDK has none for it.
    let force = params.flag("force")?;
    params.finish()?;
    let exports = manager.target.exports();
    let found = exports.into_iter().find(|export| export.name == name);
    manager.target.remove(&name, force).map_err(as_params)?;
    for disk in found.iter().flat_map(ExportInfo::disks) {
        manager.bdevs().claim(&disk.name, false);
    }
    match found.map(|export| export.backend) {
        Some(Backend::Scsi { targets }) => {
            for (number, _) in targets {
                manager.unmade(SCSI, &target_name(&name, number));
            }
            manager.unmade(SCSI, &name);
        }
        _ => manager.unmade(BLK, &name),
    }
    Ok(json!(true))
}

pub(super) fn vhost_get_controllers(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.text("name")?;
    params.finish()?;
    let exports = manager.target.exports();
    let shown: Vec<Value> = exports
        .iter()
        .filter(|export| name.as_ref().is_none_or(|name| *name == export.name))
        .map(|export| {
            let sessions: Vec<Value> = if export.has_client { vec![json!({})] } else { vec![] };
            json!({
                "ctrlr": export.name, "cpumask": "", "delay_base_us": 0, "iops_threshold": 0,
                "socket": export.socket, "sessions": sessions, "backend_specific": backend(export),
            })
        })
        .collect();
    match name {
        Some(name) if shown.is_empty() => {
            Err(Failure::params(format!("there is no controller {name}")))
        }
        _ => Ok(Value::Array(shown)),
    }
}

fn backend(export: &ExportInfo) -> Value {
    match &export.backend {
        Backend::Blk { disk, read_only } => json!({
            "block": {"readonly": read_only, "bdev": disk.name, "transport": "vhost_user_blk"}
        }),
        Backend::Scsi { targets } => {
            let targets = targets.iter().map(|(number, disk)| {
                json!({
                    "scsi_dev_num": number, "id": number, "target_name": format!("Target {number}"),
                    "luns": [{"id": 0, "bdev_name": disk.name}],
                })
            });
            json!({"scsi": targets.collect::<Vec<_>>()})
        }
    }
}
