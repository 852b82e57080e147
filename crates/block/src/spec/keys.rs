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

/// The longest time, in nanoseconds: 1,000 s. Sums of many such times do not overflow.
const NS_MAX: f64 = 1e12;

/// The keys of one kind of device, with options `T`.
pub struct Keys<T: 'static> {
    /// The owner of the options, for errors: `ram:`.
    pub of: &'static str,
    /// Whether a key may be given more than once. The last value holds.
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
pub struct Slot<'a> {
    values: String,
    text: String,
    read: Box<Reader<'a>>,
}

/// Reads a text into the place.
type Reader<'a> = dyn FnOnce(&str) -> Read<()> + 'a;

/// The value of a text, or the cause of the error if there is one below.
type Read<V> = std::result::Result<V, Option<Error>>;

/// Returns the slot of a value of any form, with words for the values.
fn slot<'a, V>(
    value: &'a mut V,
    values: impl Into<String>,
    write: impl FnOnce(&V) -> String,
    read: impl FnOnce(&str) -> Read<V> + 'a,
) -> Slot<'a> {
    let text = write(value);
    Slot {
        values: values.into(),
        text,
        read: Box::new(|text| read(text).map(|read| *value = read)),
    }
}

/// Returns the slot of a value in Rust's own text form, with words for the values.
pub fn plain<'a, V: FromStr + Display>(value: &'a mut V, values: &str) -> Slot<'a> {
    slot(value, values, V::to_string, |text| text.parse().map_err(|_| None))
}

/// Returns the slot of `true` or `false`.
pub fn truth(value: &mut bool) -> Slot<'_> {
    plain(value, "true or false")
}

/// Returns the slot of `on` or `off`.
pub fn switch(value: &mut bool) -> Slot<'_> {
    one_of(value, &[("on", true), ("off", false)])
}

/// Returns the slot of a whole number in a range.
pub fn within<V: FromStr + Display>(value: &mut V, range: RangeInclusive<u64>) -> Slot<'_> {
    slot(value, range_words(&range), V::to_string, move |text| number(text, &range))
}

/// Returns the slot of a whole number in a range, or no number.
pub fn maybe<V: FromStr + Display>(value: &mut Option<V>, range: RangeInclusive<u64>) -> Slot<'_> {
    let write = |value: &Option<V>| value.as_ref().map_or_else(String::new, V::to_string);
    slot(value, range_words(&range), write, move |text| number(text, &range).map(Some))
}

fn range_words(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (least, &u64::MAX) => format!("a number from {least}"),
        (least, most) => format!("a number from {least} to {most}"),
    }
}

fn number<V: FromStr>(text: &str, range: &RangeInclusive<u64>) -> Read<V> {
    let is_in_range = text.parse().is_ok_and(|number| range.contains(&number));
    text.parse().ok().filter(|_| is_in_range).ok_or(None)
}

/// Returns the slot of a size in bytes.
pub fn bytes(value: &mut u64) -> Slot<'_> {
    let read = |text: &str| parse_bytes(text).map_err(Some);
    slot(value, "a size such as 64KiB", |bytes| format_bytes(*bytes), read)
}

/// Returns the slot of a size in bytes below 4 GiB.
pub fn short_bytes(value: &mut u32) -> Slot<'_> {
    let read = |text: &str| parse_bytes(text).map_err(Some)?.try_into().map_err(|_| None);
    slot(value, "a size below 4GiB, such as 4KiB", |bytes| format_bytes((*bytes).into()), read)
}

/// Returns the slot of a number from 0 to 1.
pub fn rate(value: &mut f64) -> Slot<'_> {
    let read = |text: &str| text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate)).ok_or(None);
    slot(value, "a number from 0 to 1", f64::to_string, read)
}

/// Returns the slot of nanoseconds, written as a decimal number of microseconds.
pub fn us(ns: &mut u64) -> Slot<'_> {
    time(ns, 1000, "microseconds, at most 1000 s")
}

/// Returns the slot of nanoseconds, written as a decimal number of milliseconds.
pub fn ms(ns: &mut u64) -> Slot<'_> {
    time(ns, 1_000_000, "milliseconds, at most 1000 s")
}

fn time<'a>(ns: &'a mut u64, unit_ns: u64, values: &str) -> Slot<'a> {
    let write = |ns: &u64| {
        let width = unit_ns.ilog10() as usize;
        let text = format!("{}.{:0width$}", ns / unit_ns, ns % unit_ns);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    slot(ns, values, write, move |text| {
        let ns = text.parse().ok().map(|time: f64| (time * unit_ns as f64).round());
        ns.filter(|ns| (0.0..=NS_MAX).contains(ns)).map(|ns| ns as u64).ok_or(None)
    })
}

/// Returns the slot of whole milliseconds.
pub fn millis(value: &mut Duration) -> Slot<'_> {
    let read = |text: &str| text.parse::<u32>().map_err(|_| None);
    slot(
        value,
        "whole milliseconds",
        |value| value.as_millis().to_string(),
        move |text| Ok(Duration::from_millis(read(text)?.into())),
    )
}

/// Returns the slot of text with a backslash before each `,`, `+` and `\`, with words for the
/// values.
pub fn quoted<'a>(value: &'a mut String, values: &str) -> Slot<'a> {
    slot(value, values, |text| quote(text).into_owned(), |text| unquote(text).map_err(Some))
}

/// Returns the slot of one of these words.
pub fn one_of<'a, V>(value: &'a mut V, words: &'static [(&'static str, V)]) -> Slot<'a>
where
    V: Clone + PartialEq,
{
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let values = match &all[..] {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        all => all.concat(),
    };
    let write = |value: &V| {
        let found = words.iter().find(|(_, known)| known == value);
        found.map_or_else(String::new, |(word, _)| (*word).to_owned())
    };
    slot(value, values, write, |text| {
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone()).ok_or(None)
    })
}

/// Returns the slot of a list with `+` between its elements, with words for the values.
pub fn list<'a, V>(
    value: &'a mut Vec<V>,
    read: fn(&str) -> Option<V>,
    write: fn(&V) -> String,
    values: &str,
) -> Slot<'a> {
    let write = |all: &Vec<V>| all.iter().map(write).collect::<Vec<_>>().join("+");
    slot(value, values, write, move |text| {
        let all: Option<Vec<V>> = split(text, '+').into_iter().map(read).collect();
        all.filter(|all| !all.is_empty()).ok_or(None)
    })
}

impl<T: Clone + Default> Keys<T> {
    /// Reads options: starts with the defaults, and applies the text.
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

    /// Reads options with a function that takes the pairs with keys it knows.
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

    /// Takes the pairs with keys of this table, and leaves the other pairs.
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
        let Slot { values, read, .. } = (key.slot)(options);
        read(text).map_err(|cause| {
            let context = format!("option {}={text} of {} is not valid", key.name, self.of);
            let error = Error::new(ErrorKind::Invalid, context);
            let error = error.hint(format!("{} is {values}", key.name));
            match cause {
                Some(cause) => error.caused_by(cause),
                None => error,
            }
        })
    }

    /// Returns an error if pairs are left that no table has taken.
    ///
    /// # Errors
    /// `Invalid`, with the known keys.
    pub fn finish(&self, pairs: &[(&str, &str)], known: &[&str]) -> Result<()> {
        let Some((key, _)) = pairs.first() else { return Ok(()) };
        let context = format!("option \"{key}\" of {} is unknown", self.of);
        Err(Error::new(ErrorKind::Invalid, context)
            .hint(format!("the options are {}", known.join(", "))))
    }

    /// Checks that each key takes the value that the options have.
    ///
    /// # Errors
    /// `Invalid` for a value that the key does not take.
    pub fn check(&self, options: &T) -> Result<()> {
        let mut options = options.clone();
        self.keys.iter().try_for_each(|key| {
            let text = (key.slot)(&mut options).text;
            if text.is_empty() { Ok(()) } else { self.set(key, &mut options, &text) }
        })
    }

    /// Writes the options that differ from `usual`, and those that are always written.
    #[must_use]
    pub fn write(&self, options: &T, usual: &T) -> String {
        let (mut options, mut usual) = (options.clone(), usual.clone());
        let mut pairs = Vec::new();
        for key in self.keys {
            let text = (key.slot)(&mut options).text;
            if key.always || text != (key.slot)(&mut usual).text {
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
            let Slot { values, text: default, .. } = (key.slot)(&mut usual);
            Row { name: key.name, values, default, help: key.help }
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
