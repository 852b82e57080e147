//! The methods of JSON-RPC calls.
//!
//! Long, because there is one function for each method.

use std::path::Path;
use std::sync::Arc;

use qpair_block::{
    BlockDevice, DelayDevice, DelayOptions, Member, NullDevice, NullOptions, RamDevice, RamOptions,
    SliceDevice, StripeDevice,
};
use serde_json::{Map, Value, json};

use super::ana::{nvmf_subsystem_get_listeners, nvmf_subsystem_listener_set_ana_state};
use super::carved::{bdev_scsi_create, bdev_scsi_delete, bdev_scsi_get_devices};
use super::faults::{bdev_error_create, bdev_error_delete, bdev_error_inject_error};
use super::keyring::{keyring_file_add_key, keyring_file_remove_key, keyring_get_keys};
use super::limits::bdev_set_qos_limit;
use super::log::{log_get_level, log_set_level};
use super::manager::{Call, Manager};
use super::nbd::{nbd_create_server, nbd_delete_server, nbd_get_servers};
use super::nvme::{
    bdev_nvme_attach_controller, bdev_nvme_detach_controller, bdev_nvme_get_controllers,
};
use super::nvmf::{
    nvmf_create_subsystem, nvmf_create_transport, nvmf_delete_subsystem, nvmf_delete_transport,
    nvmf_get_subsystems, nvmf_subsystem_add_listener, nvmf_subsystem_add_ns,
    nvmf_subsystem_remove_listener, nvmf_subsystem_remove_ns,
};
use super::nvmf_hosts::{
    nvmf_set_config, nvmf_subsystem_add_host, nvmf_subsystem_remove_host, nvmf_subsystem_set_keys,
};
use super::params::{Failure, Params, Result};
use super::scsi::{
    bdev_scsi_attach_controller, bdev_scsi_detach_controller, bdev_scsi_get_controllers,
    bdev_virtio_attach_controller, bdev_virtio_detach_controller,
};
use super::vhost::{
    vhost_create_blk_controller, vhost_create_scsi_controller, vhost_delete_controller,
    vhost_get_controllers, vhost_scsi_controller_add_target, vhost_scsi_controller_remove_target,
};
use crate::bdevs::Bdev;

/// A method and its function.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) run: fn(&Manager, Params) -> Result<Value>,
}

macro_rules! methods {
    ($($name:ident,)*) => {
        /// All methods.
        pub(super) const METHODS: &[Method] = &[$(Method { name: stringify!($name), run: $name },)*];
    };
}

methods! {
    bdev_aio_create,
    bdev_aio_delete,
    bdev_delay_create,
    bdev_delay_delete,
    bdev_error_create,
    bdev_error_delete,
    bdev_error_inject_error,
    bdev_get_bdevs,
    bdev_get_iostat,
    bdev_malloc_create,
    bdev_malloc_delete,
    bdev_null_create,
    bdev_null_delete,
    bdev_nvme_attach_controller,
    bdev_nvme_detach_controller,
    bdev_nvme_get_controllers,
    bdev_raid_create,
    bdev_raid_delete,
    bdev_raid_get_bdevs,
    bdev_scsi_attach_controller,
    bdev_scsi_create,
    bdev_scsi_delete,
    bdev_scsi_detach_controller,
    bdev_scsi_get_controllers,
    bdev_scsi_get_devices,
    bdev_set_qos_limit,
    bdev_split_create,
    bdev_split_delete,
    bdev_uring_create,
    bdev_uring_delete,
    bdev_virtio_attach_controller,
    bdev_virtio_detach_controller,
    framework_get_config,
    framework_get_reactors,
    framework_get_subsystems,
    keyring_file_add_key,
    keyring_file_remove_key,
    keyring_get_keys,
    log_get_level,
    log_set_level,
    nbd_create_server,
    nbd_delete_server,
    nbd_get_servers,
    nvmf_create_subsystem,
    nvmf_create_transport,
    nvmf_delete_subsystem,
    nvmf_delete_transport,
    nvmf_get_subsystems,
    nvmf_set_config,
    nvmf_subsystem_add_host,
    nvmf_subsystem_add_listener,
    nvmf_subsystem_add_ns,
    nvmf_subsystem_get_listeners,
    nvmf_subsystem_listener_set_ana_state,
    nvmf_subsystem_remove_host,
    nvmf_subsystem_remove_listener,
    nvmf_subsystem_remove_ns,
    nvmf_subsystem_set_keys,
    rpc_get_methods,
    rpc_get_schema,
    spdk_get_version,
    thread_get_stats,
    vhost_create_blk_controller,
    vhost_create_scsi_controller,
    vhost_delete_controller,
    vhost_get_controllers,
    vhost_scsi_controller_add_target,
    vhost_scsi_controller_remove_target,
}

/// The subsystems of a saved configuration, in an order in which their calls can be made again.
pub(super) const SUBSYSTEMS: [&str; 6] =
    ["keyring", "bdev", "vhost_blk", "vhost_scsi", "nvmf", "nbd"];

const MALLOC: &str = "Malloc disk";
const NULL: &str = "Null disk";
const AIO: &str = "AIO disk";
const URING: &str = "URING bdev";
const RAID: &str = "Raid Volume";
const SPLIT: &str = "Split Disk";
const DELAY: &str = "delay";

/// Returns an object of the parameters that were given, to make a call again.
pub(super) fn kept(pairs: &[(&str, Value)]) -> Value {
    let given = pairs.iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        given.map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Map<_, _>>(),
    )
}

impl Manager {
    pub(super) fn made(
        &self,
        subsystem: &'static str,
        what: &str,
        method: &'static str,
        params: Value,
    ) {
        let (what, given) = (what.to_owned(), Value::Null);
        self.calls().push(Call { subsystem, what, method, params, given, of_file: false });
    }

    pub(super) fn unmade(&self, subsystem: &'static str, what: &str) {
        self.calls().retain(|call| call.subsystem != subsystem || call.what != what);
    }

    pub(super) fn delete(&self, mut params: Params, products: &[&str]) -> Result<Value> {
        let name = params.name("name")?;
        params.finish()?;
        self.bdevs().delete(&name, products)?;
        self.unmade("bdev", &name);
        Ok(json!(true))
    }

    fn add_file(&self, mut params: Params, kind: &'static str) -> Result<Value> {
        let (name, filename) = (params.name("name")?, params.name("filename")?);
        let (block_size, uuid) = (params.number("block_size")?, params.text("uuid")?);
        let read_only = params.flag("readonly")?;
        params.finish()?;
        if self.bdevs().has(&name) {
            return Err(Failure::new(-17, format!("a device is called {name} already")));
        }
        let device = (self.open)(Path::new(&filename), kind, read_only)?;
        let block = u64::from(device.info().logical_block_bytes);
        if block_size.is_some_and(|asked| asked != 0 && asked != block) {
            return Err(Failure::new(-22, format!("{filename} has blocks of {block} bytes")));
        }
        let (product, method) = match kind {
            "aio" => (AIO, "bdev_aio_create"),
            _ => (URING, "bdev_uring_create"),
        };
        self.bdevs().add(&name, device, product, uuid.clone(), &[])?;
        let params = kept(&[
            ("name", json!(name)),
            ("filename", json!(filename)),
            ("block_size", json!(block_size)),
            ("readonly", if read_only { json!(true) } else { Value::Null }),
            ("uuid", json!(uuid)),
        ]);
        self.made("bdev", &name, method, params);
        Ok(json!(name))
    }
}

fn spdk_get_version(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    let version = &manager.version;
    let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let fields = json!({"major": next(), "minor": next(), "patch": next(), "suffix": ""});
    Ok(json!({"version": format!("qpair {version}"), "fields": fields}))
}

fn rpc_get_methods(_: &Manager, mut params: Params) -> Result<Value> {
    // All methods can be called at any time, and none has an alias.
    params.flag("current")?;
    params.flag("include_aliases")?;
    params.finish()?;
    Ok(json!(Manager::methods()))
}

fn rpc_get_schema(_: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    Ok(super::reference::in_json())
}

fn framework_get_subsystems(_: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    Ok(json!([
        {"subsystem": "keyring", "depends_on": []},
        {"subsystem": "bdev", "depends_on": []},
        {"subsystem": "vhost_blk", "depends_on": ["bdev"]},
        {"subsystem": "vhost_scsi", "depends_on": ["bdev"]},
        {"subsystem": "nvmf", "depends_on": ["bdev", "keyring"]},
    ]))
}

fn framework_get_config(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    params.flag("with_batches")?;
    params.finish()?;
    let saved = manager.save();
    let all = saved["subsystems"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|entry| entry["subsystem"] == json!(name));
    let found = found.ok_or_else(|| Failure::params(format!("there is no subsystem {name}")))?;
    Ok(found["config"].clone())
}

fn framework_get_reactors(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    let workers = manager.target.workers();
    let reactors: Vec<Value> = workers
        .iter()
        .enumerate()
        .map(|(number, worker)| {
            let thread = json!({
                "name": format!("qpair-target-{number}"),
                "id": number + 1,
                "cpumask": "",
                "elapsed": worker.busy_ns + worker.idle_ns,
            });
            json!({
                "lcore": number,
                "tid": worker.tid,
                "busy": worker.busy_ns,
                "idle": worker.idle_ns,
                "in_interrupt": !worker.poll,
                "lw_threads": [thread],
            })
        })
        .collect();
    Ok(json!({"tick_rate": 1_000_000_000u64, "pid": std::process::id(), "reactors": reactors}))
}

fn thread_get_stats(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    let threads: Vec<Value> = manager
        .target
        .workers()
        .iter()
        .enumerate()
        .map(|(number, worker)| {
            json!({
                "name": format!("qpair-target-{number}"),
                "id": number + 1,
                "cpumask": "",
                "busy": worker.busy_ns,
                "idle": worker.idle_ns,
                "active_pollers_count": worker.queues,
                "timed_pollers_count": 0,
                "paused_pollers_count": 0,
            })
        })
        .collect();
    Ok(json!({"tick_rate": 1_000_000_000u64, "threads": threads}))
}

fn about(name: &str, bdev: &Bdev) -> Value {
    let device = &bdev.disk.device;
    let info = device.info();
    let block = u64::from(info.logical_block_bytes);
    let mut about = json!({
        "name": name,
        "aliases": [bdev.uuid],
        "product_name": bdev.product,
        "block_size": block,
        "num_blocks": device.size_bytes() / block,
        "uuid": bdev.uuid,
        "assigned_rate_limits": super::limits::in_json(bdev.limit.limits()),
        "claimed": bdev.claims > 0,
        "zoned": false,
        "supported_io_types": {
            "read": true, "write": !info.read_only, "unmap": !info.read_only, "flush": true,
            "write_zeroes": !info.read_only, "reset": false
        },
        "driver_specific": {"device": info.name, "interface": info.interface},
    });
    if !bdev.bases.is_empty() {
        about["driver_specific"]["base_bdevs"] = json!(bdev.bases);
    }
    about
}

fn bdev_get_bdevs(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.text("name")?;
    // A device that does not exist now will not appear, so the time-out has no effect.
    params.number("timeout")?;
    params.finish()?;
    let bdevs = manager.bdevs();
    if let Some(name) = name {
        let found = bdevs.get(&name)?;
        return Ok(json!([about(&name, found)]));
    }
    Ok(bdevs.iter().map(|(name, bdev)| about(name, bdev)).collect())
}

fn bdev_get_iostat(manager: &Manager, mut params: Params) -> Result<Value> {
    let mut names = params.texts("names")?.unwrap_or_default();
    names.extend(params.text("name")?);
    let reset = params.text("reset_mode")?;
    if reset.is_some_and(|mode| mode != "none") {
        return Err(Failure::new(-95, "counters are not reset here"));
    }
    params.finish()?;
    let bdevs = manager.bdevs();
    for name in &names {
        bdevs.get(name)?;
    }
    let shown = bdevs.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
    let entries: Vec<Value> = shown
        .map(|(name, bdev)| {
            let counters = bdev.disk.counters();
            json!({
                "name": name,
                "bytes_read": counters.read_bytes,
                "num_read_ops": counters.reads,
                "bytes_written": counters.written_bytes,
                "num_write_ops": counters.writes,
                "num_unmap_ops": counters.discards,
                "num_flush_ops": counters.flushes,
                "io_error": {"failed": counters.errors, "timed_out": counters.timeouts},
                "driver_specific": {"resets": bdev.disk.device.resets()},
            })
        })
        .collect();
    Ok(json!({"tick_rate": 1_000_000_000u64, "ticks": manager.ticks(), "bdevs": entries}))
}

fn bytes_of(blocks: u64, block_size: u64) -> Result<u64> {
    let bytes = blocks.checked_mul(block_size).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| {
        Failure::new(-22, format!("a device cannot have {blocks} blocks of {block_size} bytes"))
    })
}

fn bdev_malloc_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (blocks, block_size) = (params.amount("num_blocks")?, params.amount("block_size")?);
    let (name, uuid) = (params.text("name")?, params.text("uuid")?);
    params.finish()?;
    let logical_block_bytes = u32::try_from(block_size).unwrap_or(u32::MAX);
    let size_bytes = bytes_of(blocks, block_size)?;
    let options = RamOptions { size_bytes, logical_block_bytes, growable: false, read_only: false };
    let device = Arc::new(RamDevice::new(options)?);
    let mut bdevs = manager.bdevs();
    let name = name.unwrap_or_else(|| {
        (0..).map(|n| format!("Malloc{n}")).find(|name| !bdevs.has(name)).unwrap_or_default()
    });
    bdevs.add(&name, device, MALLOC, uuid.clone(), &[])?;
    let params = kept(&[
        ("name", json!(name)),
        ("num_blocks", json!(blocks)),
        ("block_size", json!(block_size)),
        ("uuid", json!(uuid)),
    ]);
    manager.made("bdev", &name, "bdev_malloc_create", params);
    Ok(json!(name))
}

fn bdev_malloc_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[MALLOC])
}

fn bdev_null_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (blocks, block_size) = (params.amount("num_blocks")?, params.amount("block_size")?);
    let (name, uuid) = (params.name("name")?, params.text("uuid")?);
    params.finish()?;
    let device = NullDevice::new(NullOptions { size_bytes: bytes_of(blocks, block_size)? })?;
    let block = u64::from(device.info().logical_block_bytes);
    if block != block_size {
        return Err(Failure::new(-22, format!("null devices have blocks of {block} bytes")));
    }
    manager.bdevs().add(&name, Arc::new(device), NULL, uuid.clone(), &[])?;
    let params = kept(&[
        ("name", json!(name)),
        ("num_blocks", json!(blocks)),
        ("block_size", json!(block_size)),
        ("uuid", json!(uuid)),
    ]);
    manager.made("bdev", &name, "bdev_null_create", params);
    Ok(json!(name))
}

fn bdev_null_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[NULL])
}

fn bdev_aio_create(manager: &Manager, params: Params) -> Result<Value> {
    manager.add_file(params, "aio")
}

fn bdev_aio_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[AIO])
}

fn bdev_uring_create(manager: &Manager, params: Params) -> Result<Value> {
    manager.add_file(params, "uring")
}

fn bdev_uring_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[URING])
}

fn bdev_raid_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, level) = (params.name("name")?, params.name("raid_level")?);
    let bases = params.texts("base_bdevs")?;
    let bases = Params::needed("base_bdevs", bases)?;
    let (strip, uuid) = (params.number("strip_size_kb")?, params.text("uuid")?);
    params.finish()?;
    if !matches!(level.as_str(), "raid0" | "0") {
        return Err(Failure::new(-95, format!("raid level {level} is not supported: give raid0")));
    }
    let strip_kb = strip.unwrap_or(64);
    let mut bdevs = manager.bdevs();
    let mut members = Vec::new();
    for base in &bases {
        let bdev = bdevs.unclaimed(base)?;
        members.push(Member { device: bdev.disk.device.clone(), start_bytes: 0 });
    }
    let device = Arc::new(StripeDevice::new(strip_kb.saturating_mul(1024), members)?);
    bdevs.add(&name, device, RAID, uuid.clone(), &bases)?;
    let params = kept(&[
        ("name", json!(name)),
        ("raid_level", json!("raid0")),
        ("strip_size_kb", json!(strip_kb)),
        ("base_bdevs", json!(bases)),
        ("uuid", json!(uuid)),
    ]);
    manager.made("bdev", &name, "bdev_raid_create", params);
    Ok(json!(true))
}

fn bdev_raid_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[RAID])
}

fn bdev_raid_get_bdevs(manager: &Manager, mut params: Params) -> Result<Value> {
    let category = params.name("category")?;
    params.finish()?;
    if !matches!(category.as_str(), "all" | "online" | "configuring" | "offline") {
        return Err(Failure::params(format!("there is no category {category}")));
    }
    // Every device is online.
    let is_shown = matches!(category.as_str(), "all" | "online");
    let bdevs = manager.bdevs();
    let raids = bdevs.iter().filter(|(_, bdev)| is_shown && bdev.product == RAID);
    Ok(raids
        .map(|(name, bdev)| {
            let count = bdev.bases.len();
            json!({
                "name": name, "uuid": bdev.uuid, "state": "online", "raid_level": "raid0", "superblock": false,
                "num_base_bdevs": count, "num_base_bdevs_discovered": count,
                "num_base_bdevs_operational": count, "base_bdevs_list": bdev.bases,
            })
        })
        .collect())
}

fn bdev_split_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (base, count) = (params.name("base_bdev")?, params.amount("split_count")?);
    let split_mb = params.number("split_size_mb")?;
    params.finish()?;
    let mut bdevs = manager.bdevs();
    let bdev = bdevs.unclaimed(&base)?;
    let (device, block) =
        (bdev.disk.device.clone(), u64::from(bdev.disk.device.info().logical_block_bytes));
    let whole = device.size_bytes();
    let each = match split_mb.filter(|mb| *mb > 0) {
        Some(mb) => mb.saturating_mul(1 << 20),
        None => whole / count.max(1) / block * block,
    };
    if count == 0 || each == 0 {
        return Err(Failure::new(
            -22,
            format!("{base} cannot be split into {count} parts of {each} bytes"),
        ));
    }
    // Make as many parts as fit.
    let count = count.min(whole / each);
    if count == 0 {
        return Err(Failure::new(
            -28,
            format!("{base} has {whole} bytes, too few for a part of {each}"),
        ));
    }
    let names: Vec<String> = (0..count).map(|number| format!("{base}p{number}")).collect();
    if let Some(taken) = names.iter().find(|name| bdevs.has(name)) {
        return Err(Failure::new(-17, format!("a device is called {taken} already")));
    }
    for (number, name) in (0..).zip(&names) {
        let slice: Arc<dyn BlockDevice> =
            Arc::new(SliceDevice::new(device.clone(), number * each, each)?);
        bdevs.add(name, slice, SPLIT, None, std::slice::from_ref(&base))?;
    }
    let params = kept(&[
        ("base_bdev", json!(base)),
        ("split_count", json!(count)),
        ("split_size_mb", json!(split_mb)),
    ]);
    manager.made("bdev", &format!("split of {base}"), "bdev_split_create", params);
    Ok(json!(names))
}

fn bdev_split_delete(manager: &Manager, mut params: Params) -> Result<Value> {
    let base = params.name("base_bdev")?;
    params.finish()?;
    let mut bdevs = manager.bdevs();
    bdevs.get(&base)?;
    let parts: Vec<String> = bdevs
        .iter()
        .filter(|(_, bdev)| bdev.product == SPLIT && bdev.bases == [base.as_str()])
        .map(|(name, _)| name.clone())
        .collect();
    if parts.is_empty() {
        return Err(Failure::new(-2, format!("{base} is not split")));
    }
    for name in &parts {
        bdevs.unclaimed(name)?;
    }
    for name in &parts {
        bdevs.delete(name, &[SPLIT])?;
        manager.unmade("bdev", name);
    }
    manager.unmade("bdev", &format!("split of {base}"));
    Ok(json!(true))
}

fn bdev_delay_create(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, base) = (params.name("name")?, params.name("base_bdev_name")?);
    let mut latency = |verb: &str| -> Result<u64> {
        let average = params.amount(&format!("avg_{verb}_latency"))?;
        let tail = params.amount(&format!("p99_{verb}_latency"))?;
        if tail != average {
            let what = format!("p99_{verb}_latency is not supported beside another average");
            return Err(Failure::new(-95, what));
        }
        Ok(average)
    };
    let (read_us, write_us) = (latency("read")?, latency("write")?);
    let uuid = params.text("uuid")?;
    params.finish()?;
    let mut bdevs = manager.bdevs();
    let bdev = bdevs.unclaimed(&base)?;
    let options = DelayOptions { read_us, write_us, flush_us: 0 };
    let device = Arc::new(DelayDevice::new(bdev.disk.device.clone(), options)?);
    bdevs.add(&name, device, DELAY, uuid.clone(), std::slice::from_ref(&base))?;
    let params = kept(&[
        ("name", json!(name)),
        ("base_bdev_name", json!(base)),
        ("avg_read_latency", json!(read_us)),
        ("p99_read_latency", json!(read_us)),
        ("avg_write_latency", json!(write_us)),
        ("p99_write_latency", json!(write_us)),
        ("uuid", json!(uuid)),
    ]);
    manager.made("bdev", &name, "bdev_delay_create", params);
    Ok(json!(name))
}

fn bdev_delay_delete(manager: &Manager, params: Params) -> Result<Value> {
    manager.delete(params, &[DELAY])
}
