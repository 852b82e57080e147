//! One look at a store, in Prometheus's format.

use std::collections::BTreeMap;

use qpair::metrics::{Histogram, Metrics, Sample, SampleValue, to_prometheus};
use serde_json::Value;

use crate::show::adaptation::{self, Adapted};

/// Returns the text that `Metrics::to_prometheus` would return in the store's own process, with the
/// interfaces that `auto` took. Metrics that only one of the two versions knows are left out.
pub(super) fn text(all: &Value) -> String {
    let (known, told) = (Metrics::default(), &all["metrics"]);
    let histograms: BTreeMap<&str, Histogram> = known
        .samples()
        .filter_map(|sample| Some((sample.name, histogram(&told[sample.name])?)))
        .collect();
    let mut text = to_prometheus(known.samples().filter_map(|sample| {
        let value = &told[sample.name];
        let value = match sample.value {
            SampleValue::Counter(_) => SampleValue::Counter(value.as_u64()?),
            SampleValue::Gauge(_) => SampleValue::Gauge(value.as_f64()?),
            SampleValue::Histogram(_) => SampleValue::Histogram(histograms.get(sample.name)?),
        };
        Some(Sample { value, ..sample })
    }));
    text.push_str(&adaptation::prometheus(&Adapted::read(&all["auto"])));
    text
}

fn histogram(told: &Value) -> Option<Histogram> {
    let buckets = told["buckets"].as_array()?;
    let counts = buckets.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
    Histogram::from_counts(&counts, told["sum"].as_u64()?, told["max"].as_u64()?)
}
