//! JSON that keeps the order of its keys, because people compare it with fio's.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

pub(super) enum Json {
    Object(Object),
    List(Vec<Json>),
    Value(Value),
}

#[derive(Default)]
pub(super) struct Object(Vec<(String, Json)>);

impl Object {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns the object with one more key, which must be new.
    pub(super) fn with(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.0.push((key.into(), value.into()));
        self
    }

    pub(super) fn with_some(self, key: &str, value: Option<impl Into<Json>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }
}

impl<K: Into<String>, V: Into<Json>> FromIterator<(K, V)> for Object {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(list: Vec<T>) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}

macro_rules! values {
    ($($of:ty),*) => {$(
        impl From<$of> for Json {
            fn from(value: $of) -> Self {
                Self::Value(Value::from(value))
            }
        }
    )*};
}
values!(u64, u32, i32, f64, bool, &str, String, Option<u64>, Option<f64>);

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl From<Json> for Value {
    fn from(json: Json) -> Self {
        match json {
            Json::Value(value) => value,
            Json::List(list) => list.into_iter().map(Self::from).collect(),
            Json::Object(Object(pairs)) => {
                Self::Object(pairs.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.0.len()))?;
                for (key, value) in &object.0 {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
