//! The methods of devices that inject errors.

use std::sync::Arc;

use qpair_block::{FaultDevice, FaultOptions, Op};
use serde_json::{Value, json};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};

const ERROR: &str = "Error Injection Disk";

pub(super) fn bdev_error_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (base, uuid) = (params.name("base_name")?, params.text("uuid")?);
    params.finish()?;
    let mut bdevs = manager.bdevs();
    let below = bdevs.unclaimed(&base)?.disk.device.clone();
    let device = Arc::new(FaultDevice::new(below, FaultOptions::default())?);
    // SPDK's name for such a device.
    let name = format!("EE_{base}");
    let faults = device.control();
    bdevs.add(&name, device, ERROR, uuid.clone(), std::slice::from_ref(&base))?;
    bdevs.set_faults(&name, faults);
    let params = kept(&[("base_name", json!(base)), ("uuid", json!(uuid))]);
    manager.made("bdev", &name, "bdev_error_create", params);
    Ok(json!(true))
}

pub(super) fn bdev_error_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[ERROR])
}

pub(super) fn bdev_error_inject_error(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    let (io_type, error_type) = (params.name("io_type")?, params.name("error_type")?);
    let num = params.number("num")?.unwrap_or(1);
    params.finish()?;
    let ops: &[Op] = match io_type.as_str() {
        "read" => &[Op::Read],
        "write" => &[Op::Write],
        "flush" => &[Op::Flush],
        "all" => &[Op::Read, Op::Write, Op::Flush],
        "clear" => &[],
        "unmap" => return Err(Failure::new(-95, "unmap cannot fail alone: it fails with write")),
        other => return Err(Failure::params(format!("there is no io_type {other}"))),
    };
    match error_type.as_str() {
        "failure" => {}
        "pending" | "corrupt_data" | "nomem" | "nvme_failure" => {
            return Err(Failure::new(-95, format!("{error_type} is not supported")));
        }
        other => return Err(Failure::params(format!("there is no error_type {other}"))),
    }
    let bdevs = manager.bdevs();
    let faults = bdevs.get(&name)?.faults.as_ref();
    let faults = faults.ok_or_else(|| Failure::new(-19, format!("{name} cannot inject faults")))?;
    if ops.is_empty() {
        faults.heal();
    }
    for op in ops {
        faults.fail_next(*op, num);
    }
    Ok(json!(true))
}
