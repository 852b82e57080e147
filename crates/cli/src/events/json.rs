//! Formats an event as a JSON object on one line: the name as `event`, the time, level and crate,
//! and the fields.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::show::output::say;

pub(super) struct JsonLines;

impl<S: Subscriber> Layer<S> for JsonLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        let mut object = fields(event);
        let name = about.target().split("::").next().unwrap_or_default();
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        object.insert("event".to_owned(), about.name().into());
        object.insert("level".to_owned(), about.level().as_str().into());
        object.insert("crate".to_owned(), name.into());
        object.insert("time_s".to_owned(), time_s.as_secs_f64().into());
        // The reader may have gone: guests are served even so.
        let _ = say(Value::Object(object).to_string());
    }
}

/// Returns the fields of an event, with its text as `message`.
pub(super) fn fields(event: &Event<'_>) -> Map<String, Value> {
    let mut fields = Fields(Map::new());
    event.record(&mut fields);
    fields.0
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}
