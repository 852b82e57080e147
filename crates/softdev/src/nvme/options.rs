//! How to make a soft NVMe controller, and the text for it. Text and value say the same: what
//! [`SoftNvmeOptions`] displays, it reads back.
//!
//! ```text
//! size=1GiB                       of a namespace; several: size=1GiB+2GiB
//! block=512                       logical block, bytes; one for all namespaces, or one for each
//! medium=ram                      or null, or file:PATH (a backslash before `,`, `+` and `\` of the path)
//! queues=32 entries=1024 mdts=5   I/O queue pairs, entries of a queue, largest transfer (4 KiB << mdts)
//! cache=off                       whether there is a volatile write cache (on for files, and for profiles that have one)
//! doorbells=mapped                or trapped: drivers cannot map them; or shadow: and are offered doorbells in their own memory
//! serial=TEXT                     made up if not given
//! profile=tlc,read_us=40          how long things take: see `flash`
//! read_error_rate=0.01,seed=7     what goes wrong: see `faults`
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind, Result, format_bytes, parse_bytes};
use qpair_nvme_device::{ControllerOptions, Doorbells};

use crate::faults::Plan;
use crate::flash::Profile;
use crate::medium::MediumOptions;

/// Most namespaces.
const NAMESPACES_MAX: usize = 256;

/// The doorbells that text can name.
const DOORBELLS: [(&str, Doorbells); 3] =
    [("mapped", Doorbells::Mapped), ("trapped", Doorbells::Trapped), ("shadow", Doorbells::Shadow)];

fn doorbells(key: &str, value: &str) -> Result<Doorbells> {
    let found = DOORBELLS.into_iter().find(|(name, _)| *name == value);
    found.map(|(_, doorbells)| doorbells).ok_or_else(|| {
        invalid(format!("option {key}={value} of a soft drive is not valid"))
            .hint("give mapped, trapped or shadow")
    })
}

/// Options of a namespace.
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
    /// The largest transfer: 4 KiB times two to this power, 1 to 10.
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
    /// The faults.
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
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for option in split(text, ',') {
            let Some((key, value)) = option.split_once('=') else {
                return Err(invalid(format!("option \"{option}\" of softnvme has no value"))
                    .hint("write softnvme:key=value,key=value"));
            };
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(invalid(format!("option {key} of softnvme is given twice")));
            }
            pairs.push((key, value));
        }
        let mut options = Self {
            profile: Profile::take(&mut pairs)?,
            faults: Plan::take(&mut pairs)?,
            ..Self::default()
        };
        let (mut sizes, mut blocks, mut media) = (Vec::new(), Vec::new(), Vec::new());
        let mut cache = None;
        for (key, value) in pairs {
            match key {
                "size" => sizes = list(key, value, |text| parse_bytes(text).ok())?,
                "block" => {
                    let block = |text: &str| parse_bytes(text).ok().and_then(|b| b.try_into().ok());
                    blocks = list(key, value, block)?;
                }
                "medium" => media = list(key, value, medium)?,
                "queues" => options.queues_max = number(key, value)?,
                "entries" => options.queue_entries_max = number(key, value)?,
                "mdts" => options.mdts = number(key, value)?,
                "cache" => cache = Some(one_of(key, value, ["off", "on"])?),
                "doorbells" => options.doorbells = doorbells(key, value)?,
                "serial" => options.serial = unquote(value),
                _ => return Err(unknown(key)),
            }
        }
        options.namespaces = namespaces(&sizes, &blocks, &media)?;
        options.volatile_write_cache = cache.unwrap_or_else(|| options.usual_cache());
        options.check()?;
        Ok(options)
    }

    /// Whether such a drive usually has a volatile write cache.
    fn usual_cache(&self) -> bool {
        let of_file =
            |namespace: &NamespaceOptions| matches!(namespace.medium, MediumOptions::File(_));
        !self.profile.cache_protected || self.namespaces.iter().any(of_file)
    }

    /// The controller before the drive.
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

/// As short as it can be: what all namespaces share is said once, and what is usual is not said.
impl fmt::Display for SoftNvmeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::default();
        let of_first = NamespaceOptions::default();
        let sizes: Vec<_> = self.namespaces.iter().map(|n| format_bytes(n.size_bytes)).collect();
        let blocks: Vec<_> =
            self.namespaces.iter().map(|n| n.logical_block_bytes.to_string()).collect();
        let media: Vec<_> = self.namespaces.iter().map(|n| medium_text(&n.medium)).collect();
        write!(f, "size={}", sizes.join("+"))?;
        if let Some(blocks) = shared(&blocks, &of_first.logical_block_bytes.to_string()) {
            write!(f, ",block={blocks}")?;
        }
        if let Some(media) = shared(&media, "ram") {
            write!(f, ",medium={media}")?;
        }
        if self.queues_max != usual.queues_max {
            write!(f, ",queues={}", self.queues_max)?;
        }
        if self.queue_entries_max != usual.queue_entries_max {
            write!(f, ",entries={}", self.queue_entries_max)?;
        }
        if self.mdts != usual.mdts {
            write!(f, ",mdts={}", self.mdts)?;
        }
        if self.volatile_write_cache != self.usual_cache() {
            f.write_str(if self.volatile_write_cache { ",cache=on" } else { ",cache=off" })?;
        }
        for (name, doorbells) in &DOORBELLS[1..] {
            if self.doorbells == *doorbells {
                write!(f, ",doorbells={name}")?;
            }
        }
        if !self.serial.is_empty() {
            write!(f, ",serial={}", quote(&self.serial))?;
        }
        if self.profile != usual.profile {
            write!(f, ",{}", self.profile)?;
        }
        if self.faults != usual.faults {
            write!(f, ",{}", self.faults)?;
        }
        Ok(())
    }
}

fn unknown(key: &str) -> Error {
    let own = "size, block, medium, queues, entries, mdts, cache, doorbells, serial, profile";
    let (profile, faults) = (Profile::KEYS.join(", "), Plan::KEYS.join(", "));
    invalid(format!("softnvme has no option {key}"))
        .hint(format!("the options are {own}; of a profile {profile}; of faults {faults}"))
}

fn invalid(context: String) -> Error {
    Error::new(ErrorKind::Invalid, context)
}

/// A list in text, or once what all of it says; `None` if that is usual.
fn shared(list: &[String], usual: &str) -> Option<String> {
    let first = list.first()?;
    if list.iter().any(|other| other != first) {
        return Some(list.join("+"));
    }
    (first != usual).then(|| first.clone())
}

fn namespaces(
    sizes: &[u64],
    blocks: &[u32],
    media: &[MediumOptions],
) -> Result<Vec<NamespaceOptions>> {
    let usual = NamespaceOptions::default();
    let count = sizes.len().max(blocks.len()).max(media.len()).max(1);
    let mut namespaces = Vec::new();
    for number in 0..count {
        let medium = of_list("medium", media, number, count)?.unwrap_or(usual.medium.clone());
        let usual_size = match medium {
            MediumOptions::File(_) => 0,
            _ => usual.size_bytes,
        };
        namespaces.push(NamespaceOptions {
            size_bytes: of_list("size", sizes, number, count)?.unwrap_or(usual_size),
            logical_block_bytes: of_list("block", blocks, number, count)?
                .unwrap_or(usual.logical_block_bytes),
            medium,
        });
    }
    Ok(namespaces)
}

/// Returns a list's value for one namespace of `count`; a list of one holds for all.
fn of_list<T: Clone>(key: &str, list: &[T], number: usize, count: usize) -> Result<Option<T>> {
    match list.len() {
        0 | 1 => Ok(list.first().cloned()),
        len if len == count => Ok(list.get(number).cloned()),
        len => Err(invalid(format!(
            "option {key} of softnvme has {len} values for {count} namespaces"
        ))
        .hint("give one value for all namespaces, or one for each")),
    }
}

fn list<T>(key: &str, value: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    let element = |text: &str| {
        read(text).ok_or_else(|| invalid(format!("option {key} of softnvme cannot be \"{text}\"")))
    };
    split(value, '+').into_iter().map(element).collect()
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| {
        invalid(format!("option {key} of softnvme cannot be \"{value}\"")).hint("write a number")
    })
}

/// Whether it is the second of two words.
fn one_of(key: &str, value: &str, words: [&str; 2]) -> Result<bool> {
    words.iter().position(|word| *word == value).map(|at| at == 1).ok_or_else(|| {
        invalid(format!("option {key} of softnvme cannot be \"{value}\""))
            .hint(format!("write {key}={} or {key}={}", words[0], words[1]))
    })
}

fn medium(text: &str) -> Option<MediumOptions> {
    match text {
        "ram" => Some(MediumOptions::Ram),
        "null" => Some(MediumOptions::Null),
        _ => {
            let path = text.strip_prefix("file:").filter(|path| !path.is_empty())?;
            Some(MediumOptions::File(PathBuf::from(unquote(path))))
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

/// Splits at `separator`, but not after a backslash. Nothing has no parts.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut skip) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if skip => skip = false,
            '\\' => skip = true,
            c if c == separator => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        if matches!(c, ',' | '+' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

fn unquote(text: &str) -> String {
    let (mut plain, mut skip) = (String::new(), false);
    for c in text.chars() {
        if c == '\\' && !skip {
            skip = true;
        } else {
            skip = false;
            plain.push(c);
        }
    }
    plain
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
