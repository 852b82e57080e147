//! Disks of the command line: ordinary devices, each with a socket of its own by default.
//!
//! Invariant: the default socket is closed when a call takes the device, unless a front end is
//! connected to it, and is opened again if the call fails. Neither the device nor its socket is a
//! call, so a saved configuration needs the same command line.

use std::sync::Arc;

use qpair_block::BlockDevice;
use serde_json::Value;
use tracing::info;

use super::manager::Manager;
use super::params::Result;
use crate::target::BlkOptions;

/// The kind of the command line's disks, as calls report it.
const DISK: &str = "Disk";

/// Returns the parameters by which a call takes devices, if it takes any.
fn takes(method: &str) -> &'static [&'static str] {
    match method {
        "bdev_scsi_create" => &["device"],
        "bdev_split_create" => &["base_bdev"],
        "bdev_raid_create" => &["base_bdevs"],
        "bdev_delay_create" => &["base_bdev_name"],
        "bdev_error_create" => &["base_name"],
        "vhost_create_blk_controller" => &["dev_name"],
        "vhost_scsi_controller_add_target" => &["bdev_name"],
        "nbd_create_server" => &["bdev_names"],
        "nvmf_subsystem_add_ns" => &["namespace"],
        _ => &[],
    }
}

/// Collects the names of devices in a parameter's value.
fn texts<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => into.push(text),
        Value::Array(all) => all.iter().for_each(|one| texts(one, into)),
        Value::Object(map) => into.extend(map.get("bdev_name").and_then(Value::as_str)),
        _ => {}
    }
}

impl Manager {
    /// Makes an opened disk a device, and serves it at the socket `NAME.sock` until a call takes
    /// it.
    ///
    /// # Errors
    /// `Exists` for a name that is taken; else the error of binding the socket.
    pub fn add_disk(
        &self,
        name: &str,
        device: Arc<dyn BlockDevice>,
        options: BlkOptions,
    ) -> qpair_block::Result<()> {
        self.bdevs().add(name, device, DISK, None, &[])?;
        let served = self.serve_default(name, options);
        match &served {
            Ok(()) => _ = self.default_sockets().insert(name.to_owned(), options),
            // The device was just added, so nothing claims it.
            Err(_) => _ = self.bdevs().delete(name, &[DISK]),
        }
        served
    }

    fn serve_default(&self, name: &str, options: BlkOptions) -> qpair_block::Result<()> {
        let mut bdevs = self.bdevs();
        let disk = bdevs.get(name)?.disk.clone();
        let path = self.folder.join(format!("{name}.sock"));
        self.target.serve_blk(name, &disk, &path, options)?;
        bdevs.claim(name, true);
        Ok(())
    }

    /// Whether a device is served at its default socket without a front end, so that a call can
    /// take it.
    pub(super) fn is_at_default(&self, name: &str) -> bool {
        let is_idle = || self.target.exports().iter().any(|it| it.name == name && !it.has_client);
        self.default_sockets().contains_key(name) && is_idle()
    }

    /// Runs a call while the default sockets of the devices that it takes are closed.
    pub(super) fn with_devices_of(
        &self,
        method: &str,
        params: &Value,
        run: impl FnOnce() -> Result<Value>,
    ) -> Result<Value> {
        let mut names = Vec::new();
        takes(method)
            .iter()
            .filter_map(|key| params.get(*key))
            .for_each(|it| texts(it, &mut names));
        names.sort_unstable();
        names.dedup();
        let mut closed = Vec::new();
        for name in names {
            let Some(options) = self.default_sockets().get(name).copied() else { continue };
            // With a connected front end the socket stays open, and the call reports that the
            // device is in use.
            if self.target.remove(name, false).is_ok() {
                self.bdevs().claim(name, false);
                closed.push((name, options));
            }
        }
        let result = run();
        for (name, options) in closed {
            if result.is_ok() {
                self.default_sockets().remove(name);
                info!(name: "closed", disk = name, method, "the disk is part of something else now: its own socket is closed");
            } else {
                // The call reports its own failure.
                let _ = self.serve_default(name, options);
            }
        }
        result
    }
}
