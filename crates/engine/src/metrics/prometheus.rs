//! The text format of Prometheus (exposition format 0.0.4). Its base unit of time is the second.

use std::fmt::Write;

use super::{Sample, SampleValue};

/// Writes metrics in the text format of Prometheus. They come from
/// [`Metrics::samples`](super::Metrics::samples), or from another process.
#[must_use]
pub fn to_prometheus<'a>(samples: impl IntoIterator<Item = Sample<'a>>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{arguments}");
    };
    for sample in samples {
        let base = sample.name.strip_suffix("_us");
        let suffix = match (sample.value, base) {
            (SampleValue::Counter(_), _) => "_total",
            (_, Some(_)) => "_seconds",
            _ => "",
        };
        let name = format!("qpair_{}{suffix}", base.unwrap_or(sample.name));
        let kind = match sample.value {
            SampleValue::Counter(_) => "counter",
            SampleValue::Gauge(_) => "gauge",
            SampleValue::Histogram(_) => "histogram",
        };
        line(format_args!("# HELP {name} {}", sample.help));
        line(format_args!("# TYPE {name} {kind}"));
        match sample.value {
            SampleValue::Counter(value) => line(format_args!("{name} {value}")),
            SampleValue::Gauge(us) if base.is_some() => {
                line(format_args!("{name} {}", us / 1e6));
            }
            SampleValue::Gauge(value) => line(format_args!("{name} {value}")),
            SampleValue::Histogram(histogram) => {
                let mut below = 0;
                for (bound_us, count) in histogram.buckets() {
                    below += count;
                    let bound = bound_us.map_or("+Inf".to_owned(), seconds);
                    line(format_args!("{name}_bucket{{le=\"{bound}\"}} {below}"));
                }
                line(format_args!("{name}_sum {}", seconds(histogram.sum_us())));
                line(format_args!("{name}_count {below}"));
            }
        }
    }
    text
}

fn seconds(us: u64) -> String {
    format!("{}", us as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_seconds() {
        let age = Sample { name: "age_us", help: "Age", value: SampleValue::Gauge(1_500_000.0) };
        assert!(to_prometheus([age]).ends_with("gauge\nqpair_age_seconds 1.5\n"));
    }
}
