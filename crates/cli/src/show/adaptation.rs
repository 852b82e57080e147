//! The interfaces that `auto` has changed to: as lines for people, and as metrics.

use std::collections::BTreeMap;

use qpair_kernel::adaptations;
use qpair_serve::{escaped, put_metric};
use serde_json::Value;

/// The present interfaces of a device, as a program tells them of itself or publishes them.
#[derive(Debug)]
pub(crate) struct Adapted {
    pub(crate) device: String,
    /// The number of channels on each interface.
    pub(crate) channels: BTreeMap<String, u64>,
    pub(crate) changes: u64,
    pub(crate) why: String,
}

impl Adapted {
    /// Returns those of this process.
    pub(crate) fn here() -> Vec<Self> {
        let open = adaptations().into_iter();
        open.map(|(device, state)| {
            let channels = state.channels.iter();
            Self {
                device,
                channels: channels.map(|(way, count)| (way.to_string(), (*count).into())).collect(),
                changes: state.changes,
                why: state.why,
            }
        })
        .collect()
    }

    /// Parses what a store publishes. Missing values are empty, as another version may tell less.
    pub(crate) fn read(told: &Value) -> Vec<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = told.as_array().into_iter().flatten();
        all.map(|one| {
            let channels = one["channels"].as_object().into_iter().flatten();
            Self {
                device: text(&one["device"]),
                channels: channels
                    .map(|(way, count)| (way.clone(), count.as_u64().unwrap_or_default()))
                    .collect(),
                changes: one["changes"].as_u64().unwrap_or_default(),
                why: text(&one["why"]),
            }
        })
        .collect()
    }

    /// Returns the interfaces, with the number of channels where they differ.
    pub(crate) fn interfaces(&self) -> String {
        let words = self.channels.iter().map(|(way, count)| match self.channels.len() {
            1 => way.clone(),
            _ => format!("{way} ({count})"),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Returns metrics in the format of Prometheus; nothing if no interface may change.
pub(crate) fn prometheus(all: &[Adapted]) -> String {
    let mut out = String::new();
    if all.is_empty() {
        return out;
    }
    let of = |one: &Adapted, more: &str| format!("{{device=\"{}\"{more}}}", escaped(&one.device));
    let changes: Vec<_> = all.iter().map(|one| (of(one, ""), one.changes as f64)).collect();
    let help = "Changes of the interface by auto, of all channels of the device";
    put_metric(&mut out, "qpair_auto_changes_total", help, "counter", &changes);
    let channels = all.iter().flat_map(|one| {
        let mode = |way: &String| format!(",mode=\"{}\"", escaped(way));
        one.channels.iter().map(move |(way, count)| (of(one, &mode(way)), *count as f64))
    });
    let (help, channels) = ("Channels that are on an interface now", channels.collect::<Vec<_>>());
    put_metric(&mut out, "qpair_auto_channels", help, "gauge", &channels);
    let why = |one: &Adapted| format!(",why=\"{}\"", escaped(&one.why));
    let reasons: Vec<_> = all.iter().map(|one| (of(one, &why(one)), 1.0)).collect();
    let help = "The reason for the interface";
    put_metric(&mut out, "qpair_auto_reason_info", help, "gauge", &reasons);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_tells_becomes_metrics() {
        let told = serde_json::json!([{
            "device": "/a \"b\"", "channels": {"io_uring": 1, "libaio": 2}, "changes": 5, "why": "it is cheaper"
        }]);
        let all = Adapted::read(&told);
        assert_eq!(all[0].interfaces(), "io_uring (1), libaio (2)");
        let text = prometheus(&all);
        assert!(text.contains("qpair_auto_changes_total{device=\"/a \\\"b\\\"\"} 5\n"), "{text}");
        assert!(text.contains("mode=\"libaio\"} 2\n"), "{text}");
        assert!(text.contains("why=\"it is cheaper\"} 1\n"), "{text}");
        assert_eq!(prometheus(&Adapted::read(&Value::Null)), "");
    }
}
