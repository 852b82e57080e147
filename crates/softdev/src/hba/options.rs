//! Options of a soft HBA.

use std::path::PathBuf;

use qpair_block::keys::{
    Key, Keys, Row, bytes, key, maybe, one_of, plain, short_bytes, switch, within,
};
use qpair_block::{Error, ErrorKind, Result};

use super::timing::DiskProfile;
use crate::medium::MediumOptions;

/// The maximum numbers of disks at phys of the controller and behind expanders.
const DISKS_MAX: usize = 32;
const EXPANDED_DISKS_MAX: usize = 1024;

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
    /// Parses `disks=2,size=1GiB,block=4096,...`. All disks have the same options.
    ///
    /// # Errors
    /// `Invalid`; the error names the option.
    pub fn parse(text: &str) -> Result<Self> {
        let text: Vec<&str> = text.split(',').filter(|option| !option.is_empty()).collect();
        let Written { mut options, disk, disks } = KEYS.read(&text.join(","))?;
        options.disks = vec![disk; disks.unwrap_or(1)];
        options.check()?;
        Ok(options)
    }

    /// Returns the keys of the text.
    #[must_use]
    pub fn rows() -> Vec<Row> {
        KEYS.rows()
    }

    pub(crate) fn check(&self) -> Result<()> {
        let disks = self.disks.len();
        if disks > if self.has_expanders { EXPANDED_DISKS_MAX } else { DISKS_MAX } {
            return Err(too_many(disks));
        }
        if disks == 0 {
            return Err(invalid("a soft HBA needs at least one disk").hint("give disks=1 or more"));
        }
        KEYS.check(&Written { options: self.clone(), ..Written::default() })?;
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

/// The options in the form of the text.
#[derive(Clone, Default)]
struct Written {
    options: SoftHbaOptions,
    disk: DiskOptions,
    disks: Option<usize>,
}

const TABLE: &[Key<Written>] = &[
    key("disks", "disks, all alike: 1 if not given, at most 32 without expanders", |w| {
        maybe(&mut w.disks, 1..=EXPANDED_DISKS_MAX as u64)
    }),
    key("size", "size of a disk", |w| bytes(&mut w.disk.size_bytes)),
    key("block", "logical block, 512 or 4096", |w| short_bytes(&mut w.disk.logical_block_bytes)),
    key("medium", "where the blocks are kept", |w| {
        const MEDIA: &[(&str, MediumOptions)] =
            &[("ram", MediumOptions::Ram), ("null", MediumOptions::Null)];
        one_of(&mut w.disk.medium, MEDIA)
    }),
    key("profile", "times of a disk", |w| one_of(&mut w.disk.profile, &DiskProfile::NAMES)),
    key("expanders", "expanders before the disks", |w| switch(&mut w.options.has_expanders)),
    key("mpi", "version of MPI", |w| {
        one_of(&mut w.options.is_later, &[("2.5", false), ("2.6", true)])
    }),
    key("pcie", "a drive behind PCIe; takes mpi=2.6", |w| switch(&mut w.options.has_pcie)),
    key("queues", "reply queues", |w| within(&mut w.options.queues, 1..=128)),
    key("credit", "requests in flight", |w| within(&mut w.options.credit, 64..=16384)),
    key("cache", "volatile write cache", |w| switch(&mut w.options.volatile_write_cache)),
    key("timestamp", "whether a timestamp can be set", |w| switch(&mut w.disk.timestamp)),
    key("strict", "whether the driver is checked", |w| switch(&mut w.options.strict)),
    key("serial", "seed of names: random if not given", |w| {
        plain(&mut w.options.serial, "any text")
    }),
];

const KEYS: Keys<Written> = Keys { of: "a soft HBA", repeats: true, keys: TABLE };

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
