//! Metrics as a JSON object.

use super::{Sample, SampleValue};

pub(super) fn to_json<'a>(samples: impl IntoIterator<Item = Sample<'a>>) -> String {
    let samples: Vec<String> = samples
        .into_iter()
        .map(|sample| match sample.value {
            SampleValue::Counter(value) => format!("\"{}\":{value}", sample.name),
            SampleValue::Gauge(value) => format!("\"{}\":{value}", sample.name),
            SampleValue::Histogram(histogram) => {
                let buckets: Vec<String> =
                    histogram.buckets().map(|(_, count)| count.to_string()).collect();
                format!(
                    "\"{}\":{{\"count\":{},\"sum\":{},\"max\":{},\"p50\":{},\"p99\":{},\"buckets\":[{}]}}",
                    sample.name,
                    histogram.count(),
                    histogram.sum_us(),
                    histogram.max_us(),
                    histogram.quantile_us(0.5),
                    histogram.quantile_us(0.99),
                    buckets.join(",")
                )
            }
        })
        .collect();
    format!("{{{}}}", samples.join(","))
}
