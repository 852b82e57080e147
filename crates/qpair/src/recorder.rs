//! Passes metrics to the recorder that the program has installed (the `metrics` crate).

use qpair_engine::{Metrics, SampleValue};

/// Passes the metrics of a store to the installed recorder, as `qpair_...` with the label `store`.
/// Call it whenever the figures should be updated. For durations it passes their number, sum and
/// maximum.
pub fn record_metrics(store: &str, metrics: &Metrics) {
    let labels = [("store", store.to_owned())];
    for sample in metrics.samples() {
        let name = format!("qpair_{}", sample.name);
        match sample.value {
            SampleValue::Counter(value) => metrics::counter!(name, &labels).absolute(value),
            SampleValue::Gauge(value) => metrics::gauge!(name, &labels).set(value),
            SampleValue::Histogram(histogram) => {
                metrics::counter!(format!("{name}_count"), &labels).absolute(histogram.count());
                metrics::counter!(format!("{name}_sum"), &labels).absolute(histogram.sum_us());
                metrics::gauge!(format!("{name}_max"), &labels).set(histogram.max_us() as f64);
            }
        }
    }
}
