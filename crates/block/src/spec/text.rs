//! The grammar below [`crate::DeviceSpec`]: schemes, members, backslashes.

use std::borrow::Cow;

use crate::seam::error::{Error, ErrorKind, Result};

/// The characters that have a meaning inside brackets.
pub(crate) const IN_BRACKETS: [char; 4] = ['+', '[', ']', '\\'];

/// Splits `word:rest`. A word that contains a slash or a dot is a path, not a scheme.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_word = !scheme.is_empty() && scheme.chars().all(is_word_char);
    is_word.then_some((scheme, rest))
}

/// Whether a path can be written without `file:`.
pub(crate) fn is_plain_path(path: &str) -> bool {
    split_scheme(path).is_none() || is_pci_address(path)
}

/// Whether text has the form `0000:3b:00.0` or `3b:00.0`, with a namespace (`/ns1`) or without.
pub(crate) fn is_pci_address(text: &str) -> bool {
    let is_hex = |digits: &str, len_max: usize| {
        (1..=len_max).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let (address, nsid) = text.rsplit_once("/ns").unwrap_or((text, "1"));
    let parts: Vec<&str> = address.split([':', '.']).collect();
    let is_place = match parts[..] {
        [domain, bus, device, function] => {
            is_hex(domain, 8) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1)
        }
        [bus, device, function] => is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1),
        _ => false,
    };
    let dots = address.bytes().filter(|b| *b == b'.').count();
    is_place
        && dots == 1
        && address.rfind('.') > address.rfind(':')
        && !nsid.is_empty()
        && nsid.bytes().all(|b| b.is_ascii_digit())
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
        Error::new(
            ErrorKind::Invalid,
            format!("the members \"{text}\" of a stripe cannot be read: {why}"),
        )
        .hint("write stripe:unit=64KiB:DEVICE+DEVICE, with brackets around a DEVICE that holds a +")
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

/// Puts a backslash before each of the characters.
pub(crate) fn quote<'a>(text: &'a str, special: &[char]) -> Cow<'a, str> {
    if !text.contains(special) {
        return text.into();
    }
    let mut quoted = String::new();
    for c in text.chars() {
        quoted.extend(special.contains(&c).then_some('\\'));
        quoted.push(c);
    }
    quoted.into()
}

/// Removes the backslashes.
///
/// # Errors
/// `Invalid` if a backslash is the last character.
pub fn unquote(text: &str) -> Result<String> {
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
