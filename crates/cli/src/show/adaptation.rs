//! The interfaces that `auto` has changed to: as lines for people, and as metrics.

use std::collections::BTreeMap;
use std::fmt::Write;

use qpair_kernel::adaptations;
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
    let mut metric = |name: &str, kind: &str, help: &str, values: Vec<(String, u64)>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    };
    let of = |one: &Adapted| format!("device=\"{}\"", escaped(&one.device));
    let changes = all.iter().map(|one| (of(one), one.changes)).collect();
    let help = "Changes of the interface by auto, of all channels of the device";
    metric("qpair_auto_changes_total", "counter", help, changes);
    let channels = all.iter().flat_map(|one| {
        let ways = one.channels.iter();
        ways.map(move |(way, count)| (format!("{},mode=\"{}\"", of(one), escaped(way)), *count))
    });
    let help = "Channels that are on an interface now";
    metric("qpair_auto_channels", "gauge", help, channels.collect());
    let reasons =
        all.iter().map(|one| (format!("{},why=\"{}\"", of(one), escaped(&one.why)), 1)).collect();
    metric("qpair_auto_reason_info", "gauge", "The reason for the interface", reasons);
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
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
