//! `qpair nvme identify`.

use clap::Args;
use qpair_nvme::{Controller, NamespaceInfo};
use serde_json::{Value, json};

use super::opened::Opened;
use crate::failure::{Exit, Result};
use crate::show::output::{hex, print, say};
use crate::show::text::{counted, size};

/// Show the identity of a controller, and its namespaces
///
/// The driver resets the controller and sets it up for I/O; data is not touched. Bind a drive of
/// this machine first.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair nvme identify 0000:3b:00.0
  qpair nvme identify vfio-user:/run/x.sock --json | jq .namespaces
  qpair nvme identify softnvme:size=1GiB")]
pub(crate) struct Identify {
    #[command(flatten)]
    which: Opened,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Identify {
    pub(crate) fn run(self) -> Result<Exit> {
        let controller = self.which.open()?;
        match self.json {
            true => say(self.object(&controller).to_string())?,
            false => print(self.lines(&controller))?,
        }
        Ok(Exit::Done)
    }

    fn lines(&self, controller: &Controller) -> Vec<String> {
        let info = controller.info();
        let said = &info.identify;
        let mut lines =
            vec![format!("{}: {}, transport {}", info.name, said.model, info.transport)];
        let told = [
            ("serial", said.serial.clone()),
            ("firmware", said.firmware.clone()),
            (
                "vendor",
                format!("{:04x}, subsystem vendor {:04x}", said.vendor, said.subsystem_vendor),
            ),
            ("version", format!("NVMe {}", version(info.version))),
            (
                "queues",
                format!(
                    "{} of up to {} entries",
                    counted(info.queues.into(), "pair"),
                    info.queue_entries_max
                ),
            ),
            ("interrupts", info.interrupts.to_string()),
            (
                "doorbells",
                match (info.doorbells_mapped, info.doorbells_shadowed) {
                    (true, _) => "mapped",
                    (false, true) => "in memory, and by calls where the controller asks for it",
                    (false, false) => "by calls",
                }
                .to_owned(),
            ),
            ("transfers", format!("up to {} a command", size(info.command_bytes_max.into()))),
            ("write cache", write_cache(controller).to_owned()),
            ("commands", commands(controller).join(", ")),
        ];
        let told = told.iter().filter(|(_, text)| !text.is_empty());
        lines.extend(told.map(|(name, text)| format!("  {name:12}{text}")));
        lines.extend(controller.namespaces().iter().map(|it| self.namespace_line(it)));
        lines.extend(controller.namespaces().is_empty().then(|| "no namespaces".to_owned()));
        lines
    }

    fn namespace_line(&self, namespace: &NamespaceInfo) -> String {
        let head = format!("namespace {}: ", namespace.nsid);
        if let Some(why) = &namespace.unusable {
            return format!("{head}cannot be used: it {why}");
        }
        let device = self.which.device(namespace.nsid);
        let device = device.map_or(String::new(), |device| format!(", device {device}"));
        let block = namespace.logical_block_bytes;
        format!("{head}{}, blocks of {block} bytes{device}", size(namespace.size_bytes))
    }

    fn object(&self, controller: &Controller) -> Value {
        let info = controller.info();
        let said = &info.identify;
        json!({
            "name": info.name,
            "transport": info.transport,
            "model": said.model,
            "serial": said.serial,
            "firmware": said.firmware,
            "vendor": said.vendor,
            "subsystem_vendor": said.subsystem_vendor,
            "subsystem": said.subsystem,
            "version": version(info.version),
            "queue_pairs": info.queues,
            "queue_entries_max": info.queue_entries_max,
            "interrupts": info.interrupts,
            "doorbells_mapped": info.doorbells_mapped,
            "doorbells_shadowed": info.doorbells_shadowed,
            "command_bytes_max": info.command_bytes_max,
            "volatile_write_cache": said.volatile_write_cache & 1 != 0,
            "commands": commands(controller),
            "namespaces": controller.namespaces().iter().map(|it| self.namespace(it)).collect::<Vec<_>>(),
        })
    }

    fn namespace(&self, namespace: &NamespaceInfo) -> Value {
        json!({
            "nsid": namespace.nsid,
            "size_bytes": namespace.size_bytes,
            "logical_block_bytes": namespace.logical_block_bytes,
            "metadata_bytes": namespace.metadata_bytes,
            "format": namespace.identify.format,
            "nguid": hex(&namespace.identify.nguid),
            "eui64": hex(&namespace.identify.eui64),
            "unusable": namespace.unusable,
            "device": self.which.device(namespace.nsid),
        })
    }
}

/// Formats the major and minor version, and the tertiary one if there is one.
fn version(register: u32) -> String {
    let (major, minor, tertiary) = (register >> 16, register >> 8 & 0xFF, register & 0xFF);
    match tertiary {
        0 => format!("{major}.{minor}"),
        _ => format!("{major}.{minor}.{tertiary}"),
    }
}

fn write_cache(controller: &Controller) -> &'static str {
    match controller.info().identify.volatile_write_cache & 1 {
        0 => "none that loses anything: flushes are left out",
        _ => "volatile: flushes are sent",
    }
}

/// Returns the optional commands that the driver uses (ONCS, Base §5.17.2.1).
fn commands(controller: &Controller) -> Vec<&'static str> {
    let known = controller.info().identify.nvm_commands;
    let names = [(2, "deallocate"), (3, "write zeroes")];
    names.into_iter().filter(|(bit, _)| known >> bit & 1 != 0).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions() {
        assert_eq!((version(0x0001_0400), version(0x0001_0201)), ("1.4".into(), "1.2.1".into()));
    }
}
