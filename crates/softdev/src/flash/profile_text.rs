//! Profiles as text: `profile=tlc,read_us=40,dram_cache=1MiB`.

use std::fmt;
use std::str::FromStr;

use qpair_block::keys::{
    Key, Keys, always, bytes, key, ms, one_of, plain, rate, short_bytes, truth, us, within,
};
use qpair_block::{Error, ErrorKind, Result};

use super::profile::Profile;

const RATE: &str = "a whole number of MB/s; 0 for no limit";

const TABLE: &[Key<Profile>] = &[
    always("profile", "named profile, which the other keys change", |p| {
        const NAMES: &[(&str, &str)] = &[
            ("none", "none"),
            ("tlc", "tlc"),
            ("qlc", "qlc"),
            ("optane", "optane"),
            ("sas-ssd", "sas-ssd"),
        ];
        one_of(&mut p.name, NAMES)
    }),
    key("channels", "channels: buses that dies share", |p| within(&mut p.channels, 1..=64)),
    key("dies", "dies of a channel", |p| within(&mut p.dies, 1..=64)),
    key("page", "bytes of a read or program, a multiple of 4096", |p| {
        short_bytes(&mut p.page_bytes)
    }),
    key("pages_per_block", "pages erased together", |p| within(&mut p.pages_per_block, 1..=65536)),
    key("read_us", "time to read a page (tR)", |p| us(&mut p.read_ns)),
    key("program_us", "time to program a page (tPROG)", |p| us(&mut p.program_ns)),
    key("erase_us", "time to erase a block (tBERS)", |p| us(&mut p.erase_ns)),
    key("suspend_us", "time after which a read interrupts; 0 for never", |p| us(&mut p.suspend_ns)),
    key("channel_mb_per_s", "rate of a channel", |p| plain(&mut p.channel_mb_per_s, RATE)),
    key("link_mb_per_s", "rate to the host, each way", |p| plain(&mut p.link_mb_per_s, RATE)),
    key("command_us", "time between the starts of two commands", |p| us(&mut p.command_ns)),
    key(
        "controller_us",
        "time that the controller adds to a command",
        |p| us(&mut p.controller_ns),
    ),
    key("dram_cache", "cache for writes", |p| bytes(&mut p.cache_bytes)),
    key("dram_protected", "cache that survives power cuts", |p| truth(&mut p.cache_protected)),
    key("slc_cache", "cache of cells with one bit", |p| bytes(&mut p.slc_bytes)),
    key("slc_program_us", "time to program a page of that cache", |p| us(&mut p.slc_program_ns)),
    key("slc_idle_ms", "idle time after which that cache is folded", |p| ms(&mut p.slc_idle_ns)),
    key("over_provisioning", "flash beyond the size, as a share", |p| {
        rate(&mut p.over_provisioning)
    }),
    key("filled", "share of the drive that is written at first", |p| rate(&mut p.filled)),
    key("in_place", "whether cells are written in place", |p| truth(&mut p.in_place)),
    key("jitter", "how far times of the medium stray from their mean", |p| rate(&mut p.jitter)),
];

impl Profile {
    /// The keys of a profile. `profile` names the profile that the other keys change.
    pub const KEYS: Keys<Self> = Keys { of: "a profile", repeats: false, keys: TABLE };

    /// Returns the profile of that name.
    ///
    /// # Errors
    /// `Invalid` if no profile has that name.
    pub fn named(name: &str) -> Result<Self> {
        Self::NAMED.into_iter().find(|profile| profile.name == name).ok_or_else(|| {
            let known = Self::NAMED.map(|profile| profile.name).join(", ");
            Error::new(ErrorKind::Invalid, format!("there is no profile \"{name}\""))
                .hint(format!("the profiles are {known}"))
        })
    }

    /// Takes the options of a profile out of a list of keys and values, in any order, and leaves
    /// the others.
    ///
    /// # Errors
    /// `Invalid` for a value that makes no sense, or an option without a profile that it could
    /// change.
    pub fn take(options: &mut Vec<(&str, &str)>) -> Result<Self> {
        let name = options.iter().find(|(key, _)| *key == "profile");
        let mut profile = name.map_or(Ok(Self::NONE), |(_, name)| Self::named(name))?;
        let changes = &Self::KEYS.names()[1..];
        if let Some((key, value)) = options.iter().find(|(key, _)| changes.contains(key))
            && profile.is_none()
        {
            let context = format!("option {key}={value} needs a profile");
            return Err(
                Error::new(ErrorKind::Invalid, context).hint("give a profile, as in profile=tlc")
            );
        }
        Self::KEYS.take(options, &mut profile)?;
        profile.check()?;
        Ok(profile)
    }

    /// Checks that the profile describes a possible drive.
    ///
    /// # Errors
    /// `Invalid`; the error says which values do not fit.
    pub fn check(&self) -> Result<()> {
        Self::KEYS.check(self)?;
        let page = self.page_bytes;
        if !page.is_multiple_of(4096) || !(4096..=1 << 20).contains(&page) {
            let context = format!("option page={page} of a profile is not valid");
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("page is a multiple of 4096 from 4096 to 1MiB"));
        }
        Ok(())
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// Parses `tlc`, `tlc,read_us=40` or `profile=tlc,read_us=40`.
    fn from_str(text: &str) -> Result<Self> {
        let name_end = text.find(',').unwrap_or(text.len());
        let is_named = text.is_empty() || text[..name_end].contains('=');
        let text = if is_named { text.to_owned() } else { format!("profile={text}") };
        Self::KEYS.read_by(&text, Self::take)
    }
}

impl fmt::Display for Profile {
    /// Writes `profile=NAME`, and the values that differ from that profile.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::named(self.name).unwrap_or_default();
        f.write_str(&Self::KEYS.write(self, &usual))
    }
}
