//! `qpair scsi list`.

use std::sync::Arc;

use clap::Args;
use qpair_pci::sysfs::{Function, Root};
use qpair_scsi::host::Host;
use qpair_scsi::{Found, ScsiOptions, scan};
use serde_json::{Value, json};

use crate::failure::{Exit, Result};
use crate::show::controllers::controllers;
use crate::show::output::{print, say};
use crate::show::text::size;

/// List SAS controllers, or the disks behind one
///
/// Without HOST: the SAS controllers of this machine, their drivers, and the kernel's disks behind
/// them; nothing is changed. With HOST: the disks that this program's driver finds behind it; the
/// driver resets the controller. Data on disks is not touched.
#[derive(Args, Debug)]
#[command(after_help = "\
Each line has the disk's device name, vendor, product, revision, size and unit name, or the reason why it cannot be \
used.

Examples:
  qpair scsi list
  qpair scsi list 0000:3b:00.0
  qpair scsi list vfio-user:/run/hba.sock --json | jq -r '.[].device'")]
pub(crate) struct List {
    /// soft:OPTIONS, vfio-user:PATH, or an address such as 0000:3b:00.0
    #[arg(value_name = "HOST")]
    host: Option<String>,

    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

impl List {
    pub(crate) fn run(self) -> Result<Exit> {
        let Some(host) = &self.host else {
            let all = Function::all_sas(&Root::system());
            return controllers(&all, "no SAS controllers", self.json);
        };
        let text = host.strip_prefix("scsi:").unwrap_or(host);
        let host: Arc<dyn Host> = crate::interrupt::drivers().scsi_host(text)?;
        let name = |target: u32, unit: u16| match unit {
            0 => format!("scsi:{text}/{target}"),
            unit => format!("scsi:{text}/{target}.{unit}"),
        };
        let found = scan(&host, ScsiOptions::default(), name)?;
        match (self.json, found.is_empty()) {
            (true, _) => say(Value::from_iter(found.iter().map(object)).to_string())?,
            (false, true) => say("no disks")?,
            (false, false) => print(found.iter().map(line))?,
        }
        Ok(Exit::Done)
    }
}

fn line(found: &Found) -> String {
    let device = &found.address;
    match &found.disk {
        Ok(disk) => {
            let facts = disk.facts();
            format!(
                "{device}  {:8} {:16} {:4}  {}  {}",
                facts.vendor,
                facts.product,
                facts.revision,
                size(facts.blocks * u64::from(facts.logical_block_bytes)),
                facts.name
            )
        }
        Err(error) => error.to_string(),
    }
}

fn object(found: &Found) -> Value {
    match &found.disk {
        Ok(disk) => {
            let facts = disk.facts();
            json!({
                "device": found.address,
                "vendor": facts.vendor,
                "product": facts.product,
                "revision": facts.revision,
                "serial": facts.serial,
                "name": facts.name.to_string(),
                "size_bytes": facts.blocks * u64::from(facts.logical_block_bytes),
                "logical_block_bytes": facts.logical_block_bytes,
            })
        }
        Err(error) => json!({ "device": found.address, "error": error.to_string() }),
    }
}
