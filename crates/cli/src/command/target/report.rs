//! The command's output at its beginning and end: the disks' sockets, and counters.

use std::path::Path;

use qpair_serve::{Backend, Disk, ExportInfo, MetricsAddress, Target};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::show::output::{Output, say};
use crate::show::text::{count, size};

pub(super) struct Reporter {
    json: bool,
}

impl Reporter {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(super) fn begin(
        &self,
        target: &Target,
        (rpc, metrics): (Option<&Path>, Option<&MetricsAddress>),
    ) -> Result<()> {
        let mut exports = target.exports();
        let by_vhost = exports.len();
        exports.extend(target.nbd_exports());
        if self.json {
            let about = |disk: &Disk| {
                json!({
                    "name": disk.name,
                    "device": disk.device.info().name,
                    "interface": disk.device.info().interface,
                    "size_bytes": disk.device.size_bytes(),
                    "logical_block_bytes": disk.device.info().logical_block_bytes,
                })
            };
            let disks: Vec<Value> = exports
                .iter()
                .flat_map(|export| export.disks().into_iter().map(move |disk| (export, disk)))
                .map(|(export, disk)| {
                    let mut about = about(disk);
                    about["socket"] = json!(export.socket);
                    about
                })
                .collect();
            return say(json!({
                "event": "serving",
                "disks": disks,
                "rpc": rpc,
                "metrics": metrics.map(ToString::to_string),
            })
            .to_string());
        }
        let mut out = Output::new();
        for export in &exports {
            let socket = export.socket.display();
            if let Backend::Scsi { targets } = &export.backend
                && targets.is_empty()
            {
                out.line(format!("{socket}  a SCSI host without targets"))?;
            }
            for disk in export.disks() {
                let info = disk.device.info();
                let bytes = size(disk.device.size_bytes());
                out.line(format!(
                    "{socket}  {}, {bytes} in blocks of {}, on {} by {}",
                    disk.name, info.logical_block_bytes, info.name, info.interface
                ))?;
            }
        }
        if let Some(ExportInfo { socket, backend, .. }) = exports[..by_vhost].first() {
            // QEMU up to 8.1 comes back to a disk alone.
            let (reconnect, device) = match backend {
                Backend::Blk { .. } => (",reconnect=1", "vhost-user-blk-pci"),
                Backend::Scsi { .. } => ("", "vhost-user-scsi-pci"),
            };
            out.line("QEMU has the first with these options:")?;
            out.line("  -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m -m 1G")?;
            out.line(format!(
                "  -chardev socket,id=c,path={}{reconnect} -device {device},chardev=c",
                socket.display()
            ))?;
        }
        if let Some(path) = rpc {
            out.line(format!(
                "{}  JSON-RPC: spdk-rpc -s {0}, qpair rpc --socket {0}",
                path.display()
            ))?;
        }
        if let Some(address) = metrics {
            out.line(format!("{address}  metrics for Prometheus"))?;
        }
        out.line("Ctrl-C ends the target.")?;
        out.finish()
    }

    pub(super) fn end(&self, target: &Target) -> Result<()> {
        let mut exports = target.exports();
        exports.extend(target.namespaces());
        exports.extend(target.nbd_exports());
        for disk in exports.iter().flat_map(ExportInfo::disks) {
            let counters = disk.counters();
            if self.json {
                say(json!({
                    "event": "ended",
                    "disk": disk.name,
                    "requests": counters.requests,
                    "reads": counters.reads,
                    "read_bytes": counters.read_bytes,
                    "writes": counters.writes,
                    "written_bytes": counters.written_bytes,
                    "flushes": counters.flushes,
                    "discards": counters.discards,
                    "errors": counters.errors,
                    "timeouts": counters.timeouts,
                    "resets": disk.device.resets(),
                    "bounced": counters.bounced,
                    "system_calls": counters.system_calls,
                    "calls": counters.calls,
                    "kicks": counters.kicks,
                })
                .to_string())?;
                continue;
            }
            say(format!(
                "{}: {} reads ({}), {} writes ({}), {} flushes, {} discards, {} errors; {} copied, {} system calls, {} calls, {} kicks",
                disk.name,
                count(counters.reads),
                size(counters.read_bytes),
                count(counters.writes),
                size(counters.written_bytes),
                count(counters.flushes),
                count(counters.discards),
                count(counters.errors),
                count(counters.bounced),
                count(counters.system_calls),
                count(counters.calls),
                count(counters.kicks),
            ))?;
            let incidents = [
                (disk.device.resets(), "resets of the device"),
                (counters.timeouts, "requests that it did not answer in time"),
            ];
            for (times, what) in incidents.into_iter().filter(|(times, _)| *times > 0) {
                say(format!("{}: {what}: {}", disk.name, count(times)))?;
            }
        }
        Ok(())
    }
}
