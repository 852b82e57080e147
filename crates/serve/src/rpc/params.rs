//! The parameters of a call: they are read by name, and none may be left over.

use qpair_block::{Error, ErrorKind};
use serde_json::{Map, Value};

/// The failure of a call, as its answer reports it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: i64,
    pub(super) message: String,
}

impl Failure {
    pub(super) const PARSE: i64 = -32700;
    pub(super) const REQUEST: i64 = -32600;
    pub(super) const METHOD: i64 = -32601;
    pub(super) const PARAMS: i64 = -32602;

    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(Self::PARAMS, message)
    }
}

/// The code is the negative errno, as in SPDK.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            // ENODEV: there is no device of this name. ENOENT would mean a file.
            ErrorKind::NotFound => -19,
            ErrorKind::Exists => -17,
            ErrorKind::Busy => -16,
            ErrorKind::Invalid => -22,
            ErrorKind::NoSpace => -28,
            ErrorKind::Denied => -13,
            ErrorKind::Unsupported => -95,
            _ => -5,
        };
        // The message includes the remedy.
        Self { code, message: error.to_string() }
    }
}

/// Makes SPDK's answer of an error of NVMe subsystems: a missing subsystem or an invalid value is a
/// wrong parameter.
pub(super) fn failed(error: Error) -> Failure {
    use ErrorKind::{Invalid, NotFound};
    match error.kind() {
        NotFound | Invalid => Failure::params(error.to_string()),
        _ => error.into(),
    }
}

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The parameters of one call.
pub(super) struct Params(Map<String, Value>);

impl Params {
    pub(super) fn new(params: Option<Value>) -> Result<Self> {
        match params {
            None | Some(Value::Null) => Ok(Self(Map::new())),
            // Null counts as absent.
            Some(Value::Object(map)) => {
                Ok(Self(map.into_iter().filter(|(_, value)| !value.is_null()).collect()))
            }
            Some(_) => Err(Failure::params("parameters must be an object")),
        }
    }

    fn take<T>(
        &mut self,
        name: &str,
        what: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let found = read(&value);
        found
            .map(Some)
            .ok_or_else(|| Failure::params(format!("{name} is not of the type {what}: {value}")))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>> {
        self.take(name, "string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>> {
        self.take(name, "number", Value::as_u64)
    }

    pub(super) fn integer(&mut self, name: &str) -> Result<Option<i64>> {
        self.take(name, "number", Value::as_i64)
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool> {
        Ok(self.take(name, "boolean", Value::as_bool)?.unwrap_or(false))
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        self.take(name, "list of strings", |value| {
            let all = value.as_array()?.iter();
            all.map(|value| value.as_str().map(str::to_owned)).collect()
        })
    }

    /// Takes the parameters that are grouped under one name.
    pub(super) fn fields(&mut self, name: &str) -> Result<Self> {
        let found = self.take(name, "object", |value| value.as_object().cloned())?;
        Self::new(Some(Value::Object(Self::needed(name, found)?)))
    }

    pub(super) fn needed<T>(name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Failure::params(format!("{name} is missing")))
    }

    pub(super) fn name(&mut self, name: &str) -> Result<String> {
        let text = self.text(name)?;
        Self::needed(name, text)
    }

    pub(super) fn amount(&mut self, name: &str) -> Result<u64> {
        let number = self.number(name)?;
        Self::needed(name, number)
    }

    /// Checks that no parameter is left.
    pub(super) fn finish(self) -> Result<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Failure::params(format!("there is no parameter {name}"))),
        }
    }
}
