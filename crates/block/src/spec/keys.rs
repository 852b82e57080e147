//! `key=value,key=value`: the options of a device as text.
//!
//! A kind of device declares its keys once, as [`Keys`]. Parsing, writing, errors, help and the
//! reference page come from the declaration.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::text;
pub use super::text::unquote;
use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::size::{format_bytes, parse_bytes};

/// Longest time in nanoseconds: 1,000 s. Sums of many of them still fit.
const NS_MAX: f64 = 1e12;

/// The keys of one kind of device, with options `T`.
pub struct Keys<T: 'static> {
    /// The owner of the options, for errors: `ram:`.
    pub of: &'static str,
    /// Whether a key may be given again: the last value holds.
    pub repeats: bool,
    /// The keys, in the order in which they are written.
    pub keys: &'static [Key<T>],
}

/// A key and the value that it sets.
pub struct Key<T> {
    name: &'static str,
    help: &'static str,
    always: bool,
    slot: for<'a> fn(&'a mut T) -> Slot<'a>,
}

/// Declares a key that is written if its value is not the default.
pub const fn key<T>(
    name: &'static str,
    help: &'static str,
    slot: for<'a> fn(&'a mut T) -> Slot<'a>,
) -> Key<T> {
    Key { name, help, always: false, slot }
}

/// Declares a key that is always written, for a text that would otherwise be empty.
pub const fn always<T>(
    name: &'static str,
    help: &'static str,
    slot: for<'a> fn(&'a mut T) -> Slot<'a>,
) -> Key<T> {
    Key { name, help, always: true, slot }
}

/// A key for people.
#[derive(Clone, Debug)]
pub struct Row {
    /// The key.
    pub name: &'static str,
    /// The values that it takes: "a size such as 64KiB".
    pub values: String,
    /// The value without the key; empty if the driver or the device chooses.
    pub default: String,
    /// The meaning.
    pub help: &'static str,
}

/// A place for a value, and the form of the value in text.
pub enum Slot<'a> {
    /// A value as Rust writes it, with words for its values.
    Plain(&'a mut dyn Value, &'static str),
    /// A whole number in a range.
    Within(&'a mut dyn Value, RangeInclusive<u64>),
    /// A size in bytes.
    Bytes(&'a mut u64),
    /// A size in bytes below 4 GiB.
    ShortBytes(&'a mut u32),
    /// A number from 0 to 1.
    Rate(&'a mut f64),
    /// Nanoseconds, as a decimal number of units of so many nanoseconds.
    Time(&'a mut u64, u64),
    /// Text with a backslash before each `,`, `+` and `\`, with words for its values.
    Quoted(&'a mut String, &'static str),
    /// A value of another form, with words for its values.
    Other(Box<dyn Value + 'a>, String),
}

/// A value that text can set.
pub trait Value {
    /// Takes the value from the text, and returns whether the text has one.
    fn read(&mut self, text: &str) -> bool;

    /// Returns the text; empty if there is no value.
    fn write(&self) -> String;
}

/// A value that is written as Rust writes it.
pub trait Plain: FromStr + Display {}

impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for usize {}
impl Plain for String {}

impl<V: Plain> Value for V {
    fn read(&mut self, text: &str) -> bool {
        text.parse().map(|value| *self = value).is_ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl<V: Plain> Value for Option<V> {
    fn read(&mut self, text: &str) -> bool {
        *self = text.parse().ok();
        self.is_some()
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(String::new, V::to_string)
    }
}

/// Milliseconds.
impl Value for Duration {
    fn read(&mut self, text: &str) -> bool {
        text.parse::<u32>().map(|ms| *self = Self::from_millis(ms.into())).is_ok()
    }

    fn write(&self) -> String {
        self.as_millis().to_string()
    }
}

struct OneOf<'a, V: 'static>(&'a mut V, &'static [(&'static str, V)]);

impl<V: Clone + PartialEq> Value for OneOf<'_, V> {
    fn read(&mut self, text: &str) -> bool {
        let found = self.1.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| self.0.clone_from(value)).is_some()
    }

    fn write(&self) -> String {
        let found = self.1.iter().find(|(_, value)| value == self.0);
        found.map_or_else(String::new, |(word, _)| (*word).to_owned())
    }
}

struct List<'a, V>(&'a mut Vec<V>, fn(&str) -> Option<V>, fn(&V) -> String);

impl<V> Value for List<'_, V> {
    fn read(&mut self, text: &str) -> bool {
        let all: Option<Vec<V>> = split(text, '+').into_iter().map(self.1).collect();
        all.map(|all| *self.0 = all).is_some() && !self.0.is_empty()
    }

    fn write(&self) -> String {
        self.0.iter().map(self.2).collect::<Vec<_>>().join("+")
    }
}

impl<'a> Slot<'a> {
    /// Returns the slot of a value that is one of these words.
    pub fn one_of<V>(value: &'a mut V, words: &'static [(&'static str, V)]) -> Self
    where
        V: Clone + PartialEq,
    {
        let mut text = String::new();
        for (at, (word, _)) in words.iter().enumerate() {
            let last = at + 1 == words.len();
            text += if at == 0 {
                ""
            } else if last {
                " or "
            } else {
                ", "
            };
            text += word;
        }
        Self::Other(Box::new(OneOf(value, words)), text)
    }

    /// Returns the slot of a switch that is `true` or `false`.
    pub fn truth(value: &'a mut bool) -> Self {
        Self::one_of(value, &[("true", true), ("false", false)])
    }

    /// Returns the slot of a switch that is `on` or `off`.
    pub fn switch(value: &'a mut bool) -> Self {
        Self::one_of(value, &[("on", true), ("off", false)])
    }

    /// Returns the slot of a list with `+` between its elements.
    pub fn list<V>(
        list: &'a mut Vec<V>,
        read: fn(&str) -> Option<V>,
        write: fn(&V) -> String,
        values: &str,
    ) -> Self {
        Self::Other(Box::new(List(list, read, write)), values.to_owned())
    }

    fn values(&self) -> String {
        match self {
            Self::Plain(_, words) | Self::Quoted(_, words) => (*words).to_owned(),
            Self::Within(_, range) if *range.end() == u64::MAX => {
                format!("a number from {}", range.start())
            }
            Self::Within(_, range) => format!("a number from {} to {}", range.start(), range.end()),
            Self::Bytes(_) => "a size such as 64KiB".to_owned(),
            Self::ShortBytes(_) => "a size below 4GiB, such as 4KiB".to_owned(),
            Self::Rate(_) => "a number from 0 to 1".to_owned(),
            Self::Time(_, 1_000_000) => "milliseconds, at most 1000 s".to_owned(),
            Self::Time(..) => "microseconds, at most 1000 s".to_owned(),
            Self::Other(_, words) => words.clone(),
        }
    }

    /// Takes the value from the text. The error has the cause, if there is one below.
    fn read(&mut self, text: &str) -> std::result::Result<(), Option<Error>> {
        let done = match self {
            Self::Plain(value, _) => value.read(text),
            Self::Within(value, range) => {
                text.parse().is_ok_and(|number| range.contains(&number)) && value.read(text)
            }
            Self::Bytes(bytes) => {
                **bytes = parse_bytes(text).map_err(Some)?;
                true
            }
            Self::ShortBytes(bytes) => {
                let read = parse_bytes(text).map_err(Some)?;
                u32::try_from(read).map(|read| **bytes = read).is_ok()
            }
            Self::Rate(rate) => {
                let read = text.parse().ok().filter(|read| (0.0..=1.0).contains(read));
                read.map(|read| **rate = read).is_some()
            }
            Self::Time(ns, unit_ns) => {
                let read = text.parse().ok().map(|time: f64| (time * *unit_ns as f64).round());
                let read = read.filter(|ns| (0.0..=NS_MAX).contains(ns));
                read.map(|read| **ns = read as u64).is_some()
            }
            Self::Quoted(value, _) => unquote(text).map(|read| **value = read).is_ok(),
            Self::Other(value, _) => value.read(text),
        };
        if done { Ok(()) } else { Err(None) }
    }

    fn write(&self) -> String {
        match self {
            Self::Plain(value, _) | Self::Within(value, _) => value.write(),
            Self::Bytes(bytes) => format_bytes(**bytes),
            Self::ShortBytes(bytes) => format_bytes((**bytes).into()),
            Self::Rate(rate) => rate.to_string(),
            Self::Time(ns, unit_ns) => {
                let (whole, rest) = (**ns / unit_ns, **ns % unit_ns);
                let width = unit_ns.ilog10() as usize;
                let text = format!("{whole}.{rest:0width$}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            Self::Quoted(text, _) => quote(text).into_owned(),
            Self::Other(value, _) => value.write(),
        }
    }
}

impl<T: Clone + Default> Keys<T> {
    /// Reads options: the default, with what the text changes.
    ///
    /// # Errors
    /// `Invalid` for an unknown key, which names the known ones, a key without a value, a key that
    /// is given twice, and a value that the key does not take.
    pub fn read(&self, text: &str) -> Result<T> {
        self.read_by(text, |pairs| {
            let mut options = T::default();
            self.take(pairs, &mut options).map(|()| options)
        })
    }

    /// Reads options with a function that takes the pairs that it knows.
    ///
    /// # Errors
    /// As [`Keys::read`], and those of the function.
    pub fn read_by(
        &self,
        text: &str,
        take: impl FnOnce(&mut Vec<(&str, &str)>) -> Result<T>,
    ) -> Result<T> {
        let mut pairs = self.pairs(text)?;
        let options = take(&mut pairs)?;
        self.finish(&pairs, &self.names())?;
        Ok(options)
    }

    /// Splits the text into keys and values.
    ///
    /// # Errors
    /// `Invalid` for a key without a value, and for a key that is given twice.
    pub fn pairs<'a>(&self, text: &'a str) -> Result<Vec<(&'a str, &'a str)>> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        let invalid = |what| Error::new(ErrorKind::Invalid, format!("option {what}"));
        for option in split(text, ',') {
            let Some((key, value)) = option.split_once('=') else {
                return Err(invalid(format!("\"{option}\" of {} has no value", self.of))
                    .hint("write key=value,key=value"));
            };
            if !self.repeats && pairs.iter().any(|(other, _)| *other == key) {
                return Err(invalid(format!("{key} of {} is given twice", self.of)));
            }
            pairs.push((key, value));
        }
        Ok(pairs)
    }

    /// Takes the pairs with keys of this table and leaves the other pairs.
    ///
    /// # Errors
    /// `Invalid` for a value that the key does not take.
    pub fn take(&self, pairs: &mut Vec<(&str, &str)>, options: &mut T) -> Result<()> {
        for key in self.keys {
            for (_, text) in pairs.extract_if(.., |(name, _)| *name == key.name) {
                self.set(key, options, text)?;
            }
        }
        Ok(())
    }

    fn set(&self, key: &Key<T>, options: &mut T, text: &str) -> Result<()> {
        let mut slot = (key.slot)(options);
        slot.read(text).map_err(|cause| {
            let context = format!("option {}={text} of {}", key.name, self.of);
            let error = Error::new(ErrorKind::Invalid, context).hint(format!(
                "{} is {}",
                key.name,
                slot.values()
            ));
            match cause {
                Some(cause) => error.caused_by(cause),
                None => error,
            }
        })
    }

    /// Refuses pairs that nothing has taken.
    ///
    /// # Errors
    /// `Invalid`, with the known keys.
    pub fn finish(&self, pairs: &[(&str, &str)], known: &[&str]) -> Result<()> {
        let Some((key, _)) = pairs.first() else { return Ok(()) };
        let context = format!("unknown option \"{key}\" of {}", self.of);
        Err(Error::new(ErrorKind::Invalid, context).hint(format!("known are {}", known.join(", "))))
    }

    /// Checks that each key takes the value that the options have.
    ///
    /// # Errors
    /// `Invalid` for a value that the key does not take.
    pub fn check(&self, options: &T) -> Result<()> {
        let mut options = options.clone();
        self.keys.iter().try_for_each(|key| {
            let text = (key.slot)(&mut options).write();
            if text.is_empty() { Ok(()) } else { self.set(key, &mut options, &text) }
        })
    }

    /// Writes the options that differ from `usual`, and those that are always written.
    #[must_use]
    pub fn write(&self, options: &T, usual: &T) -> String {
        let (mut options, mut usual) = (options.clone(), usual.clone());
        let mut pairs = Vec::new();
        for key in self.keys {
            let text = (key.slot)(&mut options).write();
            if key.always || text != (key.slot)(&mut usual).write() {
                pairs.push(format!("{}={text}", key.name));
            }
        }
        pairs.join(",")
    }

    /// Returns the names of the keys.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    /// Returns the keys for people.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut usual = T::default();
        let row = |key: &Key<T>| {
            let slot = (key.slot)(&mut usual);
            Row { name: key.name, values: slot.values(), default: slot.write(), help: key.help }
        };
        self.keys.iter().map(row).collect()
    }
}

/// Splits `key=value,...:rest` of a driver's name for a device: the text before the first colon
/// has options if it holds a `=` and no `/`.
#[must_use]
pub fn split_driver_options(name: &str) -> (&str, &str) {
    let has_options = |head: &str| head.contains('=') && !head.contains('/');
    name.split_once(':').filter(|(head, _)| has_options(head)).unwrap_or(("", name))
}

/// Puts a backslash before each character of a value that has a meaning in options.
#[must_use]
pub fn quote(value: &str) -> Cow<'_, str> {
    text::quote(value, &[',', '+', '\\'])
}

/// Splits at `separator`, but not after a backslash. An empty text has no parts.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut skip = false;
    let parts = text.split(|c| {
        let is_end = c == separator && !skip;
        skip = c == '\\' && !skip;
        is_end
    });
    parts.filter(|_| !text.is_empty()).collect()
}
