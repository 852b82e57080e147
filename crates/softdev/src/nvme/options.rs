//! Options of a soft NVMe controller, and their text form. [`SoftNvmeOptions`] parses the text that
//! it displays.
//!
//! ```text
//! size=1GiB+2GiB,block=4096,medium=file:/a    two namespaces: SoftNvmeOptions::rows
//! profile=tlc,read_us=40                      times: Profile::KEYS
//! read_error_rate=0.01,seed=7                 faults: Plan::KEYS
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use qpair_block::keys::{
    Key, Keys, Row, always, key, list, one_of, quote, quoted, unquote, within,
};
use qpair_block::{Error, ErrorKind, Result, format_bytes, parse_bytes};
use qpair_nvme_device::{ControllerOptions, Doorbells};

use crate::faults::Plan;
use crate::flash::Profile;
use crate::medium::MediumOptions;

/// The maximum number of namespaces.
const NAMESPACES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// The size in bytes, a positive multiple of the logical block. With 0, a namespace on a file
    /// has the size of the file.
    pub size_bytes: u64,
    /// The size of a logical block in bytes, a power of two from 512 to 64 KiB.
    pub logical_block_bytes: u32,
    /// The medium that keeps the blocks.
    pub medium: MediumOptions,
}

impl Default for NamespaceOptions {
    fn default() -> Self {
        Self { size_bytes: 1 << 30, logical_block_bytes: 512, medium: MediumOptions::Ram }
    }
}

/// Options of a soft NVMe controller.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftNvmeOptions {
    /// The namespaces, numbered from 1. At least one is needed.
    pub namespaces: Vec<NamespaceOptions>,
    /// The maximum number of I/O queue pairs, 1 to 511.
    pub queues_max: u16,
    /// The maximum number of entries of an I/O queue, 2 to 65536.
    pub queue_entries_max: u32,
    /// The largest transfer: 4 KiB << mdts, 1 to 10.
    pub mdts: u8,
    /// Whether writes may be lost with the power until they are flushed. Without it, each write to
    /// a file goes to stable storage.
    pub volatile_write_cache: bool,
    /// The serial number, at most 20 printable characters. If empty, a random one is used.
    pub serial: String,
    /// The way in which drivers announce commands.
    pub doorbells: Doorbells,
    /// The timing profile of the flash.
    pub profile: Profile,
    pub faults: Plan,
}

impl Default for SoftNvmeOptions {
    fn default() -> Self {
        Self {
            namespaces: vec![NamespaceOptions::default()],
            queues_max: 32,
            queue_entries_max: 1024,
            mdts: 5,
            volatile_write_cache: false,
            serial: String::new(),
            doorbells: Doorbells::Mapped,
            profile: Profile::NONE,
            faults: Plan::default(),
        }
    }
}

impl SoftNvmeOptions {
    /// Parses the text form, which the module's documentation describes.
    ///
    /// # Errors
    /// `Invalid`; the error names the option.
    pub fn parse(text: &str) -> Result<Self> {
        Self::of_pairs(KEYS.pairs(text)?)
    }

    /// Creates options from keys and values.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn of_pairs(mut pairs: Vec<(&str, &str)>) -> Result<Self> {
        let mut written = Written::default();
        KEYS.take(&mut pairs, &mut written)?;
        let Written { mut options, sizes, blocks, media, cache } = written;
        options.profile = Profile::take(&mut pairs)?;
        options.faults = Plan::take(&mut pairs)?;
        let known = [KEYS.names(), Profile::KEYS.names(), Plan::KEYS.names()].concat();
        KEYS.finish(&pairs, &known)?;
        options.namespaces = namespaces(&sizes, &blocks, &media)?;
        options.volatile_write_cache = cache.unwrap_or_else(|| options.usual_cache());
        options.check()?;
        Ok(options)
    }

    /// Returns the keys of the text, without those of the profile and the faults.
    #[must_use]
    pub fn rows() -> Vec<Row> {
        KEYS.rows()
    }

    /// Whether drives with these options usually have a volatile write cache.
    fn usual_cache(&self) -> bool {
        let of_file =
            |namespace: &NamespaceOptions| matches!(namespace.medium, MediumOptions::File(_));
        !self.profile.cache_protected || self.namespaces.iter().any(of_file)
    }

    /// Returns the options of the controller in front of the drive.
    pub(super) fn controller(&self) -> ControllerOptions {
        ControllerOptions {
            queues_max: self.queues_max,
            queue_entries_max: self.queue_entries_max,
            mdts: self.mdts,
            doorbells: self.doorbells,
            volatile_write_cache: self.volatile_write_cache,
            serial: self.serial.clone(),
            model: "qpair soft NVMe drive".into(),
            subsystem: format!("nqn.2026-11.invalid.example:qpair:{}", self.serial),
            controller_id: 0,
            namespaces_max: self.namespaces.len() as u32,
            is_shared: false,
        }
    }

    /// Checks that a controller can be created with these options.
    ///
    /// # Errors
    /// `Invalid`; the error says which option is wrong.
    pub fn check(&self) -> Result<()> {
        if !(1..=NAMESPACES_MAX).contains(&self.namespaces.len()) {
            return Err(invalid(format!(
                "softnvme cannot have {} namespaces",
                self.namespaces.len()
            ))
            .hint(format!("their number is from 1 to {NAMESPACES_MAX}")));
        }
        self.controller().check()?;
        self.profile.check()?;
        for namespace in &self.namespaces {
            let NamespaceOptions { size_bytes, logical_block_bytes: block, ref medium } =
                *namespace;
            if !block.is_power_of_two() || !(512..=65536).contains(&block) {
                return Err(invalid(format!("softnvme cannot have block={block}"))
                    .hint("logical blocks are powers of two from 512 bytes to 64 KiB"));
            }
            let of_file = matches!(medium, MediumOptions::File(_));
            if !size_bytes.is_multiple_of(block.into()) || (size_bytes == 0 && !of_file) {
                return Err(invalid(format!("softnvme cannot have size={size_bytes}")).hint(
                    format!("its size is a positive multiple of its logical block, {block} bytes"),
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for SoftNvmeOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Writes the shortest text: a value that all namespaces share is written once, and a default is
/// not written.
impl fmt::Display for SoftNvmeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = NamespaceOptions::default();
        let all = self.namespaces.iter();
        let written = Written {
            sizes: all.clone().map(|one| one.size_bytes).collect(),
            blocks: shared(
                all.clone().map(|one| one.logical_block_bytes).collect(),
                usual.logical_block_bytes,
            ),
            media: shared(all.map(|one| one.medium.clone()).collect(), usual.medium),
            cache: Some(self.volatile_write_cache).filter(|cache| *cache != self.usual_cache()),
            options: self.clone(),
        };
        f.write_str(&KEYS.write(&written, &Written::default()))?;
        if self.profile != Profile::NONE {
            write!(f, ",{}", self.profile)?;
        }
        if self.faults != Plan::default() {
            write!(f, ",{}", self.faults)?;
        }
        Ok(())
    }
}

/// The options in the form of the text: a list for each property of namespaces, and no cache option
/// if the cache is the usual one.
#[derive(Clone, Default)]
struct Written {
    options: SoftNvmeOptions,
    sizes: Vec<u64>,
    blocks: Vec<u32>,
    media: Vec<MediumOptions>,
    cache: Option<bool>,
}

const TABLE: &[Key<Written>] = &[
    always("size", "size of a namespace: 1GiB or the file's if not given", |w| {
        let read = |size: &str| parse_bytes(size).ok();
        list(&mut w.sizes, read, |size| format_bytes(*size), "sizes such as 1GiB+2GiB")
    }),
    key("block", "logical block: 512 if not given", |w| {
        let read = |block: &str| parse_bytes(block).ok()?.try_into().ok();
        list(&mut w.blocks, read, u32::to_string, "sizes such as 512 or 512+4096")
    }),
    key("medium", "where the blocks are kept: ram if not given", |w| {
        let values = "ram, null or file:PATH, or more with + between; the path has a backslash before ',', '+' and '\\'";
        list(&mut w.media, medium, medium_text, values)
    }),
    key("queues", "I/O queue pairs", |w| within(&mut w.options.queues_max, 1..=511)),
    key("entries", "entries of a queue", |w| within(&mut w.options.queue_entries_max, 2..=65536)),
    key("mdts", "largest transfer: 4 KiB << mdts", |w| within(&mut w.options.mdts, 1..=10)),
    key("cache", "volatile write cache: on for files and profiles that have one", |w| {
        one_of(&mut w.cache, &[("off", Some(false)), ("on", Some(true))])
    }),
    key("doorbells", "mapped by drivers, trapped, or trapped with shadow doorbells", |w| {
        const WAYS: &[(&str, Doorbells)] = &[
            ("mapped", Doorbells::Mapped),
            ("trapped", Doorbells::Trapped),
            ("shadow", Doorbells::Shadow),
        ];
        one_of(&mut w.options.doorbells, WAYS)
    }),
    key("serial", "serial number: made up if not given", |w| {
        quoted(&mut w.options.serial, "at most 20 printable characters")
    }),
];

const KEYS: Keys<Written> = Keys { of: "softnvme:", repeats: false, keys: TABLE };

/// Returns one value for all if they are equal, and none if that is the usual one.
fn shared<V: Clone + PartialEq>(all: Vec<V>, usual: V) -> Vec<V> {
    let mut once = all.clone();
    once.dedup();
    if once.len() > 1 {
        return all;
    }
    once.retain(|value| *value != usual);
    once
}

fn invalid(context: String) -> Error {
    Error::new(ErrorKind::Invalid, context)
}

/// Returns the namespaces: a list of one value holds for all of them.
fn namespaces(
    sizes: &[u64],
    blocks: &[u32],
    media: &[MediumOptions],
) -> Result<Vec<NamespaceOptions>> {
    let lists = [("size", sizes.len()), ("block", blocks.len()), ("medium", media.len())];
    let count = lists.map(|(_, len)| len).into_iter().fold(1, usize::max);
    if let Some((key, len)) = lists.into_iter().find(|(_, len)| *len > 1 && *len != count) {
        let context = format!("option {key} of softnvme: has {len} values for {count} namespaces");
        return Err(invalid(context).hint("give one value for all namespaces, or one for each"));
    }
    let usual = NamespaceOptions::default();
    let namespace = |number: usize| {
        let medium = media.get(number).or(media.first()).unwrap_or(&usual.medium).clone();
        let of_file = matches!(medium, MediumOptions::File(_));
        let usual_size = if of_file { 0 } else { usual.size_bytes };
        let block = blocks.get(number).or(blocks.first());
        NamespaceOptions {
            size_bytes: *sizes.get(number).or(sizes.first()).unwrap_or(&usual_size),
            logical_block_bytes: *block.unwrap_or(&usual.logical_block_bytes),
            medium,
        }
    };
    Ok((0..count).map(namespace).collect())
}

fn medium(text: &str) -> Option<MediumOptions> {
    match text {
        "ram" => Some(MediumOptions::Ram),
        "null" => Some(MediumOptions::Null),
        _ => {
            let path = text.strip_prefix("file:").filter(|path| !path.is_empty())?;
            Some(MediumOptions::File(PathBuf::from(unquote(path).ok()?)))
        }
    }
}

fn medium_text(medium: &MediumOptions) -> String {
    match medium {
        MediumOptions::Ram => "ram".into(),
        MediumOptions::Null => "null".into(),
        MediumOptions::File(path) => format!("file:{}", quote(&path.to_string_lossy())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in [
            "size=1GiB",
            "size=1GiB+2GiB,block=4096",
            "size=8MiB+1TiB,block=512+4096,medium=ram+null",
            "size=1GiB,medium=file:/a\\,b\\+c\\\\d",
            "size=1GiB,medium=file:/x,cache=off",
            "size=1GiB,profile=tlc,read_us=40",
            "size=1GiB,profile=qlc,read_us=40,seed=3,read_error_rate=0.5,remove_after=9",
            "size=1GiB,cache=off,profile=qlc",
            "size=1GiB,cache=on,profile=tlc,timeout_after=1",
            "size=1GiB,seed=7,read_error_rate=0.01,remove_after=100",
            "size=64MiB,queues=4,entries=64,mdts=8,cache=on,doorbells=trapped,serial=S\\,1",
        ] {
            let options = SoftNvmeOptions::parse(text).unwrap();
            assert_eq!(options.to_string(), text);
            assert_eq!(SoftNvmeOptions::parse(&options.to_string()).unwrap(), options);
        }
        let short = SoftNvmeOptions::parse("block=4KiB,medium=null").unwrap();
        assert_eq!(short.to_string(), "size=1GiB,block=4096,medium=null");
        assert_eq!(SoftNvmeOptions::parse("").unwrap(), SoftNvmeOptions::default());
        let cached = |text: &str| SoftNvmeOptions::parse(text).unwrap().volatile_write_cache;
        assert!(cached("profile=qlc") && cached("medium=file:/x"));
        assert!(!cached("profile=qlc,cache=off") && !cached("profile=tlc"));
        let file = SoftNvmeOptions::parse("medium=file:/x").unwrap();
        assert_eq!(file.namespaces[0].size_bytes, 0, "the file's size");
    }

    #[test]
    fn refuses_the_rest() {
        for (text, named) in [
            ("colour=red", "colour"),
            ("profile=tape", "tape"),
            ("profile=tlc,dies=0", "dies"),
            ("read_us=5", "read_us"),
            ("read_error_rate=2", "read_error_rate"),
            ("size", "size"),
            ("size=1,size=2", "size"),
            ("size=x", "size"),
            ("size=1GiB+", "size"),
            ("size=0", "size"),
            ("size=1000", "size"),
            ("block=100", "block"),
            ("block=128KiB", "block"),
            ("size=1GiB+1GiB+1GiB,block=512+512", "block"),
            ("medium=tape", "medium"),
            ("medium=file:", "medium"),
            ("queues=0", "queues"),
            ("queues=512", "queues"),
            ("queues=-1", "queues"),
            ("entries=1", "entries"),
            ("entries=65537", "entries"),
            ("mdts=0", "mdts"),
            ("mdts=11", "mdts"),
            ("cache=maybe", "cache"),
            ("doorbells=bell", "doorbells"),
            ("serial=with blank", "serial"),
            ("serial=123456789012345678901", "serial"),
        ] {
            let error = SoftNvmeOptions::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains(named), "{text}: {error}");
        }
    }
}
