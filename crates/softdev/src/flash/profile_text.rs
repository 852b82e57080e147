//! Profiles as text: `profile=tlc,read_us=40,dram_cache=1MiB`.

use std::fmt;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind, Result, format_bytes};

use super::profile::Profile;
use crate::pairs;

/// Nanoseconds of a microsecond.
const US: u32 = 1000;
/// Nanoseconds of a millisecond.
const MS: u32 = 1_000_000;

impl Profile {
    /// The keys of its text. `profile` names what the others change.
    pub const KEYS: [&str; 22] = [
        "profile",
        "channels",
        "dies",
        "page",
        "pages_per_block",
        "read_us",
        "program_us",
        "erase_us",
        "suspend_us",
        "channel_mb_per_s",
        "link_mb_per_s",
        "command_us",
        "controller_us",
        "dram_cache",
        "dram_protected",
        "slc_cache",
        "slc_program_us",
        "slc_idle_ms",
        "over_provisioning",
        "filled",
        "in_place",
        "jitter",
    ];

    /// The profile of that name, as it stands.
    ///
    /// # Errors
    /// `Invalid` if there is none.
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
        let mut profile = Self::NONE;
        if let Some(at) = options.iter().position(|(key, _)| *key == "profile") {
            profile = Self::named(options.remove(at).1)?;
        }
        let mut failure = None;
        options.retain(|(key, value)| {
            if failure.is_some() || !Self::KEYS.contains(key) {
                return true;
            }
            failure = profile.set(key, value).err();
            false
        });
        failure.map_or(Ok(()), Err)?;
        profile.check()?;
        Ok(profile)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if self.is_none() {
            let context = format!("option {key}={value} needs a profile");
            return Err(
                Error::new(ErrorKind::Invalid, context).hint("give a profile, as in profile=tlc")
            );
        }
        let number = || pairs::value(key, value, "a whole number");
        let us = || pairs::time_ns(key, value, US);
        match key {
            "channels" => self.channels = number()?,
            "dies" => self.dies = number()?,
            "page" => {
                self.page_bytes = u32::try_from(pairs::bytes(key, value)?)
                    .map_err(|_| pairs::invalid(key, value, "a size below 4GiB"))?;
            }
            "pages_per_block" => self.pages_per_block = number()?,
            "read_us" => self.read_ns = us()?,
            "program_us" => self.program_ns = us()?,
            "erase_us" => self.erase_ns = us()?,
            "suspend_us" => self.suspend_ns = us()?,
            "channel_mb_per_s" => self.channel_mb_per_s = number()?,
            "link_mb_per_s" => self.link_mb_per_s = number()?,
            "command_us" => self.command_ns = us()?,
            "controller_us" => self.controller_ns = us()?,
            "dram_cache" => self.cache_bytes = pairs::bytes(key, value)?,
            "dram_protected" => self.cache_protected = pairs::value(key, value, "true or false")?,
            "slc_cache" => self.slc_bytes = pairs::bytes(key, value)?,
            "slc_program_us" => self.slc_program_ns = us()?,
            "slc_idle_ms" => self.slc_idle_ns = pairs::time_ns(key, value, MS)?,
            "over_provisioning" => self.over_provisioning = pairs::rate(key, value)?,
            "filled" => self.filled = pairs::rate(key, value)?,
            "in_place" => self.in_place = pairs::value(key, value, "true or false")?,
            "jitter" => self.jitter = pairs::rate(key, value)?,
            _ => return pairs::finish("a profile", &[(key, value)], &Self::KEYS),
        }
        Ok(())
    }

    /// Whether a drive can be made of it.
    ///
    /// # Errors
    /// `Invalid`, with what cannot be.
    pub fn check(&self) -> Result<()> {
        let bounds = [
            ("channels", u64::from(self.channels), 1, 64),
            ("dies", u64::from(self.dies), 1, 64),
            ("page", u64::from(self.page_bytes), 4096, 1 << 20),
            ("pages_per_block", u64::from(self.pages_per_block), 1, 1 << 16),
        ];
        for (key, value, min, max) in bounds {
            if !(min..=max).contains(&value) {
                return Err(pairs::invalid(key, value, &format!("from {min} to {max}")));
            }
        }
        if !self.page_bytes.is_multiple_of(4096) {
            return Err(pairs::invalid("page", self.page_bytes, "a multiple of 4096"));
        }
        Ok(())
    }

    /// Returns the options of the profile as keys and values.
    fn pairs(&self) -> [(&'static str, String); 21] {
        let us = |ns| pairs::format_time(ns, US.into());
        [
            ("channels", self.channels.to_string()),
            ("dies", self.dies.to_string()),
            ("page", format_bytes(self.page_bytes.into())),
            ("pages_per_block", self.pages_per_block.to_string()),
            ("read_us", us(self.read_ns)),
            ("program_us", us(self.program_ns)),
            ("erase_us", us(self.erase_ns)),
            ("suspend_us", us(self.suspend_ns)),
            ("channel_mb_per_s", self.channel_mb_per_s.to_string()),
            ("link_mb_per_s", self.link_mb_per_s.to_string()),
            ("command_us", us(self.command_ns)),
            ("controller_us", us(self.controller_ns)),
            ("dram_cache", format_bytes(self.cache_bytes)),
            ("dram_protected", self.cache_protected.to_string()),
            ("slc_cache", format_bytes(self.slc_bytes)),
            ("slc_program_us", us(self.slc_program_ns)),
            ("slc_idle_ms", pairs::format_time(self.slc_idle_ns, MS.into())),
            ("over_provisioning", self.over_provisioning.to_string()),
            ("filled", self.filled.to_string()),
            ("in_place", self.in_place.to_string()),
            ("jitter", self.jitter.to_string()),
        ]
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// Reads `tlc`, `tlc,read_us=40` or `profile=tlc,read_us=40`.
    fn from_str(text: &str) -> Result<Self> {
        let name_end = text.find(',').unwrap_or(text.len());
        let named;
        let text = if text[..name_end].contains('=') || text.is_empty() {
            text
        } else {
            named = format!("profile={text}");
            &named
        };
        let mut options = pairs::split("a profile", text)?;
        let profile = Self::take(&mut options)?;
        pairs::finish("a profile", &options, &Self::KEYS)?;
        Ok(profile)
    }
}

impl fmt::Display for Profile {
    /// `profile=NAME`, and what differs from that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile={}", self.name)?;
        let usual = Self::NAMED.into_iter().find(|other| other.name == self.name);
        let usual = usual.unwrap_or(Self::NONE).pairs();
        for ((key, value), (_, usual)) in self.pairs().into_iter().zip(usual) {
            if value != usual {
                write!(f, ",{key}={value}")?;
            }
        }
        Ok(())
    }
}
