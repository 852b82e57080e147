//! The kinds of devices with all keys, for help, the reference page and completions.

use std::fmt::Write as _;

use qpair_block::KINDS;
use qpair_block::keys::Row;
use qpair_nvme::NvmeAddress;
use qpair_softdev::faults::Plan;
use qpair_softdev::flash::Profile;
use qpair_softdev::{SoftHbaOptions, SoftNvmeOptions};

use crate::{nbd, nvme_tcp, scsi, soft, vhost_user};

/// Keys that are written together, with what they are for.
#[derive(Debug)]
pub struct Section {
    /// The text before the keys: `ram:`.
    pub prefix: String,
    /// The form of a specifier.
    pub form: &'static str,
    /// The device, or the part of it that the keys describe.
    pub about: &'static str,
    /// The keys.
    pub rows: Vec<Row>,
}

/// Returns the kinds of devices with their keys.
#[must_use]
pub fn sections() -> Vec<Section> {
    let mut all = Vec::new();
    for kind in KINDS {
        let mut add = |prefix: &str, form, about, rows| {
            all.push(Section { prefix: format!("{prefix}:"), form, about, rows });
        };
        let mut this = |rows| add(kind.word, kind.form, kind.about, rows);
        match kind.word {
            "nvme" => {
                this(NvmeAddress::KEYS.rows());
                let form = "nvme:[KEYS:]tcp:HOST[:PORT]/NQN[/nsN]";
                let about = "a namespace that a target serves by NVMe/TCP";
                add(kind.word, form, about, nvme_tcp::KEYS.rows());
            }
            "vhost-user" => this(vhost_user::KEYS.rows()),
            "nbd" => this(nbd::KEYS.rows()),
            "softnvme" => {
                this([SoftNvmeOptions::rows(), soft::KEYS.rows()].concat());
                let form = "softnvme:profile=NAME[,KEYS]";
                let mut rows = Profile::KEYS.rows();
                rows.iter_mut().skip(1).for_each(|row| row.default.clear());
                let about = "the times of a drive made of software; defaults are the profile's";
                add(kind.word, form, about, rows);
                let form = "softnvme:[KEYS]";
                add(kind.word, form, "the faults of a drive made of software", Plan::KEYS.rows());
            }
            "scsi" => {
                this(scsi::KEYS.rows());
                let about = "disks of a host bus adapter made of software";
                add("scsi:soft", "scsi:[KEYS:]soft:[KEYS]/UNIT", about, SoftHbaOptions::rows());
            }
            _ => this((kind.keys)()),
        }
    }
    all
}

/// Returns the kinds of devices and their keys, as paragraphs for a terminal.
#[must_use]
pub fn help() -> String {
    let mut text = "A DEVICE is one of these, with KEYS as KEY=VALUE,KEY=VALUE:".to_owned();
    for Section { form, about, rows, .. } in sections() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n\n{form}: {about}");
        for Row { name, values, default, help } in rows {
            let default = if default.is_empty() { default } else { format!(" [{default}]") };
            let _ = write!(text, "\n- {name}: {help}; {values}{default}");
        }
    }
    text
}

/// Returns the reference page, as Markdown.
#[cfg(test)]
fn reference() -> String {
    let mut page = "# Devices\n\n\
        The texts that name a device, for commands, configuration, RPC and code. KEYS are `KEY=VALUE,KEY=VALUE`; each may be left out. A member of a stripe that\n\
        holds `+`, `[`, `]` or `\\` goes in brackets. This page is made from the tables that texts are parsed with (`crates/block/src/spec/keys.rs`);\n\
        `qpair bench peak --help` has the same.\n"
        .to_owned();
    for Section { form, about, rows, .. } in sections() {
        let _ = write!(page, "\n## `{form}`: {about}\n");
        if !rows.is_empty() {
            page.push_str("\n| key | value | default | |\n|---|---|---|---|\n");
        }
        for Row { name, values, default, help } in rows {
            let default = if default.is_empty() { default } else { format!("`{default}`") };
            let _ = writeln!(page, "| `{name}` | {values} | {default} | {help} |");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::path::Path;

    use qpair_block::DeviceSpec;
    use qpair_block::keys::Keys;

    use super::*;

    /// A value that the key takes and that is not its default.
    fn example(row: &Row) -> &'static str {
        match row.name {
            "size" | "unit" | "dram_cache" | "slc_cache" | "page" => "128KiB",
            "read_only" => "true",
            "block" => "4KiB",
            "wait" if row.default == "sleep" => "poll",
            "wait" => "sleep",
            "memory" => "huge",
            "mdts" => "7",
            "disks" => "3",
            "mpi" => "2.6",
            "medium" => "null",
            "profile" => "tlc",
            "doorbells" => "shadow",
            "credit" => "128",
            "timestamp" => "off",
            "growable" | "dram_protected" | "in_place" => "false",
            "cache" | "pcie" | "strict" | "expanders" | "header_digest" | "data_digest" => "on",
            "over_provisioning" | "filled" | "jitter" => "0.33",
            "read_error_blocks" | "write_error_blocks" => "5-9+20-29",
            name if name.ends_with("_rate") => "0.25",
            _ => "44",
        }
    }

    fn round_trips<T: Clone + Default + Debug>(keys: &Keys<T>) {
        for row in keys.rows() {
            let text = format!("{}={}", row.name, example(&row));
            let read = keys.read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let written = keys.write(&read, &T::default());
            assert!(written.split(',').any(|pair| pair == text), "{text}: {written}");
            let again = keys.read(&written).unwrap();
            assert_eq!(format!("{again:?}"), format!("{read:?}"), "{text}");
        }
    }

    #[test]
    fn every_key_is_read_and_written() {
        for kind in KINDS {
            let below = if kind.form.ends_with("DEVICE") { ":/dev/a" } else { "" };
            let below = if kind.word == "stripe" { ":/dev/a+/dev/b" } else { below };
            for row in (kind.keys)() {
                let pair = format!("{}={}", row.name, example(&row));
                let spec = DeviceSpec::parse(&format!("{}:{pair}{below}", kind.word)).unwrap();
                let written = spec.to_string();
                assert!(written.contains(&pair) && pair != format!("{}={}", row.name, row.default));
                assert_eq!(DeviceSpec::parse(&written).unwrap(), spec);
            }
        }
        round_trips(&NvmeAddress::KEYS);
        round_trips(&Profile::KEYS);
        round_trips(&Plan::KEYS);
        round_trips(&vhost_user::KEYS);
        round_trips(&nbd::KEYS);
        round_trips(&nvme_tcp::KEYS);
        round_trips(&scsi::KEYS);
        for row in SoftNvmeOptions::rows() {
            let text = format!("{}={}", row.name, example(&row));
            let options = SoftNvmeOptions::parse(&text).unwrap();
            let written = options.to_string();
            assert_ne!(written, SoftNvmeOptions::default().to_string(), "{text}");
            assert_eq!(SoftNvmeOptions::parse(&written).unwrap(), options, "{text}");
        }
        for row in SoftHbaOptions::rows() {
            let needs = if row.name == "pcie" { "mpi=2.6," } else { "" };
            let options = SoftHbaOptions::parse(&format!("{needs}{}={}", row.name, example(&row)));
            assert!(options.unwrap_or_else(|e| panic!("{e}")) != SoftHbaOptions::default());
        }
    }

    /// `QPAIR_WRITE_REFERENCE=1 cargo test -p qpair-drivers --lib` writes the page.
    #[test]
    fn every_key_is_in_the_help_and_the_reference_page() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/devices.md");
        if std::env::var_os("QPAIR_WRITE_REFERENCE").is_some() {
            std::fs::write(&path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(
            page == reference(),
            "devices.md is out of date: QPAIR_WRITE_REFERENCE=1 writes it"
        );
        let (help, sections) = (help(), sections());
        assert!(sections.iter().map(|section| section.rows.len()).sum::<usize>() > 85);
        for Section { form, rows, .. } in sections {
            assert!(page.contains(&format!("\n## `{form}`: ")), "{form}");
            assert!(help.contains(&format!("\n{form}: ")), "{form}");
            for row in rows {
                assert!(page.contains(&format!("\n| `{}` | ", row.name)), "{}", row.name);
                assert!(help.contains(&format!("\n- {}: ", row.name)), "{}", row.name);
            }
        }
    }
}
