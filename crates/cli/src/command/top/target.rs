//! One look at a target, through its metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use qpair_serve::MetricsAddress;
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::show::text::{count, size};

pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
const INCIDENTS: [(&str, &str); 2] =
    [("resets", "resets of the device"), ("timeouts", "requests that it did not answer in time")];

/// The reported values, by the metric's name and its labels.
pub(super) struct Look {
    at: Instant,
    values: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Queries the target. Returns the text as received, and the values in it.
pub(super) fn ask(address: &MetricsAddress) -> Result<(String, Look)> {
    let answer = fetch(address).map_err(|error| {
        Failure::io(&error, address)
            .hint("start the target with --metrics, and give the same address here")
    })?;
    let body = answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 200"));
    let Some((_, body)) = body else {
        return Err(Failure::new(Exit::Failed, format!("{address} answers, but not with metrics")));
    };
    let mut values: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.rsplit_once(' ') else { continue };
        let (name, labels) = key.split_once('{').unwrap_or((key, ""));
        let labels = labels.trim_end_matches('}').to_owned();
        let value = value.parse().unwrap_or_default();
        values.entry(name.to_owned()).or_default().insert(labels, value);
    }
    Ok((body.to_owned(), Look { at: Instant::now(), values }))
}

fn fetch(address: &MetricsAddress) -> std::io::Result<String> {
    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: target\r\n\r\n";
    fn exchange(mut stream: impl Read + Write) -> std::io::Result<String> {
        stream.write_all(REQUEST)?;
        std::io::read_to_string(stream)
    }
    match address {
        MetricsAddress::Path(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream)
        }
        MetricsAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream)
        }
    }
}

impl Look {
    fn value(&self, name: &str, labels: &str) -> f64 {
        let of = self.values.get(name).and_then(|of| of.get(labels));
        of.copied().unwrap_or_default()
    }

    /// Returns the increase of a counter per second since `before`, or its value if there is no
    /// `before`.
    fn rate(&self, before: Option<&Self>, name: &str, labels: &str) -> f64 {
        let now = self.value(name, labels);
        before.map_or(now, |before| {
            let past_s = (self.at - before.at).as_secs_f64().max(1e-3);
            (now - before.value(name, labels)).max(0.0) / past_s
        })
    }

    pub(super) fn json(&self) -> Value {
        let of = |labels: &BTreeMap<String, f64>| -> Value {
            let pairs = labels.iter().map(|(label, value)| (label.clone(), json!(value)));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        let all = self.values.iter().map(|(name, labels)| (name.clone(), of(labels)));
        Value::Object(all.collect::<Map<_, _>>())
    }

    pub(super) fn text(&self, before: Option<&Self>) -> String {
        let per = if before.is_some() { "a second" } else { "since the start" };
        let mut text = String::new();
        match before {
            Some(_) => {
                let percent = 100.0 * self.rate(before, "process_cpu_seconds_total", "");
                text += &format!("{percent:.1} % of a processor\n");
            }
            None => {
                let cpu_s = self.value("process_cpu_seconds_total", "");
                text += &format!("{cpu_s:.1} s of processor time\n");
            }
        }
        for worker in self.values.get("qpair_worker_queues").into_iter().flat_map(BTreeMap::keys) {
            let busy = self.rate(before, "qpair_worker_busy_seconds_total", worker);
            let idle = self.rate(before, "qpair_worker_idle_seconds_total", worker);
            let percent = 100.0 * busy / (busy + idle).max(1e-9);
            let number = label(worker, "worker").unwrap_or_default();
            let queues = self.value("qpair_worker_queues", worker);
            text += &format!("worker {number}: {percent:.1} % awake, {queues} queues\n");
        }
        text += &format!(
            "\n{:<20} {:<6} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8} {:>9} {:>9}   {per}\n",
            "DISK",
            "GUEST",
            "READS",
            "BYTES",
            "WRITES",
            "BYTES",
            "FLUSHES",
            "ERRORS",
            "KICKS",
            "CALLS"
        );
        let mut incidents = String::new();
        for disk in self.values.get("qpair_disk_guests").into_iter().flat_map(BTreeMap::keys) {
            let name = label(disk, "export").unwrap_or_default();
            for (counter, what) in INCIDENTS {
                let times = self.value(&format!("qpair_disk_{counter}_total"), disk) as u64;
                if times > 0 {
                    incidents += &format!("{name}: {what} since the start: {}\n", count(times));
                }
            }
            let rate =
                |name: &str| self.rate(before, &format!("qpair_disk_{name}_total"), disk) as u64;
            let guest = if self.value("qpair_disk_guests", disk) > 0.0 { "yes" } else { "no" };
            text += &format!(
                "{:<20} {guest:<6} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8} {:>9} {:>9}\n",
                name,
                count(rate("reads")),
                size(rate("read_bytes")),
                count(rate("writes")),
                size(rate("written_bytes")),
                count(rate("flushes")),
                count(rate("errors")),
                count(rate("kicks")),
                count(rate("calls")),
            );
        }
        text + &incidents
    }
}

fn label(labels: &str, name: &str) -> Option<String> {
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.to_owned())
}
