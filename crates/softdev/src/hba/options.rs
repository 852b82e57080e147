//! Options of a soft HBA.

use std::path::PathBuf;

use qpair_block::{Error, ErrorKind, Result, parse_bytes};

use super::timing::DiskProfile;
use crate::medium::MediumOptions;

/// Disks at most: each has a phy of its own; and behind expanders.
const DISKS_MAX: usize = 32;
const EXPANDED_DISKS_MAX: usize = 1024;
/// Reply queues at most: what the index register names.
const QUEUES_MAX: u8 = 128;
/// Requests under way: what Linux needs at least, and what SMIDs can name with room to spare.
const CREDIT: std::ops::RangeInclusive<u16> = 64..=16384;

/// Options of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskOptions {
    /// The size in bytes, a positive multiple of the logical block. With 0, a disk on a file has
    /// the size of the file.
    pub size_bytes: u64,
    /// The size of a logical block in bytes, 512 or 4096.
    pub logical_block_bytes: u32,
    /// The medium that keeps the blocks.
    pub medium: MediumOptions,
    /// The timing profile of the commands.
    pub profile: DiskProfile,
    /// Whether the disk keeps a timestamp that can be set.
    pub timestamp: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            size_bytes: 1 << 30,
            logical_block_bytes: 512,
            medium: MediumOptions::Ram,
            profile: DiskProfile::default(),
            timestamp: true,
        }
    }
}

/// Options of a soft HBA.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftHbaOptions {
    /// The disks of the controller, at phys 0 and up.
    pub disks: Vec<DiskOptions>,
    /// Whether disks are behind two levels of expanders.
    pub has_expanders: bool,
    /// The number of reply queues, 1 to 128. Each has an MSI-X vector.
    pub queues: u8,
    /// The maximum number of requests in flight, 64 to 16384.
    pub credit: u16,
    /// Whether the controller implements MPI 2.6, like a 9500-8e. Otherwise it implements MPI 2.5,
    /// like a SAS3008.
    pub is_later: bool,
    /// Whether the controller has a drive behind PCIe (MPI 2.6 only).
    pub has_pcie: bool,
    /// Whether disks have a volatile write cache.
    pub volatile_write_cache: bool,
    /// Whether the driver's behaviour is checked; `SoftHba::violations` returns the result.
    pub strict: bool,
    /// The file for a transcript of what drivers do; `None` for no transcript.
    pub transcript: Option<PathBuf>,
    /// The text from which serial numbers and addresses are derived. If empty, a random text is
    /// used.
    pub serial: String,
}

impl Default for SoftHbaOptions {
    fn default() -> Self {
        Self {
            disks: vec![DiskOptions::default()],
            has_expanders: false,
            queues: 32,
            credit: 4096,
            is_later: false,
            has_pcie: false,
            volatile_write_cache: false,
            strict: false,
            transcript: None,
            serial: String::new(),
        }
    }
}

fn invalid(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, context)
}

impl SoftHbaOptions {
    /// Reads
    /// `disks=2,size=1GiB,block=4096,profile=sas-ssd,mpi=2.6,queues=8,credit=1024,cache=on,timestamp=on,strict=on,serial=TEXT`:
    /// disks are all alike.
    ///
    /// # Errors
    /// `Invalid`, and names the option.
    pub fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        let mut disk = DiskOptions::default();
        let mut disks = 1usize;
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let Some((key, value)) = option.split_once('=') else {
                return Err(invalid(format!("option \"{option}\" of a soft HBA has no value")));
            };
            let expected = |what: &str| {
                invalid(format!("option {key}={value} of a soft HBA is not valid"))
                    .hint(format!("give {what}"))
            };
            let is_on = || match value {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(expected("on or off")),
            };
            match key {
                "disks" => disks = value.parse().map_err(|_| expected("a number of disks"))?,
                "size" => disk.size_bytes = parse_bytes(value)?,
                "block" => {
                    disk.logical_block_bytes = parse_bytes(value)
                        .ok()
                        .and_then(|bytes| bytes.try_into().ok())
                        .ok_or_else(|| expected("512 or 4096"))?;
                }
                "medium" => {
                    disk.medium = match value {
                        "ram" => MediumOptions::Ram,
                        "null" => MediumOptions::Null,
                        _ => return Err(expected("ram or null")),
                    }
                }
                "profile" => disk.profile = DiskProfile::named(value)?,
                "queues" => options.queues = value.parse().map_err(|_| expected("1 to 128"))?,
                "credit" => options.credit = value.parse().map_err(|_| expected("64 to 16384"))?,
                "mpi" => {
                    options.is_later = match value {
                        "2.5" => false,
                        "2.6" => true,
                        _ => return Err(expected("2.5 or 2.6")),
                    }
                }
                "expanders" => options.has_expanders = is_on()?,
                "pcie" => options.has_pcie = is_on()?,
                "cache" => options.volatile_write_cache = is_on()?,
                "timestamp" => disk.timestamp = is_on()?,
                "strict" => options.strict = is_on()?,
                "serial" => options.serial = value.to_owned(),
                _ => {
                    return Err(invalid(format!("a soft HBA has no option {key}")).hint(
                        "the options are disks, size, block, medium, profile, expanders, mpi, pcie, queues, credit, cache, timestamp, strict and serial",
                    ));
                }
            }
        }
        if disks > EXPANDED_DISKS_MAX {
            return Err(too_many(disks));
        }
        options.disks = vec![disk; disks];
        options.check()?;
        Ok(options)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let disks = self.disks.len();
        if disks > if self.has_expanders { EXPANDED_DISKS_MAX } else { DISKS_MAX } {
            return Err(too_many(disks));
        }
        if disks == 0 {
            return Err(invalid("a soft HBA needs at least one disk").hint("give disks=1 or more"));
        }
        if !(1..=QUEUES_MAX).contains(&self.queues) || !CREDIT.contains(&self.credit) {
            let context = format!(
                "a soft HBA cannot have {} reply queues and a credit of {}",
                self.queues, self.credit
            );
            return Err(invalid(context).hint("it has 1 to 128 queues and a credit of 64 to 16384"));
        }
        if self.has_pcie && !self.is_later {
            let context = "a soft HBA of MPI 2.5 cannot have a drive behind PCIe";
            return Err(invalid(context).hint("give mpi=2.6, which has such drives"));
        }
        for disk in &self.disks {
            let block = disk.logical_block_bytes;
            if !matches!(block, 512 | 4096) {
                return Err(invalid(format!(
                    "a disk of a soft HBA cannot have blocks of {block} bytes"
                ))
                .hint("disks have blocks of 512 or 4096 bytes"));
            }
        }
        Ok(())
    }
}

fn too_many(disks: usize) -> Error {
    invalid(format!("a soft HBA cannot have {disks} disks"))
        .hint(format!("it has {DISKS_MAX} phys; behind expanders (expanders=on) there can be {EXPANDED_DISKS_MAX} disks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_text() {
        let options = SoftHbaOptions::parse("disks=2,size=64MiB,block=4096,cache=on").unwrap();
        assert_eq!(options.disks.len(), 2);
        assert_eq!(options.disks[1].size_bytes, 64 << 20);
        assert_eq!(options.disks[0].logical_block_bytes, 4096);
        assert!(options.volatile_write_cache);
        for (text, said) in [
            ("disks=33", "expanders=on"),
            ("disks=1025,expanders=on", "1024"),
            ("block=520", "512 or 4096"),
            ("profile=tape", "sas-ssd, hdd"),
            ("sise=1", "sise"),
            ("mpi=3", "2.5 or 2.6"),
            ("pcie=on", "mpi=2.6"),
            ("queues=0", "1 to 128"),
            ("disks", "no value"),
        ] {
            let error = SoftHbaOptions::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(format!("{error:?} {error}").contains(said), "{text}: {error}");
        }
    }
}
