//! The line of JSON that a published store sends.

use std::collections::BTreeMap;
use std::fmt::Write;

use qpair_engine::{Metrics, TransactionInfo, TransactionState};
use qpair_kernel::AdaptationState;

/// Returns one line, with its end.
pub(crate) fn snapshot(
    store: &str,
    uptime_s: f64,
    metrics: &Metrics,
    open: &[TransactionInfo],
    ages_s: &BTreeMap<u64, f64>,
    auto: &[(String, AdaptationState)],
) -> String {
    let transactions: Vec<String> = open
        .iter()
        .map(|info| {
            let age_s = ages_s.get(&info.id).copied().unwrap_or(0.0);
            let snapshot = info.snapshot.map(|timestamp| metrics.last_timestamp.saturating_sub(timestamp));
            let number = |value: Option<u64>| value.map_or("null".to_owned(), |v| v.to_string());
            format!(
                "{{\"id\":{},\"name\":{},\"worker\":{},\"age_s\":{age_s:.3},\"age_commits\":{},\"snapshot_age_commits\":{},\"locks\":{},\"write_set_bytes\":{},\"state\":\"{}\"}}",
                info.id,
                info.name.as_deref().map_or("null".to_owned(), string),
                number(info.worker.map(|worker| worker as u64)),
                info.age_commits,
                number(snapshot),
                info.locks,
                info.write_set_bytes,
                match info.state {
                    TransactionState::Active => "active",
                    TransactionState::Waiting => "waiting",
                    TransactionState::Committing => "committing",
                    _ => "unknown",
                }
            )
        })
        .collect();
    format!(
        "{{\"store\":{},\"pid\":{},\"uptime_s\":{uptime_s:.3},\"metrics\":{},\"transactions\":[{}],\"auto\":[{}]}}\n",
        string(store),
        std::process::id(),
        metrics.to_json(),
        transactions.join(","),
        auto.iter().map(adaptation).collect::<Vec<_>>().join(",")
    )
}

/// Returns the present ways to a device.
fn adaptation((device, state): &(String, AdaptationState)) -> String {
    let channels = state.channels.iter().map(|(way, count)| format!("\"{way}\":{count}"));
    format!(
        "{{\"device\":{},\"channels\":{{{}}},\"changes\":{},\"why\":{}}}",
        string(device),
        channels.collect::<Vec<_>>().join(","),
        state.changes,
        string(&state.why)
    )
}

fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Writing to a string cannot fail.
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string("a \"b\"\\\n\u{7f}ü"), "\"a \\\"b\\\"\\\\\\u000a\\u007fü\"");
    }
}
