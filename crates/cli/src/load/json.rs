//! JSON lines: one object per line.
//!
//! A value that is not a string is loaded with the bytes that the input has for it, and so is a
//! whole line. Numbers keep their digits, and objects keep the order of their fields and their
//! spaces.

use std::borrow::Cow;
use std::fmt;
use std::io::BufRead;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::lines::Lines;
use super::record::{ReadError, ReadRecord, Record, only};
use crate::show::text::decode_hex;

pub(crate) struct JsonReader<R> {
    lines: Lines<R>,
    key: String,
    /// The fields of the value; empty for the whole line.
    values: Vec<String>,
}

impl<R: BufRead> JsonReader<R> {
    pub(crate) fn new(input: R, key: &str, values: &[String]) -> Self {
        Self { lines: Lines::new(input), key: key.to_owned(), values: values.to_vec() }
    }
}

impl<R: BufRead + Send> ReadRecord for JsonReader<R> {
    fn read(&mut self, record: &mut Record) -> Result<Option<Range<u64>>, ReadError> {
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        let text = text.trim_ascii();
        if line == 1 && text.starts_with(b"[") {
            return Err(ReadError::Layout {
                why: "the input is a JSON array, not one object a line".to_owned(),
                hint: "take it apart first: jq -c '.[]' FILE | qpair load STORE - --format json"
                    .to_owned(),
            });
        }
        parse_json(text, &self.key, &self.values, record)
            .map_err(|why| ReadError::Bad { lines: only(line), why })?;
        Ok(Some(only(line)))
    }
}

/// Reads the key and the value of a record from a line.
pub(crate) fn parse_json(
    text: &[u8],
    key: &str,
    values: &[String],
    record: &mut Record,
) -> Result<(), String> {
    let text = std::str::from_utf8(text)
        .map_err(|error| format!("the line is not UTF-8 at byte {}", error.valid_up_to() + 1))?;
    let object: Object<'_> = serde_json::from_str(text).map_err(|error| in_words(&error))?;
    let field = object.field(key)?;
    if matches!(field.value.get().as_bytes(), [b'{' | b'[' | b'n', ..]) {
        return Err(format!("field \"{key}\" is not a string or number"));
    }
    field.write_bytes(&mut record.key)?;
    match values {
        [] => record.value.extend_from_slice(text.as_bytes()),
        [one] => object.field(one)?.write_bytes(&mut record.value)?,
        several => {
            for (place, name) in several.iter().enumerate() {
                let Field { name, value, .. } = object.field(name)?;
                let name = serde_json::to_string(&name).map_err(|error| in_words(&error))?;
                record.value.push(if place == 0 { b'{' } else { b',' });
                for part in [&name, ":", value.get()] {
                    record.value.extend_from_slice(part.as_bytes());
                }
            }
            record.value.push(b'}');
        }
    }
    Ok(())
}

fn in_words(error: &serde_json::Error) -> String {
    format!(
        "the line is not a JSON object: {}",
        error.to_string().replace(" at line 1 column", " at byte")
    )
}

/// The fields of an object, as written in the input.
struct Object<'a>(Vec<(Name<'a>, &'a RawValue)>);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

struct Field<'a> {
    name: String,
    value: &'a RawValue,
    /// Whether the field's bytes are written as hexadecimal digits.
    is_hex: bool,
}

impl<'a> Object<'a> {
    /// Returns the field `name`, or else the field `name_hex`, whose value has hexadecimal digits.
    fn field(&self, name: &str) -> Result<Field<'a>, String> {
        if let Some(value) = self.find(name)? {
            return Ok(Field { name: name.to_owned(), value, is_hex: false });
        }
        let with_hex = format!("{name}_hex");
        match self.find(&with_hex)? {
            Some(value) => Ok(Field { name: with_hex, value, is_hex: true }),
            None => Err(format!("there is no field \"{name}\"")),
        }
    }

    /// Finds a field by its name, or by a path of names separated by dots. Elements of arrays are
    /// named by their number, from 0.
    fn find(&self, name: &str) -> Result<Option<&'a RawValue>, String> {
        if let Some(found) = self.member(name)? {
            return Ok(Some(found));
        }
        let Some((first, rest)) = name.split_once('.') else { return Ok(None) };
        let mut found = self.member(first)?;
        for part in rest.split('.') {
            let Some(outer) = found else { break };
            found = inner(outer, part)?;
        }
        Ok(found)
    }

    fn member(&self, name: &str) -> Result<Option<&'a RawValue>, String> {
        let mut found = self.0.iter().filter(|(title, _)| title.0 == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("field \"{name}\" is there more than once")),
            (first, None) => Ok(first.map(|(_, value)| *value)),
        }
    }
}

fn inner<'a>(outer: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, String> {
    match outer.get().as_bytes() {
        [b'{', ..] => {
            let object: Object<'a> =
                serde_json::from_str(outer.get()).map_err(|error| in_words(&error))?;
            object.member(name)
        }
        [b'[', ..] => {
            let elements: Vec<&'a RawValue> =
                serde_json::from_str(outer.get()).map_err(|error| in_words(&error))?;
            let index = name.parse::<usize>().ok();
            Ok(index.and_then(|index| elements.get(index).copied()))
        }
        _ => Ok(None),
    }
}

impl Field<'_> {
    /// Appends the content of a string, or the bytes of any other value as they are.
    fn write_bytes(&self, out: &mut Vec<u8>) -> Result<(), String> {
        let text = self.value.get();
        if !text.starts_with('"') {
            if self.is_hex {
                return Err(format!("field \"{}\" is not a string", self.name));
            }
            out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        let Name(string) = serde_json::from_str(text)
            .map_err(|error| format!("field \"{}\" is not a string: {error}", self.name))?;
        if self.is_hex {
            let bytes = decode_hex(string.as_bytes());
            out.extend(bytes.ok_or_else(|| {
                format!("field \"{}\" is not an even number of hexadecimal digits", self.name)
            })?);
        } else {
            out.extend_from_slice(string.as_bytes());
        }
        Ok(())
    }
}
