//! JSON lines: one object a line.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::lines::Lines;
use super::record::{ReadError, ReadRecord, Record};

/// Reads records from JSON lines.
pub(crate) struct JsonReader<R> {
    lines: Lines<R>,
    key: String,
    /// Empty: the whole line.
    values: Vec<String>,
}

impl<R: BufRead> JsonReader<R> {
    pub(crate) fn new(input: R, key: &str, values: &[String]) -> Self {
        Self { lines: Lines::new(input), key: key.to_owned(), values: values.to_vec() }
    }
}

impl<R: BufRead + Send> ReadRecord for JsonReader<R> {
    fn read(&mut self, record: &mut Record) -> Result<Option<u64>, ReadError> {
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        let text = text.trim_ascii();
        if line == 1 && text.starts_with(b"[") {
            return Err(ReadError::Layout {
                why: "a JSON array, where one object a line is wanted".to_owned(),
                hint: "take it apart first: jq -c '.[]' FILE | qpair load STORE - --format json"
                    .to_owned(),
            });
        }
        let bad = |why: String| ReadError::Bad { line, why };
        let parsed: Value = serde_json::from_slice(text).map_err(|error| {
            bad(format!("no JSON: {}", error.to_string().replace(" at line 1 column", " at byte")))
        })?;
        let field = |name: &str| {
            find(&parsed, name).ok_or_else(|| bad(format!("there is no field \"{name}\"")))
        };
        match field(&self.key)? {
            Value::Array(_) | Value::Object(_) | Value::Null => {
                return Err(bad(format!("field \"{}\" is no string or number", self.key)));
            }
            scalar => write_plain(&mut record.key, scalar),
        }
        match &self.values[..] {
            [] => record.value.extend_from_slice(text),
            [one] => write_plain(&mut record.value, field(one)?),
            several => {
                let mut object = Map::new();
                for name in several {
                    object.insert(name.clone(), field(name)?.clone());
                }
                write_plain(&mut record.value, &Value::Object(object));
            }
        }
        Ok(Some(line))
    }
}

/// A field by name, or by the names on the way to it with dots between; elements of arrays by number, from 0.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    if let Some(found) = value.get(name) {
        return Some(found);
    }
    name.split('.').try_fold(value, |value, part| match value {
        Value::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    })
}

/// Strings as they are, the rest as JSON.
fn write_plain(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
}
