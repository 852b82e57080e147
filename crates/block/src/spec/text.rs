//! The grammar of [`crate::DeviceSpec`]: schemes, options, members, backslashes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::str::FromStr;

use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::size::parse_bytes;

/// Splits `word:rest`. A word that contains a slash or a dot is a path, not a scheme.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_word = !scheme.is_empty() && scheme.chars().all(is_word_char);
    is_word.then_some((scheme, rest))
}

/// Whether a path can be written without `file:`.
pub(crate) fn is_plain_path(path: &str) -> bool {
    split_scheme(path).is_none()
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Splits `key=value,...:rest`. The options are empty if the text does not start with a key.
pub(crate) fn split_options(text: &str) -> (&str, &str) {
    let key_end = text.find(|c| !is_word_char(c)).unwrap_or(text.len());
    if key_end == 0 || !text[key_end..].starts_with('=') {
        return ("", text);
    }
    text.split_once(':').unwrap_or((text, ""))
}

/// Splits the members of a stripe at `+`. The `bool` says whether the member was in brackets.
pub(crate) fn split_members(text: &str) -> Result<Vec<(&str, bool)>> {
    let invalid = |why: &str| {
        Error::new(ErrorKind::Invalid, format!("members \"{text}\" of a stripe: {why}")).hint(
            "write stripe:unit=64KiB:DEVICE+DEVICE, with brackets around a DEVICE that holds a +",
        )
    };
    let (mut members, mut rest) = (Vec::new(), text);
    loop {
        let after = if let Some(bracketed) = rest.strip_prefix('[') {
            let end = closing(bracketed).ok_or_else(|| invalid("a bracket is not closed"))?;
            members.push((&bracketed[..end], true));
            &bracketed[end + 1..]
        } else {
            let end = rest.find('+').unwrap_or(rest.len());
            if end == 0 {
                return Err(invalid("a member is missing"));
            }
            members.push((&rest[..end], false));
            &rest[end..]
        };
        rest = match after.strip_prefix('+') {
            Some(rest) => rest,
            None if after.is_empty() => return Ok(members),
            None => return Err(invalid("a bracket ends inside a member")),
        };
    }
}

/// Returns the position of the bracket that matches the one at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut skip) = (1, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if skip => skip = false,
            '\\' => skip = true,
            '[' => depth += 1,
            ']' if depth == 1 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Puts a backslash before each character with a meaning inside brackets.
pub(crate) fn quote(path: &str) -> Cow<'_, str> {
    if !path.contains(['+', '[', ']', '\\']) {
        return path.into();
    }
    let mut quoted = String::new();
    for c in path.chars() {
        if matches!(c, '+' | '[' | ']' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.into()
}

/// Removes the backslashes.
pub(crate) fn unquote(text: &str) -> Result<String> {
    let (mut path, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => path.push(chars.next().ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("\"{text}\" ends with a backslash"))
            })?),
            _ => path.push(c),
        }
    }
    Ok(path)
}

/// The options of one device, which are taken key by key. Keys left over at the end are unknown.
pub(crate) struct Options<'a> {
    scheme: &'static str,
    pairs: Vec<(&'a str, &'a str)>,
    known: Vec<&'static str>,
}

impl<'a> Options<'a> {
    pub(crate) fn parse(scheme: &'static str, text: &'a str) -> Result<Self> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for option in text.split(',').filter(|_| !text.is_empty()) {
            let Some((key, value)) = option.split_once('=') else {
                let context = format!("option \"{option}\" of {scheme}: has no value");
                return Err(Error::new(ErrorKind::Invalid, context)
                    .hint(format!("write {scheme}:key=value,key=value")));
            };
            if pairs.iter().any(|(other, _)| *other == key) {
                let context = format!("option {key} of {scheme} is given twice");
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            pairs.push((key, value));
        }
        Ok(Self { scheme, pairs, known: Vec::new() })
    }

    fn take(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        let at = self.pairs.iter().position(|(given, _)| *given == key)?;
        Some(self.pairs.swap_remove(at).1)
    }

    fn invalid(&self, key: &str, value: &str, wanted: &str) -> Error {
        let context = format!("option {key}={value} of {}:", self.scheme);
        Error::new(ErrorKind::Invalid, context).hint(format!("{key} is {wanted}"))
    }

    pub(crate) fn value<T: FromStr>(
        &mut self,
        key: &'static str,
        wanted: &str,
        target: &mut T,
    ) -> Result<()> {
        if let Some(value) = self.take(key) {
            *target = value.parse().map_err(|_| self.invalid(key, value, wanted))?;
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, key: &'static str, target: &mut u64) -> Result<()> {
        if let Some(value) = self.take(key) {
            *target = parse_bytes(value)
                .map_err(|e| self.invalid(key, value, "a size such as 64KiB").caused_by(e))?;
        }
        Ok(())
    }

    pub(crate) fn block(&mut self, key: &'static str, target: &mut u32) -> Result<()> {
        let mut bytes = u64::from(*target);
        self.bytes(key, &mut bytes)?;
        *target = u32::try_from(bytes)
            .map_err(|_| self.invalid(key, &bytes.to_string(), "a size below 4GiB"))?;
        Ok(())
    }

    pub(crate) fn rate(&mut self, key: &'static str, target: &mut f64) -> Result<()> {
        let wanted = "a probability from 0 to 1";
        self.value(key, wanted, target)?;
        if !(0.0..=1.0).contains(target) {
            return Err(self.invalid(key, &target.to_string(), wanted));
        }
        Ok(())
    }

    /// Refuses options that the device has not taken.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((key, _)) = self.pairs.first() else { return Ok(()) };
        let mut known = String::new();
        for key in &self.known {
            let _ = write!(known, "{}{key}", if known.is_empty() { "" } else { ", " });
        }
        let context = format!("unknown option \"{key}\" of {}:", self.scheme);
        Err(Error::new(ErrorKind::Invalid, context).hint(format!("known are {known}")))
    }
}
