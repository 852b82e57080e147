//! The text of an event, for people at a terminal.

use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::json::fields;

pub(super) struct Notes;

impl<S: Subscriber> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(text) = fields(event).get("message").and_then(serde_json::Value::as_str) {
            eprintln!("qpair: note: {text}");
        }
    }
}
