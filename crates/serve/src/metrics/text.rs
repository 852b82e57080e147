//! The counters as the text that Prometheus reads (exposition format 0.0.4).

use std::fmt::Write;

use rustix::time::{ClockId, clock_gettime};

use crate::disk::{Disk, DiskCounters};
use crate::target::{ExportInfo, Target};

/// A counter of a disk: its name, its description, and the field with its value.
type OfDisk = (&'static str, &'static str, fn(&DiskCounters) -> u64);

const OF_DISKS: [OfDisk; 13] = [
    ("requests", "Requests taken from rings", |it| it.requests),
    ("reads", "Reads that succeeded", |it| it.reads),
    ("read_bytes", "Bytes read", |it| it.read_bytes),
    ("writes", "Writes that succeeded", |it| it.writes),
    ("written_bytes", "Bytes written", |it| it.written_bytes),
    ("flushes", "Flushes that succeeded", |it| it.flushes),
    ("discards", "Discards and write-zeroes that succeeded", |it| it.discards),
    ("errors", "Requests that the device answered with an error", |it| it.errors),
    ("timeouts", "Requests that had no answer in time, or were taken back", |it| it.timeouts),
    ("bounced", "Requests that were copied: for alignment, or to where the device reaches", |it| {
        it.bounced
    }),
    ("system_calls", "System calls by the channels to the device", |it| it.system_calls),
    ("calls", "Signals to guests", |it| it.calls),
    ("kicks", "Kicks by guests that a worker woke up for", |it| it.kicks),
];

/// Returns the current metrics of a target as text.
pub(super) fn text(target: &Target) -> String {
    let mut out = String::new();
    let mut metric = |name: &str, help: &str, kind: &str, values: &[(String, f64)]| {
        put_metric(&mut out, name, help, kind, values);
    };
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_s = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    let none = String::new();
    metric("process_cpu_seconds_total", "Processor time", "counter", &[(none, cpu_s)]);
    let mut exports = target.exports();
    exports.extend(target.namespaces());
    exports.extend(target.nbd_exports());
    let of = |name: &str, disk: &str| {
        format!("{{export=\"{}\",disk=\"{}\"}}", escaped(name), escaped(disk))
    };
    let disks = || exports.iter().flat_map(|it| it.disks().into_iter().map(move |disk| (it, disk)));
    let counted: Vec<(String, DiskCounters)> =
        disks().map(|(it, disk)| (of(&it.name, &disk.name), disk.counters())).collect();
    for (name, help, counter) in OF_DISKS {
        let values: Vec<(String, f64)> =
            counted.iter().map(|(of, counters)| (of.clone(), counter(counters) as f64)).collect();
        metric(&format!("qpair_disk_{name}_total"), help, "counter", &values);
    }
    let gauge = |value: fn(&ExportInfo, &Disk) -> f64| -> Vec<(String, f64)> {
        disks().map(|(it, disk)| (of(&it.name, &disk.name), value(it, disk))).collect()
    };
    let sizes = gauge(|_, disk| disk.device.size_bytes() as f64);
    metric("qpair_disk_size_bytes", "Size of a disk", "gauge", &sizes);
    let resets = gauge(|_, disk| disk.device.resets() as f64);
    let help = "Resets of the device, and ways to it that were made again";
    metric("qpair_disk_resets_total", help, "counter", &resets);
    let guests = gauge(|it, _| f64::from(u8::from(it.has_client)));
    metric("qpair_disk_guests", "Front ends that have a disk", "gauge", &guests);
    let workers = target.workers();
    let of_workers = |value: fn(&crate::WorkerInfo) -> f64| -> Vec<(String, f64)> {
        let label = |number| format!("{{worker=\"{number}\"}}");
        workers.iter().enumerate().map(|(number, it)| (label(number), value(it))).collect()
    };
    let busy = of_workers(|it| it.busy_ns as f64 / 1e9);
    metric("qpair_worker_busy_seconds_total", "Time that a worker did not sleep", "counter", &busy);
    let idle = of_workers(|it| it.idle_ns as f64 / 1e9);
    metric("qpair_worker_idle_seconds_total", "Time that a worker slept", "counter", &idle);
    let queues = of_workers(|it| f64::from(it.queues));
    metric("qpair_worker_queues", "Queues that a worker serves", "gauge", &queues);
    out
}

/// Appends a metric: its name, description and kind, and a line for each pair of labels, in braces
/// or empty, and a value.
pub fn put_metric(out: &mut String, name: &str, help: &str, kind: &str, values: &[(String, f64)]) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in values {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

/// Returns text as it stands between the quotes of a label's value.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
