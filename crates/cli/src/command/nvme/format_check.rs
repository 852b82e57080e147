//! `qpair nvme format-check`.

use clap::Args;
use qpair_nvme::{Controller, NamespaceInfo};
use qpair_nvme_wire::LbaFormat;
use serde_json::{Value, json};

use super::opened::Opened;
use crate::failure::{Exit, Result};
use crate::show::output::Output;

/// List the formats of a drive's namespaces, and whether the driver supports the current one
///
/// Nothing is formatted.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair nvme format-check 0000:3b:00.0
  qpair nvme format-check vfio-user:/run/x.sock --json

Exit code 1 if there is a namespace that cannot be used.")]
pub(crate) struct FormatCheck {
    #[command(flatten)]
    which: Opened,

    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

impl FormatCheck {
    pub(crate) fn run(self) -> Result<Exit> {
        let controller = self.which.open()?;
        let mut out = Output::new();
        let all = controller.namespaces();
        if self.json {
            let objects = all.iter().map(|namespace| object(&controller, namespace));
            out.line(Value::from_iter(objects).to_string())?;
        } else {
            all.iter().try_for_each(|namespace| print(&mut out, &controller, namespace))?;
        }
        out.finish()?;
        let usable = all.iter().all(|namespace| namespace.unusable.is_none());
        Ok(if usable { Exit::Done } else { Exit::Negative })
    }
}

fn print(out: &mut Output, controller: &Controller, namespace: &NamespaceInfo) -> Result<()> {
    let (nsid, in_use) = (namespace.nsid, namespace.identify.format);
    out.line(match &namespace.unusable {
        None => format!("namespace {nsid}: has format {in_use}, which can be used"),
        Some(why) => format!("namespace {nsid}: cannot be used: it {why}"),
    })?;
    for (number, format) in there(namespace) {
        let mark = if number == usize::from(in_use) { "*" } else { " " };
        let word = why_not(format, controller.info().command_bytes_max);
        let word = word.map_or("can be used".to_owned(), |why| format!("cannot be used: {why}"));
        out.line(format!("  {mark} {number:2}  {:30}{word}", in_words(format)))?;
    }
    if namespace.unusable.is_some() {
        let way_out = match best(controller, namespace) {
            Some(best) => format!(
                "  to use it, with the kernel's driver: nvme format /dev/nvmeXn{nsid} --lbaf={best}   (all data on it is lost)"
            ),
            None => "  it has no format that can be used".to_owned(),
        };
        out.line(way_out)?;
    }
    Ok(())
}

fn object(controller: &Controller, namespace: &NamespaceInfo) -> Value {
    let in_use = usize::from(namespace.identify.format);
    let formats = there(namespace).map(|(number, format)| {
        json!({
            "number": number,
            "data_bytes": data_bytes(format),
            "metadata_bytes": format.metadata_bytes,
            "in_use": number == in_use,
            "why_not": why_not(format, controller.info().command_bytes_max),
        })
    });
    json!({
        "nsid": namespace.nsid,
        "unusable": namespace.unusable,
        "formats": formats.collect::<Vec<_>>(),
        "best": best(controller, namespace),
    })
}

fn there(namespace: &NamespaceInfo) -> impl Iterator<Item = (usize, LbaFormat)> {
    let all = namespace.identify.formats.iter().copied().enumerate();
    all.filter(|(_, format)| format.data_shift != 0)
}

fn data_bytes(format: LbaFormat) -> u64 {
    1u64.checked_shl(format.data_shift.into()).unwrap_or(0)
}

fn in_words(format: LbaFormat) -> String {
    let metadata = match format.metadata_bytes {
        0 => String::new(),
        bytes => format!(" and {bytes} of metadata"),
    };
    format!("blocks of {} bytes{metadata}", data_bytes(format))
}

/// Returns the reason why the driver cannot use a format, if there is one. The rules are those for
/// opening namespaces.
fn why_not(format: LbaFormat, command_bytes_max: u32) -> Option<&'static str> {
    match format.data_shift {
        _ if format.metadata_bytes != 0 => Some("the driver moves no metadata"),
        9..=16 if data_bytes(format) <= command_bytes_max.into() => None,
        9..=16 => Some("a block is more than one command moves"),
        _ => Some("blocks have 512 bytes to 64 KiB"),
    }
}

/// Returns the recommended format: the usable one with blocks nearest to 4096 bytes.
fn best(controller: &Controller, namespace: &NamespaceInfo) -> Option<usize> {
    let most = controller.info().command_bytes_max;
    let usable = there(namespace).filter(|(_, format)| why_not(*format, most).is_none());
    usable.min_by_key(|(_, format)| data_bytes(*format).abs_diff(4096)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let format = |data_shift, metadata_bytes| LbaFormat { data_shift, metadata_bytes };
        assert_eq!(why_not(format(9, 0), 4096), None);
        assert_eq!(why_not(format(12, 0), 4096), None);
        assert!(why_not(format(12, 8), 4096).unwrap().contains("metadata"));
        assert!(why_not(format(13, 0), 4096).unwrap().contains("more than one command"));
        assert!(why_not(format(8, 0), 4096).unwrap().contains("512 bytes"));
        assert!(why_not(format(200, 0), 4096).is_some());
        assert_eq!(in_words(format(9, 8)), "blocks of 512 bytes and 8 of metadata");
        assert_eq!(data_bytes(format(255, 0)), 0);
    }
}
